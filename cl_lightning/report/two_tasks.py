"""Curves of two tasks, D1 and D2, in a run's ``results.json``, one for each candidate of D2."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from cl_lightning.selection.rules import on_both


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
