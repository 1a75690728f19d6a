"""Metrics, validation first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import RenderableType
from rich.table import Table

from cl_lightning.metrics.table import METRICS
from cl_lightning.report.layout import Column, tables, titled

TRANSFER = "transfer to the last task"
SIGNS = {metric.name: metric.sign for metric in METRICS} | {TRANSFER: "+"}


ORDER = 1  # among the tables of a run


def table(results: Mapping[str, Any], width: int) -> list[RenderableType]:
    return titled("Metrics", *metric_table(metrics_in(results), width))


def metrics_in(results: Mapping[str, Any]) -> dict[str, float | None]:
    """Metrics by the names under which they are shown; validation first."""
    validated, reference = results["validation_at_end"], results["reference"]
    return {
        **({"validation accuracy at the end": validated["mean"]} if validated else {}),
        **results["metrics"],
        **({TRANSFER: reference["transfer"]} if reference else {}),
    }


def metric_table(metrics: dict[str, float | None], width: int) -> list[Table]:
    rows = []
    for name, value in metrics.items():
        signed = SIGNS.get(name, "")
        rows.append([name.replace("_", " "), "-" if value is None else f"{value:{signed}.4f}"])
    return tables([Column("", text=True), Column("", text=True)], rows, width)
