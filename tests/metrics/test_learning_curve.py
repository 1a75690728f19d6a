"""The area under learning curves."""

import pytest

from cl_lightning.metrics.learning_curve import learning_curve_area


def test_the_area_is_the_mean_over_the_first_mini_batches_and_over_tasks() -> None:
    assert (
        learning_curve_area([{b: b / 10 for b in range(6)}, dict.fromkeys(range(6), 0.5)]) == (0.25 + 0.5) / 2
    )


def test_the_first_mini_batches_are_five_with_the_look_before_them_unless_told_otherwise() -> None:
    curve = {0: 0.1, 1: 0.2, 2: 0.4, 3: 0.3, 4: 0.6, 5: 0.8, 6: 0.9, 20: 1.0}
    assert learning_curve_area([curve]) == pytest.approx((0.1 + 0.2 + 0.4 + 0.3 + 0.6 + 0.8) / 6)
    assert learning_curve_area([curve], beta=2) == pytest.approx((0.1 + 0.2 + 0.4) / 3)
    assert learning_curve_area([curve], beta=0) == 0.1
    assert learning_curve_area([curve, {0: 0.7}, {0: 0.0, 5: 0.6}]) == pytest.approx((0.4 + 0.7 + 0.1) / 3)


def test_a_curve_that_ends_early_keeps_its_last_value() -> None:
    assert learning_curve_area([{0: 0.9}]) == 0.9
    assert abs(learning_curve_area([{0: 0.0, 1: 0.6, 10: 1.0}]) - 0.5) < 1e-12


def test_without_a_look_before_the_first_mini_batch_there_is_no_area() -> None:
    assert learning_curve_area([{1: 0.5}]) is None
    assert learning_curve_area([]) is None
