"""What learners cost, against bare loops or against finetune in the same engine."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from cl_lightning.data.module import StreamDataModule
from cl_lightning.data.task import Split, Task
from cl_lightning.engine.phases import Phases
from cl_lightning.learners import ER, EWC, GEM, Candidate, Finetune, Learner, Phase
from cl_lightning.learners.parts.fisher import fisher
from cl_lightning.store.files import Store
from cl_lightning.store.records import Place
from tests import toys
from tests.benchmarks import bare
from tests.benchmarks.engine import HEAD, MLP, NO_STREAM, examples

PAST, MEMORIES = 19, 256


def single_pass(learner: Learner, split: Split) -> None:
    """Train on a task in batches of 10, as GEM's continuum does."""
    task = Task(PAST, PAST + 1, "benchmark", tuple("0123456789"), HEAD, split)
    settings = toys.one_epoch(batch_size=10, optimizer="sgd", lr=0.1)
    c = Candidate(learner.fresh(0))
    with tempfile.TemporaryDirectory() as folder:
        engine = Phases(StreamDataModule(NO_STREAM), Store(Path(folder), "benchmark"), settings)
        engine.fit(learner, Phase([c]), [0], task, Place("task", 0))


def with_memories(cls: type[Learner], **options: Any) -> Learner:
    """After 19 tasks."""
    learner = cls(build=partial(MLP, (1, 28, 28), sizes=(100, 100), init="glorot"), head=HEAD, **options)
    for index in range(PAST):
        old = examples(max(MEMORIES, 300), seed=index + 1)
        learner.on_task_end(Task(index, PAST + 1, "benchmark", tuple("0123456789"), HEAD, old))
    return learner


def finetune() -> Learner:
    return Finetune(build=partial(MLP, (1, 28, 28), sizes=(100, 100), init="glorot"), head=HEAD)


def gem_sides(n: int, **options: Any) -> tuple[Callable[[], None], Callable[[], None]]:
    split, learner = examples(n), with_memories(GEM, memories=MEMORIES, **options)
    memories = [
        (old.x[-MEMORIES:], old.y[-MEMORIES:]) for old in (examples(300, seed=i + 1) for i in range(PAST))
    ]

    def loop() -> None:
        network = bare.mlp()
        opt = torch.optim.SGD(network.parameters(), lr=0.1)
        for rows in torch.arange(n).split(10):
            bare.gem_step(network, opt, split.x[rows], split.y[rows], memories)

    return partial(single_pass, learner, split), loop


def against_finetune(
    n: int, cls: type[Learner], **options: Any
) -> tuple[Callable[[], None], Callable[[], None]]:
    split = examples(n)
    return partial(single_pass, with_memories(cls, **options), split), partial(single_pass, finetune(), split)


def ewc_sides(n: int) -> tuple[Callable[[], None], Callable[[], None]]:
    return against_finetune(n, EWC, strength=1.0, examples=10)


def er_sides(n: int) -> tuple[Callable[[], None], Callable[[], None]]:
    return against_finetune(n, ER)


def fisher_sides(n: int) -> tuple[Callable[[], object], Callable[[], object]]:
    split, network = examples(n), bare.mlp()
    return (
        lambda: fisher(network, lambda part: network(split.x[part]).log_softmax(1), split.y, "empirical"),
        lambda: bare.fisher(network, split.x, split.y),
    )


def projection_share(n: int) -> float:
    """Of GEM's time in the engine, what is neither the mini-batch's own gradient nor those of the
    memories."""
    ours, _ = gem_sides(n)
    spent = {"after_backward": 0.0, "memory_gradients": 0.0}

    def clocked(name: str) -> Callable:
        original = getattr(GEM, name)

        def inside(*arguments: Any) -> Any:
            began = time.process_time()
            value = original(*arguments)
            spent[name] += time.process_time() - began
            return value

        return inside

    with patch.multiple(GEM, **{name: clocked(name) for name in spent}):
        ours()
        spent.update(dict.fromkeys(spent, 0.0))
        began = time.process_time()
        ours()
        whole = time.process_time() - began
    return (spent["after_backward"] - spent["memory_gradients"]) / whole
