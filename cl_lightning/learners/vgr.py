"""Variational generative replay."""

from __future__ import annotations

from typing import Any, Literal

import torch
import torch.nn as nn

from cl_lightning.backbones.bayesian import divergence, gaussian, gaussians
from cl_lightning.config.checking import Count, Positive
from cl_lightning.data.task import Batch, Split, Task
from cl_lightning.learners.base import Candidate, Phase, Phases
from cl_lightning.learners.parts.averaging import Averaging
from cl_lightning.learners.parts.gan import GAN, SETTINGS, Kind, adversarial_loss, generated, generator_of
from cl_lightning.learners.parts.memory import named
from cl_lightning.randomness import rng, seeded


class VGR(Averaging):
    """-(1/n) sum log p(y | x, w) + KL(q || N(0, 1)) / n over a task's examples and those generated of all
    past classes, n in all (Farquhar and Gal 2018). The prior stays; it is the likelihood of past tasks that
    is estimated again.

    A GAN is trained on each class of each task, all of a task side by side, when the task is learned; its
    generator is kept. ``per_class`` images are generated once a task; null: as many as there were. With
    ``replay=stored`` the real examples are kept in the place of generators: the oracle of a perfect one.
    Layers are Gaussian, but in a network with dropout, which is its randomness (backbone=mc_dropout). The
    printed equation 8 weights KL by 1/(N T), which is 1/n where past classes are generated in full.
    """

    first_as_finetune = False

    def __init__(
        self,
        *,
        replay: Literal["generated", "stored"] = "generated",
        generator: Kind = "mlp",
        generator_epochs: Count | None = None,
        generator_lr: Positive = 2e-4,
        generator_batch_size: Count = 128,
        per_class: Count | None = None,
        batch_per_task: Count | None = None,
        **base: Any,
    ) -> None:
        super().__init__(**base)
        self.replay, self.generator, self.generator_epochs = replay, generator, generator_epochs
        self.generator_lr, self.generator_batch_size = generator_lr, generator_batch_size
        self.per_class, self.batch_per_task = per_class, batch_per_task

    def fresh(self, *key: object, **options: object) -> nn.Module:
        network = super().fresh(*key, **options)
        drops = any(isinstance(module, nn.Dropout) for module in network.modules())
        return network if drops else gaussian(network)

    def learn(self, task: Task) -> Phases:
        pool = Split.union([*self.past(task), task.train])
        own = {"batch_size": self.batch_per_task * (task.index + 1)} if self.batch_per_task else {}

        def loss(c: Candidate, batch: Batch) -> torch.Tensor:
            found = [divergence(layer, None) for layer in gaussians(c.network)]
            return self.loss(c, batch) + sum(found) / len(pool)

        best = yield Phase(self.candidates(task), train=pool, loss=loss, settings=own)
        self.adopt(best.candidate, task)
        if self.replay == "generated":
            yield from self.learn_to_generate(task)

    def learn_to_generate(self, task: Task) -> Phases:
        """A GAN a class, each on the examples of its class in mini-batches of all."""
        classes, counts = (each.tolist() for each in task.train.y.cpu().unique(return_counts=True))
        shape, size = tuple(task.train.x.shape[1:]), self.generator_batch_size * len(classes)
        with seeded(self.seed, task.index, "generators"):
            gans = [Candidate(GAN(self.generator, shape), {"class": y}, f"class {y}") for y in classes]

        def loss(c: Candidate, batch: Batch) -> torch.Tensor:
            real = batch.x[(batch.y == c.hparams["class"]).nonzero()[:, 0]]
            return adversarial_loss(c.network, real, -(-len(batch) // len(classes)))  # type: ignore[arg-type]

        made = yield Phase(
            gans,
            "generators",
            train=task.train,
            loss=loss,
            epochs=self.generator_epochs,
            settings={**SETTINGS, "lr": self.generator_lr, "batch_size": size},
            keep="all",
            auxiliary=True,
        )
        new = {
            "generators": torch.stack([generator_of(c.network) for c in made.kept]),
            "of": task.train.y.new_tensor([[y, task.index, n] for y, n in zip(classes, counts)]),
        }
        for name, part in new.items():  # of each: weights; its class, its task, and how many there were
            self.memory[name] = torch.cat([self.memory[name], part] if name in self.memory else [part])

    def past(self, task: Task) -> list[Split]:
        """The examples of past classes that a task is learned with."""
        if self.replay == "stored":
            return [Split(**self.memory)] if self.memory else []
        found = []
        shape = tuple(task.train.x.shape[1:])
        for i, (y, of, count) in enumerate(self.memory["of"].tolist() if self.memory else []):
            n, draws = self.per_class or count, rng(self.seed, task.index, "replay", i)
            x = generated(self.generator, shape, self.memory["generators"][i], n, draws)
            ys = task.train.y.new_full((n,), y)
            found.append(Split(x.to(task.train.x.device), ys, torch.full_like(ys, of)))
        return found

    def on_task_end(self, task: Task) -> None:
        if self.replay == "stored":
            for name, part in named(task.train).items():
                self.memory[name] = torch.cat([self.memory[name], part] if name in self.memory else [part])
