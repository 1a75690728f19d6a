"""Joint training on the pool of all tasks so far."""

from __future__ import annotations

from collections import UserList

import pytest
import torch

from cl_lightning.data.task import Split
from cl_lightning.learners import Finetune, Joint, Learner
from tests import toys
from tests.learners import by_hand
from tests.toys import builder, learn, training


def make(cls, **options: object) -> Learner:
    return cls(build=builder(toys.stream()), head=toys.stream().head, seed=0, **options)


@pytest.mark.parametrize("restart", [True, False])
def test_it_is_trained_by_hand_on_all_examples_so_far(restart: bool) -> None:
    s = toys.stream(tasks=2)
    learner = by_hand.learned(Joint(build=builder(s), head=s.head, seed=by_hand.SEED, restart=restart), s)
    first, second = s.task(0).train, s.task(1).train
    pool = Split(*(torch.cat([one, other]) for one, other in zip(first.parts, second.parts)))
    net = by_hand.fresh(0)
    by_hand.train(net, first, 0)
    if restart:
        net = by_hand.fresh(0)
    by_hand.train(net, pool, 1)
    assert by_hand.equal(learner.network, net)


class Noting(Joint):
    """Notes every example it is trained on, by task and place in its task."""

    def __init__(self, **base: object) -> None:
        super().__init__(**base)
        self.seen = UserList()

    def loss(self, c, batch):
        self.seen += list(zip(batch.task.tolist(), batch.x.flatten(1).sum(1).tolist()))
        return super().loss(c, batch)


@pytest.mark.parametrize(("at", "trainings"), [("last_task", [3]), ("every_task", [1, 2, 3])])
def test_joint_training_sees_every_example_of_the_pool_once_an_epoch(at: str, trainings: list[int]) -> None:
    learner, s = make(Noting, at=at), toys.stream()
    learn(learner, s, training(max_epochs=2))
    expected = []
    for tasks in trainings:
        pool = [(i, x.sum().item()) for i in range(tasks) for x in s.task(i).train.x.flatten(1)]
        expected += pool * 2
    assert sorted(t for t, _ in learner.seen) == sorted(t for t, _ in expected)
    assert sorted(round(x, 2) for _, x in learner.seen) == pytest.approx(
        sorted(round(x, 2) for _, x in expected), abs=0.02
    )


def test_candidates_are_chosen_by_validation_examples_of_all_tasks_so_far() -> None:
    s = toys.stream(tasks=2)
    run = learn(make(Joint), s)
    examples = [s.validation(0), s.validation(1)]
    right = [run.learner.network(each.x).argmax(1) == each.y for each in examples]
    assert run.winner(1)["val_accuracy"] == pytest.approx(torch.cat(right).double().mean().item())
    assert right[0].sum() != right[1].sum()


def test_joint_from_scratch_does_not_depend_on_what_it_learned_before() -> None:
    every, last = learn(make(Joint), toys.stream()), learn(make(Joint, at="last_task"), toys.stream())
    assert torch.equal(every.weights, last.weights)
    assert last.matrix[:3] == [[None] * 3] * 3
    assert last.matrix[3] == every.matrix[3]


def test_joint_beats_finetune_on_the_average_of_all_tasks() -> None:
    joint, finetune = (
        learn(make(cls), toys.stream(tasks=5), training(max_epochs=20)).matrix[-1]
        for cls in (Joint, Finetune)
    )
    assert sum(joint) > sum(finetune)
