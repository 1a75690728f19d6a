"""How figures look."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def whole_numbers(axis: Any) -> None:
    """Ticks at whole numbers alone, of one task too."""
    axis.get_major_locator().set_params(integer=True, min_n_ticks=1)


def panels(rows: int, height: float = 2.4) -> tuple[Figure, Any]:
    """Without pyplot, which keeps figures and asks for a display."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, height * rows))
    return figure, figure.subplots(rows, 1, squeeze=False)[:, 0]
