"""Formulas against hand-computed examples and against each other."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cl_lightning import metrics
from cl_lightning.metrics import accuracy_matrix
from cl_lightning.metrics.accuracy_matrix import (
    all_metrics,
    average_accuracy,
    average_incremental_accuracy,
    backward_transfer,
    forgetting,
    forgetting_from_best,
    forgetting_ratio,
    forward_transfer,
    learning_accuracy,
)

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
    assert {name: value.item() for name, value in all_metrics(TOLD_APART).items()} == pytest.approx(BY_HAND)
    for function in WORKED:
        assert function(TOLD_APART).item() == pytest.approx(BY_HAND[function.__name__]), function.__name__


def test_as_torchmetrics_their_names_stand_for_the_same() -> None:
    for cls, function in CLASSES.items():
        metric = cls(tasks=4)
        for learned in range(5):
            for task in range(4):
                right = round(TOLD_APART[learned, task].item() * 100)
                metric.update(torch.tensor([1] * right + [0] * (100 - right)), torch.ones(100), learned, task)
        assert metric.compute().item() == pytest.approx(BY_HAND[function.__name__]), cls.__name__


def test_an_entry_is_the_share_of_all_examples_of_a_task_after_so_many_tasks() -> None:
    """Rows: how many tasks were learned, from none on. A batch of 3 and one of 1 are 4 examples, not 2
    batches."""
    metric, nan = metrics.AccuracyMatrix(tasks=2), torch.nan
    metric.update(torch.tensor([0, 1, 2]), torch.tensor([0, 1, 2]), learned=2, task=0)
    metric.update(torch.tensor([[9.0, 1.0, 2.0]]), torch.tensor([1]), learned=2, task=0)
    metric.update(torch.tensor([2, 2]), torch.tensor([2, 1]), learned=0, task=1)
    metric.update(torch.tensor([0]), torch.tensor([2]), learned=1, task=0)
    expected = torch.tensor([[nan, 0.5], [0.0, nan], [0.75, nan]], dtype=torch.float64)
    assert torch.equal(metric.compute().nan_to_num(-1), expected.nan_to_num(-1))


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
        if all_metrics(one_less)[name].isnan():
            missing.add(entry)
    assert missing == NEEDED[name]


def test_what_a_missing_entry_decides_is_missing() -> None:
    blind = R.clone()
    blind[0] = torch.nan  # no baseline row
    values = all_metrics(blind)
    assert values["forward_transfer"].isnan()
    assert values["average_accuracy"] == average_accuracy(R)
    assert all(
        v.isnan()
        for name, v in all_metrics(torch.tensor([[0.1], [0.9]])).items()
        if "transfer" in name or "forgetting" in name
    )


def test_every_metric_of_a_run_is_the_function_of_its_name() -> None:
    best_in_between = torch.tensor([[0.1, 0.1, 0.1], [0.9, 0.5, 0.2], [0.95, 0.8, 0.3], [0.6, 0.9, 0.7]])
    values = all_metrics(best_in_between)
    assert all(value == getattr(accuracy_matrix, name)(best_in_between) for name, value in values.items())
    assert values["forgetting_from_best"].item() == pytest.approx(0.125), "((.95 - .6) + (.8 - .9)) / 2"
    assert abs(values["forgetting"].item()) == pytest.approx(0.1), "((.9 - .6) + (.8 - .9)) / 2"


CLASSES = {
    metrics.AverageAccuracy: average_accuracy,
    metrics.AverageIncrementalAccuracy: average_incremental_accuracy,
    metrics.LearningAccuracy: learning_accuracy,
    metrics.BackwardTransfer: backward_transfer,
    metrics.ForwardTransfer: forward_transfer,
    metrics.Forgetting: forgetting,
    metrics.ForgettingFromBest: forgetting_from_best,
}


@pytest.mark.parametrize(("cls", "function"), CLASSES.items())
def test_as_torchmetrics_they_accumulate_batches(cls, function) -> None:
    generator, metric, matrix = (
        torch.Generator().manual_seed(0),
        cls(tasks=3),
        metrics.AccuracyMatrix(tasks=3),
    )
    for learned in range(4):
        for task in range(3):
            logits, target = (
                torch.rand(20, 5, generator=generator),
                torch.randint(5, (20,), generator=generator),
            )
            for part in range(2):
                metric.update(logits[part::2], target[part::2], learned, task)
            matrix.update(logits, target, learned, task)
    assert metric.compute() == pytest.approx(function(matrix.compute()))
    metric.reset()
    metric.update(torch.tensor([1]), torch.tensor([1]), 0, 0)
    assert metric.compute().isnan(), "nothing is left of what it had seen"


def test_the_ratio_as_a_torchmetric_takes_its_references() -> None:
    metric = metrics.ForgettingRatio(1, random=torch.tensor([0.0]), joint=torch.tensor([1.0]))
    metric.update(torch.tensor([1, 1, 0, 0]), torch.tensor([1, 1, 1, 1]), learned=1, task=0)
    assert metric.compute() == 0.5


def test_logits_that_are_nan_are_wrong_whatever_the_class() -> None:
    metric, nan, inf = metrics.AccuracyMatrix(1), torch.nan, torch.inf
    logits = torch.tensor([[nan, nan], [nan, 1.0], [2.0, nan], [1.0, -inf], [-inf, 1.0], [inf, 0.0]])
    metric.update(logits, torch.tensor([0, 1, 0, 0, 1, 0]), learned=1, task=0)
    assert metric.compute()[1].item() == 3 / 6
