"""Prints the table of docs/speed.md, and the same as JSON with ``--json FILE``. ``devices`` prints how long
one task takes on several devices and by several jobs, ``on_paper`` what a hundred tasks would take,
``against`` how fast this tree is beside another revision."""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any
from unittest.mock import Mock, patch

import torch
import torch.nn as nn

from cl_lightning.cli.command import main as run_command
from cl_lightning.config.resolvers import bf16_if_fast
from cl_lightning.data.module import StreamDataModule
from cl_lightning.data.task import Head, Task
from cl_lightning.engine.phases import InsideCheckpoints, Phases
from cl_lightning.evaluation.evaluator import Evaluator
from cl_lightning.learners import EWC, HAT, SI, Candidate, Finetune, LwF, Phase
from cl_lightning.protocol import Grants
from cl_lightning.store.files import Store
from cl_lightning.store.records import Place
from tests import toys
from tests.benchmarks import against, bare, devices, learners, modular, on_paper, reading, robust
from tests.benchmarks.engine import HEAD, MLP, NO_STREAM, a_resnet, examples, interleaved, lock_step, rates

PARTS = {
    "devices": devices.main,
    "on_paper": on_paper.main,
    "against": against.main,
}  # with options of their own


@dataclass
class Row:
    work: str
    measured: float
    at_most: float | None  # None: for information
    unit: str = "x"
    fused: float | None = None  # the same against a bare loop with torch's fused optimizer kernels
    bf16: bool = False  # its limit is for processors that compute in bf16

    @property
    def met(self) -> bool | None:
        """None where this processor cannot tell."""
        if self.bf16 and bf16_if_fast() == "32":
            return None
        worst = self.measured if self.fused is None else max(self.measured, self.fused)
        return self.at_most is None or worst <= self.at_most

    @property
    def remark(self) -> str:
        return {True: "", False: " (missed)", None: " (no bf16 on this CPU)"}[self.met]


@dataclass(frozen=True)
class Effort:
    """How much of its work each row does: all of it for docs/speed.md, a little of it to see that it runs."""

    repeats: int = 7  # interleaved measurements of each side; the median counts
    part: float = 1.0  # of images, steps, tasks and units
    overrides: tuple[str, ...] = ()  # of the rows that run the program

    def of(self, count: int) -> int:
        return max(2, round(self.part * count))


def training(
    candidates: int,
    batch_size: int,
    optimizer: str,
    at_most: float | None,
    effort: Effort,
    stack: bool = True,
) -> Iterator[Row]:
    split, epochs = examples(effort.of(4000)), 2

    def loops(fused: bool) -> None:
        for i in range(candidates):
            network = bare.mlp()
            opt = bare.optimizer(optimizer, network, 1e-3 * (1 + i / 10), fused)
            bare.train(network, opt, split.x, split.y, batch_size, epochs)

    with tempfile.TemporaryDirectory() as folder:
        settings = {"max_epochs": epochs, "batch_size": batch_size, "optimizer": optimizer, "stack": stack}
        ours = partial(lock_step, split, rates(candidates), Path(folder), **settings)
        mine, default, fused = interleaved(
            ours, partial(loops, False), partial(loops, True), repeats=effort.repeats
        )
    work = (
        f"{candidates} candidate{'s in lock-step' * (candidates > 1)}, batch {batch_size}, {optimizer}"
        + ", not stacked" * (not stack)
    )
    yield Row(work, mine / default, at_most, fused=mine / fused)


