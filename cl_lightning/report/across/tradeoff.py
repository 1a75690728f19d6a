"""Accuracy against memory, operations and time: above and left is good (figure 3 of Veniat et al. 2021,
figures 13 and 14 of Farquhar and Gal 2018). A dotted line joins those that no other one is at least as good
as in both."""

from __future__ import annotations

from cl_lightning.report.across import (
    Learners,
    held,
    mean_and_deviation,
    operations,
    seconds,
    seeds_of,
    streams,
)
from cl_lightning.report.style import Figure, colour, legend_above, logarithmic, marker, panels


def figure(learners: Learners) -> Figure | None:
    names = streams(learners)
    costs = {"memory, MB": held, "operations, Tflop": operations, "processor, s": seconds}
    drawn, axes = panels(len(costs), height=2.0, columns=len(names), width=3.35 * len(names))
    for column, stream in enumerate(names):
        for row, (head, cost) in enumerate(costs.items()):
            panel = axes[len(costs) * column + row]
            points = []
            for place, (name, runs) in enumerate(learners.items()):
                own = seeds_of(runs, stream)
                values = [run["metrics"]["average_accuracy"] for run in own]
                if own and None not in values:
                    y, deviation = mean_and_deviation(values)
                    points.append((mean_and_deviation([cost(run) for run in own])[0], y))
                    look = {"fmt": marker(place), "color": colour(place), "label": name, "gid": "point"}
                    panel.errorbar(*points[-1], deviation or None, **look)
            if points:
                panel.plot(*zip(*front(points)), ":", color="0.6", zorder=0)
                logarithmic(panel)
            panel.set(xlabel=head, ylabel="ACC", title=stream if row == 0 else "")
    legend_above(drawn, learners)
    return drawn


def front(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """The points of which no other is at least as good in both, from left to right.

    >>> front([(1, 0.5), (2, 0.7), (3, 0.6), (4, 0.7)])
    [(1, 0.5), (2, 0.7)]
    """
    return sorted(p for p in points if not any(q != p and q[0] <= p[0] and q[1] >= p[1] for q in points))
