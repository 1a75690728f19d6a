"""The rules of selection against answers by hand."""

from __future__ import annotations

import pytest

from cl_lightning.selection.rules import best_of, best_point, goes_back_to_best, improves, out_of_patience


@pytest.mark.parametrize(
    ("scores", "lost", "best"),
    [
        ([0.3, 0.8, 0.5], (), 1),
        ([0.3, 0.5, 0.8], (), 2),
        ([0.8, 0.3, 0.5], (), 0),
        ([0.3, 0.8, 0.8], (), 1),
        ([-0.3, -0.8], (), 0),
        ([0.3, 0.9, 0.5], [1], 2),
        ([0.9, 0.0, 0.0], [0], 1),
        ([None, 0.2], (), 1),
        ([None], (), 0),
    ],
)
def test_the_first_of_the_highest_scores_that_is_not_lost_is_best(scores, lost, best: int) -> None:
    assert best_of(scores, [i in lost for i in range(len(scores))]) == best


def test_a_candidate_goes_back_to_its_first_best_score_and_stops_when_patience_is_over() -> None:
    """How long training goes on after a score, and to what: in tests/engine/test_rules.py."""
    assert [improves(0.5, best) for best in (None, 0.4, 0.5, 0.6)] == [True, True, False, False]
    assert [out_of_patience(steps, 3) for steps in (2, 3, 4)] == [False, True, True]
    assert not out_of_patience(10**9, None)
    asked = [(None, None), (None, 3), ("last", 3), ("best", None)]
    assert [goes_back_to_best(*each) for each in asked] == [False, True, False, True]


@pytest.mark.parametrize(
    ("scores", "chosen"),
    [
        ({0: [0.5], 1: [0.7], 2: [0.7]}, (1, 0.7)),
        ({1: [0.7], 0: [0.7]}, (0, 0.7)),  # the first of the grid, whichever ended first
        ({0: [0.5, 0.9], 1: [0.6, 0.6]}, (0, 0.7)),
        ({0: [None], 1: [0.1]}, (1, 0.1)),
        ({0: [0.9, None], 1: [0.1, 0.2]}, (1, 0.15)),
        ({0: [None], 1: [None]}, None),
    ],
)
def test_the_first_point_with_the_highest_mean_is_chosen_of_those_with_all_scores(scores, chosen) -> None:
    assert best_point(scores) == (chosen and pytest.approx(chosen))
