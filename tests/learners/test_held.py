"""Weights under a mask keep their bits, whatever the optimizer does; masked gradients do not hold them."""

from __future__ import annotations

import pytest
import torch

from cl_lightning.learners import Finetune
from cl_lightning.learners.parts.held import hold, note
from cl_lightning.randomness import rng
from tests import toys

HELD = 131  # of the 932 weights


class Held(Finetune):
    """From the second task on, some weights stay as they are."""

    def on_task_start(self, task):
        sizes = [p.numel() for p in self.network.parameters()]
        chosen = torch.randperm(sum(sizes), generator=rng("held"))[:HELD]
        flat = torch.zeros(sum(sizes)).index_fill(0, chosen, float(task.index > 0))
        shapes = [p.shape for p in self.network.parameters()]
        self.memory["masks"] = [part.view(shape) for part, shape in zip(flat.split(sizes), shapes)]

    def after_backward(self, c, batch):
        note(c, c.network.parameters())

    def after_step(self, c, batch):
        hold(c, self.memory["masks"])


class Naive(Held):
    """Multiplies the gradients by what is not held."""

    def after_backward(self, c, batch):
        for p, mask in zip(c.network.parameters(), self.memory["masks"]):
            p.grad *= 1 - mask

    def after_step(self, c, batch): ...


OPTIMIZERS = {  # and how many of the held weights masked gradients move, at least: not those of dead units
    "sgd": ({"optimizer": "sgd"}, 0),
    "adam": ({"optimizer": "adam"}, 0),
    "sgd with decay": ({"optimizer": "sgd", "weight_decay": 0.01}, HELD),
    "adam with decay": ({"optimizer": "adam", "weight_decay": 0.01}, HELD),
    "carried momentum": ({"optimizer": "sgd", "momentum": 0.9, "optimizer_state": "carry"}, 90),
    "carried moments": ({"optimizer": "adam", "optimizer_state": "carry"}, 90),
}


def moved(cls: type[Held], **options: object) -> tuple[int, int]:
    """How many of the held weights, and of the others, the second task moved."""
    s = toys.stream(tasks=2)
    learned = toys.learn(cls(build=toys.builder(s), head=s.head), s, toys.training(**options))
    held = torch.cat([mask.flatten() for mask in learned.learner.memory["masks"]]) == 1
    differ = learned.after[0] != learned.after[1]
    return int(differ[held].sum()), int(differ[~held].sum())


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_held_weights_keep_their_bits_and_with_masked_gradients_they_would_not(name: str) -> None:
    options, least = OPTIMIZERS[name]
    of_held, of_others = moved(Held, **options)
    assert of_held == 0
    assert of_others > 300
    in_naive_form, _ = moved(Naive, **options)
    assert in_naive_form >= least
    assert in_naive_form == 0 or least
