"""Metrics, validation first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from cl_lightning.metrics.table import METRICS
from cl_lightning.report.layout import Column, tables, titled

VALIDATION = "validation accuracy at the end"
TRANSFER = "transfer to the last task"
SIGNS = {metric.name: metric.sign for metric in METRICS} | {TRANSFER: "+"}


SHORT = (VALIDATION, "average accuracy", "learning accuracy", "backward transfer", TRANSFER)  # at a run's end
ORDER = 1  # among the tables of a run


def table(results: Mapping[str, Any], width: int) -> list[RenderableType]:
    return titled("Metrics", *metric_table(results, width))


def line(results: Mapping[str, Any]) -> list[str]:
    known = {name.replace("_", " "): value for name, value in metrics_in(results).items()}
    signs = {name.replace("_", " "): sign for name, sign in SIGNS.items()}
    said = [f"{name} {known[name]:{signs.get(name, '')}.3f}" for name in SHORT if known.get(name) is not None]
    return [f"Metrics: {', '.join(said)}"] if said else []


def metrics_in(results: Mapping[str, Any]) -> dict[str, float | None]:
    """Metrics by the names under which they are shown; validation first."""
    validated, reference = results["validation_at_end"], results["reference"]
    return {
        **({VALIDATION: validated["mean"]} if validated else {}),
        **results["metrics"],
        **dict([of_reference(reference)] if reference else []),
    }


def of_reference(reference: Mapping[str, Any]) -> tuple[str, float | None]:
    """What a network that the run trained besides came to, by its name."""
    if reference.get("joint"):
        return "joint training on both", reference["accuracy"]
    return TRANSFER, reference["transfer"]


def metric_table(results: Mapping[str, Any], width: int) -> list[RenderableType]:
    """With a line below for what is undefined, which says why."""
    rows: list[list[str]] = []
    why: dict[str, list[str]] = {}
    for name, value in metrics_in(results).items():
        words = name.replace("_", " ")
        rows.append([words, "-" if value is None else f"{value:{SIGNS.get(name, '')}.4f}"])
        if value is None:
            why.setdefault(why_undefined(name, results), []).append(words)
    below = [Text(f"No {', '.join(names)}: {reason}.") for reason, names in why.items()]
    return [*tables([Column("", text=True), Column("", text=True)], rows, width), *below]


def why_undefined(name: str, results: Mapping[str, Any]) -> str:
    matrix = results["accuracy_matrix"]
    evaluated = results["config"].get("trainer", {}).get("evaluate", "all")
    if name == VALIDATION:
        return "no task has validation examples"
    if not results["finished"]:
        return "the run is not finished"
    if len(matrix[0]) == 1:
        return "there is one task"
    if evaluated != "all":
        return f"trainer.evaluate={evaluated} does not test what it needs"
    return "a task could not be predicted"
