"""What the learner and callbacks logged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import RenderableType

from cl_lightning.report.layout import Column, with_title

ORDER = 4  # among the tables of a run
WORDS = {"learned": "tasks", "batches": "mini-batches"}


def table(results: Mapping[str, Any], width: int) -> list[RenderableType]:
    """A row a name, with its last value."""
    rows = [
        [name, WORDS[axis], str(len(curve)), str(at), "-" if value is None else f"{value:.4g}"]
        for axis, curves in results.get("own", {}).items()
        for name, curve in curves.items()
        for at, value in curve[-1:]
    ]
    words = [Column("logged", text=True), Column("by", text=True)]
    heads = [*words, *map(Column, ("points", "last at", "last"))]
    return with_title("Logged by learner and callbacks", heads, rows, width)
