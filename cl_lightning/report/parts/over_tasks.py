"""Accuracies and memory, task after task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cl_lightning.report.parts.costs import held_and_counted
from cl_lightning.report.style import Figure, panels, task_lines, whole_numbers, without_gaps


def figure(results: Mapping[str, Any]) -> Figure:
    """Test accuracy on each task from when it is learned, the mean over the tasks so far, and what is held
    (the last two: figure 4 of Veniat et al. 2021, whose count of memory is a line of its own where it
    differs)."""
    drawn, (each, accuracy, memory) = panels(3)
    matrix = results["accuracy_matrix"]
    learned = list(range(1, len(matrix)))
    means = [mean_so_far(matrix, i) for i in learned]
    columns = [without_gaps(column) for column in zip(*matrix)]
    task_lines(each, {j: (learned[j:], columns[j][j + 1 :]) for j in range(len(learned))})
    each.set_ylabel("accuracy\non each task")
    accuracy.plot(learned, means, marker=".", clip_on=False)  # points at 0 and 1 are whole
    accuracy.set(ylabel="mean accuracy\non tasks so far", ylim=(0, 1))
    held, counted = ([each / 1e6 for each in of_tasks] for of_tasks in held_and_counted(results["costs"]))
    memory.plot(learned, held, ".-", label="all that is held", clip_on=False)
    if counted:
        memory.plot(learned, counted, ".--", label="as Veniat et al. 2021", clip_on=False)
        memory.legend(ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1))  # beside no line
    memory.set(ylabel="memory, MB", xlabel="tasks learned", ylim=(0, None))
    for axes in (each, accuracy, memory):
        axes.set_xlim(0.5, len(learned) + 0.5)
        whole_numbers(axes.xaxis)
    drawn.suptitle(f"{results['learner']} on {results['stream']['name']}")
    return drawn


def mean_so_far(matrix: list[list[float | None]], learned: int) -> float:
    """NaN where a task was not tested."""
    return sum(without_gaps(matrix[learned][:learned])) / learned
