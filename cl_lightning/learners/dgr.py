"""Deep generative replay."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F

from cl_lightning.config.checking import Count, Positive, Share
from cl_lightning.data.task import Batch, Split, Task
from cl_lightning.errors import Refusal
from cl_lightning.learners.base import Candidate, Learner, Phase, Phases
from cl_lightning.learners.parts.gan import GAN, SETTINGS, Kind, adversarial_loss, generated, generator_of
from cl_lightning.learners.parts.one_task import numbers_on
from cl_lightning.randomness import rng, seeded


class DGR(Learner):
    """r loss(real) + (1 - r) loss(generated), by images of one generator of all past tasks, to which the
    network of the last task gives its answers as labels (Shin et al. 2017).

    r = ``importance``; null: 1 / tasks so far. After each task a new generator is trained, on its examples
    and on what the last one generates, mixed likewise. Labels are the greatest of past tasks' outputs.
    """

    without_strength = {"importance": 1.0}

    def __init__(
        self,
        *,
        importance: Share | None = None,
        generator: Kind = "mlp",
        generator_epochs: Count | None = None,
        generator_lr: Positive = 2e-4,
        generator_batch_size: Count = 128,
        **base: Any,
    ) -> None:
        super().__init__(**base)
        self.importance, self.generator, self.generator_epochs = importance, generator, generator_epochs
        self.of_generator = {**SETTINGS, "lr": generator_lr, "batch_size": generator_batch_size}

    def on_task_start(self, task: Task) -> None:
        if self.network.needs_task or self.head.masks_training:
            raise Refusal(
                "DGR generates images of all past tasks together, and does not know which task one is of. "
                "Take one output layer for all (backbone.heads=shared) and stream.head=single, multi_test or "
                "domain."
            )

    def learn(self, task: Task) -> Phases:
        best = yield Phase(self.candidates(task))
        self.adopt(best.candidate, task)
        pool, shape = self.pool(task), list(task.train.x.shape[1:])
        with seeded(self.seed, task.index, "generator"):
            gan = Candidate(GAN(self.generator, shape), name="generator")
        made = yield Phase(
            [gan],
            "generator",
            train=pool,
            loss=lambda c, batch: adversarial_loss(c.network, batch.x, len(batch)),  # type: ignore[arg-type]
            epochs=self.generator_epochs,
            settings=self.of_generator,
            auxiliary=True,
        )
        self.memory = {"shape": shape, "generator": generator_of(made.candidate.network)}

    def weight(self, task: int) -> float:
        """The weight of a task's own examples."""
        return 1 / (task + 1) if self.importance is None or not task else self.importance

    def pool(self, task: Task) -> Split:
        """A task's examples, and so many of the last generator that they are a share of r."""
        r, n = self.weight(task.index), len(task.train)
        count = round(n * (1 / r - 1)) if r else n
        if not count:
            return task.train
        x = self.replayed(count, rng(self.seed, task.index, "replay"))
        y = task.train.y.new_zeros(count)  # which no generator looks at
        return Split.union([task.train, Split(x.to(task.train.x.device), y, torch.full_like(y, task.index))])

    def replayed(self, count: int, draws: torch.Generator) -> torch.Tensor:
        return generated(self.generator, self.memory["shape"], self.memory["generator"], count, draws)

    def shared(self, batch: Batch, candidates: Sequence[Candidate]) -> tuple[torch.Tensor, torch.Tensor]:
        """Generated images, as many as a mini-batch has, and what the last network takes them for."""
        x = self.replayed(len(batch), batch.rng("replay"))
        past = sorted({output for own in self.head.owned[: batch.learning] for output in own})
        outputs = numbers_on(x.device, tuple(past))
        return x, outputs[self.network(x).index_select(1, outputs).argmax(1)]

    def loss(self, c: Candidate, batch: Batch) -> torch.Tensor:
        r = self.weight(batch.learning)
        if r == 1:
            return super().loss(c, batch)
        x, y = batch.shared
        real, replayed = c.network(torch.cat([batch.x, x])).split([len(batch), len(x)])
        return r * F.cross_entropy(real, batch.y) + (1 - r) * F.cross_entropy(replayed, y)
