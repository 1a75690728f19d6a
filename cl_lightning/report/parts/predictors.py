"""Predictors that the learner named."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import RenderableType

from cl_lightning.metrics.table import METRICS
from cl_lightning.report.layout import Column, three_digits, with_title

MOST = 20  # in a table


ORDER = 3  # among the tables of a run


def table(results: Mapping[str, Any], width: int) -> list[RenderableType]:
    """A row a predictor that the learner named; where there are many, the first of them."""
    predictors = results["predictors"]
    shown = [metric for metric in METRICS if metric.head and metric.of == "matrix"]
    rows = [
        [name, *(three_digits(predictor["metrics"].get(metric.name)) for metric in shown)]
        for name, predictor in [*predictors.items()][:MOST]
    ]
    columns = [Column("predictor", text=True), *(Column(metric.head) for metric in shown)]
    left = len(predictors) - len(rows)
    more = f" ({left} more are in results.json)" if left else ""
    return with_title(f"Named predictors{more}", columns, rows, width)