def residual(candidates: int, at_most: float, effort: Effort) -> Iterator[Row]:
    """A residual network of width 16 in channels_last, against a loop in PyTorch's default layout."""
    split = examples(effort.of(64 * 8), shape=(3, 32, 32))

    def loops(fused: bool) -> None:
        for i in range(candidates):
            network = a_resnet(channels_last=False)
            bare.train(
                network, bare.optimizer("adam", network, 1e-3 * (1 + i / 10), fused), split.x, split.y, 64, 1
            )

    with tempfile.TemporaryDirectory() as folder:
        ours = partial(
            lock_step,
            split,
            rates(candidates),
            Path(folder),
            a_resnet,
            max_epochs=1,
            batch_size=64,
            optimizer="adam",
        )
        mine, default, fused = interleaved(
            ours, partial(loops, False), partial(loops, True), repeats=effort.repeats
        )
    work = f"ResNet of width 16, {candidates} candidate{'s in lock-step' * (candidates > 1)}, batch 64, adam"
    yield Row(work, mine / default, at_most, fused=mine / fused)


def two_tasks(
    topologies: str, sizes: Sequence[Sequence[int]], at_most: float, effort: Effort
) -> Iterator[Row]:
    """The realistic protocol's training for one model and pair of tasks: each topology by two rates on the
    first task, then one topology by three rates on the second."""
    split = examples(effort.of(5000))
    first = [(each, lr) for each in sizes for lr in (0.01, 0.001)]
    second = [(sizes[1], lr) for lr in (1e-3, 1e-4, 1e-5)]

    def ours(folder: Path) -> None:
        for stage in (first, second):
            grid = [{"lr": lr, "backbone.sizes": each} for each, lr in stage]
            settings = {"max_epochs": 2, "batch_size": 100, "optimizer": "sgd", "momentum": 0.99}
            lock_step(split, grid, folder, **settings)

    def loops(fused: bool) -> None:
        for each, lr in first + second:
            network = bare.mlp(each)
            opt = bare.optimizer("sgd", network, lr, fused, momentum=0.99)
            bare.train(network, opt, split.x, split.y, 100, 2)

    with tempfile.TemporaryDirectory() as folder:
        mine, default, fused = interleaved(
            partial(ours, Path(folder)), partial(loops, False), partial(loops, True), repeats=effort.repeats
        )
    work = f"the realistic protocol's training, {topologies}, batch 100, sgd with momentum"
    yield Row(work, mine / default, at_most, fused=mine / fused)


def paths(
    work: str,
    at_most: float,
    effort: Effort,
    width: int = 16,
    steps: int = 4,
    precision: str = "32",
    points: int = 1,
) -> Iterator[Row]:
    """MNTDP's paths behind one task, in lock-step against one after another."""
    batch_size, steps = effort.of(64), effort.of(steps)
    grid = [{"lr": lr, "weight_decay": decay} for lr in (0.01, 0.001) for decay in (0.0, 1e-5, 1e-4)][:points]
    with tempfile.TemporaryDirectory() as folder:
        lock_step_of_all = modular.training(Path(folder), width, grid, steps, precision, batch_size)
        one_after_another = modular.bare_paths(width, grid, steps, batch_size)
        ours, bare_loops = interleaved(lock_step_of_all, one_after_another, repeats=effort.repeats)
    yield Row(work, ours / bare_loops, at_most, bf16=precision == "bf16-mixed")


