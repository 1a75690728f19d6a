"""Learners compared seed by seed: streams are equal by seed, so differences are paired.

- The exact sign-flip test: under the hypothesis that two learners are alike, each seed's difference could as
  well have the other sign; the p-value is the share of all 2^n choices of signs whose mean is at least as far
  from 0 as the observed one.
- The bootstrap interval of the mean difference, bias-corrected and accelerated (BCa; Efron 1987).
- Holm's correction (1979) over the comparisons of one table.
- Over several streams, as Agarwal et al. 2021 (rliable) do: the interquartile mean with its stratified
  bootstrap interval, and the probability of improvement.

All draws are seeded: the same numbers give the same table. ``better`` is said where test and interval agree.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from cl_lightning.randomness import seed_of

LEVEL = 0.05  # of the test, after Holm; the intervals hold 1 - LEVEL
DRAWS = 10_000  # of a bootstrap
EXACT = 20  # seeds up to which all signs are tried; with more, 2 ** EXACT drawn ones are
Array = np.ndarray


@dataclass(frozen=True)
class Comparison:
    """One learner against another on the seeds that both have: the first minus the second."""

    seeds: int
    difference: float
    low: float | None  # of the interval; None with one seed
    high: float | None
    p: float  # of the table's comparisons together (Holm)
    improvement: float  # probability that the first is above the second, any seed of each
    needed: int  # seeds with which so many comparisons could be told apart at all

    @property
    def verdict(self) -> str:
        """``better`` and ``worse`` where test and interval agree, else what keeps them from it.

        >>> Comparison(3, 0.05, 0.04, 0.06, p=0.25, improvement=1.0, needed=6).verdict
        'needs 6 seeds'
        >>> Comparison(6, 0.05, 0.04, 0.06, p=0.031, improvement=1.0, needed=6).verdict
        'better'
        """
        if self.low is not None and self.high is not None and self.p <= LEVEL and self.low * self.high > 0:
            return "better" if self.low > 0 else "worse"
        return f"needs {self.needed} seeds" if self.seeds < self.needed else "no difference shown"


def compare_all(pairs: Sequence[tuple[Mapping[int, float], Mapping[int, float]]]) -> list[Comparison | None]:
    """The comparisons of one table, each of two learners' values by seed; None where they share no seed."""
    shared = [sorted(one.keys() & other.keys()) for one, other in pairs]
    paired = [[one[s] - other[s] for s in seeds] for (one, other), seeds in zip(pairs, shared) if seeds]
    corrected = iter(holm([sign_flip(differences) for differences in paired]))
    found: list[Comparison | None] = []
    for (one, other), seeds in zip(pairs, shared):
        if not seeds:
            found.append(None)
            continue
        differences = np.array([one[s] - other[s] for s in seeds])
        low, high = bca_interval(differences) if len(seeds) > 1 else (None, None)
        a, b = (np.array([[values[s]] for s in seeds]) for values in (one, other))
        more = (probability_of_improvement(a, b), seeds_needed(len(paired)))
        found.append(Comparison(len(seeds), float(differences.mean()), low, high, next(corrected), *more))
    return found


# ---- tests -------------------------------------------------------------------------------------------------


def sign_flip(differences: Sequence[float]) -> float:
    """The two-sided p-value of the exact sign-flip test on paired differences.

    >>> sign_flip([0.1, 0.2, 0.3]), sign_flip([0.1, -0.1])
    (0.25, 1.0)
    """
    d = np.asarray(differences, dtype=np.float64)
    tolerance = 1e-12 * float(np.abs(d).sum())  # sums of the same numbers in another order are the same
    observed, count, total = abs(float(d.sum())), 0, 0
    for signs in all_signs(len(d)):
        count += int((np.abs(signs @ d) >= observed - tolerance).sum())
        total += len(signs)
    return count / total


