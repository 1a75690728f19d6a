"""MNTDP's candidate paths: all in lock-step behind shared frozen modules, against a bare loop for each with a
full forward pass."""

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
from cl_lightning.engine.phases import Phases
from cl_lightning.learners import MNTDP, Phase
from cl_lightning.store.files import Store
from cl_lightning.store.records import Place
from tests import toys
from tests.benchmarks.engine import HEAD, NO_STREAM, examples

SHAPE = (3, 32, 32)

SHARED = (
    7 / 12
    # Of past tasks that brought no modules but a head: the published memory of S_long is that of 42 networks
    # for 100 tasks.
)


def searching(past: int, n_train: int, n_val: int) -> Callable[[], list[float]]:
    """The search for the nearest of ``past`` tasks."""
    train, val = (examples(n, shape=SHAPE, seed=seed) for seed, n in enumerate((n_train, n_val)))
    learner = MNTDP(build=network(16), head=HEAD, searched=1000)
    for index in range(past):
        trunks = round(past * (1 - SHARED))
        prefix = () if index < trunks else learner.library.paths[index % trunks][:-1]
        fresh = learner.new_modules(index, range(10))
        learner.library.add(prefix, fresh[len(prefix) :], num_outputs=10)
    return partial(learner.scores, Task(past, past + 1, "benchmark", tuple("0123456789"), HEAD, train, val))


def network(width: int) -> Callable[..., ResNet]:
    return partial(ResNet, input_shape=SHAPE, width=width, channels_last=True)


def training(
    folder: Path,
    width: int,
    grid: list[dict],
    steps: int,
    precision: str = "32",
    batch_size: int = 64,
    val: Split | None = None,
    score_every: int | None = None,
) -> Callable[[], None]:
    """All paths behind one task's modules, in lock-step."""
    split = examples(batch_size * steps, shape=SHAPE)
    task = Task(0, 2, "benchmark", tuple("0123456789"), HEAD, split, val)

    def train() -> None:
        learner = MNTDP(build=network(width), head=HEAD, grid=grid)
        learner.adopt(learner.paths_from([], task)[0], task)
        found = learner.paths_from([0], task)
        scoring = {"patience": math.inf, "score_at": (), "score_every": score_every or steps} if val else {}
        settings = toys.one_epoch(batch_size=batch_size, precision=precision, eval_batch_size=125, **scoring)
        Phases(StreamDataModule(NO_STREAM), Store(folder, "benchmark"), settings).fit(
            learner, Phase(found), list(range(len(found))), task, Place("task", 0)
        )

    return train


def bare_paths(width: int, grid: list[dict], steps: int, batch_size: int = 64) -> Callable[[], None]:
    """The same paths one after another, each with a full forward pass, in PyTorch's default layout."""
    split = examples(batch_size * steps, shape=SHAPE)

    def train() -> None:
        for point in grid:
            for reused in range(7):
                path, trained = bare_path(width, reused)
                optimizer = torch.optim.Adam(trained, **point)
                for x, y in zip(split.x.split(batch_size), split.y.split(batch_size)):
                    optimizer.zero_grad()
                    F.cross_entropy(path(x), y).backward()
                    optimizer.step()

    return train


def bare_path(width: int, reused: int) -> tuple[nn.Module, list[nn.Parameter]]:
    network = ResNet(SHAPE, HEAD, width=width, channels_last=False)
    path_modules: Any = list(network.path_modules().values())
    for module in path_modules[:reused]:
        module.requires_grad_(False).eval()
    path = nn.Sequential(*path_modules)
    return path, [p for p in path.parameters() if p.requires_grad]