def search(effort: Effort) -> Iterator[Row]:
    """The search's part of the training of S_long's tasks with trainer=reduced. A large task has 2500
    mini-batches of 32 with 23 scorings on 12,500 images, reckoned from what 40 take more than 20; a small one
    40 mini-batches of 25, each with a scoring on 75 images."""
    some, steps = partial(modular.training, width=16, grid=[{}]), effort.of(20)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        part = {
            count: examples(23 * 12_500 * count // 2500, shape=modular.SHAPE, seed=2)
            for count in (steps, 2 * steps)
        }
        fewer, more = (
            some(folder, steps=count, batch_size=effort.of(32), val=val) for count, val in part.items()
        )
        of_large = modular.searching(effort.of(100), effort.of(1000), effort.of(1000))
        looking, less, longer = interleaved(of_large, fewer, more, repeats=effort.repeats)
        few, some_more = effort.of(25), effort.of(75)
        val = examples(some_more, shape=modular.SHAPE, seed=2)
        small = some(folder, steps=effort.of(40), batch_size=few, val=val, score_every=1)
        at_few, all_of_it = interleaved(
            modular.searching(effort.of(100), few, some_more), small, repeats=effort.repeats
        )
    work = "MNTDP's search over 100 past tasks, of the training on"
    large = (longer - less) / steps * 2500
    whole = modular.search_of_the_stream({True: looking, False: at_few}, {True: large, False: all_of_it})
    yield Row("MNTDP's search over the whole of S_long", 100 * whole, 5, "%")
    yield Row(f"{work} 5000 images", 100 * looking / large, None, "%")
    yield Row(f"{work} 25 images", 100 * at_few / all_of_it, None, "%")


def one_network(effort: Effort) -> Iterator[Row]:
    sides = modular.both_kinds(16, effort.of(80), effort.of(32))
    ours, path = interleaved(*sides, repeats=effort.repeats)
    yield Row("MNTDP-S, width 16, batch 32, against one path's training", ours / path, 1.3)


def whole_stream(effort: Effort) -> Iterator[Row]:
    ours, loop = interleaved(*modular.stream_sides(effort.part), repeats=effort.repeats)
    yield Row("MNTDP over S-out's six tasks, against the same loop in lock-step", ours / loop, 1.1)


def decoding(effort: Effort) -> Iterator[Row]:
    """Measured on a tenth."""
    images = effort.of(6000)
    with tempfile.TemporaryDirectory() as folder:
        seconds = reading.seconds_to_decode(Path(folder), images)
    yield Row("decoding 60,000 PNG images of 28 x 28, once", seconds * 60_000 / images, 15, "s")


def opening(effort: Effort) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        seconds = reading.seconds_to_open(Path(folder), effort.of(4000), effort.repeats)
    yield Row("opening a cached task of 6000 images of 32 x 32", seconds, 0.1, "s")


def evaluation(effort: Effort) -> Iterator[Row]:
    tasks = 20
    splits = [examples(effort.of(10_000), seed=task) for task in range(tasks)]
    stream = Mock(head=Head("domain", 10, HEAD.owned * tasks), test=splits.__getitem__)
    stream.__len__ = lambda self: tasks
    evaluator = Evaluator(stream, toys.one_epoch(), torch.device("cpu"), Grants())
    learner, network = Finetune(build=partial(MLP, (1, 28, 28), sizes=(100, 100)), head=HEAD), bare.mlp()

    def loop() -> None:
        for split in splits:
            bare.accuracy(network, split.x, split.y, 1000)

    ours, theirs = interleaved(lambda: evaluator.row(learner, tasks), loop, repeats=effort.repeats)
    yield Row("evaluation of 20 x 10,000 images", ours / theirs, 1.1)


PEAK_OF_A_COMMAND = (
    "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True); "
    "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
)


def default_run(effort: Effort) -> Iterator[Row]:
    """Seconds from the command to the first mini-batch, and the peak memory, of the default run on a warm
    cache."""
    with tempfile.TemporaryDirectory() as folder:
        callback = "trainer.callbacks=[{_target_:tests.benchmarks.first_step.FirstStep}]"
        command = [
            sys.executable,
            "-m",
            "cl_lightning",
            f"outputs={folder}",
            "resume=false",
            "logger=none",
            callback,
            *effort.overrides,
        ]
        seconds = []
        for _ in range(effort.repeats):
            began = time.time()
            out = subprocess.run(
                command,
                capture_output=True,
                text=True,
                env={**os.environ, "CL_LIGHTNING_BEGAN": str(began)},
                check=True,
            )
            seconds.append(float(re.findall(r"first step after ([\d.]+)", out.stderr)[0]))
        # Asked of a small process between, since a child's peak begins with what its parent holds.
        between = [sys.executable, "-c", PEAK_OF_A_COMMAND, *command]
        env = {**os.environ, "CL_LIGHTNING_BEGAN": "0"}
        told = subprocess.run(between, capture_output=True, text=True, env=env, check=True).stdout
        peak = float(told.splitlines()[-1]) / 1e6  # kilobytes on Linux
    yield Row("command to first training step, warm", statistics.median(seconds), 6, "s")
    yield Row("peak memory of the default run", peak, 1, "GB")


def checkpoint(effort: Effort) -> Iterator[Row]:
    """How long checkpoints of a network of 100 MB hold up training, against torch.save of the same to a new
    file, which is written through to the disk or not."""
    held_up: list[float] = []
    written: list[float] = []
    synced: list[float] = []
    original = InsideCheckpoints.on_train_batch_end

    def saving(self: InsideCheckpoints, trainer: Any, learner: Any, *rest: Any) -> None:
        began = time.perf_counter()
        original(self, trainer, learner, *rest)
        held_up.append(time.perf_counter() - began)
        content, path = trainer._checkpoint_connector.dump_checkpoint(), self.store.folder / "bare.pt"
        began = time.perf_counter()
        torch.save(content, path)
        written.append(time.perf_counter() - began)
        with path.open("rb+") as file:
            os.fsync(file.fileno())
        synced.append(time.perf_counter() - began)
        path.unlink()

    split, sizes = examples(10 * (effort.repeats + 1)), (effort.of(5000), effort.of(4200))
    build = partial(MLP, (1, 28, 28), sizes=sizes)
    learner = Finetune(build=build, head=HEAD)
    learner.network = nn.Module()  # one copy: the candidate's
    task = Task(0, 1, "benchmark", tuple("0123456789"), HEAD, split)
    candidates = [Candidate(build(head=HEAD))]
    with tempfile.TemporaryDirectory() as folder:
        settings = toys.one_epoch(batch_size=10, optimizer="sgd", block=1, checkpoint_minutes=0, stack=False)
        engine = Phases(StreamDataModule(NO_STREAM), Store(Path(folder), "benchmark"), settings)
        with patch.object(InsideCheckpoints, "on_train_batch_end", saving):
            engine.fit(learner, Phase(candidates), list(range(len(candidates))), task, Place("task", 0))
    ours = statistics.median(held_up[1:])
    work = "a checkpoint of 100 MB, against torch.save"
    yield Row(work, ours / statistics.median(written[1:]), 1.5)
    yield Row(f"{work} and a write-through", ours / statistics.median(synced[1:]), None)


def safety(effort: Effort) -> Iterator[Row]:
    """What records, checksums, leases and the search for copies take of the default run's seconds."""
    shares = []
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            "-m",
            "tests.benchmarks.safety",
            f"outputs={folder}",
            "resume=false",
            *effort.overrides,
        ]
        for _ in range(effort.repeats):
            out = subprocess.run(command, capture_output=True, text=True, check=True)
            shares.append(float(re.findall(r"share ([\d.]+)", out.stdout)[0]))
    yield Row("records, checksums and leases, of the default run", 100 * statistics.median(shares), 2, "%")


