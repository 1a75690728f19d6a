"""Prints the README's benchmark table, and the same as JSON with ``--json FILE``."""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from unittest.mock import Mock, patch

import torch
import torch.nn as nn

from cl_lightning.data.module import StreamDataModule
from cl_lightning.data.task import Head, Task
from cl_lightning.engine.phases import Engine, InsideCheckpoints
from cl_lightning.evaluation.evaluator import Evaluator
from cl_lightning.journal import Journal
from cl_lightning.learners import Candidate, Finetune, Phase
from cl_lightning.protocol import Grants
from tests import toys
from tests.benchmarks import bare, learners, modular, reading
from tests.benchmarks.engine import HEAD, MLP, NO_STREAM, a_resnet, examples, interleaved, lock_step


@dataclass
class Row:
    work: str
    measured: float
    at_most: float | None  # None: for information
    unit: str = "x"
    fused: float | None = None  # the same against a bare loop with torch's fused optimizer kernels

    @property
    def met(self) -> bool:
        worst = self.measured if self.fused is None else max(self.measured, self.fused)
        return self.at_most is None or worst <= self.at_most


def training(candidates: int, batch_size: int, optimizer: str, at_most: float | None, repeats: int, stack: bool = True) -> Row:
    split, epochs = examples(4000), 2

    def loops(fused: bool) -> None:
        for i in range(candidates):
            network = bare.mlp()
            opt = bare.optimizer(optimizer, network, 1e-3 * (1 + i / 10), fused)
            bare.train(network, opt, split.x, split.y, batch_size, epochs)

    with tempfile.TemporaryDirectory() as folder:
        settings = {"max_epochs": epochs, "batch_size": batch_size, "optimizer": optimizer, "stack": stack}
        ours = partial(lock_step, split, candidates, Path(folder), **settings)
        mine, default, fused = interleaved(ours, partial(loops, False), partial(loops, True), repeats=repeats)
    work = f"{candidates} candidate{'s in lock-step' * (candidates > 1)}, batch {batch_size}, {optimizer}" + ", not stacked" * (not stack)
    return Row(work, mine / default, at_most, fused=mine / fused)


def residual(candidates: int, at_most: float, repeats: int) -> Row:
    """A residual network of width 16 in channels_last, against a loop in PyTorch's default layout."""
    split = examples(64 * 8, shape=(3, 32, 32))

    def loops(fused: bool) -> None:
        for i in range(candidates):
            network = a_resnet(channels_last=False)
            bare.train(network, bare.optimizer("adam", network, 1e-3 * (1 + i / 10), fused), split.x, split.y, 64, 1)

    with tempfile.TemporaryDirectory() as folder:
        ours = partial(lock_step, split, candidates, Path(folder), a_resnet, max_epochs=1, batch_size=64, optimizer="adam")
        mine, default, fused = interleaved(ours, partial(loops, False), partial(loops, True), repeats=repeats)
    work = f"ResNet of width 16, {candidates} candidate{'s in lock-step' * (candidates > 1)}, batch 64, adam"
    return Row(work, mine / default, at_most, fused=mine / fused)


def paths(work: str, at_most: float, repeats: int, width: int = 16, steps: int = 4, precision: str = "32", points: int = 1) -> Row:
    """MNTDP's paths behind one task, in lock-step against one after another."""
    grid = [{"lr": lr, "weight_decay": decay} for lr in (0.01, 0.001) for decay in (0.0, 1e-5, 1e-4)][:points]
    with tempfile.TemporaryDirectory() as folder:
        lock_step_of_all = modular.training(Path(folder), width, grid, steps, precision)
        ours, bare_loops = interleaved(lock_step_of_all, modular.bare_paths(width, grid, steps), repeats=repeats)
    return Row(work, ours / bare_loops, at_most)