def all_signs(n: int, at_once: int = 1 << 14) -> Iterator[Array]:
    """All rows of n signs, in parts; for more than EXACT seeds the observed signs and drawn ones."""
    if n > EXACT:
        generator = np.random.default_rng(seed_of("signs", n))
        yield np.ones((1, n))
        for _ in range((1 << EXACT) // at_once):
            yield generator.integers(0, 2, (at_once, n)) * 2.0 - 1.0
        return
    for start in range(0, 1 << n, at_once):
        numbers = np.arange(start, min(start + at_once, 1 << n))[:, None]
        yield (numbers >> np.arange(n) & 1) * 2.0 - 1.0


def holm(ps: Sequence[float]) -> list[float]:
    """P-values of several comparisons, corrected together, in their order.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    corrected, highest = [0.0] * len(ps), 0.0
    for rank, i in enumerate(sorted(range(len(ps)), key=lambda i: ps[i])):
        highest = max(highest, min(1.0, (len(ps) - rank) * ps[i]))
        corrected[i] = highest
    return corrected


def seeds_needed(comparisons: int) -> int:
    """The fewest seeds with which the smallest p-value, 2 / 2^n, passes Holm's first step.

    >>> [seeds_needed(m) for m in (1, 2, 3, 4, 6, 7, 12)]
    [6, 7, 7, 8, 8, 9, 9]
    """
    return math.ceil(math.log2(2 * max(1, comparisons) / LEVEL))


# ---- intervals and averages --------------------------------------------------------------------------------


def bca_interval(values: Sequence[float] | Array) -> tuple[float, float]:
    """The bias-corrected and accelerated bootstrap interval of the mean of two values or more."""
    v = np.asarray(values, dtype=np.float64)
    n, normal = len(v), NormalDist()
    generator = np.random.default_rng(seed_of("bootstrap", n))
    means = np.sort(v[generator.integers(0, n, (DRAWS, n))].mean(axis=1))
    mean, close = v.mean(), 1e-12 * float(np.abs(v).max())
    below = ((means < mean - close).sum() + (means <= mean + close).sum()) / (2 * DRAWS)  # ties count half
    if below in (0.0, 1.0) or means[0] == means[-1]:
        return float(means[0]), float(means[-1])
    bias = normal.inv_cdf(float(below))
    left_out = mean - (v.sum() - v) / (n - 1)  # the jackknife's mean is the mean itself
    acceleration = float((left_out**3).sum() / (6 * (left_out**2).sum() ** 1.5))
    ends = []
    for share in (LEVEL / 2, 1 - LEVEL / 2):
        z = bias + normal.inv_cdf(share)
        ends.append(float(np.quantile(means, normal.cdf(bias + z / (1 - acceleration * z)))))
    return ends[0], ends[1]


def interquartile_mean(scores: Array) -> float:
    """The mean of the middle half of all scores.

    >>> interquartile_mean(np.array([[0.0, 1.0, 2.0, 9.0]]))
    1.5
    """
    ordered = np.sort(np.asarray(scores, dtype=np.float64), axis=None)
    cut = len(ordered) // 4
    return float(ordered[cut : len(ordered) - cut].mean())


def stratified_interval(
    scores: Array, statistic: Callable[[Array], float] = interquartile_mean, draws: int = 2000
) -> tuple[float, float]:
    """The percentile bootstrap interval of a statistic of scores (seeds, streams): seeds are drawn anew for
    each stream by itself."""
    seeds, streams = scores.shape
    generator = np.random.default_rng(seed_of("stratified", seeds, streams))
    drawn = generator.integers(0, seeds, (draws, seeds, streams))
    values = [statistic(np.take_along_axis(scores, rows, axis=0)) for rows in drawn]
    low, high = np.quantile(values, [LEVEL / 2, 1 - LEVEL / 2])
    return float(low), float(high)


def probability_of_improvement(a: Array, b: Array) -> float:
    """The share of pairs of seeds in which a is above b, ties half, averaged over streams; scores are (seeds,
    streams).

    >>> probability_of_improvement(np.array([[0.5], [0.7]]), np.array([[0.6], [0.5]]))
    0.625
    """
    above = a[:, None, :] > b[None, :, :]
    equal = a[:, None, :] == b[None, :, :]
    return float((above + equal / 2).mean())
