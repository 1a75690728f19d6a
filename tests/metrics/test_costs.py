"""Operations, against counts by hand."""

from __future__ import annotations

import pytest
import torch
import torch.nn as nn

from cl_lightning.learners import Finetune
from cl_lightning.metrics.costs import Costs
from cl_lightning.metrics.flops import Calls, flops_of
from tests import toys
from tests.toys import builder, learn, training


def test_a_linear_layer_forward_and_backward() -> None:
    layer, x = nn.Linear(7, 3), torch.zeros(5, 7)
    product = 2 * 5 * 7 * 3
    assert flops_of(layer, (x,), backward=False) == product
    assert flops_of(layer, (x,), backward=True) == 2 * product  # the input wants no gradient
    assert flops_of(layer, (x.requires_grad_(),), backward=True) == 3 * product


def test_a_frozen_layer_costs_no_backward_pass() -> None:
    layer, x = nn.Linear(7, 3).requires_grad_(False), torch.zeros(5, 7)
    assert flops_of(layer, (x,), backward=True) == 2 * 5 * 7 * 3


def test_a_convolution() -> None:
    conv = nn.Conv2d(3, 8, 3, padding=1)
    assert flops_of(conv, (torch.zeros(2, 3, 6, 6),), backward=False) == 2 * 2 * 8 * 36 * 27


def test_counting_draws_nothing_and_changes_nothing() -> None:
    network = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))
    torch.manual_seed(0)
    expected = torch.rand(2)
    torch.manual_seed(0)
    flops_of(network, (torch.zeros(3, 4),), backward=True)
    assert torch.equal(torch.rand(2), expected)
    assert network[1].num_batches_tracked == 0
    assert network[0].weight.grad is None


def test_nested_modules_count_once() -> None:
    network, x = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 2))), torch.zeros(3, 4)
    with Calls() as calls, torch.no_grad():
        network(x)
        network(x)
    assert calls.total == 2 * 2 * 3 * (16 + 8)


def test_nothing_is_noted_after_the_end() -> None:
    with Calls() as calls:
        pass
    nn.Linear(2, 2)(torch.zeros(1, 2))
    assert calls.total == 0


@pytest.mark.parametrize("stack", [True, False])
def test_a_phase_counts_every_mini_batch_and_scoring(stack: bool) -> None:
    s = toys.stream(tasks=1, n_train=25, n_val=40)
    learner = Finetune(build=builder(s), grid=[{"lr": 0.01}, {"lr": 0.02}], seed=0)
    costs = learn(learner, s, training(max_epochs=3, stack=stack, patience=1000)).journal.find("phase")["costs"]
    first, rest = 2 * 36 * 16, 2 * (16 * 16 + 16 * 4)
    scorings = len({0, 1, 2, 3, 4, 5, 6, 9})  # epochs end after 3, 6 and 9 mini-batches
    training_pass, forward = 2 * first + 3 * rest, first + rest
    assert costs["flops"] == costs["flops_executed"] == 2 * (3 * 25 * training_pass + scorings * 40 * forward)


def test_candidates_that_left_cost_nothing_more() -> None:
    s = toys.stream(tasks=1)
    learned = learn(Finetune(build=builder(s), grid=[{"lr": 0.02}, {"lr": 1e-9}], seed=0), s, training(patience=8, max_epochs=30))
    steps = [standing["steps"] for standing in learned.standing(0).values()]
    assert steps[0] > steps[1] == 10  # the second never improves
    forward = 2 * (36 * 16 + 16 * 16 + 16 * 4)
    training_pass = 3 * forward - 2 * 36 * 16
    scorings = [sum(step in (0, 1, 2, 3, 4, 5, 10) or step % 6 == 0 for step in range(n + 1)) for n in steps]
    expected = sum(10 * n * training_pass + 40 * k * forward for n, k in zip(steps, scorings))
    assert learned.journal.find("phase")["costs"]["flops"] == expected


class Looking(Finetune):
    """Runs its network over the training data at the end of a task, as for a Fisher matrix."""

    def on_task_end(self, task):
        self.network(task.train.x)


def test_the_learners_own_passes_are_counted() -> None:
    s = toys.stream(tasks=1, n_val=0)
    plain, looking = (learn(cls(build=builder(s), seed=0), s).engine.settle() for cls in (Finetune, Looking))
    forward = 2 * (36 * 16 + 16 * 16 + 16 * 4)
    assert looking.flops - plain.flops == 60 * (3 * forward - 2 * 36 * 16)  # gradients were not switched off


def test_costs_add_up_by_part() -> None:
    costs = Costs()
    costs.add(flops=5, flops_executed=3, seconds={"train": 1.0})
    costs.add(flops=1, flops_executed=1, examples=10, seconds={"train": 0.5, "score": 2.0})
    assert costs == Costs(flops=6, flops_executed=4, examples=10, seconds={"train": 1.5, "score": 2.0})
    again = Costs()
    again.add(**costs.plain())
    assert again == costs


def test_a_call_that_raises_leaves_the_count_in_order() -> None:
    layer = nn.Linear(4, 2)
    with Calls() as calls, torch.no_grad():
        with pytest.raises(RuntimeError):
            layer(torch.zeros(3, 5))
        layer(torch.zeros(3, 4))
    assert calls.total == 2 * 3 * 4 * 2


class Peculiar(nn.Module):
    """Takes a named argument, has a constant that is no buffer, and looks at numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.constant = nn.Linear(4, 2), torch.ones(2)

    def forward(self, x, *, twice):
        h = self.layer(x) + self.constant
        return h + self.layer(x) if twice and h.max() > -1e9 else h


def test_modules_that_cannot_run_on_meta_are_counted_all_the_same() -> None:
    network, x = Peculiar(), torch.rand(3, 4)
    with Calls() as calls:
        network(x, twice=True)
        network(x=x, twice=False)
    assert calls.total == (2 + 1) * 2 * (2 * 3 * 4 * 2)
    assert network.layer.weight.grad is None


class Repeats(Finetune):
    def extend(self, batch):
        return batch.cat(batch.x[:2], batch.y[:2], batch.task[:2])


def test_lent_and_added_examples_are_counted_once_a_mini_batch_whatever_the_number_of_candidates() -> None:
    learner = Repeats(build=builder(toys.stream()), grid=[{"lr": 0.1}, {"lr": 0.01}])
    row = learn(learner, toys.stream(tasks=1), training(max_epochs=3, batch_size=25)).journal.find("phase")
    assert (row["costs"]["examples"], row["costs"]["replayed"]) == (3 * 60, 3 * 3 * 2)
    assert row["costs"]["candidate_examples"] == 2 * 3 * 60


def test_what_mini_batches_cost_is_told_apart_from_scoring() -> None:
    learner = Finetune(build=builder(toys.stream()))
    costs = learn(learner, toys.stream(tasks=1), training(max_epochs=3, batch_size=20)).journal.find("phase")["costs"]
    assert costs["step_flops"] == 9 * flops_of(learner.network, (torch.zeros(20, 36), None), backward=True)
    assert costs["step_flops"] < costs["flops"]


def test_who_listens_to_a_network_does_not_hear_the_counting() -> None:
    network, heard = nn.Sequential(nn.Linear(6, 5), nn.Linear(5, 2)), []
    network[0].register_forward_hook(lambda *_: heard.append(1))
    with Calls() as calls:
        network(torch.zeros(3, 6))
    assert calls.total > 0
    assert heard == [1]
