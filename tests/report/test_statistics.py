"""Comparisons of learners, against what is worked out by hand and against enumerated signs."""

from __future__ import annotations

import itertools
from statistics import NormalDist

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cl_lightning.report.statistics import (
    EXACT,
    LEVEL,
    Comparison,
    bca_interval,
    compare_all,
    holm,
    interquartile_mean,
    probability_of_improvement,
    seeds_needed,
    sign_flip,
    stratified_interval,
)

SKEWED = [0.01, 0.02, 0.015, 0.03, 0.12, 0.05, 0.018, 0.025]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(-50, 50), min_size=1, max_size=9))
def test_the_sign_flip_test_is_the_share_of_all_signs_that_lie_as_far_out(differences: list[int]) -> None:
    observed = abs(sum(differences))
    sums = [
        abs(sum(s * d for s, d in zip(signs, differences)))
        for signs in itertools.product((1, -1), repeat=len(differences))
    ]
    share = sum(each >= observed for each in sums) / len(sums)
    assert sign_flip([d / 1000 for d in differences]) == share


def test_sign_flips_by_hand() -> None:
    assert sign_flip([0.02, 0.05, 0.01, 0.03, 0.04, 0.06]) == 2 / 64
    # Of eight sums of 3, 2 and -1, four are at least 4 away from 0: 4, 6 and their opposites.
    assert sign_flip([3, 2, -1]) == 4 / 8
    assert sign_flip([0.0, 0.0]) == 1.0


def test_many_seeds_are_tried_with_drawn_signs_and_the_observed_ones() -> None:
    differences = np.linspace(-0.6, 1.0, EXACT + 4)
    z = differences.sum() / np.sqrt((differences**2).sum())  # about normal, under the hypothesis
    assert sign_flip(differences) == pytest.approx(2 * (1 - NormalDist().cdf(z)), abs=0.01)
    assert 0 < sign_flip([1.0] * 30) < 1e-5


@pytest.mark.parametrize("comparisons", range(1, 14))
def test_so_many_seeds_suffice_and_one_less_does_not_by_enumeration(comparisons: int) -> None:
    def smallest(seeds: int) -> float:
        """The p-values of learners that are ahead with every seed, corrected; the greatest of them."""
        p = sign_flip([0.01 * (1 + seed) for seed in range(seeds)])
        return max(holm([p] * comparisons))

    needed = seeds_needed(comparisons)
    assert smallest(needed) <= LEVEL < smallest(needed - 1)
    assert needed == {1: 6, 2: 7, 3: 7, **dict.fromkeys(range(4, 7), 8)}.get(
        comparisons, 9 if comparisons <= 12 else 10
    )