def jobs(effort: Effort) -> Iterator[Row]:
    """The default run for three seeds, as jobs of a sweep and by a command each, in a process that has
    imported everything."""
    seeds = [str(seed) for seed in range(effort.of(3))]
    with tempfile.TemporaryDirectory() as folder:
        given = [f"outputs={folder}", "resume=false", "progress=false", *effort.overrides]

        def silently(*commands: Sequence[str]) -> None:
            with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
                for command in commands:
                    assert run_command([*given, *command]) == 0

        sweep = partial(silently, ["--multirun", f"seed={','.join(seeds)}"])
        alone = partial(silently, *([f"seed={seed}"] for seed in seeds))
        ours, theirs = interleaved(sweep, alone, repeats=effort.repeats)
    yield Row("a job of a sweep, against the same run alone, imports apart", ours / theirs, 1.1)


def single_headed(effort: Effort) -> Iterator[Row]:
    """Processor seconds of four methods of one seed, reduced as robust_split_mnist is, in one command."""
    command = [sys.executable, "-m", "cl_lightning", "--multirun", "+experiment=robust_split_mnist"]
    command += ["learner=ewc,vcl,coreset_only,vcl_coreset", "stream.n_test=500", "progress=false"]
    smaller = [word for word in effort.overrides if not word.startswith(("learner=", "stream="))]
    smaller += ["stream.n_test=null"] * bool(smaller)
    with tempfile.TemporaryDirectory() as folder:
        before = os.times()
        subprocess.run([*command, f"outputs={folder}", *smaller], capture_output=True, check=True)
        after = os.times()
    seconds = sum(after[2:4]) - sum(before[2:4])  # of children
    yield Row("robust_split_mnist by four learners, one seed", seconds, 300, "s")


