"""Accuracy matrices of learners beside each other, means over seeds."""

from __future__ import annotations

from cl_lightning.report.across import Learners, seeds_of, streams
from cl_lightning.report.style import Figure, panels, whole_numbers, without_gaps


def figure(learners: Learners) -> Figure | None:
    shown = {
        f"{name}, {stream}": seeds_of(runs, stream)
        for stream in streams(learners)
        for name, runs in learners.items()
        if seeds_of(runs, stream)
    }
    columns = min(3, len(shown))
    rows = -(-len(shown) // columns)
    drawn, axes = panels(rows, height=1.6, columns=columns, width=1.7 * columns + 0.6)
    axes = axes.reshape(columns, rows).T.ravel()  # one beside another
    for panel, (name, runs) in zip(axes, shown.items()):
        mean = mean_matrix([run["accuracy_matrix"] for run in runs])
        image = panel.imshow(mean, vmin=0, vmax=1, aspect="auto")
        panel.set(title=name.replace(", ", "\n"), xlabel="task", ylabel="tasks learned")
        whole_numbers(panel.xaxis)
        whole_numbers(panel.yaxis)
    for panel in axes[len(shown) :]:
        panel.remove()
    drawn.colorbar(image, ax=list(axes[: len(shown)]), label="test accuracy")
    return drawn


def mean_matrix(matrices: list[list[list[float | None]]]) -> list[list[float]]:
    """NaN where a run has no entry."""
    return [[sum(without_gaps(cells)) / len(cells) for cells in zip(*rows)] for rows in zip(*matrices)]
