"""Accuracy against memory and against operations (figure 3 of Veniat et al. 2021): above and left is good."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cl_lightning.report.across import (
    Learners,
    held,
    known,
    mean_and_deviation,
    operations,
    seeds_of,
    streams,
)
from cl_lightning.report.style import colour, legend_above, marker, panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def figure(learners: Learners) -> Figure | None:
    names = streams(learners)
    drawn, axes = panels(2, height=2.0, columns=len(names), width=3.35 * len(names))
    for column, stream in enumerate(names):
        for row, (head, cost) in enumerate({"memory, MB": held, "operations, Tflop": operations}.items()):
            panel = axes[2 * column + row]
            for place, (name, runs) in enumerate(learners.items()):
                own = seeds_of(runs, stream)
                values = known(run["metrics"]["average_accuracy"] for run in own)
                if own and len(values) == len(own):
                    mean, deviation = mean_and_deviation(values)
                    x = mean_and_deviation([cost(run) for run in own])[0]
                    panel.errorbar(
                        x, mean, deviation or None, fmt=marker(place), color=colour(place), label=name
                    )
            panel.set_xscale("log")
            panel.set(xlabel=head, ylabel="ACC", title=stream if row == 0 else "")
    legend_above(drawn, axes[0])
    return drawn
