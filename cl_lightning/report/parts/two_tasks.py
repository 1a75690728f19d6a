"""Curves of two tasks, as Pfuelb and Gepperth 2019 draw them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from cl_lightning.report.style import Figure, colour, panels
from cl_lightning.selection.rules import on_both

NAMES = {"d1": "first task", "d2": "second task", "union": "both"}


def figure(results: Mapping[str, Any]) -> Figure | None:
    """A panel for each candidate of the second task: accuracies on both tasks while the first (white) and
    the second one (grey) is learned, and of joint training (dashed). Where the paper has a surface over
    rates, these are its cuts."""
    second, first = looks(results, 1), training(results)
    if not second or not first:
        return None
    drawn, axes = panels(len(second))
    reference, end = results["reference"] or {}, first[-1].step
    for panel, (name, rows) in zip(axes, second.items()):
        steps = [*(row.step for row in first), *(end + row.step for row in rows)]
        for place, (key, label) in enumerate(NAMES.items()):
            values = [getattr(row, key) for row in (*first, *rows)]
            panel.plot(steps, values, color=colour(place), label=label, clip_on=False)
        panel.axvspan(end, steps[-1], color="0.9", zorder=0)
        if reference.get("joint"):
            panel.axhline(reference["accuracy"], color="0.3", linestyle="--", label="learned together")
        panel.set(ylim=(0, 1), ylabel="test accuracy", title=name)
    axes[-1].set_xlabel("mini-batches")
    drawn.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
    return drawn


class Look(NamedTuple):
    """What a probe found."""

    step: int  # mini-batches of its task
    d1: float
    d2: float
    union: float


def looks(results: Mapping[str, Any], task: int) -> dict[str, list[Look]]:
    """What probes of a task found, by candidate; nothing where they did not look at all candidates of two
    tasks."""
    tests = [each["n_test"] for each in results["stream"]["tasks"]]
    found: dict[str, list[Look]] = {}
    for probe in results["probes"]:
        row: Sequence[float | None] = probe["accuracies"]
        if probe["task"] == task and "candidate" in probe and len(tests) == 2 and None not in row:
            d1, d2 = (float(each or 0.0) for each in row)
            found.setdefault(probe["candidate"], []).append(Look(probe["step"], d1, d2, on_both(row, tests)))
    return found


def training(results: Mapping[str, Any]) -> list[Look]:
    """The curve of the candidate that was chosen for D1."""
    chosen = [each["candidate"] for each in results["selected"] if each["where"] == "task0"]
    return looks(results, 0).get(chosen[-1], []) if chosen else []


def by_rate(results: Mapping[str, Any]) -> dict[str, float]:
    """Best and last accuracy on both, by the rate that D2 was learned with."""
    rates = {
        each["candidate"]: each["hparams"].get("lr")
        for phase in results["selected"]
        for each in phase.get("compared", ())
        if phase["where"] == "task1"
    }
    found = {}
    for candidate, rows in looks(results, 1).items():
        if rates.get(candidate) is not None:
            found[f"best at {rates[candidate]:g}"] = max(row.union for row in rows)
            found[f"last at {rates[candidate]:g}"] = rows[-1].union
    return found
