"""How figures look: one column of a paper, 8 points, colours that colour-blind readers tell apart."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Figure
else:
    Figure = Any  # for annotations: importing matplotlib takes long, and a report may draw nothing

WIDTH = 85 / 25.4  # inches of a column of 85 mm
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#7F7F7F")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")  # learners differ by their markers, too
NEW, REUSED = "#D55E00", "#BBBBBB"  # modules


@contextmanager
def styled() -> Iterator[None]:
    """Within it figures are drawn in this style."""
    from cycler import cycler
    from matplotlib import rc_context

    with rc_context(
        {
            "font.size": 8, "axes.titlesize": 8, "axes.labelsize": 8, "legend.fontsize": 8,
            "legend.title_fontsize": 8, "xtick.labelsize": 8, "ytick.labelsize": 8, "figure.titlesize": 8,
            "lines.linewidth": 1.2, "lines.markersize": 3.5,
            "axes.prop_cycle": cycler(color=COLOURS), "axes.spines.top": False, "axes.spines.right": False,
            "legend.frameon": False, "figure.constrained_layout.use": True, "svg.hashsalt": "cl_lightning",
            "savefig.dpi": 200, "pdf.fonttype": 42, "text.parse_math": False,  # names may have a $ in them
        }
    ):  # fmt: skip
        yield


def colour(place: int) -> str:
    return COLOURS[place % len(COLOURS)]


def marker(place: int) -> str:
    return MARKERS[place % len(MARKERS)]


def without_gaps(row: Sequence[float | None]) -> list[float]:
    """A row of numbers in which NaN, of which nothing is drawn, stands for what is not there."""
    return [math.nan if value is None else value for value in row]


def whole_numbers(axis: Any) -> None:
    """Ticks at whole numbers alone, of one task too."""
    axis.get_major_locator().set_params(integer=True, min_n_ticks=1)


def logarithmic(axes: Any) -> None:
    """Powers of ten from left to right; with twos and fives between them where they are few."""
    from matplotlib.ticker import LogLocator, NullFormatter

    axes.set_xscale("log")
    low, high = axes.get_xlim()
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 100 * low else (1,)))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.xaxis.set_minor_formatter(NullFormatter())


def task_lines(axes: Any, curves: Mapping[int, tuple[Sequence[int], Sequence[float]]]) -> None:
    """A line a task, the later the lighter; some of them are named, above the panel."""
    from matplotlib import colormaps

    named = 1 if len(curves) <= 8 else -(-len(curves) // 6)  # more names would make the panel narrow
    few = marker(0) if named == 1 and max(len(x) for x, _ in curves.values()) <= 25 else None
    for place, (task, (x, y)) in enumerate(curves.items()):
        shade = colormaps["viridis"](0.9 * place / max(1, len(curves) - 1))
        axes.plot(x, y, color=shade, marker=few, label="" if place % named else task, clip_on=False)
    axes.set(ylim=(0, 1))
    whole_numbers(axes.xaxis)
    axes.legend(
        title="task", ncols=8, handlelength=1, columnspacing=1, loc="lower center", bbox_to_anchor=(0.5, 1)
    )


def panels(rows: int, height: float = 1.7, columns: int = 1, width: float = WIDTH) -> tuple[Figure, Any]:
    """A figure with panels, one below another in each column. Without pyplot, which keeps figures and asks
    for a display."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height * rows))
    return figure, figure.subplots(rows, columns, squeeze=False).T.ravel()


def legend_above(figure: Figure, names: Collection[str]) -> None:
    """Names of learners above all panels, in their colours and markers, as many in a line as there is room
    for."""
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], color=colour(i), marker=marker(i)) for i in range(len(names))]
    room = max(1, int(13 * figure.get_figwidth() / (6 + max(map(len, names)))))
    figure.set_figheight(figure.get_figheight() + 0.17 * math.ceil(len(names) / room))
    labels = [f" {name}" for name in names]  # one that begins with _ would be left out
    figure.legend(handles, labels, loc="outside upper center", ncols=min(room, len(names)))
