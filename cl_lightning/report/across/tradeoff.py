"""Accuracy against memory, operations and time: above and left is good (figure 3 of Veniat et al. 2021,
figures 13 and 14 of Farquhar and Gal 2018)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cl_lightning.report.across import (
    Learners,
    held,
    known,
    mean_and_deviation,
    operations,
    seconds,
    seeds_of,
    streams,
)
from cl_lightning.report.style import colour, legend_above, marker, panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def figure(learners: Learners) -> Figure | None:
    names = streams(learners)
    costs = {"memory, MB": held, "operations, Tflop": operations, "processor, s": seconds}
    drawn, axes = panels(len(costs), height=2.0, columns=len(names), width=3.35 * len(names))
    for column, stream in enumerate(names):
        for row, (head, cost) in enumerate(costs.items()):
            panel = axes[len(costs) * column + row]
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