def wandb(effort: Effort) -> Iterator[Row]:
    """What W&B adds to the default run, offline: opening, points, figures, closing."""
    added, shares = [], []
    with tempfile.TemporaryDirectory() as folder:
        options = [f"outputs={folder}", "resume=false", "logger=wandb", "logger.wandb.mode=offline"]
        options += ["trainer.log_every=10", *effort.overrides]
        for _ in range(effort.repeats):
            command = [sys.executable, "-m", "tests.benchmarks.wandb_cost", *options]
            out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            added.append(float(re.findall(r"added ([\d.]+)", out)[0]))
            shares.append(float(re.findall(r"share ([\d.]+)", out)[0]))
    yield Row("W&B, added to the default run", statistics.median(added), 3, "s")
    yield Row("W&B's curves (log_every=10), of training", 100 * statistics.median(shares), 1, "%")


def of_a_learner(
    work: str,
    at_most: float,
    sides: Callable[..., tuple[Callable, Callable]],
    images: int,
    effort: Effort,
    **options: Any,
) -> Iterator[Row]:
    ours, theirs = interleaved(*sides(effort.of(images), **options), repeats=effort.repeats)
    yield Row(work, ours / theirs, at_most, bf16=options.get("memory_precision") == "bf16")


def projection(effort: Effort) -> Iterator[Row]:
    yield Row("gem's projection, of its step", 100 * learners.projection_share(effort.of(200)), 8, "%")


def against_finetune(effort: Effort) -> Iterator[Iterator[Row]]:
    """The step of learners in their sixth task, in mini-batches of 64 with Adam."""
    fewer = replace(effort, repeats=min(effort.repeats, 5))
    for name, cls, at_most, options in (
        ("ewc", EWC, 1.2, {}),
        ("si", SI, 1.3, {}),
        ("lwf", LwF, 1.5, {"stack": False}),
        ("hat", HAT, 2.5, {"stack": False}),
    ):
        beside = "finetune, not stacked" if options else "finetune"
        work = f"{name} after 5 tasks, batch 64, adam, against {beside}"
        yield of_a_learner(work, at_most, learners.in_default_batches, 8000, effort, cls=cls, **options)
    work = "ewc after 5 tasks on a ResNet of width 16, batch 64, adam, against finetune"
    sides = partial(learners.in_default_batches, build=learners.RESNET)
    yield of_a_learner(work, 1.15, sides, 64 * 6, fewer, cls=EWC)