def search(repeats: int) -> list[Row]:
    """Of the training of S_long's tasks with trainer=reduced: of a large one 2500 mini-batches of 32, with 23 scorings on 12,500 images,
    reckoned from what 40 take more than 20; of a small one 40 mini-batches of 25, each with a scoring on 75 images."""
    some = partial(modular.training, width=16, grid=[{}])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        part = {steps: examples(23 * 12_500 * steps // 2500, shape=modular.SHAPE, seed=2) for steps in (20, 40)}
        fewer, more = (some(folder, steps=steps, batch_size=32, val=val) for steps, val in part.items())
        looking, less, longer = interleaved(modular.searching(100, 1000, 1000), fewer, more, repeats=repeats)
        small = some(folder, steps=40, batch_size=25, val=examples(75, shape=modular.SHAPE, seed=2), score_every=1)
        at_few, all_of_it = interleaved(modular.searching(100, 25, 75), small, repeats=repeats)
    work = "MNTDP's search over 100 past tasks, of the training on"
    return [
        Row(f"{work} 5000 images", 100 * looking / ((longer - less) / 20 * 2500), 5, "%"),
        Row(f"{work} 25 images", 100 * at_few / all_of_it, 5, "%"),
    ]


def data(repeats: int) -> list[Row]:
    """Reading images; decoding is measured on a tenth."""
    with tempfile.TemporaryDirectory() as folder:
        return [
            Row("decoding 60,000 PNG images of 28 x 28, once", 10 * reading.seconds_to_decode(Path(folder), 6000), 15, "s"),
            Row("opening a cached task of 6000 images of 32 x 32", reading.seconds_to_open(Path(folder), repeats), 0.1, "s"),
        ]


def evaluation(repeats: int) -> Row:
    split, tasks = examples(10_000), 20
    stream = Mock(head=Head("domain", 10, HEAD.owned * tasks), test=lambda task: split)
    stream.__len__ = lambda self: tasks
    evaluator = Evaluator(stream, toys.one_epoch(), torch.device("cpu"), Grants())
    learner, network = Finetune(partial(MLP, (1, 28, 28), HEAD, (100, 100))), bare.mlp()

    def loop() -> None:
        for _ in range(tasks):
            bare.accuracy(network, split.x, split.y, 1000)

    ours, theirs = interleaved(lambda: evaluator.row(learner, tasks), loop, repeats=repeats)
    return Row("evaluation of 20 x 10,000 images", ours / theirs, 1.1)


def default_run(repeats: int) -> list[Row]:
    """Seconds from the command to the first mini-batch, and the peak memory, of the default run on a warm cache."""
    with tempfile.TemporaryDirectory() as folder:
        callback = "trainer.callbacks=[{_target_:tests.benchmarks.first_step.FirstStep}]"
        command = [sys.executable, "-m", "cl_lightning", f"outputs={folder}", "resume=false", "logger=none", callback]
        seconds = []
        for _ in range(min(repeats, 3)):
            began = time.time()
            out = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "CL_LIGHTNING_BEGAN": str(began)}, check=True)
            seconds.append(float(re.findall(r"first step after ([\d.]+)", out.stderr)[0]))
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e6  # kilobytes on Linux
    return [
        Row("command to first training step, warm", statistics.median(seconds), 6, "s"),
        Row("peak memory of the default run", peak, 1, "GB"),
    ]


def checkpoint(repeats: int) -> Row:
    """How long checkpoints of a network of 100 MB hold up training, against torch.save within them."""
    held_up: list[float] = []
    written: list[float] = []

    def clocked(function: Callable, times: list[float], before: Callable[[], object] = lambda: None) -> Callable:
        def inside(*arguments: object) -> object:
            before()
            began = time.perf_counter()
            value = function(*arguments)
            times.append(time.perf_counter() - began)
            return value

        return inside

    split, build = examples(10 * (repeats + 1)), partial(MLP, (1, 28, 28), HEAD, (5000, 4200))
    learner = Finetune(build)
    learner.network = nn.Module()  # one copy: the candidate's
    task = Task(0, 1, "benchmark", tuple("0123456789"), HEAD, split)
    candidates = [Candidate("", build())]
    with tempfile.TemporaryDirectory() as folder:
        settings = toys.one_epoch(batch_size=10, optimizer="sgd", block=1, checkpoint_minutes=0, stack=False)
        engine = Engine(StreamDataModule(NO_STREAM), Journal(Path(folder)), settings)
        saving = clocked(InsideCheckpoints.on_train_batch_end, held_up, before=engine.journal.settle)  # nothing left of the one before
        with patch.object(InsideCheckpoints, "on_train_batch_end", saving), patch.object(torch, "save", clocked(torch.save, written)):
            engine.fit(learner, Phase(candidates), candidates, task, {"where": "benchmark", "index": 0, "first": 0}, {})
    shares = [all_of_it / writing for all_of_it, writing in zip(held_up[1:], written[1:])]
    return Row("a checkpoint of 100 MB, against torch.save", statistics.median(shares), 1.1)


