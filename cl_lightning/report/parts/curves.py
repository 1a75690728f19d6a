"""Learning curves, of runs with probes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cl_lightning.report.style import Figure, panels, task_lines


def figure(results: Mapping[str, Any]) -> Figure | None:
    """Test accuracy on each task while it is learned, by mini-batch."""
    curves = curves_of(results)
    if not curves:
        return None
    drawn, (axes,) = panels(1, height=2.2)
    task_lines(axes, {task: (list(curve), list(curve.values())) for task, curve in curves.items()})
    axes.set(xlabel="mini-batches", ylabel="accuracy on the task")
    return drawn


def curves_of(results: Mapping[str, Any]) -> dict[int, dict[int, float]]:
    """By task, the accuracies on it that probes saw of what was chosen, in its last phase that they saw."""
    chosen = {(phase["task"], phase["candidate"]) for phase in results["selected"]}
    curves: dict[int, dict[int, float]] = {}
    for look in results.get("probes", []):
        task, accuracy = look["task"], look["accuracies"][look["task"]]
        if accuracy is not None and ("candidate" not in look or (task, look["candidate"]) in chosen):
            curve = curves.setdefault(task, {})
            if look["step"] <= next(reversed(curve), -1):
                curve.clear()  # another phase begins
            curve[look["step"]] = accuracy
    return curves
