"""What each task cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import RenderableType

from cl_lightning.report.layout import Column, scaled, with_title

ORDER = 6  # among the tables of a run


def table(results: Mapping[str, Any], width: int) -> list[RenderableType]:
    """A row a task. ``held`` is everything that the learner keeps, ``Mem`` what Veniat et al. 2021 count of
    it, where that differs."""
    costs = results["costs"]
    held, counted = held_and_counted(costs)
    heads = ["task", "held", *(["Mem"] if counted else []), "flops", "executed", "seconds"]
    rows = []
    for cost, own, mem in zip(costs, held, counted or held):
        memory = [scaled(own, "B"), *[scaled(mem, "B")] * bool(counted)]
        work = [scaled(cost["flops"]), scaled(cost["flops_executed"]), f"{seconds_of(cost):.1f}"]
        rows.append([str(cost["task"]), *memory, *work])
    return with_title("Costs, by task", list(map(Column, heads)), rows, width)


def line(results: Mapping[str, Any]) -> list[str]:
    costs = results["costs"]
    if not costs:
        return []
    held, operations = held_and_counted(costs)[0][-1], sum(cost["flops_executed"] for cost in costs)
    seconds = sum(map(seconds_of, costs))
    return [f"Costs: {scaled(held, 'B')} held, {scaled(operations)} operations, {seconds:.0f} seconds"]


def seconds_of(cost: Mapping[str, Any]) -> float:
    """All that a task took; those of the processor are the same ones once more."""
    return sum(value for part, value in cost["seconds"].items() if part != "cpu")


def held_and_counted(costs: Sequence[Mapping[str, Any]]) -> tuple[list[int], list[int]]:
    """Bytes that the learner keeps after each task, and those that Veniat et al. 2021 count of them; empty
    where they are the same, or are not counted."""
    held = [sum(cost["held"].values()) for cost in costs]
    counted: list[Any] = [cost["published_memory"] for cost in costs]
    return held, [] if None in counted or counted == held else counted
