"""Paths of modules, learners beside each other (figures 7 and 8 of Veniat et al. 2021)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cl_lightning.report.across import Learners
from cl_lightning.report.parts.paths import draw_paths, height_of, module_paths
from cl_lightning.report.style import Figure, panels


def figure(learners: Learners) -> Figure | None:
    """Of the first seed of each learner and stream: seeds do not take the same paths."""
    shown: dict[tuple[str, str], Mapping[str, Any]] = {}
    for name, runs in learners.items():
        for run in filter(module_paths, runs):  # in the order of their seeds
            shown.setdefault((name, run["name"]), run)
    if not shown:
        return None
    paths = [[note["path"] for note in module_paths(run)] for run in shown.values()]
    drawn, axes = panels(1, max(map(height_of, paths)), columns=len(shown), width=1.7 * len(shown))
    for panel, own, ((name, stream), run) in zip(axes, paths, shown.items()):
        draw_paths(panel, own, [str(task) for task in range(len(own))])
        panel.set_title(f"{name}\n{stream}, seed {run['seed']}")
    axes[0].set_ylabel("task")
    return drawn