def all_rows(effort: Effort) -> list[Iterator[Row]]:
    """Each measures when it is asked, so that what is measured can be read before the rest is."""
    five, three = (replace(effort, repeats=min(effort.repeats, most)) for most in (5, 3))
    return [
        training(1, 10, "adam", 1.15, effort),
        training(1, 10, "sgd", 1.25, effort),
        training(1, 64, "adam", 1.10, effort),
        training(1, 64, "sgd", 1.10, effort),
        training(8, 10, "adam", 0.60, effort),
        training(8, 10, "sgd", 0.90, effort),
        training(1, 10, "adam", None, effort, stack=False),
        training(1, 64, "sgd", None, effort, stack=False),
        training(8, 10, "adam", None, effort, stack=False),
        residual(1, 1.0, effort),
        residual(8, 0.85, five),
        paths("MNTDP's 8 paths, width 16, batch 64", 0.6, five),
        paths("the same with bf16-mixed", 0.45, five, precision="bf16-mixed"),
        paths("the same with a grid of 6 points: 43 candidates", 0.6, three, points=6),
        paths("MNTDP's 8 paths, width 64, batch 64", 0.62, three, width=64, steps=2),
        search(three),
        one_network(three),
        whole_stream(three),
        decoding(effort),
        opening(effort),
        of_a_learner(
            "gem after 19 tasks, against a backward pass a memory and float64 copies",
            0.85,
            learners.gem_sides,
            200,
            effort,
        ),
        of_a_learner(
            "the same with memory_precision=bf16",
            0.5,
            learners.gem_sides,
            200,
            effort,
            memory_precision="bf16",
        ),
        projection(effort),
        of_a_learner(
            "gem on resnet18_gem after 5 tasks of 64 images, against a backward pass a task",
            1,
            learners.gem_on_images,
            30,
            three,
        ),
        of_a_learner(
            "icarl's nearest means of 100 classes on resnet18_gem, against its network's outputs",
            1.2,
            learners.nearest_means,
            500,
            three,
        ),
        of_a_learner("ewc after 19 tasks, against finetune", 1.2, learners.ewc_sides, 6000, effort),
        of_a_learner("er after 19 tasks, against finetune", 2.1, learners.er_sides, 6000, effort),
        *against_finetune(effort),
        of_a_learner(
            "pnn's sixth column, batch 64, adam, against a loop with the same columns and copies",
            1.1,
            learners.columns_sides,
            4000,
            effort,
        ),
        of_a_learner(
            "fisher of 500 examples, against one after another", 0.1, learners.fisher_sides, 500, effort
        ),
        of_a_learner("vcl, all 2000 examples in a step, adam", 1.2, robust.vcl_sides, 2000, effort),
        of_a_learner(
            "a GAN for each of 2 classes side by side, against one after another",
            0.6,
            robust.gan_sides,
            2000,
            three,
        ),
        two_tasks(
            "six topologies", [(units,) * layers for layers in (2, 3) for units in (200, 400, 800)], 1, three
        ),
        two_tasks("two and three layers of 200", [(200, 200), (200, 200, 200)], 0.6, effort),
        single_headed(effort),
        evaluation(effort),
        default_run(three),
        checkpoint(effort),
        safety(three),
        jobs(three),
        wandb(three),
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] and words[0] in PARTS:
        return PARTS[words[0]](words[1:])
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="write the numbers here, too")
    parser.add_argument(
        "--repeats", type=int, default=7, help="interleaved measurements of each side; the median counts"
    )
    numbers = "numbers of measurements, as all_rows counts them: some give several rows"
    parser.add_argument("--only", type=int, nargs="*", help=numbers)
    options = parser.parse_args(words)
    torch.set_num_threads(1)
    rows, measured = [], all_rows(Effort(options.repeats))
    print(
        "| work (MLP 784-100-100-10, where nothing else is said) | at most | measured | fused bare loop "
        "|\n| --- | --- | --- | --- |"
    )
    for row in chain.from_iterable([measured[k - 1] for k in options.only] if options.only else measured):
        rows.append(row)
        fused = f"{row.fused:.2f}x" if row.fused is not None else ""
        limit = f"{row.at_most:g} {row.unit}" if row.at_most is not None else ""
        print(f"| {row.work} | {limit} | {row.measured:.2f} {row.unit}{row.remark} | {fused} |", flush=True)
    if options.json:
        options.json.write_text(json.dumps([{**asdict(row), "met": row.met} for row in rows], indent=1))


if __name__ == "__main__":
    main()
