"""A first layer a task, and all other layers shared."""

from __future__ import annotations

import torch

from cl_lightning.learners import Multimodal
from cl_lightning.randomness import seeded
from tests import toys
from tests.learners import by_hand
from tests.toys import builder


def test_the_tasks_own_first_layer_and_the_shared_ones_are_trained_as_by_hand() -> None:
    s = toys.stream(tasks=2)
    learner = by_hand.learned(Multimodal(build=builder(s), seed=by_hand.SEED), s)
    with seeded(by_hand.SEED, "init", 0):
        begun = by_hand.copied(list(builder(s, inputs="per_task")().parameters()))
    shapes = [tuple(w.shape) for w in begun]
    assert shapes == [(16, 36), (16,), (16, 36), (16,), (16, 16), (16,), (4, 16), (4,)]
    assert not torch.equal(begun[0], begun[2])
    inputs, shared = (begun[:2], begun[2:4]), begun[4:]
    for index, own in enumerate(inputs):
        by_hand.train([*own, *shared], s.task(index).train, index)
    assert by_hand.equal(learner.network, [*inputs[0], *inputs[1], *shared])
    assert by_hand.same_logits(learner, [[*own, *shared] for own in inputs], s.test(0).x[:5])
