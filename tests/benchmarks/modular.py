"""MNTDP's candidate paths: all in lock-step behind shared frozen modules, against a bare loop for each with a full forward pass."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn as nn
import torch.nn.functional as F

from cl_lightning.backbones import ResNet
from cl_lightning.data.module import StreamDataModule
from cl_lightning.data.task import Task
from cl_lightning.engine.phases import Engine
from cl_lightning.engine.settings import Training
from cl_lightning.journal import Journal
from cl_lightning.learners import MNTDP, Phase
from tests.benchmarks.engine import HEAD, NO_STREAM, examples

SHAPE = (3, 32, 32)


def path_sides(
    folder: Path, width: int, grid: list[dict], steps: int, precision: str = "32", batch_size: int = 64
) -> tuple[Callable, Callable]:
    """One training of all paths behind one task's modules: ours and bare."""
    split = examples(batch_size * steps, shape=SHAPE)
    build = partial(ResNet, input_shape=SHAPE, head=HEAD, width=width, channels_last=True)
    task = Task(0, 2, "benchmark", tuple("0123456789"), HEAD, split)

    def ours() -> None:
        learner = MNTDP(build=build, grid=grid)
        learner.head = HEAD
        learner.adopt(learner.paths_from([], task)[0], task)
        found = learner.paths_from([0], task)
        settings = Training(batch_size=batch_size, precision=precision)
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
