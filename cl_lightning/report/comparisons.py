"""Learners of one experiment against one of them, seed by seed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cl_lightning.report.compare import differing
from cl_lightning.report.formats import Sheet
from cl_lightning.report.groups import COLUMNS, Group
from cl_lightning.report.notes import row_name
from cl_lightning.report.statistics import (
    LEVEL,
    Array,
    Comparison,
    compare_all,
    interquartile_mean,
    probability_of_improvement,
    stratified_interval,
)

INTERVAL = f"{1 - LEVEL:.0%} interval"
HEADS = ("difference", INTERVAL, "p (Holm)", "probability of improvement", "seeds", "verdict")


def comparisons(
    groups: Sequence[Group], against: str, result: str = "average_accuracy"
) -> list[tuple[Group, Comparison | None]]:
    """Each other group against the first one of a learner; None where they share no seed of one stream."""
    base = next(group for group in groups if group.learner == against)
    others = [group for group in groups if group is not base]
    pairs = [
        (by_seed(group, result) if is_same_stream(group, base) else {}, by_seed(base, result))
        for group in others
    ]
    return list(zip(others, compare_all(pairs)))


def is_same_stream(one: Group, other: Group) -> bool:
    """Whether two groups have the same examples with the same seed."""
    return one.stream == other.stream and one.images == other.images


def by_seed(group: Group, result: str) -> dict[int, float]:
    values = group.values.get(result, [])
    return dict(zip(group.seeds, values)) if len(values) == len(group.seeds) else {}


def comparison_table(groups: Sequence[Group], against: str, result: str = "average_accuracy") -> Sheet:
    """Heads and rows; what has no values by seed is not compared."""
    varied = differing(groups)
    found = comparisons(groups, against, result)
    nothing = [*[""] * (len(HEADS) - 1), "no numbers of the same streams and seeds"]
    rows = [[name_of(group, varied), *(cells(each) if each else nothing)] for group, each in found]
    base = next(group for group in groups if group.learner == against)
    return [f"{COLUMNS.get(result, result)} against {name_of(base, varied)}", *HEADS], rows


def name_of(group: Group, varied: Sequence[str]) -> str:
    """The learner with what was varied."""
    return row_name(group, varied).removeprefix(f"{group.experiment} ")


def cells(found: Comparison) -> list[str]:
    interval = "-" if found.low is None else f"{found.low:+.3f} to {found.high:+.3f}"
    numbers = [f"{found.difference:+.3f}", interval, f"{found.p:.3f}", f"{found.improvement:.2f}"]
    return [*numbers, str(found.seeds), found.verdict]


def over_streams(groups: Sequence[Group], result: str = "average_accuracy") -> Sheet:
    """Of each learner that has one row an experiment the interquartile mean over experiments and seeds, with
    its stratified interval, and the probability that it is above the first one."""
    experiments = sorted({group.experiment for group in groups})
    scores: dict[str, Array] = {}
    for learner in dict.fromkeys(group.learner for group in groups):
        found = [by_seed(group, result) for group in groups if group.learner == learner]
        if len(found) == len(experiments) and found[0] and all(f.keys() == found[0].keys() for f in found):
            scores[learner] = np.array([[values[seed] for values in found] for seed in found[0]])
    rows = []
    for learner, own in scores.items():
        low, high = stratified_interval(own)
        first = next(iter(scores.values()))
        above = "" if own is first else f"{probability_of_improvement(own, first):.2f}"
        numbers = [f"{interquartile_mean(own):.3f}", f"{low:.3f} to {high:.3f}", above]
        rows.append([learner, *numbers, str(len(own)), str(len(experiments))])
    name = next(iter(scores), "")
    middle_head = f"{COLUMNS.get(result, result)}, interquartile mean"
    return ["learner", middle_head, INTERVAL, f"probability above {name}", "seeds", "experiments"], rows
