"""MNTDP's candidate paths: all in lock-step behind shared frozen modules, against a bare loop for each with a
full forward pass."""

from __future__ import annotations

import copy
import math
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn as nn
import torch.nn.functional as F

from cl_lightning.backbones import ResNet
from cl_lightning.data.module import StreamDataModule
from cl_lightning.data.task import Head, Split, Task
from cl_lightning.engine.phases import Phases
from cl_lightning.learners import MNTDP, MNTDPS, Phase
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


LARGE = (3, 6, 11, 12, 17, 18, 19, 20, 22, 24, 26, 29, 30, 32, 33, 38, 49, 56, 60)
# tasks of the S_long that is printed with 5000 images, or 2250; the others have 25


def search_of_the_stream(search: dict[bool, float], training: dict[bool, float]) -> float:
    """The search's part of all tasks of S_long, of seconds of a large task (True) and of a small one, where
    a search is through 100 past tasks: the first is through none, and each later one through one more."""
    tasks = [(past, past + 1 in LARGE) for past in range(100)]
    searched = sum(search[large] * past / 100 for past, large in tasks)
    return searched / (searched + sum(training[large] for _, large in tasks))


def both_kinds(width: int, steps: int, batch_size: int = 32) -> tuple[Callable[[], None], Callable[[], None]]:
    """MNTDP-S, and the path alone that re-uses nothing, on the second task, as long."""
    sides = []
    for sources in ([0], []):
        split = examples(batch_size * steps, shape=SHAPE)
        task = Task(1, 2, "benchmark", tuple("0123456789"), Head("domain", 10, HEAD.owned * 2), split)

        def train(sources: list[int] = sources, task: Task = task) -> None:
            learner = MNTDPS(build=network(width), head=task.head)
            learner.adopt(learner.paths_from([], replace(task, index=0))[0], task)
            phase = learner.phase(sources, task)
            with tempfile.TemporaryDirectory() as folder:
                settings = toys.one_epoch(batch_size=batch_size)
                engine = Phases(StreamDataModule(NO_STREAM), Store(Path(folder), "benchmark"), settings)
                engine.fit(learner, phase, [0], task, Place("task", 1))

        sides.append(train)
    return sides[0], sides[1]


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


# ---- a whole stream ----------------------------------------------------------------------------------------


def s_out(part: float) -> list[Task]:
    """Six tasks as large as those of S-out, or a part of them; of noise."""
    sizes = [round(part * n) for n in (4000, 400, 400, 400, 400, 400)]
    head = Head("domain", 10, HEAD.owned * 6)
    return [
        Task(i, 6, "benchmark", tuple("0123456789"), head, *noise(i, n, n // 2)) for i, n in enumerate(sizes)
    ]


def noise(seed: int, *counts: int) -> tuple[Split, ...]:
    return tuple(examples(n, 10 * seed + k, SHAPE) for k, n in enumerate(counts))


def stream_sides(part: float, epochs: int = 2) -> tuple[Callable[[], None], Callable[[], None]]:
    tasks = s_out(part)

    def ours() -> None:
        learner = MNTDP(build=network(16), head=tasks[0].head)
        scoring = {"patience": math.inf, "score_at": (0,), "eval_batch_size": 125}
        settings = toys.one_epoch(max_epochs=epochs, **scoring)
        with tempfile.TemporaryDirectory() as folder:
            engine = Phases(StreamDataModule(NO_STREAM), Store(Path(folder), "benchmark"), settings)
            for task in tasks:
                engine.learn(learner, task)

    return ours, partial(bare_stream, tasks, epochs)


def bare_stream(tasks: Sequence[Task], epochs: int) -> None:
    """What MNTDP-D does, in lock-step: the source's modules are called once for all paths that re-use them,
    and each path keeps its best weights by validation data."""
    library: list[list[nn.Module]] = []
    for task in tasks:
        fresh: list[nn.Module] = list(network(16)(head=HEAD).path_modules().values())
        source = library[nearest(library, task)] if library else []
        reused = range(len(source), -1, -1)
        paths = [nn.Sequential(*copy.deepcopy(fresh[r:])) for r in reused]
        trained = [i for i, path in enumerate(paths) if len(path)]
        optimizers = {i: torch.optim.Adam(paths[i].parameters(), lr=1e-3, fused=True) for i in trained}
        best: list[tuple[int, dict]] = [(-1, {}) for _ in paths]
        keep_better(paths, reused, source, task, best)
        for _ in range(epochs):
            for rows in torch.randperm(len(task.train)).split(64):
                with torch.no_grad():
                    h = features(source, task.train.x[rows])
                for i in trained:
                    optimizers[i].zero_grad()
                    F.cross_entropy(paths[i](h[reused[i]]), task.train.y[rows]).backward()
                    optimizers[i].step()
            keep_better(paths, reused, source, task, best)
        winner = max(range(len(paths)), key=lambda i: best[i][0])
        paths[winner].load_state_dict(best[winner][1])
        library.append([*source[: reused[winner]], *paths[winner].requires_grad_(False).eval()])


@torch.no_grad()
def keep_better(
    paths: Sequence[nn.Module],
    reused: Sequence[int],
    source: Sequence[nn.Module],
    task: Task,
    best: list[tuple[int, dict]],
) -> None:
    """Score every path on validation images, and copy the weights of those that never were as good."""
    assert task.val is not None
    right = [0] * len(paths)
    for x, y in zip(task.val.x.split(125), task.val.y.split(125)):
        h = features(source, x)
        for i, path in enumerate(paths):
            right[i] += int((path.eval()(h[reused[i]]).argmax(1) == y).sum())
    for i, path in enumerate(paths):
        if right[i] > best[i][0]:
            best[i] = right[i], {name: value.clone() for name, value in path.state_dict().items()}
        path.train()


def features(modules: Sequence[nn.Module], x: torch.Tensor) -> list[torch.Tensor]:
    """The images, and what comes out behind each module."""
    h = [x]
    for module in modules:
        h.append(module(h[-1]))
    return h


@torch.no_grad()
def nearest(library: Sequence[Sequence[nn.Module]], task: Task) -> int:
    """The task in whose features five neighbours say most about the validation images; of each 1000."""
    scores, known = [], {}
    for path in library:
        trunk = path[:-1]
        if id(trunk[-1]) not in known:
            train, val = (
                torch.cat([features(trunk, x)[-1].flatten(1) for x in split.x[:1000].split(125)])
                for split in (task.train, task.val)
            )
            few = min(5, len(train))
            near = task.train.y[:1000][torch.cdist(val, train).topk(few, largest=False).indices]
            known[id(trunk[-1])] = float((near.mode(1).values == task.val.y[:1000]).float().mean())
        scores.append(known[id(trunk[-1])])
    return max(range(len(library)), key=lambda j: (scores[j], j))
