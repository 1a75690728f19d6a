"""Small streams and a run without files, for tests of single parts."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn as nn
import yaml

from cl_lightning.backbones import MLP
from cl_lightning.config.resolvers import conf_dir
from cl_lightning.config.settings import Training
from cl_lightning.contract import learning
from cl_lightning.data.sources.cache import Images, Pool
from cl_lightning.data.streams.recipes import permuted, split
from cl_lightning.data.streams.stream import Stream
from cl_lightning.data.task import HeadMode, Split
from cl_lightning.learners import Candidate, Finetune, Learner, Phase
from cl_lightning.report.results import standing
from cl_lightning.store.records import PhaseRecord

SHAPE = (1, 6, 6)


def images(n: int = 400, classes: int = 4, seed: int = 0) -> Images:
    """Noisy patterns, one a class: easy, but not at once."""
    generator = torch.Generator().manual_seed(seed)
    patterns = torch.rand(classes, *SHAPE, generator=generator)
    pools = []
    for count in (n, n // 2):
        y = torch.arange(count) % classes
        x = (patterns[y] * 0.5 + torch.rand(count, *SHAPE, generator=generator) * 0.5) * 255
        pools.append(Pool(x.to(torch.uint8), y))
    return Images("toy", tuple("abcdefgh"[:classes]), *pools, digest=f"toy-{n}-{classes}-{seed}")


def stream(tasks: int = 3, n_train: int = 60, n_val: int = 40, **options: Any) -> Stream:
    return permuted(images(), seed=0, tasks=tasks, n_train=n_train, n_val=n_val, n_test=None, **options)


def pairs_of_classes(
    head: HeadMode = "multi_train_test", tasks: int = 2, n_train: int = 60, n_val: int = 0
) -> Stream:
    """Tasks of two classes each, with outputs of their own."""
    sizes = {"n_train": n_train, "n_val": n_val, "n_test": None}
    return split(images(classes=2 * tasks), seed=0, tasks=tasks, classes_per_task=2, head=head, **sizes)


def builder(s: Stream, sizes: Sequence[int] = (16, 16), **options: Any) -> Callable[..., nn.Module]:
    return partial(MLP, input_shape=s.shape, head=s.head, sizes=sizes, **options)


DEFAULT = yaml.safe_load((Path(conf_dir()) / "trainer" / "default.yaml").read_text())


def one_epoch(**options: Any) -> Training:
    """trainer=default, but one epoch without early stopping."""
    return Training(**{**DEFAULT, "max_epochs": 1, "patience": None, **options})


def training(**options: Any) -> Training:
    return one_epoch(**{"max_epochs": 3, "batch_size": 10, "lr": 0.01, **options})


class Learned(learning.Learned):
    @property
    def weights(self) -> torch.Tensor:
        return learning.weights_of(self.learner)

    def phase(self, task: int | None = None) -> PhaseRecord:
        """The last phase of a task, or of all."""
        own = [p for p in self.phases if task is None or (p.place.part, p.place.index) == ("task", task)]
        return own[-1]

    def costs(self, task: int | None = None) -> dict:
        return asdict(self.phase(task).costs)

    def standing(self, task: int) -> dict:
        return {c.name: standing(c) for c in self.phase(task).candidates}

    def winner(self, task: int) -> dict:
        return standing(self.phase(task).chosen)


def learn(
    learner: Learner, s: Stream, settings: Training | None = None, *more: Any, **options: Any
) -> Learned:
    return Learned(**vars(learning.learn(learner, s, settings or training(), *more, **options)))


class Coreset(Finetune):
    """Trains a copy on stored examples before each test."""

    def on_task_end(self, task):
        self.memory = {name: part[:30].clone() for name, part in zip(("x", "y", "task"), task.train.parts)}

    def predictors(self, seen):
        copied = copy.deepcopy(self)
        if self.memory:
            best = yield Phase(
                [Candidate(copied.network, name="copy")], train=Split(*self.memory.values()), epochs=2
            )
            copied.network = best.candidate.network
        return {"": copied}


class NumpyMemory(Finetune):
    def on_task_end(self, task):
        self.memory["mean"] = np.mean([1.0, 2.0])


class NumpyOnce(Finetune):
    def on_task_end(self, task):
        self.once("mean", lambda: np.mean([1.0, 2.0]))


__all__ = ["Finetune", "Learned", "builder", "images", "learn", "stream", "training"]


class TwoCopies(Coreset):
    """Trains two copies on stored examples before each test, and keeps the better."""

    def predictors(self, seen):
        copied = copy.deepcopy(self)
        if self.memory:
            stored = Split(*self.memory.values())
            found = [
                Candidate(copy.deepcopy(copied.network), {"lr": lr}, name=f"lr={lr}") for lr in (0.001, 0.1)
            ]
            best = yield Phase(found, train=stored, val=stored, epochs=2)
            copied.network = best.candidate.network
        return {"": copied}
