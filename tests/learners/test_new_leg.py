"""A first module a task, and the others shared: what is trained when, and what stays."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from cl_lightning.backbones import ResNet
from cl_lightning.data.task import Head
from cl_lightning.errors import Refusal
from cl_lightning.learners import NewLeg
from tests import toys
from tests.learners import by_hand
from tests.toys import builder, learn, training

GRID = [{"lr": 0.01}, {"lr": 0.1}]


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("trunk", ["freeze", "finetune"])
def test_legs_and_trunk_are_trained_as_by_hand(trunk: str, masked: bool) -> None:
    s = by_hand.pairs() if masked else toys.stream()
    learner = by_hand.learned(NewLeg(build=builder(s), head=s.head, seed=by_hand.SEED, trunk=trunk), s)
    shared: by_hand.Net = []
    legs = []
    for index in range(3):
        net = by_hand.fresh(index, (36, 16, 16, 2 if masked else 4))
        leg, shared = net[:2], shared or net[2:]
        trained = leg if trunk == "freeze" and index else [*leg, *shared]
        for _, x, y in by_hand.mini_batches(s.task(index).train, index):
            loss = by_hand.loss([*leg, *shared], x, y - (2 * index if masked else 0))
            by_hand.move(trained, by_hand.gradient(loss, trained))
        legs.append(leg)
    by_program = by_hand.row([p for module in (learner.trunk, *learner.heads) for p in module.parameters()])
    assert torch.allclose(by_program, by_hand.row([*shared, *(w for leg in legs for w in leg)]), atol=1e-5)
    x = s.test(0).x[:5]
    for task, leg in enumerate(legs):
        own = by_hand.OWN[task] if masked else [0, 1, 2, 3]
        expected = by_hand.logits([*leg, *shared], x)
        assert torch.allclose(learner(x, task)[:, own], expected, atol=1e-3)


def after(tasks: int, trunk: str) -> toys.Learned:
    """With batch normalisation in all modules."""
    s = toys.stream(n_train=30, n_val=20)
    build = partial(ResNet, input_shape=s.shape, head=s.head, width=4)
    return learn(
        NewLeg(build=build, head=s.head, grid=GRID, trunk=trunk), s, training(max_epochs=2), tasks=tasks
    )


@pytest.mark.parametrize("trunk", ["freeze", pytest.param("finetune", marks=pytest.mark.all)])
def test_the_trunk_keeps_its_running_statistics_after_the_first_task(trunk: str) -> None:
    one, three = (after(tasks, trunk) for tasks in (1, 3))
    first, last = (dict(run.learner.trunk.state_dict()) for run in (one, three))
    weights = {name for name, _ in one.learner.trunk.named_parameters()}
    assert len(first) > len(weights)
    assert all(torch.equal(first[name], last[name]) for name in first.keys() - weights)
    assert all(torch.equal(first[name], last[name]) for name in weights) == (trunk == "freeze")
    means = [leg.state_dict() for leg in three.learner.heads]
    means = [next(value for name, value in of_one.items() if "running_mean" in name) for of_one in means]
    assert not torch.equal(*means[:2])
    if trunk == "freeze":  # no forgetting at all
        matrix = three.matrix
        assert matrix[-1] == [matrix[index + 1][index] for index in range(3)]


def test_unequal_tasks_are_refused_before_training() -> None:
    s = toys.stream()
    head = Head("multi_train_test", 5, ((0, 1), (2, 3, 4)))
    with pytest.raises(Refusal, match=r"they have \[2, 3\] classes"):
        NewLeg(build=builder(s), head=head)
