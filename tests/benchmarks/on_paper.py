"""On paper: what S_long's 100 tasks with 43 candidates each and three seeds need, and where more devices or
nodes stop helping: ``python -m tests.benchmarks.on_paper``.

On a CPU the cost of a candidate is measured here, with trainer=reduced: width 16, batches of 32. On a GPU it
is the operations of the published setting (width 64, batches of 256), divided by what a GPU is assumed to do
a second: ``--teraflops 10``.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from tests.benchmarks import bare, modular
from tests.benchmarks.devices import command
from tests.benchmarks.engine import examples, interleaved

TASKS = {"large": 25, "small": 75}  # of S_long: large ones are drawn ever more rarely
STEPS = {  # mini-batches of a candidate, at most: patience ends most before
    "reduced": {"large": 2500, "small": 40},
    "published": {"large": 6000, "small": 300},
}
GRID = [{"lr": lr, "weight_decay": decay} for lr in (0.01, 0.001) for decay in (0.0, 1e-5, 1e-4)]
CANDIDATES, SEEDS, MODULES = 43, 3, 7
COPIES = 5  # weights, gradients, Adam's two moments, the best weights so far
IMAGES = 5000 + 5 * 2500  # of a large task, for training and validation
START = [
    "learner=finetune", "stream=permuted", "stream.tasks=1", "stream.n_train=100", "stream.n_val=50",
    "stream.n_test=50", "trainer.max_steps=1", "logger=none", "figures=false",
]  # fmt: skip


class Cost(NamedTuple):
    """Seconds."""

    whole: float  # a mini-batch of the candidate that re-uses nothing, which is the slowest
    mean: float  # a mini-batch of a candidate, over all 43
    start: float = 0.0  # what a job takes before it trains: imports, composing, reading the checkpoint


def of_a_task(shares: int, cost: Cost, steps: int) -> float:
    """Seconds until the slowest share of a task's candidates is trained.

    >>> of_a_task(43, Cost(2.0, 1.0), steps=10), of_a_task(8, Cost(2.0, 1.0, start=5), steps=10)
    (20.0, 65.0)
    """
    return max(math.ceil(CANDIDATES / shares) * cost.mean, cost.whole) * steps + cost.start


def of_a_stream(shares: int, cost: Cost, trainer: str) -> float:
    return sum(count * of_a_task(shares, cost, STEPS[trainer][size]) for size, count in TASKS.items())


def on_cpu(repeats: int, part: float = 1.0) -> Cost:
    """Measured with one thread: 43 paths in lock-step, and the whole path alone, from what twice as many
    mini-batches take more; and a command that trains one mini-batch."""
    steps, batch = max(1, round(4 * part)), max(2, round(32 * part))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        once, twice = (
            modular.training(folder, 16, GRID, count, batch_size=batch) for count in (steps, 2 * steps)
        )
        less, more = interleaved(once, twice, repeats=repeats)
        split, network = examples(batch * steps, shape=modular.SHAPE), modular.bare_path(16, 0)[0]
        optimizer = bare.optimizer("adam", network, 1e-3, True)
        (alone,) = interleaved(
            lambda: bare.train(network, optimizer, split.x, split.y, batch, 1), repeats=repeats
        )
        start, *_ = command(*START, f"outputs={folder}")
    return Cost(alone / steps, (more - less) / steps / CANDIDATES, start)


def on_gpu(teraflops: float, width: int = 64, batch: int = 256) -> Cost:
    """Operations of a forward and a backward pass, at so many a second."""
    seconds = [operations(width, reused, batch) / teraflops / 1e12 for reused in range(MODULES)]
    return Cost(seconds[0], sum(seconds) / MODULES)


def operations(width: int, reused: int, batch: int) -> int:
    """Operations of a mini-batch of a path that re-uses so many modules."""
    with torch.device("meta"):
        path, _ = modular.bare_path(width, reused)
        x, y = torch.zeros(batch, *modular.SHAPE), torch.zeros(batch, dtype=torch.int64)
        with FlopCounterMode(display=False) as counter:
            F.cross_entropy(path(x), y).backward()
    return counter.get_total_flops()


def checkpoint(width: int) -> float:
    """Megabytes of the learner after 100 tasks: by the published memory, 42 networks."""
    return 4 * parameters(width) * round(sum(TASKS.values()) * (1 - modular.SHARED)) / 1e6


def parameters(width: int) -> int:
    return sum(p.numel() for p in modular.bare_path(width, 0)[0].parameters())


def activations(width: int = 64, batch: int = 256) -> int:
    """Bytes that the forward pass of a whole path keeps for the backward pass."""
    kept: dict[int, torch.Tensor] = {}

    def note(tensor: torch.Tensor) -> torch.Tensor:
        kept[id(tensor)] = tensor
        return tensor

    with torch.device("meta"), torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        path, _ = modular.bare_path(width, 0)
        F.cross_entropy(path(torch.zeros(batch, *modular.SHAPE)), torch.zeros(batch, dtype=torch.int64))
    return sum(tensor.nbytes for tensor in kept.values())


def memory(width: int = 64, batch: int = 256) -> float:
    """Megabytes of a device that trains all candidates of a task at once."""
    held = CANDIDATES * COPIES * 4 * parameters(width)
    return (held + activations(width, batch) + IMAGES * 4 * math.prod(modular.SHAPE)) / 1e6 + checkpoint(
        width
    )


def show(cpu: Cost, gpu: Cost) -> None:
    print(
        f"A mini-batch of a candidate: {1e3 * cpu.mean:.1f} ms of a core (the slowest {1e3 * cpu.whole:.1f}) "
        f"with trainer=reduced, {1e3 * gpu.mean:.1f} ms of a GPU (the slowest {1e3 * gpu.whole:.1f}) as "
        f"published. A job starts in {cpu.start:.0f} s.\n"
        f"The checkpoint that each job of a round reads grows to {checkpoint(16):.0f} MB (width 16) or "
        f"{checkpoint(64):.0f} MB (width 64).\n"
        f"All {CANDIDATES} candidates at once take {memory() / 1e3:.1f} GB of a GPU as published.\n"
    )
    print("| where | setting | at once | hours, at most |\n| --- | --- | --- | --- |")
    for where, trainer, cost, streams, shares in rows(cpu, gpu):
        hours = math.ceil(SEEDS / streams) * of_a_stream(shares, cost, trainer) / 3600
        at_once = f"{streams} seed{'s' * (streams > 1)}, {shares} share{'s' * (shares > 1)} of a task"
        print(f"| {where} | {trainer} | {at_once} | {hours:.1f} |")


def rows(cpu: Cost, gpu: Cost) -> list[tuple[str, str, Cost, int, int]]:
    """Where, with what setting and cost, how many seeds at once, and shares of a task's candidates."""
    in_process = cpu._replace(start=0.0)
    gpu_jobs = gpu._replace(start=cpu.start)
    return [
        ("1 core", "reduced", in_process, 1, 1),
        ("2 cores, trainer.devices=2", "reduced", in_process, 1, 2),
        ("100 Slurm nodes of one core", "reduced", cpu, 3, 22),
        ("129 nodes and more", "reduced", cpu, 3, 43),
        ("1 GPU", "published", gpu, 1, 1),
        ("8 GPUs, trainer.devices=8", "published", gpu, 1, 8),
        ("100 Slurm nodes of one GPU", "published", gpu_jobs, 3, 22),
        ("129 nodes and more", "published", gpu_jobs, 3, 43),
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--teraflops", type=float, default=10, help="that a GPU does a second")
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    show(on_cpu(given.repeats), on_gpu(given.teraflops))


if __name__ == "__main__":
    main()
