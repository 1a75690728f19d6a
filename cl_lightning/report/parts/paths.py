"""Paths of modules, of learners that tell them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType

from cl_lightning.report.layout import Column, with_title
from cl_lightning.report.style import panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure


ORDER = 4  # among the tables of a run


def table(results: Mapping[str, Any], width: int) -> list[RenderableType]:
    """How many modules of each task's path are an earlier task's, and which task's; nothing for learners
    without paths."""
    notes, rows = module_paths(results), []
    for task, note in enumerate(notes):
        path, count = note["path"], note["reused"]
        sources = [j for j in note["sources"] if count and notes[j]["path"][:count] == path[:count]]
        rows.append([str(task), str(len(path)), str(count), str(sources[0]) if sources else "-"])
    columns = [Column(head) for head in ("task", "modules", "re-used", "of task")]
    return with_title("Modules re-used", columns, rows, width)


def figure(results: Mapping[str, Any]) -> Figure | None:
    notes = module_paths(results)
    names = [task["name"] for task in results["stream"]["tasks"]]
    return path_graph([note["path"] for note in notes], names) if notes else None


def module_paths(results: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The notes of a learner that records its paths of modules, one a task; empty for other learners."""
    notes = results["notes"]
    return notes if all(note.get("kind") == "module_paths" for note in notes) else []


def path_graph(paths: list[list[int]], names: list[str]) -> Figure:
    """Modules by layer (across) and by the task that brought them (down); a line a task (figures 7 and 8 of
    Veniat et al. 2021)."""
    from matplotlib import colormaps

    brought: dict[int, int] = {}
    for task, path in enumerate(paths):
        for module in path:
            brought.setdefault(module, task)
    drawn, (axes,) = panels(1, height=1 + 0.35 * len(paths))
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
    return drawn
