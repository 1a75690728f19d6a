"""The rules of selection, a function each: which candidate of a phase wins, when one stops and whether it
goes back to its best weights, which point of a search over whole streams is chosen, and what papers make of
the curves of two tasks.

They are told numbers, and see neither networks nor data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import mul
from statistics import fmean
from typing import Literal, NamedTuple


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


# ---- two tasks, by their curves on test data ---------------------------------------------------------------
# D1 is learned in several ways (a topology and a rate each), and D2 after it with several rates. In the
# papers of Pfuelb and Gepperth (2018, 2019) test data choose: these rules judge finished runs, and train
# nothing.

LEARNED = 0.5  # accuracy on D2 below which a training on D2 counts for nothing: it kept D1 by not learning


def on_both(accuracies: Sequence[float | None], tests: Sequence[int]) -> float:
    """The accuracy on several tasks together, which weigh as their test examples are many.

    >>> on_both([1.0, 0.5], [9000, 1000])
    0.95
    """
    assert None not in accuracies, "both can be predicted"
    return sum(map(mul, tests, accuracies)) / sum(tests)


class Retraining(NamedTuple):
    """One training on D2, and the training on D1 before it: accuracies at measuring points."""

    way: int  # the number of the way in which D1 was learned
    on_d1: Sequence[float]  # of D1, while D1 is learned
    on_d2: Sequence[float]  # of D2, while D2 is learned
    union: Sequence[float]  # of both, while D2 is learned

    @property
    def is_valid(self) -> bool:
        return max(self.on_d2) >= LEARNED


class Judged(NamedTuple):
    """What a rule makes of all trainings: an accuracy on the union, of which training, and at which point."""

    accuracy: float
    training: int
    point: int


def prescient(trainings: Sequence[Retraining]) -> Judged | None:
    """The highest accuracy on the union that any training had at any point (ICANN18, algorithm 1)."""
    found = [Judged(max(t.union), i, first_max(t.union)) for i, t in enumerate(trainings) if t.is_valid]
    return max(found, key=lambda judged: judged.accuracy, default=None)


def realistic(
    trainings: Sequence[Retraining],
    crossing: Literal["first", "last"] = "first",
    share: float = 0.99,
    rate_by: Literal["union", "d2"] = "union",
) -> Judged | None:
    """The accuracy on the union at t_E, where D2 is learned (ICANN18, algorithm 2).

    The way is the one with the highest accuracy on D1. t_E is the ``crossing`` of ``share`` of the highest
    accuracy on D2: the first with 0.99 in the paper, the last with 0.999 in the released program. The rate of
    D2 is the one with the highest result in the paper, by the accuracy on D2 alone in the later program.
    """
    found = []
    for i in of_best_way(trainings):
        on_d2, union = trainings[i].on_d2, trainings[i].union
        above = [point for point, accuracy in enumerate(on_d2) if accuracy > share * max(on_d2)]
        point = above[0 if crossing == "first" else -1]
        found.append((union[point] if rate_by == "union" else max(on_d2), Judged(union[point], i, point)))
    return max(found, key=lambda each: each[0])[1] if found else None


def application_best(trainings: Sequence[Retraining]) -> Judged | None:
    """The highest accuracy on the union, of the way that learned D1 best and the rate that learned D2 best
    (ICLR19, algorithm 1)."""
    if (chosen := best_rate(trainings)) is None:
        return None
    union = trainings[chosen].union
    return Judged(max(union), chosen, first_max(union))


def application_last(trainings: Sequence[Retraining]) -> Judged | None:
    """The accuracy on the union at the last measuring point of the same training as ``application_best``."""
    if (chosen := best_rate(trainings)) is None:
        return None
    union = trainings[chosen].union
    return Judged(union[-1], chosen, len(union) - 1)


def best_rate(trainings: Sequence[Retraining]) -> int | None:
    """The training that learned D2 best among those of the best way; of equal ones the first."""
    return max(of_best_way(trainings), key=lambda i: max(trainings[i].on_d2), default=None)


def of_best_way(trainings: Sequence[Retraining]) -> list[int]:
    """The valid trainings on D2 that follow the way with the highest accuracy on D1; of equal ones the
    first."""
    best = max(trainings, key=lambda t: (max(t.on_d1), -t.way)).way
    return [i for i, t in enumerate(trainings) if t.way == best and t.is_valid]


def first_max(values: Sequence[float]) -> int:
    return max(range(len(values)), key=values.__getitem__)
