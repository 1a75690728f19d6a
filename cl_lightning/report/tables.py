"""What a run shows at its end, read from its results.json."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType

from cl_lightning.evaluation.scenario import Scenario, scenario_in
from cl_lightning.report.layout import new_console
from cl_lightning.report.parts import found


def show(
    results: Mapping[str, Any], folder: Path, note: str | None = None, console: Console | None = None
) -> None:
    """Print the accuracy matrix, metrics and costs of a run, and where it lies."""
    console = console or new_console()
    line = headline(
        results["learner"],
        results["stream"]["name"],
        len(results["stream"]["tasks"]),
        results["config"]["stream"].get("head"),
        scenario_in(results["stream"]["tasks"], results["needs"]),
        results["seed"],
    )
    console.print(f"\n{line}", style="bold", highlight=False, markup=False, soft_wrap=True)
    for part in parts_of(results, console.width):
        console.print(part)
    if note:
        console.print(
            f"This run is from another version: {note} Start afresh with resume=false.",
            highlight=False,
        )
    console.print(f"Results: {folder / 'results.json'}", highlight=False, soft_wrap=True)


def headline(
    learner: str, stream: str, tasks: int, head: str | None, scenario: Scenario | None, seed: int
) -> str:
    """What learns what, and under which rules.

    >>> headline("ewc", "permuted", 20, "domain", Scenario("domain-incremental", "no task ids at test"), 3)
    'ewc on permuted: 20 tasks, domain-incremental (no task ids at test), head mode domain, seed 3'
    """
    rules = [
        f"{tasks} task{'s' * (tasks != 1)}",
        *([str(scenario)] if scenario else []),
        *([f"head mode {head}"] if head else []),
        f"seed {seed}",
    ]
    return f"{learner} on {stream}: {', '.join(rules)}"


def parts_of(results: Mapping[str, Any], width: int) -> list[RenderableType]:
    """All tables that ``report/parts`` has, with their titles. Tasks are counted from 0."""
    return [part for table in found("table").values() for part in table(results, width)]
