"""What grows with a run: ``python -m tests.growth`` prints the memory of the process over 200 tasks, 50 jobs
of a sweep and 100 evaluations, and how many calls a late task takes of those that an early one takes.

Calls of functions are counted, Python's and C's, and not seconds: they do not depend on what else runs.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import torch

from cl_lightning.callbacks import StreamCallback
from tests.commands import SMALL, command, run

TINY = (
    "stream=permuted", "stream.n_train=20", "stream.n_val=0", "stream.n_test=20", "trainer.evaluate=final",
    "selection=none", "trainer.patience=null", "trainer.max_epochs=1", "data.sources.mnist.train=2000",
    "data.sources.mnist.test=300", "checkpoints=last",
)  # fmt: skip
STEADY = ("finetune", "online_ewc", "si", "er", "agem")  # whose method does not grow


class Calls(StreamCallback):
    """Counts the calls of functions in these tasks, and notes the memory at each task's start."""

    def __init__(self, at: list[int]) -> None:
        self.at, self.count = at, 0
        Calls.of, Calls.memory = {}, []

    of: dict[int, int] = {}
    memory: list[int] = []

    def on_task_start(self, learner: Any, task: Any) -> None:
        sys.setprofile(None)
        if task.index - 1 in self.at:
            Calls.of[task.index - 1] = self.count
        Calls.memory.append(resident())
        self.count = 0
        if task.index in self.at:
            sys.setprofile(self.counted)

    def counted(self, frame: Any, event: str, argument: Any) -> None:
        self.count += event in ("call", "c_call")


def resident() -> int:
    """Bytes of memory that the process holds now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def calls(outputs: Path, tasks: int, early: int, late: int, *options: str) -> float:
    """How many calls the late task takes of those of the early one."""
    callback = f"+trainer.callbacks=[{{_target_: tests.growth.Calls,at: [{early},{late}]}}]"
    try:
        run(outputs, *TINY, f"stream.tasks={tasks}", callback, *options)
    finally:
        sys.setprofile(None)
    return Calls.of[late] / Calls.of[early]


def over_tasks(outputs: Path) -> float:
    calls(outputs, 200, 20, 198)
    return Calls.memory[-1] / Calls.memory[20]


class Jobs(StreamCallback):
    """Notes the memory at the start of each run in this process."""

    memory: list[int] = []

    def on_stream_start(self, name: str, tasks: int, learned: int) -> None:
        Jobs.memory.append(resident())


def over_jobs(outputs: Path) -> float:
    small = [*SMALL, "stream.tasks=1", "selection=none", "logger=none", f"outputs={outputs}"]
    callback = "+trainer.callbacks=[{_target_: tests.growth.Jobs}]"
    command("--multirun", *small, callback, "seed=range(50)")
    return Jobs.memory[-1] / Jobs.memory[5]


def over_evaluations(outputs: Path) -> float:
    from cl_lightning.evaluation.evaluator import Evaluator
    from cl_lightning.notebook import load
    from cl_lightning.protocol import Grants
    from tests import toys

    run(outputs, "selection=none")
    made = load(next(outputs.glob("*/*/*")))
    learner, stream = made.learner(), made.stream()
    evaluator = Evaluator(stream, toys.one_epoch(), torch.device("cpu"), Grants())
    memory = []
    for _ in range(100):
        evaluator.row(learner, len(stream))
        memory.append(resident())
    return memory[-1] / memory[5]


MEASURES = {"200 tasks": over_tasks, "50 jobs of a sweep": over_jobs, "100 evaluations": over_evaluations}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--one", choices=[*MEASURES, *STEADY], help="this alone, in this process")
    parser.add_argument("--tasks", type=int, default=200)
    options = parser.parse_args()
    if options.one is None:
        alone = [sys.executable, "-m", "tests.growth", "--tasks", str(options.tasks), "--one"]
        each = [subprocess.run([*alone, name]) for name in [*MEASURES, *STEADY]]
        return max(process.returncode for process in each)
    torch.set_num_threads(1)
    with (
        tempfile.TemporaryDirectory() as folder,
        open(os.devnull, "w") as nowhere,
        redirect_stdout(nowhere),
        redirect_stderr(nowhere),
    ):
        if options.one in MEASURES:
            words, ratio = "memory over", MEASURES[options.one](Path(folder))
        else:
            last = options.tasks - 2
            words = f"calls of task {last} in the place of task {last // 10}:"
            ratio = calls(Path(folder), options.tasks, last // 10, last, f"learner={options.one}")
    print(f"{words} {options.one} {ratio:.3f}", flush=True)
    return ratio > 1.05


if __name__ == "__main__":
    from tests import growth  # whose classes the configuration names

    raise SystemExit(growth.main())
