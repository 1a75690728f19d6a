"""ACC, BWT and FWT, a bar a learner (figure 1, left, of Lopez-Paz and Ranzato 2017)."""

from __future__ import annotations

from cl_lightning.report.across import Learners, known, mean_and_deviation, seeds_of, streams
from cl_lightning.report.style import Figure, colour, legend_above, panels

SHOWN = {"average_accuracy": "ACC", "backward_transfer": "BWT", "forward_transfer": "FWT"}


def figure(learners: Learners) -> Figure | None:
    names = streams(learners)
    drawn, axes = panels(len(names))
    wide = 0.8 / len(learners)
    for panel, stream in zip(axes, names):
        for place, runs in enumerate(learners.values()):
            for at, metric in enumerate(SHOWN):
                values = known(run["metrics"][metric] for run in seeds_of(runs, stream))
                if values:
                    mean, deviation = mean_and_deviation(values)
                    x = at + (place - (len(learners) - 1) / 2) * wide
                    panel.bar(x, mean, wide, yerr=deviation or None, color=colour(place), gid="bar")
        panel.axhline(0, color="black", linewidth=0.6)
        panel.set_xticks(range(len(SHOWN)), SHOWN.values())
        panel.set_title(stream)
    legend_above(drawn, learners)
    return drawn
