"""Accuracy on the first task while others are learned (figure 1, right, of Lopez-Paz and Ranzato 2017): from
probes, where all runs of a learner have them, else after each task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cl_lightning.report.across import Learners, bands, known, seeds_of, streams
from cl_lightning.report.style import Figure, legend_above, panels


def looks(run: Mapping[str, Any]) -> dict[float, float | None]:
    """What probes found from the end of the first task on, by tasks learned and the part of the next one."""
    own = [p for p in run["probes"] if p["task"] and "candidate" not in p]
    last = {task: max(p["step"] for p in own if p["task"] == task) for task in {p["task"] for p in own}}
    return {p["task"] + p["step"] / max(1, last[p["task"]]): p["accuracies"][0] for p in own}


def after_tasks(run: Mapping[str, Any]) -> dict[float, float | None]:
    return {learned: row[0] for learned, row in enumerate(run["accuracy_matrix"][1:], start=1)}


def figure(learners: Learners) -> Figure | None:
    names = streams(learners)
    drawn, axes = panels(len(names))
    for panel, stream in zip(axes, names):
        curves, places = {}, {}
        for name, runs in learners.items():
            own = [looks(run) for run in seeds_of(runs, stream)]
            if any(not curve or list(curve) != list(own[0]) for curve in own):  # without probes, or at others
                own = [after_tasks(run) for run in seeds_of(runs, stream)]
            values = [known(curve.values()) for curve in own]
            if own and [*map(len, values)] == [*map(len, own)]:
                curves[name], places[name] = values, [*own[0]]
        bands(panel, curves, places=places)
        panel.set(ylim=(0, 1), ylabel="accuracy\non task 0", xlabel="tasks learned", title=stream)
    legend_above(drawn, learners)
    return drawn
