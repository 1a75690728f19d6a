"""IMM's curve over alpha, the share of the last task in the merged weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cl_lightning.report.parts.two_tasks import NAMES
from cl_lightning.report.style import Figure, colour, panels
from cl_lightning.selection.rules import on_both

ALPHA = "alpha="


def figure(results: Mapping[str, Any]) -> Figure | None:
    """Accuracy on each of two tasks and on both together at the end, for each alpha that was tested."""
    named = results["predictors"].items()
    rows = {float(name.removeprefix(ALPHA)): each for name, each in named if name.startswith(ALPHA)}
    ends = {alpha: each["accuracy_matrix"][-1] for alpha, each in sorted(rows.items())}
    if len(ends) < 2 or any(len(end) != 2 or None in end for end in ends.values()):
        return None
    tests = [task["n_test"] for task in results["stream"]["tasks"]]
    drawn, (panel,) = panels(1, height=2.2)
    curves = zip(*((*end, on_both(end, tests)) for end in ends.values()))
    for place, (label, values) in enumerate(zip(NAMES.values(), curves)):
        panel.plot(list(ends), values, color=colour(place), label=label, clip_on=False)
    panel.set(xlim=(0, 1), ylim=(0, 1), xlabel="alpha of the second task", ylabel="test accuracy")
    drawn.legend(*panel.get_legend_handles_labels(), loc="outside upper center", ncols=3)
    return drawn
