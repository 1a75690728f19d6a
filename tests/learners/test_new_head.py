"""A trunk for all tasks and a head a task: what is trained when, and where heads begin."""

from __future__ import annotations

import pytest
import torch

from cl_lightning.learners import NewHead
from tests.learners import by_hand
from tests.toys import builder


@pytest.mark.parametrize("trunk", ["freeze", "finetune"])
def test_trunk_and_heads_are_trained_as_by_hand(trunk: str) -> None:
    s = by_hand.pairs()
    learner = by_hand.learned(NewHead(build=builder(s), seed=by_hand.SEED, trunk=trunk), s)
    below: by_hand.Net = []
    heads = []
    for index in range(3):
        net = by_hand.fresh(index, (36, 16, 16, 2))
        below, head = below or net[:4], net[4:]
        trained = head if trunk == "freeze" and index else [*below, *head]
        for _, x, y in by_hand.mini_batches(s.task(index).train, index):
            loss = by_hand.loss([*below, *head], x, y - 2 * index)
            by_hand.move(trained, by_hand.gradient(loss, trained))
        heads.append(head)
    assert by_hand.equal(learner.trunk, below)
    assert len(learner.heads) == 3
    assert all(by_hand.equal(module, head) for module, head in zip(learner.heads, heads))
    x = s.test(0).x[:5]
    for task, own in enumerate(by_hand.OWN):
        assert torch.allclose(learner(x, task)[:, own], by_hand.logits([*below, *heads[task]], x), atol=1e-3)
