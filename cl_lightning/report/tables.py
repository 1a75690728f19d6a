"""What a run shows at its end, read from its results.json."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType

from cl_lightning.evaluation.scenario import Scenario, scenario_in
from cl_lightning.report.layout import new_console, say
from cl_lightning.report.parts import found
from cl_lightning.report.parts.accuracy import FEW


def show(
    results: Mapping[str, Any], folder: Path, note: str | None = None, console: Console | None = None
) -> None:
    """Print all tables of a run, and where it lies."""
    console = console or new_console()
    begin(results, console)
    for part in parts_of(results, console.width):
        console.print(part)
    end(folder, note, console)


def show_end(
    results: Mapping[str, Any], folder: Path, note: str | None = None, console: Console | None = None
) -> None:
    """Print what a run came to in at most 25 lines, and the command that prints the rest."""
    console = console or new_console()
    begin(results, console)
    few = len(results["stream"]["tasks"]) <= FEW
    for part in found("table")["accuracy"](results, console.width) if few else ():
        console.print(part)
    for short in found("line").values():
        for line in short(results):
            say(console, line)
    end(folder, note, console, ", with figures/ beside it" * (folder / "figures").is_dir())
    say(console, f"All tables: python -m cl_lightning.report {shlex.quote(str(folder))}")


def begin(results: Mapping[str, Any], console: Console) -> None:
    stream, config = results["stream"], results["config"]["stream"]
    told = scenario_in(stream["tasks"], results["needs"])
    head, size = config.get("head"), len(stream["tasks"])
    line = headline(results["learner"], stream["name"], size, head, told, results["seed"])
    say(console, f"\n{line}", "bold")


def end(folder: Path, note: str | None, console: Console, beside: str = "") -> None:
    if note:
        say(console, f"This run is from another version: {note} Start afresh with resume=false.")
    say(console, f"Results: {folder / 'results.json'}{beside}")


def headline(
    learner: str, stream: str, tasks: int, head: str | None, scenario: Scenario | None, seed: int
) -> str:
    """What learns what, and under which rules.

    >>> headline("ewc", "permuted", 20, "domain", Scenario("domain-incremental", "no task ids at test"), 3)
    'ewc on permuted: 20 tasks, domain-incremental (no task ids at test), head mode domain, seed 3'
    """
    size = f"{tasks} task{'s' * (tasks != 1)}"
    rules = [size, str(scenario or ""), f"head mode {head}" if head else "", f"seed {seed}"]
    return f"{learner} on {stream}: {', '.join(filter(None, rules))}"


def parts_of(results: Mapping[str, Any], width: int) -> list[RenderableType]:
    """All tables that ``report/parts`` has, with their titles. Tasks are counted from 0."""
    return [part for table in found("table").values() for part in table(results, width)]
