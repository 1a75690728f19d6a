"""Curves of two tasks, as Pfuelb and Gepperth 2019 draw them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cl_lightning.report.style import Figure, colour, panels
from cl_lightning.report.two_tasks import looks, training

NAMES = {"d1": "first task", "d2": "second task", "union": "both"}


def figure(results: Mapping[str, Any]) -> Figure | None:
    """A panel for each candidate of the second task: accuracies on both tasks while the first (white) and
    the second one (grey) is learned, and of joint training (dashed). Where the paper has a surface over
    rates, these are its cuts."""
    second, first = looks(results, 1), training(results)
    if not second or not first:
        return None
    drawn, axes = panels(len(second))
    reference, end = results["reference"] or {}, first[-1].step
    for panel, (name, rows) in zip(axes, second.items()):
        steps = [*(row.step for row in first), *(end + row.step for row in rows)]
        for place, (key, label) in enumerate(NAMES.items()):
            values = [getattr(row, key) for row in (*first, *rows)]
            panel.plot(steps, values, color=colour(place), label=label, clip_on=False)
        panel.axvspan(end, steps[-1], color="0.9", zorder=0)
        if reference.get("joint"):
            panel.axhline(reference["accuracy"], color="0.3", linestyle="--", label="learned together")
        panel.set(ylim=(0, 1), ylabel="test accuracy", title=name)
    axes[-1].set_xlabel("mini-batches")
    drawn.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
    return drawn
