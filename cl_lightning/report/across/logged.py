"""What learners logged by mini-batches, as the gradients of likelihood and prior (figures 3 and 4 of Farquhar
and Gal 2018): means over seeds in bands of a deviation."""

from __future__ import annotations

from cl_lightning.report.across import Learners, bands
from cl_lightning.report.style import Figure, legend_above, panels


def figure(learners: Learners) -> Figure | None:
    """A panel a name, a line a learner and stream; by the points' order, since runs may begin elsewhere."""
    found: dict[str, dict[str, list[list[float]]]] = {}
    for run in (run for runs in learners.values() for run in runs):
        for name, curve in run.get("own", {}).get("batches", {}).items():
            values = [value for _, value in curve if value is not None]
            line = f"{run['learner']}, {run['stream']['name']}".replace("_", " ")
            found.setdefault(name, {}).setdefault(line, []).append(values)
    if not found:
        return None
    drawn, axes = panels(len(found))
    lines = dict.fromkeys(line for curves in found.values() for line in curves)
    for panel, (name, curves) in zip(axes, found.items()):
        bands(panel, {line: curves.get(line, []) for line in lines})
        panel.set(title=name.replace("_", " "), xlabel="points logged")
    legend_above(drawn, lines)
    return drawn
