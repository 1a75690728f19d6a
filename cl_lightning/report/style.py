"""How figures look: one column of a paper, 8 points, colours that colour-blind readers tell apart."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
            "xtick.labelsize": 8, "ytick.labelsize": 8, "lines.linewidth": 1.2, "lines.markersize": 3.5,
            "axes.prop_cycle": cycler(color=COLOURS), "axes.spines.top": False, "axes.spines.right": False,
            "legend.frameon": False, "figure.constrained_layout.use": True, "svg.hashsalt": "cl_lightning",
            "savefig.dpi": 200, "pdf.fonttype": 42,
        }
    ):  # fmt: skip
        yield


def colour(place: int) -> str:
    return COLOURS[place % len(COLOURS)]


def marker(place: int) -> str:
    return MARKERS[place % len(MARKERS)]


def whole_numbers(axis: Any) -> None:
    """Ticks at whole numbers alone, of one task too."""
    axis.get_major_locator().set_params(integer=True, min_n_ticks=1)


def panels(rows: int, height: float = 1.7, columns: int = 1, width: float = WIDTH) -> tuple[Figure, Any]:
    """A figure with panels, one below another in each column. Without pyplot, which keeps figures and asks
    for a display."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height * rows))
    return figure, figure.subplots(rows, columns, squeeze=False).T.ravel()


def legend_above(figure: Figure, axes: Any) -> None:
    """Names of learners above all panels, as many in a line as there is room for."""
    handles, labels = axes.get_legend_handles_labels()
    if labels:
        room = max(1, int(46 / (6 + max(map(len, labels)))))
        figure.legend(handles, labels, loc="outside upper center", ncols=min(room, len(labels)))
