"""Rules of Pfuelb and Gepperth on curves made by hand, whose answers can be read off."""

from __future__ import annotations

from functools import partial

import pytest

from cl_lightning.selection.rules import (
    Judged,
    Retraining,
    application_best,
    application_last,
    prescient,
    realistic,
)

# Two ways to learn D1; D2 is learned with a fast, a slow and a too slow rate after each.
FAST = Retraining(0, (0.7, 0.9), on_d2=(0.0, 0.90, 0.95, 0.94), union=(0.45, 0.50, 0.48, 0.47))
SLOW = Retraining(0, (0.7, 0.9), on_d2=(0.0, 0.60, 0.80, 0.93), union=(0.45, 0.62, 0.55, 0.53))
NOT = Retraining(0, (0.7, 0.9), on_d2=(0.0, 0.00, 0.10, 0.49), union=(0.45, 0.46, 0.70, 0.68))
OTHER = Retraining(1, (0.8, 0.89), on_d2=(0.0, 0.94, 0.96, 0.96), union=(0.44, 0.75, 0.60, 0.66))
ALL = [FAST, SLOW, NOT, OTHER]


def test_the_prescient_maximum_is_over_all_ways_rates_and_points() -> None:
    assert prescient(ALL) == Judged(0.75, 3, 1)


def test_the_realistic_way_is_chosen_by_d1_and_its_time_by_d2() -> None:
    """FAST reaches .99 of .95 = .9405 at point 2 (.48), SLOW .99 of .93 = .9207 at point 3 (.53); by the
    union SLOW is taken, by D2 FAST, whose .95 is above .93. The other way, .89 on D1, is not looked at."""
    assert realistic(ALL) == Judged(0.53, 1, 3)
    assert realistic(ALL, rate_by="d2") == Judged(0.48, 0, 2)


def test_the_last_crossing_is_the_released_programs() -> None:
    """With a share of .98 FAST is above .931 at points 2 and 3."""
    assert realistic([FAST], share=0.98) == Judged(0.48, 0, 2)
    assert realistic([FAST], share=0.98, crossing="last") == Judged(0.47, 0, 3)
    assert realistic([FAST], share=0.999, crossing="last") == Judged(0.48, 0, 2)
    assert realistic([FAST], share=0.9) == Judged(0.50, 0, 1)


def test_best_and_last_are_of_the_rate_that_learned_d2_best() -> None:
    assert application_best(ALL) == Judged(0.50, 0, 1)
    assert application_last(ALL) == Judged(0.47, 0, 3)


@pytest.mark.parametrize("rule", [prescient, realistic, application_best, application_last])
def test_a_training_that_never_learned_d2_wins_nothing(rule) -> None:
    """NOT has the highest accuracy on the union of its way, because it kept D1."""
    assert rule([NOT]) is None
    assert rule([NOT, FAST]).training == 1


BY_D2 = (partial(realistic, rate_by="d2"), application_best, application_last)


@pytest.mark.parametrize("rule", BY_D2)
def test_the_union_chooses_no_way(rule) -> None:
    """With other curves on the union the same training is judged where D2 chooses the rate."""
    changed = [t._replace(union=[1 - u for u in t.union]) for t in ALL]
    assert rule(changed).training == rule(ALL).training


def test_equal_ways_and_rates_go_to_the_first() -> None:
    twins = [FAST, FAST._replace(union=(0.1, 0.2, 0.3, 0.4)), FAST._replace(way=1)]
    for rule in BY_D2:
        assert rule(twins).training == 0


def test_prescient_is_never_below_realistic() -> None:
    for chosen in (ALL, ALL[::-1], [FAST, SLOW], [SLOW, OTHER]):
        assert prescient(chosen).accuracy >= realistic(chosen).accuracy
