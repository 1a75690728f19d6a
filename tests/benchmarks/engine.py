"""The product's side of each comparison, and the interleaved timing of both."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from cl_lightning.backbones import MLP, Backbone, ResNet
from cl_lightning.data.module import StreamDataModule
from cl_lightning.data.streams.show import PLAIN
from cl_lightning.data.task import Head, Split, Task
from cl_lightning.engine.phases import Phases
from cl_lightning.learners import Finetune, Phase
from cl_lightning.store.files import Store
from cl_lightning.store.records import Place
from tests import toys

HEAD = Head("domain", 10, (tuple(range(10)),))


class NoStream:
    """Stands where a stream would: examples are handed over."""

    show = PLAIN

    def __len__(self) -> int:
        return 1


NO_STREAM: Any = NoStream()


def examples(n: int, seed: int = 0, shape: Sequence[int] = (1, 28, 28)) -> Split:
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(n, *shape, generator=generator)
    return Split(x, torch.randint(10, (n,), generator=generator), torch.zeros(n, dtype=torch.int64))


def an_mlp(head: Head = HEAD, sizes: Sequence[int] = (100, 100)) -> Backbone:
    return MLP((1, 28, 28), head, sizes)


def a_resnet(channels_last: bool = True, head: Head = HEAD) -> Backbone:
    return ResNet((3, 32, 32), head, width=16, channels_last=channels_last)


def rates(candidates: int) -> list[dict[str, Any]]:
    """A grid of so many points."""
    return [{"lr": 1e-3 * (1 + i / 10)} for i in range(candidates)]


def lock_step(
    split: Split,
    grid: Sequence[dict[str, Any]],
    folder: Path,
    build: Callable[..., Backbone] = an_mlp,
    **settings: Any,
) -> None:
    """Train a finetune candidate for each point of the grid on one task, through Lightning."""
    training = toys.one_epoch(**settings)
    learner = Finetune(build=build, head=HEAD, grid=grid)
    task = Task(0, 1, "benchmark", tuple("0123456789"), HEAD, split)
    engine = Phases(StreamDataModule(NO_STREAM), Store(folder, "benchmark"), training)
    found = learner.candidates(task)
    engine.fit(learner, Phase(found), list(range(len(found))), task, Place("task", 0))


def interleaved(ours: Callable[[], object], *theirs: Callable[[], object], repeats: int = 7) -> list[float]:
    """Median CPU seconds of each, taken in turns so that a busy machine slows all alike."""
    seconds: list[list[float]] = [[] for _ in (ours, *theirs)]
    for repeat in range(repeats + 1):
        for times, function in zip(seconds, (ours, *theirs)):
            began = time.process_time()
            function()
            if repeat:  # the first round warms up
                times.append(time.process_time() - began)
    return [statistics.median(times) for times in seconds]
