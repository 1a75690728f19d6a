"""Paths of modules, of learners that tell them."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import shorten
from typing import Any

from rich.console import RenderableType

from cl_lightning.report.layout import Column, three_digits, with_title
from cl_lightning.report.style import NEW, REUSED, Figure, panels

ORDER = 4  # among the tables of a run
FEW = 30  # tasks up to which each has its name


def table(results: Mapping[str, Any], width: int) -> list[RenderableType]:
    """How many modules of each task's path are an earlier task's, and which task's; nothing for learners
    without paths."""
    notes, rows = module_paths(results), []
    for task, note in enumerate(notes):
        path, count = note["path"], note["reused"]
        sources = [j for j in note["sources"] if count and notes[j]["path"][:count] == path[:count]]
        near = sorted(zip(note.get("scores", ()), range(task)), key=lambda pair: (-pair[0], pair[1]))[:3]
        scores = ", ".join(f"{j}: {three_digits(score)}" for score, j in near)
        rows.append([str(task), str(len(path)), str(count), str(sources[0]) if sources else "-", scores])
    heads = ["task", "modules", "re-used", "of task", "nearest by k-NN accuracy"]
    if not any(row[-1] for row in rows):
        heads, rows = heads[:-1], [row[:-1] for row in rows]
    columns = [Column(head, text=head in heads[4:]) for head in heads]
    return with_title("Modules re-used", columns, rows, width)


def line(results: Mapping[str, Any]) -> list[str]:
    """How many modules of all paths are an earlier task's."""
    notes = module_paths(results)
    reused, all_of_them = sum(note["reused"] for note in notes), sum(len(note["path"]) for note in notes)
    return [f"Modules re-used: {reused} of {all_of_them}, in {len(notes)} tasks"] if notes else []


def figure(results: Mapping[str, Any]) -> Figure | None:
    notes = module_paths(results)
    names = [task["name"] for task in results["stream"]["tasks"]]
    return path_graph([note["path"] for note in notes], names) if notes else None


def module_paths(results: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The notes of a learner that records its paths of modules, one a task; empty for other learners."""
    notes = results["notes"]
    return notes if all(note.get("kind") == "module_paths" for note in notes) else []


def path_graph(paths: list[list[int]], names: list[str]) -> Figure:
    """A row a task, a column a layer (figures 7 and 8 of Veniat et al. 2021)."""
    drawn, (axes,) = panels(1, height=height_of(paths))
    draw_paths(axes, paths, [f"{task}: {name}" for task, name in enumerate(names)])
    drawn.suptitle("new modules in orange, re-used in grey" + ", with their task" * (len(paths) <= FEW))
    return drawn


def height_of(paths: list[list[int]]) -> float:
    """Inches."""
    return 0.9 + (0.17 if len(paths) <= FEW else 0.075) * len(paths)


def draw_paths(axes: Any, paths: list[list[int]], names: list[str]) -> None:
    """A new module in colour, a re-used one in grey with the task that brought it, where there is room to say
    so."""
    from matplotlib.colors import ListedColormap

    brought: dict[int, int] = {}
    for task, path in enumerate(paths):
        for module in path:
            brought.setdefault(module, task)
    few, depth = len(paths) <= FEW, max(map(len, paths))
    cells = [
        [float(brought[path[k]] == task) if k < len(path) else float("nan") for k in range(depth)]
        for task, path in enumerate(paths)
    ]
    axes.imshow(cells, cmap=ListedColormap([REUSED, NEW]), vmin=0, vmax=1, aspect="auto")
    for task, path in enumerate(paths if few else []):
        for layer, module in enumerate(path):
            if brought[module] != task:
                axes.text(layer, task, str(brought[module]), ha="center", va="center_baseline")
    if few:
        axes.set_yticks(range(len(paths)), [shorten(name, 30) for name in names])
    else:
        axes.set_yticks(range(0, len(paths), 10))
        axes.set_ylabel("task")
    axes.set_xticks(range(depth), [str(layer + 1) for layer in range(depth)])
    axes.set_yticks([task - 0.5 for task in range(1, len(paths))], minor=True)
    axes.set_xticks([layer - 0.5 for layer in range(1, depth)], minor=True)
    axes.grid(which="minor", color="white", linewidth=0.8 if few else 0.3)
    axes.tick_params(which="both", length=0)
    axes.set_xlabel("layer")
