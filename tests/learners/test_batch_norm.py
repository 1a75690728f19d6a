"""Running statistics of shared modules: they go on, or stay those of the first task."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

from cl_lightning.backbones import ResNet
from cl_lightning.learners import ER, EWC, Finetune, NewHead, NewLeg
from cl_lightning.randomness import seeded
from tests import toys
from tests.learners import by_hand

SHARING = [
    (Finetune, {}),
    pytest.param(EWC, {"strength": 10.0}, marks=pytest.mark.all),
    pytest.param(ER, {"size": 20}, marks=pytest.mark.all),
    pytest.param(NewHead, {"trunk": "finetune"}, marks=pytest.mark.all),
    (NewLeg, {"trunk": "finetune"}),
]


NETWORK = partial(ResNet, input_shape=toys.SHAPE, width=4, channels_last=False)


def shared(cls: Any, tasks: int, batch_norm: str, options: dict) -> nn.Module:
    """What tasks share after so many of them."""
    s = toys.stream(n_train=40, n_val=0)
    learner = cls(build=partial(NETWORK, head=s.head), head=s.head, batch_norm=batch_norm, **options)
    learner = toys.learn(learner, s, toys.training(max_epochs=1), tasks=tasks).learner
    return learner.trunk if cls in (NewHead, NewLeg) else learner.network


@pytest.mark.parametrize(("cls", "options"), SHARING)
def test_statistics_stay_or_go_on_while_weights_learn(cls: Any, options: dict) -> None:
    first = shared(cls, 1, "first_task", options)
    for batch_norm in ("first_task", "train"):
        last = shared(cls, 3, batch_norm, options)
        same = [torch.equal(a, b) for a, b in zip(first.buffers(), last.buffers(), strict=True)]
        assert all(same) if batch_norm == "first_task" else not any(same)
        assert not all(torch.equal(a, b) for a, b in zip(first.parameters(), last.parameters(), strict=True))


def test_finetune_with_the_statistics_of_the_first_task_is_as_by_hand() -> None:
    s = toys.stream(tasks=2, n_val=0)
    learner = Finetune(build=partial(NETWORK, head=s.head), head=s.head, seed=3, batch_norm="first_task")
    learned = by_hand.learned(learner, s).network
    with seeded(3, "init", 0):
        net = NETWORK(head=s.head)
    for index in range(2):
        net.train()
        if index:
            for module in net.modules():
                if isinstance(module, nn.BatchNorm2d):
                    module.eval()
        optimizer = torch.optim.SGD(net.parameters(), by_hand.RATE)
        for _, x, y in by_hand.mini_batches(s.task(index).train, index):
            optimizer.zero_grad()
            F.cross_entropy(net(x), y).backward()
            optimizer.step()
    assert all(
        map(partial(torch.allclose, atol=1e-4), net.state_dict().values(), learned.state_dict().values())
    )
