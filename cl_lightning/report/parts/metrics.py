"""Metrics, validation first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from cl_lightning.metrics.table import METRICS
from cl_lightning.report.layout import Column, tables, titled

VALIDATION, TRANSFER = "validation_accuracy_at_the_end", "transfer_to_the_last_task"
SIGNS = {VALIDATION: "", **{metric.name: metric.sign for metric in METRICS}, TRANSFER: "+"}
SHORT = (VALIDATION, "average_accuracy", "learning_accuracy", "backward_transfer", TRANSFER)  # at a run's end
ORDER = 1  # among the tables of a run


def table(results: Mapping[str, Any], width: int) -> list[RenderableType]:
    return titled("Metrics", *metric_table(results, width))


def metric_table(results: Mapping[str, Any], width: int) -> list[RenderableType]:
    """With a line below for what is undefined, which says why."""
    rows: list[list[str]] = []
    why: dict[str, list[str]] = {}
    for name, value in metrics_in(results).items():
        rows.append([in_words(name), "-" if value is None else f"{value:{SIGNS.get(name, '')}.4f}"])
        if value is None:
            why.setdefault(why_undefined(name, results), []).append(in_words(name))
    below = [Text(f"No {', '.join(names)}: {reason}.") for reason, names in why.items()]
    columns = [Column("", text=True), Column("", text=True)]
    return [*tables(columns, rows, width), *below]


def line(results: Mapping[str, Any]) -> list[str]:
    known = {name: value for name, value in metrics_in(results).items() if value is not None}
    said = [f"{in_words(name)} {known[name]:{SIGNS[name]}.3f}" for name in SHORT if name in known]
    return [f"Metrics: {', '.join(said)}"] if said else []


def in_words(name: str) -> str:
    return name.replace("_", " ")


def metrics_in(results: Mapping[str, Any]) -> dict[str, float | None]:
    """Metrics by name, validation first; with what a network came to that the run trained besides."""
    shown = dict(results["metrics"])
    if validated := results["validation_at_end"]:
        shown = {VALIDATION: validated["mean"], **shown}
    if reference := results["reference"]:
        joint = reference.get("joint")
        shown |= (
            {"joint_training_on_both": reference["accuracy"]} if joint else {TRANSFER: reference["transfer"]}
        )
    return shown


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
