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
    learning_accuracy: 0.8,
    backward_transfer: -0.1,
    forward_transfer: 0.3,
    forgetting: -0.1,
    forgetting_from_best: 0.1,
}


@pytest.mark.parametrize(("metric", "value"), WORKED.items())
def test_the_worked_example(metric, value: float) -> None:
    assert metric(R).item() == pytest.approx(value, abs=1e-4)


def test_a_learner_that_knows_only_the_last_task() -> None:
    """Accuracies of the identity: ACC 1/T, BWT exactly -1, and every definition agrees on total forgetting."""
    identity = torch.cat([torch.zeros(1, 4), torch.eye(4)])
    assert average_accuracy(identity) == 0.25
    assert backward_transfer(identity) == -1
    assert forgetting_from_best(identity) == 1
    assert forgetting_ratio(identity, torch.zeros(4), torch.ones(4)) == -0.75


matrices = st.integers(2, 6).flatmap(lambda t: st.lists(st.lists(st.floats(0, 1), min_size=t, max_size=t), min_size=t + 1, max_size=t + 1))


@given(matrices)
def test_forgetting_from_best_is_at_least_the_loss_since_learning(rows: list) -> None:
    R = torch.tensor(rows, dtype=torch.float64)
    assert forgetting_from_best(R) >= -forgetting(R) - 1e-12


@given(matrices)
def test_average_is_learning_accuracy_plus_transfer(rows: list) -> None:
    R = torch.tensor(rows, dtype=torch.float64)
    tasks = R.shape[1]
    assert average_accuracy(R).item() == pytest.approx((learning_accuracy(R) + backward_transfer(R) * (tasks - 1) / tasks).item())


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


def test_what_a_missing_entry_decides_is_missing() -> None:
    blind = R.clone()
    blind[0] = torch.nan  # no baseline row
    values = all_metrics(blind)
    assert values["forward_transfer"].isnan()
    assert values["average_accuracy"] == average_accuracy(R)
    assert all(v.isnan() for name, v in all_metrics(torch.tensor([[0.1], [0.9]])).items() if "transfer" in name or "forgetting" in name)


def test_every_metric_of_a_run_is_the_function_of_its_name() -> None:
    best_in_between = torch.tensor([[0.1, 0.1, 0.1], [0.9, 0.5, 0.2], [0.95, 0.8, 0.3], [0.6, 0.9, 0.7]])
    values = all_metrics(best_in_between)
    assert all(value == getattr(accuracy_matrix, name)(best_in_between) for name, value in values.items())
    assert values["forgetting_from_best"].item() == pytest.approx(0.125), "((.95 - .6) + (.8 - .9)) / 2"
    assert abs(values["forgetting"].item()) == pytest.approx(0.1), "((.9 - .6) + (.8 - .9)) / 2"


CLASSES = {
    metrics.AverageAccuracy: average_accuracy,
    metrics.LearningAccuracy: learning_accuracy,
    metrics.BackwardTransfer: backward_transfer,
    metrics.ForwardTransfer: forward_transfer,
    metrics.Forgetting: forgetting,
    metrics.ForgettingFromBest: forgetting_from_best,
}


@pytest.mark.parametrize(("cls", "function"), CLASSES.items())
def test_as_torchmetrics_they_accumulate_batches(cls, function) -> None:
    generator, metric, matrix = torch.Generator().manual_seed(0), cls(tasks=3), metrics.AccuracyMatrix(tasks=3)
    for learned in range(4):
        for task in range(3):
            logits, target = torch.rand(20, 5, generator=generator), torch.randint(5, (20,), generator=generator)
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
    assert metric.compute() == -0.5
