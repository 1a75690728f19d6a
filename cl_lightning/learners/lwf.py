"""Learning without forgetting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F

from cl_lightning.backbones.base import ByTask, called
from cl_lightning.config.checking import NotNegative, Positive, Size
from cl_lightning.data.task import Batch
from cl_lightning.errors import Refusal
from cl_lightning.learners.base import Candidate, Learner
from cl_lightning.learners.parts.one_task import numbers_on


class LwF(Learner):
    """loss + strength sum_k H(softmax(old_k / T), softmax(now_k / T)): on a new task's images the outputs of
    past heads k stay what they were before the task (Li and Hoiem 2016). H is the cross-entropy.

    A past task's outputs are a head where the task has outputs of its own at test; where it has none, all
    outputs of past tasks together are one. In the first ``warm_up`` epochs of a task the trunk gets no
    gradient, and the new head is trained alone; an output layer that tasks share is trained whole.
    """

    grid_keys, without_strength = ("strength",), {"strength": 0}

    def __init__(
        self,
        *,
        strength: NotNegative = 1.0,
        temperature: Positive = 2.0,
        times_squared_temperature: bool = False,
        warm_up: Size = 0,
        **base: Any,
    ) -> None:
        super().__init__(**base)
        self.strength, self.temperature, self.warm_up = strength, temperature, warm_up
        self.scale = temperature**2 if times_squared_temperature else 1.0

    def warms_up(self, batch: Batch) -> bool:
        """Whether the new head is trained alone."""
        if not self.warm_up or not batch.learning:
            return False
        if batch.steps is not None and self.warm_up * batch.batches_per_epoch >= batch.steps:
            raise Refusal(
                f"learner.warm_up={self.warm_up} epochs are all of the {batch.steps} mini-batches that a "
                "task has: nothing but its head would learn. Lower it, or raise trainer.max_epochs."
            )
        return batch.epoch < self.warm_up

    def kind(self, c: Candidate, batch: Batch) -> str:
        return "warm-up" if self.warms_up(batch) else ""

    def shared(self, batch: Batch, candidates: Sequence[Candidate]) -> list[torch.Tensor]:
        """What the past heads said before the task, softened."""
        return [(old / self.temperature).softmax(1) for old in self.outputs(self.network, batch)[1]]

    def loss(self, c: Candidate, batch: Batch) -> torch.Tensor:
        if self.warms_up(batch):
            network: Any = c.network
            with torch.no_grad():
                h = network.features(batch.x)
            return F.cross_entropy(self.masked(called(network.head, h, batch.task), batch), batch.y)
        (logits, past), T = self.outputs(c.network, batch), self.temperature
        loss = F.cross_entropy(self.masked(logits, batch), batch.y)
        strength = self.scale * c.hparams.get("strength", self.strength)
        if strength and past:
            for old, now in zip(batch.shared, past):
                loss = loss - strength * ((old * (now / T).log_softmax(1)).sum() / len(batch))
        return loss

    def outputs(self, network: Any, batch: Batch) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """A network's logits, and those of each past head."""
        h, head = network.features(batch.x), network.head
        logits, owned = called(head, h, batch.task), self.head.owned[: batch.learning]
        if isinstance(head, ByTask):
            return logits, [layer(h) for layer in list(head.layers)[: batch.learning]]
        if owned and not self.head.masks_test:
            owned = (tuple(sorted(set().union(*owned))),)
        every = tuple(range(self.head.num_outputs))
        return logits, [
            logits if own == every else logits.index_select(1, numbers_on(h.device, own)) for own in owned
        ]
