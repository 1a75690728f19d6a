"""What the evaluation does and does not show."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from cl_lightning.report.layout import Cell, Column, with_title

VERDICT_COLOURS = {"satisfied": "green", "violated": "red", "unknown": "yellow"}


ORDER = 7  # among the tables of a run


def line(results: Mapping[str, Any]) -> list[str]:
    """The rules that were violated, and those of which the program cannot know; and by what causality was."""
    said = []
    for verdict in ("violated", "unknown"):
        rules = [finding["rule"] for finding in results["card"] if finding["verdict"] == verdict]
        said += [f"{verdict}: {', '.join(rules)}"] if rules else []
    by_rule = {finding["rule"]: finding for finding in results["card"]}
    lines = [f"Card: {'; '.join(said)}"] if said else []
    if "causality" in by_rule and by_rule["causality"]["verdict"] == "violated":
        lines.append(f"Causality: {by_rule['causality']['evidence']}")
    return lines


def table(results: Mapping[str, Any], width: int) -> list[RenderableType]:
    columns = [Column(head, text=True) for head in ("rule", "verdict", "evidence")]
    rows: list[list[Cell]] = []
    for finding in results["card"]:
        verdict = Text(finding["verdict"], VERDICT_COLOURS[finding["verdict"]])
        rows.append([finding["rule"], verdict, finding["evidence"]])
    return with_title("Card: what this evaluation does and does not show", columns, rows, width)
