"""Accuracy on the first task while others are learned (figure 1, right, of Lopez-Paz and Ranzato 2017)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cl_lightning.report.across import Learners, bands, seeds_of, streams
from cl_lightning.report.style import legend_above, panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def figure(learners: Learners) -> Figure | None:
    names = streams(learners)
    drawn, axes = panels(len(names))
    for panel, stream in zip(axes, names):
        curves = {}
        for name, runs in learners.items():
            own = [[row[0] for row in run["accuracy_matrix"][1:]] for run in seeds_of(runs, stream)]
            if own and all(None not in curve for curve in own):
                curves[name] = own
        bands(panel, curves)
        panel.set(ylim=(0, 1), ylabel="accuracy\non task 0", xlabel="tasks learned", title=stream)
    legend_above(drawn, learners)
    return drawn
