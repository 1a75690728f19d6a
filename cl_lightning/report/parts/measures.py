"""Measures besides accuracy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import RenderableType

from cl_lightning.report.layout import Column, three_digits, with_title

ORDER = 2  # among the tables of a run


def table(results: Mapping[str, Any], width: int) -> list[RenderableType]:
    """A row a measure, means over tasks: of tasks about to be learned, just learned, and of all at the
    end."""
    rows = []
    for name, matrix in results["measures"].items():
        tasks = range(len(matrix[0]))
        looks = ([matrix[j][j] for j in tasks], [matrix[j + 1][j] for j in tasks], matrix[-1])
        means = [None if None in look else sum(map(float, look)) / len(look) for look in looks]
        unit = "" if name in ("brier", "confidence") else ", nats"
        rows.append([name.replace("_", " ") + unit, *map(three_digits, means)])
    heads = [Column("measure", text=True), *map(Column, ("before learning", "just learned", "at the end"))]
    return with_title("Measures, means over tasks (results.json has matrices)", heads, rows, width)
