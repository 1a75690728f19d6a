"""MNTDP's candidate paths: all in lock-step behind shared frozen modules, against a bare loop for each with a full forward pass."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn as nn
import torch.nn.functional as F

from cl_lightning.backbones import ResNet
from cl_lightning.data.module import StreamDataModule
from cl_lightning.data.task import Split, Task
from cl_lightning.engine.phases import Engine
from cl_lightning.engine.settings import Training
from cl_lightning.journal import Journal
from cl_lightning.learners import MNTDP, Phase
from tests.benchmarks.engine import HEAD, NO_STREAM, examples

SHAPE = (3, 32, 32)


SHARED = 7 / 12  # of past tasks that brought no modules but a head: the published memory of S_long is that of 42 networks for 100 tasks


def search_sides(folder: Path, past: int, images: int, steps: int) -> tuple[Callable, Callable]:
    """The search for the nearest of ``past`` tasks over ``images`` for training and as many for validation; and ``steps`` mini-batches
    of a large task of S_long with trainer=reduced, with their part of 23 scorings on 12,500 validation images."""
    train, val = (examples(images, shape=SHAPE, seed=seed) for seed in (0, 1))
    build = partial(ResNet, input_shape=SHAPE, head=HEAD, width=16, channels_last=True)
    learner = MNTDP(build=build, searched=images)
    learner.head = HEAD
    for index in range(past):
        trunks = round(past * (1 - SHARED))
        prefix = () if index < trunks else learner.library.paths[index % trunks][:-1]
        fresh = learner.new_modules(index, range(10))
        learner.library.add(prefix, fresh[len(prefix) :], ways=10)
    task = Task(past, past + 1, "benchmark", tuple("0123456789"), HEAD, train, val)
    scored = examples(23 * 12_500 * steps // 2500, shape=SHAPE, seed=2)
    training, _ = path_sides(folder, 16, [{}], steps, batch_size=32, val=scored)
    return partial(learner.scores, task), training


def path_sides(
    folder: Path, width: int, grid: list[dict], steps: int, precision: str = "32", batch_size: int = 64, val: Split | None = None
) -> tuple[Callable, Callable]:
    """One training of all paths behind one task's modules: ours and bare."""
    split = examples(batch_size * steps, shape=SHAPE)
    build = partial(ResNet, input_shape=SHAPE, head=HEAD, width=width, channels_last=True)
    task = Task(0, 2, "benchmark", tuple("0123456789"), HEAD, split, val)

    def ours() -> None:
        learner = MNTDP(build=build, grid=grid)
        learner.head = HEAD
        learner.adopt(learner.paths_from([], task)[0], task)
        found = learner.paths_from([0], task)
        once = {"patience": math.inf, "score_at": (), "score_every": steps} if val else {}
        settings = Training(batch_size=batch_size, precision=precision, eval_batch_size=125, **once)
        Engine(StreamDataModule(NO_STREAM), Journal(folder), settings).fit(
            learner, Phase(found), found, task, {"where": "benchmark", "index": 0, "first": 0}, {}
        ).finish()

    def bare() -> None:
        for point in grid:
            for reused in range(7):
                stages: Any = list(ResNet(SHAPE, HEAD, width=width).stages().values())
                for stage in stages[:reused]:
                    stage.requires_grad_(False).eval()
                network = nn.Sequential(*stages)
                trained = [p for p in network.parameters() if p.requires_grad]
                optimizer = torch.optim.Adam(trained, **point)
                for x, y in zip(split.x.split(batch_size), split.y.split(batch_size)):
                    optimizer.zero_grad()
                    F.cross_entropy(network(x), y).backward()
                    optimizer.step()

    return ours, bare
