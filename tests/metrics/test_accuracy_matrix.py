"""Formulas against hand-computed examples and against each other."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cl_lightning.metrics.accuracy_matrix import (
    average_accuracy,
    average_incremental_accuracy,
    backward_transfer,
    forgetting,
    forgetting_from_best,
    forgetting_ratio,
    forward_transfer,
    learning_accuracy,
    predicted,
)
from cl_lightning.metrics.table import metrics_of

R = torch.tensor([[0.1, 0.1, 0.1], [0.9, 0.5, 0.2], [0.7, 0.8, 0.3], [0.6, 0.9, 0.7]])
WORKED = {
    average_accuracy: 0.7333,
    average_incremental_accuracy: 0.7944,
    learning_accuracy: 0.8,
    backward_transfer: -0.1,
    forward_transfer: 0.3,
    forgetting: 0.1,
    forgetting_from_best: 0.1,
}


@pytest.mark.parametrize(("metric", "value"), WORKED.items())
def test_the_worked_example(metric, value: float) -> None:
    assert metric(R).item() == pytest.approx(value, abs=1e-4)


TOLD_APART = torch.tensor(  # no two definitions give the same number, whatever the sign
    [
        [0.10, 0.30, 0.72, 0.20],
        [0.90, 0.40, 0.15, 0.25],
        [0.95, 0.80, 0.50, 0.10],
        [0.60, 0.85, 0.70, 0.45],
        [0.50, 0.75, 0.75, 0.80],
    ],
    dtype=torch.float64,
)
BY_HAND = {
    "average_accuracy": (0.50 + 0.75 + 0.75 + 0.80) / 4,  # 0.7
    "average_incremental_accuracy": (0.90 + (0.95 + 0.80) / 2 + (0.60 + 0.85 + 0.70) / 3 + 2.80 / 4)
    / 4,  # 0.798
    "learning_accuracy": (0.90 + 0.80 + 0.70 + 0.80) / 4,  # 0.8
    "backward_transfer": ((0.50 - 0.90) + (0.75 - 0.80) + (0.75 - 0.70)) / 3,  # -0.133
    "forward_transfer": ((0.40 - 0.30) + (0.50 - 0.72) + (0.45 - 0.20)) / 3,  # 0.043
    "forgetting": ((0.90 - 0.50) + (0.80 - 0.75) + (0.70 - 0.75)) / 3,
    "forgetting_from_best": ((0.95 - 0.50) + (0.85 - 0.75) + (0.70 - 0.75)) / 3,  # without rows 0 and T
}


def test_every_name_stands_for_its_own_definition() -> None:
    assert metrics_of(TOLD_APART.tolist()) == pytest.approx(BY_HAND)
    for function in WORKED:
        assert function(TOLD_APART).item() == pytest.approx(BY_HAND[function.__name__]), function.__name__


def test_a_learner_that_knows_only_the_last_task() -> None:
    """Accuracies of the identity: ACC 1/T, BWT exactly -1, and every definition agrees on total
    forgetting."""
    identity = torch.cat([torch.zeros(1, 4), torch.eye(4)])
    assert average_accuracy(identity) == 0.25
    assert average_incremental_accuracy(identity).item() == pytest.approx((1 + 1 / 2 + 1 / 3 + 1 / 4) / 4)
    assert backward_transfer(identity) == -1
    assert forgetting(identity) == 1
    assert forgetting_from_best(identity) == 1
    assert forgetting_ratio(identity, torch.zeros(4), torch.ones(4)) == 0.75


ROSE_AND_FELL = torch.tensor(
    [[0.0, 0.0, 0.0], [0.5, 0.0, 0.0], [0.9, 0.8, 0.0], [0.4, 0.6, 0.7]]
)  # task 0 was best after task 1
FORGOTTEN = {  # by hand
    "since it was learned": (forgetting, ((0.5 - 0.4) + (0.8 - 0.6)) / 2),
    "from its best": (forgetting_from_best, ((0.9 - 0.4) + (0.8 - 0.6)) / 2),
    "of joint training": (lambda R: forgetting_ratio(R, R[0], torch.ones(3)), 1 - (0.4 + 0.6 + 0.7) / 3),
}


@pytest.mark.parametrize("definition", FORGOTTEN)
def test_each_definition_of_forgetting_has_its_own_number_and_is_positive_where_something_was_forgotten(
    definition: str,
) -> None:
    metric, by_hand = FORGOTTEN[definition]
    assert metric(ROSE_AND_FELL).item() == pytest.approx(by_hand, abs=1e-6)
    assert by_hand > 0


def test_the_incremental_average_looks_at_learned_tasks_alone_and_at_every_row() -> None:
    by_hand = (0.5 + (0.9 + 0.8) / 2 + (0.4 + 0.6 + 0.7) / 3) / 3
    assert average_incremental_accuracy(ROSE_AND_FELL).item() == pytest.approx(by_hand, abs=1e-6)
    unseen = ROSE_AND_FELL.clone()
    unseen[0], unseen[1, 1:], unseen[2, 2] = torch.nan, torch.nan, torch.nan  # trainer.evaluate=seen
    assert average_incremental_accuracy(unseen) == average_incremental_accuracy(ROSE_AND_FELL)
    unseen[2, 0] = torch.nan
    assert average_incremental_accuracy(unseen).isnan()


matrices = st.integers(2, 6).flatmap(
    lambda t: st.lists(st.lists(st.floats(0, 1), min_size=t, max_size=t), min_size=t + 1, max_size=t + 1)
)


@given(matrices)
def test_forgetting_from_best_is_at_least_the_loss_since_learning(rows: list) -> None:
    R = torch.tensor(rows, dtype=torch.float64)
    assert forgetting_from_best(R) >= forgetting(R) - 1e-12
    assert forgetting(R) == -backward_transfer(R)


@given(matrices)
def test_average_is_learning_accuracy_plus_transfer(rows: list) -> None:
    R = torch.tensor(rows, dtype=torch.float64)
    tasks = R.shape[1]
    assert average_accuracy(R).item() == pytest.approx(
        (learning_accuracy(R) + backward_transfer(R) * (tasks - 1) / tasks).item()
    )


def test_the_best_accuracy_counts_even_from_before_a_task_was_learned_and_missing_entries_do_not() -> None:
    early = R.clone()
    early[1, 1] = 1.0  # after task 0, better than ever after
    assert forgetting_from_best(early).item() == pytest.approx(((0.9 - 0.6) + (1.0 - 0.9)) / 2, abs=1e-6)
    unseen = R.clone()
    unseen[1, 1] = torch.nan
    assert forgetting_from_best(unseen).item() == pytest.approx(0.1, abs=1e-6)
    unseen[1:3, 1] = torch.nan
    assert forgetting_from_best(unseen).isnan()


def test_a_ratio_of_zero_is_joint_training() -> None:
    assert forgetting_ratio(R, R[0], R[-1]) == 0


def with_nulls(matrix: torch.Tensor) -> list[list[float | None]]:
    return [[None if value != value else value for value in row] for row in matrix.tolist()]


NEEDED = {  # entries (row, column) of a matrix of three tasks
    "average_accuracy": {(3, 0), (3, 1), (3, 2)},
    "average_incremental_accuracy": {(1, 0), (2, 0), (2, 1), (3, 0), (3, 1), (3, 2)},
    "learning_accuracy": {(1, 0), (2, 1), (3, 2)},
    "backward_transfer": {(3, 0), (1, 0), (3, 1), (2, 1)},
    "forward_transfer": {(1, 1), (0, 1), (2, 2), (0, 2)},
    "forgetting": {(3, 0), (1, 0), (3, 1), (2, 1)},
    "forgetting_from_best": {(3, 0), (3, 1)},  # the best is that of the entries there are
}


@pytest.mark.parametrize("name", NEEDED)
def test_a_metric_is_missing_where_an_entry_that_it_needs_is_and_else_it_is_not(name: str) -> None:
    missing = set()
    for entry in ((i, j) for i in range(4) for j in range(3)):
        one_less = R.clone()
        one_less[entry] = torch.nan
        if metrics_of(with_nulls(one_less))[name] is None:
            missing.add(entry)
    assert missing == NEEDED[name]


def test_what_a_missing_entry_decides_is_missing() -> None:
    blind = R.clone()
    blind[0] = torch.nan  # no baseline row
    values = metrics_of(with_nulls(blind))
    assert values["forward_transfer"] is None
    assert values["average_accuracy"] == pytest.approx(average_accuracy(R).item())
    assert all(
        value is None
        for name, value in metrics_of([[0.1], [0.9]]).items()
        if "transfer" in name or "forgetting" in name
    )


def test_logits_that_are_nan_are_wrong_whatever_the_class() -> None:
    nan, inf = torch.nan, torch.inf
    logits = torch.tensor([[nan, nan], [nan, 1.0], [2.0, nan], [1.0, -inf], [-inf, 1.0], [inf, 0.0]])
    assert (predicted(logits) == torch.tensor([0, 1, 0, 0, 1, 0])).tolist() == [False] * 3 + [True] * 3
