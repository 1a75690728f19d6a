"""The panels of docs/dashboard.md, drawn from the points that Weights & Biases gets of the same runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING

from cl_lightning.report.figures import panels, whole_numbers
from cl_lightning.report.projection import Point, Projection

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STYLES = ("-", "--", ":", "-.")  # a run each, where the colours are keys


@dataclass(frozen=True)
class Panel:
    """Some keys over an axis."""

    name: str
    title: str
    axis: str
    keys: tuple[str, ...]
    scale: str = "linear"


PANELS = (
    Panel("mean_learned", "Accuracy on the tasks learned so far", "learned", ("test/mean_learned",)),
    Panel("tasks", "Accuracy on each task", "learned", ("test/task/*",)),
    Panel("averages", "Average accuracy, at the end and over the stream", "learned", ("cl/ACC", "cl/AIA")),
    Panel("transfer", "Transfer and forgetting", "learned", ("cl/BWT", "cl/FWT", "cl/forgetting", "cl/T")),
    Panel("bytes", "Bytes held", "learned", ("cost/bytes_*",)),
    Panel("flops", "Operations a task", "learned", ("cost/flops",), "log"),
    Panel("seconds", "Seconds a task", "learned", ("cost/seconds",)),
    Panel("chosen", "Validation accuracy of what was chosen", "learned", ("chosen/val_accuracy",)),
    Panel("rates", "Learning rate that was chosen", "learned", ("chosen/lr",), "log"),
    Panel("reused", "Modules re-used", "learned", ("chosen/reused_modules",)),
    Panel("loss", "Training loss of the best candidate", "batches", ("train/loss",)),
    Panel("best", "Best validation accuracy", "batches", ("val/best",)),
    Panel("alive", "Candidates that train", "batches", ("val/alive",)),
)
WORDS = {"learned": "tasks learned", "batches": "mini-batches of the run"}  # of the axes


def draw_panels(folders: Sequence[Path], out: Path) -> list[Path]:
    """A PNG file a panel, with a line a run; and the matrix of the first run. Returns the files."""
    runs = [Projection(folder) for folder in folders]
    points = [list(run.news()) for run in runs]
    names = labels(runs)
    out.mkdir(parents=True, exist_ok=True)
    drawn = {panel.name: drawn_panel(panel, dict(zip(names, points))) for panel in PANELS}
    heats: list[Figure] = [point["matrix/heat"] for point in points[0] if "matrix/heat" in point]
    figures = {**drawn, **({"matrix": heats[-1]} if heats else {})}
    for name, figure in figures.items():
        figure.savefig(out / f"{name}.png", dpi=70, bbox_inches="tight")
    return sorted(out / f"{name}.png" for name in figures)


def labels(runs: Sequence[Projection]) -> list[str]:
    """The learners of the runs; with more where they are not enough to tell the runs apart."""
    longer = [
        lambda run: run.start.learner,
        lambda run: f"{run.start.learner} s{run.start.seed}",
        lambda run: f"{run.start.learner} {run.folder.name}",
        lambda run: str(run.folder),
    ]
    made = ([name(run) for run in runs] for name in longer)
    return next(names for names in made if len(set(names)) == len(runs))


def drawn_panel(panel: Panel, runs: dict[str, list[Point]]) -> Figure:
    """Colours are runs where the panel has one key, else keys."""
    figure, (axes,) = panels(1)
    keys = sorted({key for points in runs.values() for point in points for key in keys_in(panel, point)})
    for number, (name, points) in enumerate(runs.items()):
        for place, key in enumerate(keys):
            own = [
                (point[panel.axis], point[key]) for point in points if panel.axis in point and key in point
            ]
            if own:
                many = len(keys) > 1
                look = {"color": f"C{(place if many else number) % 10}"} | (
                    {"linestyle": STYLES[number % len(STYLES)]} if many else {}
                )
                axes.plot(*zip(*own), marker=".", label=f"{name} {key}" if many else name, **look)
    axes.set(title=panel.title, xlabel=WORDS[panel.axis], ylabel=keys[0] if len(keys) == 1 else None)
    axes.set_yscale(panel.scale)
    if panel.axis == "learned":
        whole_numbers(axes.xaxis)
    if axes.lines:
        axes.legend(fontsize=7, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def keys_in(panel: Panel, point: Point) -> list[str]:
    return [key for key in point if any(fnmatch(key, pattern) for pattern in panel.keys)]
