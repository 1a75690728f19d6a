"""The rules of selection, a function each: which candidate of a phase wins, when one stops and whether it
goes back to its best weights, which point of a search over whole streams is chosen.

They are told numbers, and see neither networks nor data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean


def best_of(scores: Sequence[float | None], lost: Sequence[bool]) -> int:
    """The winner among a phase's candidates: the first with the highest score of those that are not lost;
    without scores the first of these."""
    return max(range(len(scores)), key=lambda i: (not lost[i], scores[i] or 0.0))


def improves(score: float, best: float | None) -> bool:
    """Whether a candidate is better than it ever was. As good is not better."""
    return best is None or score > best


def out_of_patience(steps: int, patience: float | None) -> bool:
    """Whether a candidate stops that was not better for so many mini-batches."""
    return patience is not None and steps >= patience


def goes_back_to_best(restore: str | None, patience: float | None) -> bool:
    """Whether a candidate ends with the weights of its best score, and not with its last ones. Where
    ``restore`` (``trainer.restore``) does not say, it does so with early stopping alone."""
    return restore == "best" or (restore is None and patience is not None)


def best_point(scores: Mapping[int, Sequence[float | None]]) -> tuple[int, float] | None:
    """The point of an outer grid with the highest mean, and that mean; of equal points the first. One that
    lacks a score is not chosen; where all do, nothing is."""
    complete = {number: own for number, own in scores.items() if None not in own}
    means = {number: fmean(s for s in own if s is not None) for number, own in complete.items()}
    return max(means.items(), key=lambda each: (each[1], -each[0]), default=None)