def safety(repeats: int) -> Row:
    """What journal, checksums, leases and the search for copies take of the default run's seconds."""
    shares = []
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "tests.benchmarks.safety", f"outputs={folder}", "resume=false"]
        for _ in range(min(repeats, 3)):
            out = subprocess.run(command, capture_output=True, text=True, check=True)
            shares.append(float(re.findall(r"share ([\d.]+)", out.stdout)[0]))
    return Row("journal, checksums and leases, of the default run", 100 * statistics.median(shares), 2, "%")


def of_learners(repeats: int) -> list[Row]:
    """GEM against a bare loop after 19 tasks, Fisher information against one example after another, others against finetune."""

    def ratio(work: str, at_most: float, sides: tuple[Callable, Callable]) -> Row:
        ours, theirs = interleaved(*sides, repeats=repeats)
        return Row(work, ours / theirs, at_most)

    return [
        ratio("gem after 19 tasks, against a backward pass a memory and float64 copies", 0.85, learners.gem_sides(200)),
        ratio("the same with memory_precision=bf16", 0.5, learners.gem_sides(200, memory_precision="bf16")),
        Row("gem's projection, of its step", 100 * learners.projection_share(200), 8, "%"),
        ratio("ewc after 19 tasks, against finetune", 1.2, learners.ewc_sides(6000)),
        ratio("er after 19 tasks, against finetune", 2.1, learners.er_sides(6000)),
        ratio("fisher of 500 examples, against one after another", 0.1, learners.fisher_sides(500)),
    ]


def all_rows(n: int) -> Iterator[Row]:
    """One after another, so that what is measured can be read before the rest is."""
    yield training(1, 10, "adam", 1.15, n)
    yield training(1, 10, "sgd", 1.25, n)
    yield training(1, 64, "adam", 1.10, n)
    yield training(1, 64, "sgd", 1.10, n)
    yield training(8, 10, "adam", 0.60, n)
    yield training(8, 10, "sgd", 0.90, n)
    yield training(1, 10, "adam", None, n, stack=False)
    yield training(1, 64, "sgd", None, n, stack=False)
    yield training(8, 10, "adam", None, n, stack=False)
    yield residual(1, 1.0, n)
    yield residual(8, 0.85, min(n, 5))
    yield paths("MNTDP's 8 paths, width 16, batch 64", 0.58, min(n, 5))
    yield paths("the same with bf16-mixed", 0.45, min(n, 5), precision="bf16-mixed")
    yield paths("the same with a grid of 6 points: 43 candidates", 0.55, min(n, 3), points=6)
    yield paths("MNTDP's 8 paths, width 64, batch 64", 0.62, min(n, 3), width=64, steps=2)
    yield from search(min(n, 3))
    yield from data(n)
    yield from of_learners(n)
    yield evaluation(n)
    yield from default_run(n)
    yield checkpoint(n)
    yield safety(n)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="write the numbers here, too")
    parser.add_argument("--repeats", type=int, default=7, help="interleaved measurements of each side; the median counts")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    print("| work (MLP 784-100-100-10, where nothing else is said) | at most | measured | fused bare loop |\n| --- | --- | --- | --- |")
    for row in all_rows(options.repeats):
        rows.append(row)
        fused = f"{row.fused:.2f}x" if row.fused is not None else ""
        limit = f"{row.at_most:g} {row.unit}" if row.at_most is not None else ""
        print(f"| {row.work} | {limit} | {row.measured:.2f} {row.unit}{'' if row.met else ' (missed)'} | {fused} |", flush=True)
    if options.json:
        options.json.write_text(json.dumps([{**asdict(row), "met": row.met} for row in rows], indent=1))


if __name__ == "__main__":
    main()
