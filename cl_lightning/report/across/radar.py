"""Learners on axes from worst (centre) to best: A, F, memory, operations, LCA and T of each stream (figures
1, 6 and 9 to 14 of Veniat et al. 2021). Each axis goes from the least to the most of the learners that are
shown; memory and operations are logarithms, and less is further out."""

from __future__ import annotations

import math
from typing import Any

from cl_lightning.report.across import Learners, Runs, held, known, operations, streams
from cl_lightning.report.style import WIDTH, Figure, colour, legend_above, marker


def figure(learners: Learners) -> Figure | None:
    """Nothing where fewer than two learners or three axes have numbers."""
    from matplotlib.figure import Figure

    rows = {name: numbers(runs, streams(learners)) for name, runs in learners.items()}
    axes = [axis for axis in next(iter(rows.values())) if all(row[axis] is not None for row in rows.values())]
    if len(rows) < 2 or len(axes) < 3:
        return None
    drawn = Figure(figsize=(WIDTH, WIDTH))
    panel = drawn.subplots(subplot_kw={"projection": "polar"})
    angles = [2 * math.pi * i / len(axes) for i in range(len(axes))]
    for place, (name, row) in enumerate(rows.items()):
        radii = [scaled(row[axis], [other[axis] for other in rows.values()]) for axis in axes]
        look: dict[str, Any] = {"color": colour(place), "marker": marker(place), "label": name}
        panel.plot([*angles, 0.0], [*radii, radii[0]], clip_on=False, **look)
    panel.set_xticks(angles, axes)
    panel.set_yticks([])
    panel.set_ylim(0, 1)
    for angle, label in zip(angles, panel.get_xticklabels()):  # names stand outside the circle
        across = math.cos(angle)
        label.set_horizontalalignment("center" if abs(across) < 0.1 else "left" if across > 0 else "right")
    legend_above(drawn, learners)
    return drawn


def numbers(runs: Runs, names: list[str]) -> dict[str, float | None]:
    """The greater, the better; means over runs. None where one has no such number."""

    def mean(values: list[float | None]) -> float | None:
        return sum(known(values)) / len(values) if values and None not in values else None

    found = {
        "A": mean([run["metrics"]["average_accuracy"] for run in runs]),
        "F": mean([run["metrics"]["backward_transfer"] for run in runs]),
        "memory": mean([-math.log10(held(run)) if held(run) else None for run in runs]),
        "operations": mean([-math.log10(operations(run)) if operations(run) else None for run in runs]),
        "LCA": mean([run["metrics"].get("learning_curve_area") for run in runs]),
    }
    for name in names:
        of_stream = [run for run in runs if run["name"] == name]
        references = [run["reference"] for run in of_stream]
        found[f"T {name}"] = mean([each["transfer"] if each else None for each in references])
    return found


def scaled(value: float | None, others: list[float | None]) -> float:
    """From 0.1, the least of all, to 1, the most; 1 where all are alike.

    >>> scaled(0.5, [0.5, 0.7, 0.9]), scaled(0.9, [0.5, 0.7, 0.9]), scaled(0.5, [0.5, 0.5])
    (0.1, 1.0, 1.0)
    """
    low, high = min(known(others)), max(known(others))
    assert value is not None, "axes without a number are left out"
    return 1.0 if high == low else 0.1 + 0.9 * (value - low) / (high - low)