def test_holm_by_hand() -> None:
    # In order .005 x 4, .01 x 3, .03 x 2 = .06, and .04 x 1 is not below what stands before it.
    assert holm([0.03, 0.005, 0.04, 0.01]) == pytest.approx([0.06, 0.02, 0.06, 0.03])
    assert holm([0.6, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


@pytest.mark.parametrize(
    ("values", "ends"),  # of SciPy 1.17.1, stats.bootstrap(method="BCa") with 400,000 draws
    [(SKEWED, (0.0206, 0.0754)), ([0.3, -0.1, 0.2, 0.25, 0.6, 1.4], (0.1667, 1.0))],
)
def test_the_interval_is_the_bias_corrected_and_accelerated_one(values: list, ends: tuple) -> None:
    assert bca_interval(values) == pytest.approx(ends, rel=0.06)
    shifted = bca_interval([10 * v + 3 for v in values])
    assert shifted == pytest.approx([10 * end + 3 for end in bca_interval(values)])


def test_the_interval_of_a_skewed_sample_leans_to_its_long_side() -> None:
    low, high = bca_interval(SKEWED)
    mean = sum(SKEWED) / len(SKEWED)
    assert high - mean > 1.5 * (mean - low)
    assert bca_interval([0.2] * 6) == pytest.approx((0.2, 0.2))
    assert bca_interval([0.1, 0.3]) == pytest.approx((0.1, 0.3))


def test_the_interquartile_mean_leaves_out_a_quarter_at_each_end() -> None:
    scores = np.array([[3.0, 100.0, 2.0], [-50.0, 4.0, 5.0], [1.0, 6.0, 7.0]])  # 9: two at each end
    assert interquartile_mean(scores) == (2 + 3 + 4 + 5 + 6) / 5


def test_seeds_are_drawn_within_each_stream() -> None:
    alike = np.array([[0.1, 0.9, 0.4]] * 4)  # streams differ, seeds do not
    assert stratified_interval(alike, np.mean) == pytest.approx((alike.mean(), alike.mean()))
    spread = alike + np.array([[-0.02], [-0.01], [0.01], [0.02]])
    low, high = stratified_interval(spread, np.mean)
    # The mean of 3 x 4 draws: the deviation of a draw is .0158, that of the mean .0158 / sqrt(12).
    assert (high - low) / 2 == pytest.approx(1.96 * 0.0158 / 12**0.5, rel=0.1)
    rows = np.random.default_rng(0).random((5, 4))
    assert stratified_interval(rows)[0] < interquartile_mean(rows) < stratified_interval(rows)[1]


def test_the_probability_of_improvement_counts_pairs_of_seeds_stream_by_stream() -> None:
    a, b = np.array([[1.0, 5.0], [2.0, 5.0]]), np.array([[1.0, 6.0], [0.0, 5.0], [3.0, 4.0]])
    first = (0.5 + 1 + 0 + 1 + 1 + 0) / 6  # 1 and 2 against 1, 0, 3
    second = (0 + 0.5 + 1) * 2 / 6  # 5 and 5 against 6, 5, 4
    assert probability_of_improvement(a, b) == pytest.approx((first + second) / 2)


def test_better_needs_a_test_and_an_interval_that_agree() -> None:
    def said(p: float, low: float, high: float, seeds: int = 8) -> str:
        return Comparison(seeds, (low + high) / 2, low, high, p, 0.5, 6).verdict

    assert said(0.04, 0.01, 0.03) == "better"
    assert said(0.04, -0.03, -0.01) == "worse"
    assert said(0.06, 0.01, 0.03) == said(0.04, -0.01, 0.03) == "no difference shown"
    assert said(0.06, 0.01, 0.03, seeds=5) == "needs 6 seeds"


def test_learners_are_compared_on_the_seeds_that_both_have_and_corrected_together() -> None:
    base = {seed: 0.5 + 0.01 * seed for seed in range(7)}
    above = {seed: base[seed] + 0.02 + 0.001 * seed for seed in range(7)}
    fewer = {seed: base[seed] + 0.02 for seed in (1, 2)} | {9: 0.6}
    one, other, none = compare_all([(above, base), (fewer, base), ({11: 0.5}, base)])
    assert one
    assert other
    assert none is None
    assert (one.seeds, one.verdict, one.p, one.needed) == (7, "better", 2 * 2 / 128, 7)
    assert one.difference == pytest.approx(0.023)
    assert (other.seeds, other.p, other.verdict) == (2, 0.5, "needs 7 seeds")
    (back,) = compare_all([(base, above)])
    assert back
    assert back.verdict == "worse"
    assert back.difference == -one.difference
    (single,) = compare_all([({0: 0.6}, {0: 0.5})])
    assert single
    assert (single.low, single.p, single.verdict) == (None, 1.0, "needs 6 seeds")


def test_the_same_numbers_give_the_same_statistics_and_nobody_elses_draws_are_touched() -> None:
    before, of_torch = np.random.get_state()[1].copy(), torch.get_rng_state()  # noqa: NPY002
    rows = np.random.default_rng(1).random((6, 3))
    assert bca_interval(SKEWED) == bca_interval(SKEWED)
    assert stratified_interval(rows) == stratified_interval(rows)
    assert sign_flip(np.ones(25)) == sign_flip(np.ones(25))
    assert (np.random.get_state()[1] == before).all()  # noqa: NPY002
    assert torch.equal(torch.get_rng_state(), of_torch)
