"""Figures of a finished run, from its results.json alone: PNG and SVG in the run's ``figures`` folder."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cl_lightning.report.tables import held_and_counted, module_paths
from cl_lightning.store.folder import is_writable, locked

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = ("png", "svg")


def draw_missing(folder: Path, results: Mapping[str, Any], wanted: bool) -> None:
    """Draw the figures where they are wanted and missing, as after a kill. A folder that cannot be written to
    gets none."""
    if wanted and not (folder / "figures").is_dir() and is_writable(folder):
        with locked(folder, wait=60):
            if not (folder / "figures").is_dir():
                draw(results, folder)


def draw(results: Mapping[str, Any], folder: Path) -> list[Path]:
    """Accuracy and memory over tasks; of learners that tell their paths, the modules of each task."""
    drawn = {"over_tasks": over_tasks(results)}
    if notes := module_paths(results):
        drawn["paths"] = path_graph(
            [note["path"] for note in notes], [task["name"] for task in results["stream"]["tasks"]]
        )
    building, figures = folder / "figures.building", folder / "figures"  # there whole, or not at all
    shutil.rmtree(building, ignore_errors=True)
    building.mkdir()
    for name, figure in drawn.items():
        for kind in FORMATS:
            figure.savefig(
                building / f"{name}.{kind}",
                metadata={"Date": None} if kind == "svg" else None,
                bbox_inches="tight",
            )
    shutil.rmtree(figures, ignore_errors=True)
    building.rename(figures)
    return sorted(figures.iterdir())


def over_tasks(results: Mapping[str, Any]) -> Figure:
    """Mean test accuracy on the tasks so far, and what is held, after each task (figure 4 of Veniat et al.
    2021, whose count of memory is a line of its own where it differs)."""
    figure, (accuracy, memory) = panels(2)
    learned = list(range(1, len(results["accuracy_matrix"])))
    means = [mean_so_far(results["accuracy_matrix"], i) for i in learned]
    accuracy.plot(learned, means, marker=".", clip_on=False)  # points at 0 and 1 are whole
    accuracy.set(ylabel="mean accuracy\non tasks so far", ylim=(0, 1))
    held, counted = ([each / 1e6 for each in of_tasks] for of_tasks in held_and_counted(results["costs"]))
    memory.plot(learned, held, ".-", label="all that is held", clip_on=False)
    if counted:
        memory.plot(learned, counted, ".--", label="as Veniat et al. 2021", clip_on=False)
        memory.legend(loc="lower right")
    memory.set(ylabel="memory, MB", xlabel="tasks learned", ylim=(0, None))
    for axes in (accuracy, memory):
        axes.set_xlim(0.5, len(learned) + 0.5)
        whole_numbers(axes.xaxis)
    accuracy.set_title(f"{results['learner']} on {results['stream']['name']}")
    return figure


def mean_so_far(matrix: list[list[float | None]], learned: int) -> float:
    """NaN where a task was not tested."""
    row = [value if value is not None else float("nan") for value in matrix[learned][:learned]]
    return sum(row) / len(row)


def path_graph(paths: list[list[int]], names: list[str]) -> Figure:
    """Modules by layer (across) and by the task that brought them (down); a line a task (figures 7 and 8 of
    Veniat et al. 2021)."""
    from matplotlib import colormaps

    brought: dict[int, int] = {}
    for task, path in enumerate(paths):
        for module in path:
            brought.setdefault(module, task)
    figure, (axes,) = panels(1, height=1 + 0.35 * len(paths))
    colours = colormaps["tab20"]
    for task, path in enumerate(paths):
        shift = 0.3 * (task / max(1, len(paths) - 1) - 0.5)  # lines over the same modules lie side by side
        heights = [task, *(brought[module] + shift for module in path), task]
        axes.plot(range(len(heights)), heights, color=colours(task % 20), linewidth=1.5)
    for module, task in brought.items():
        layer = next(path.index(module) for path in paths if module in path)
        axes.plot(layer + 1, task, marker="s", markersize=9, color="white", markeredgecolor="black", zorder=3)
    axes.set_yticks(
        range(len(paths)), [f"{task}: {name[:28]}" for task, name in enumerate(names)], fontsize=7
    )
    layers = len(paths[0])
    axes.set_xticks(range(layers + 2), ["in", *map(str, range(1, layers + 1)), "out"])
    axes.invert_yaxis()
    axes.set(xlabel="module", title="paths: each module in the row of the task that brought it")
    return figure


def heat(matrix: Sequence[Sequence[float | None]]) -> Figure:
    """The accuracy matrix in colours, from 0 to 1; white where a task was not tested."""
    figure, (axes,) = panels(1, height=4.8)
    values = [[float("nan") if value is None else value for value in row] for row in matrix]
    image = axes.imshow(values, vmin=0, vmax=1, cmap="viridis", aspect="auto")
    figure.colorbar(image, label="test accuracy")
    axes.set(xlabel="task", ylabel="tasks learned")
    whole_numbers(axes.xaxis)
    whole_numbers(axes.yaxis)
    return figure


def whole_numbers(axis: Any) -> None:
    """Ticks at whole numbers alone, of one task too."""
    axis.get_major_locator().set_params(integer=True, min_n_ticks=1)


def panels(rows: int, height: float = 2.4) -> tuple[Figure, Any]:
    """Without pyplot, which keeps figures and asks for a display."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, height * rows))
    return figure, figure.subplots(rows, 1, squeeze=False)[:, 0]
