"""Mean accuracy on the tasks so far, and memory, of all learners (figure 4 of Veniat et al. 2021)."""

from __future__ import annotations

from cl_lightning.report.across import Learners, bands, held, seeds_of, streams
from cl_lightning.report.parts.over_tasks import mean_so_far
from cl_lightning.report.style import Figure, legend_above, panels


def figure(learners: Learners) -> Figure | None:
    names = streams(learners)
    drawn, axes = panels(2, columns=len(names), width=3.35 * len(names))
    for column, stream in enumerate(names):
        own = {name: seeds_of(runs, stream) for name, runs in learners.items()}
        tasks = {name: range(1, len(runs[0]["costs"]) + 1) for name, runs in own.items() if runs}
        accuracy, memory = axes[2 * column : 2 * column + 2]
        means = {n: [[mean_so_far(r["accuracy_matrix"], i) for i in tasks[n]] for r in own[n]] for n in tasks}
        bands(accuracy, means)
        bands(memory, {n: [[held(r, i - 1) for i in tasks[n]] for r in own[n]] for n in tasks})
        accuracy.set(ylim=(0, 1), ylabel="mean accuracy\non tasks so far", title=stream)
        memory.set(ylim=(0, None), ylabel="memory, MB", xlabel="tasks learned")
    legend_above(drawn, learners)
    return drawn
