"""One task with 43 candidate paths, trained in one process, on several devices and by several jobs; and by
Independent, which has a path alone: ``python -m tests.benchmarks devices``.

The commands are whole ones: they import, compose, go on from the first task, train the second, test and
write. All begin with the same learned task, and train ten epochs of the next. Patience is off, so that
all candidates train equally long; ``--patience 50`` sets it. ``--points 1`` leaves 8 paths, and Independent
one network. ``--count 8 --accelerator cuda`` shows what a machine with 8 GPUs gets.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import torch

LARGEST = {"devices": 0.58, "joblib": 0.60}  # of one process's wall time, where so many cores are free


class Measured(NamedTuple):
    way: str
    told: str  # of ranks: what they sent one another, and how long they waited
    wall: float  # seconds of the command
    cpu: float  # of the processor, with all that the command started
    trained: float  # seconds in which mini-batches were trained and scored, of all processes together
    results: dict[str, Any]


def task(steps: int, width: int, patience: float | None, accelerator: str, points: int) -> list[str]:
    """Options of a stream of two tasks; a grid of 6 points, or 1, on a ResNet of 7 modules."""
    return [
        f"selection={'none' if points == 1 else 'task_level'}", "stream=split", "stream.tasks=2",
        "stream.head=domain", "stream.n_train=2000", "stream.n_val=500", "stream.n_test=200",
        "backbone=resnet_small", f"backbone.width={width}",
        "backbone.channels_last=true", f"trainer.max_steps={steps}",
        f"trainer.patience={'null' if patience is None else patience}", "trainer.score_at=[]",
        "trainer.evaluate=final", f"trainer.accelerator={accelerator}", "figures=false", "logger=none",
    ]  # fmt: skip


def ways(count: int, accelerator: str, candidates: int = 43) -> dict[str, list[str]]:
    """How the candidates can be shared out: options of each way."""
    rounds = ["hydra/sweeper=cl_task_level", f"trainer.candidates_at_once={-(-candidates // count)}"]
    joblib = ["hydra/launcher=joblib", f"hydra.launcher.n_jobs={count}"]
    if accelerator == "cuda":  # joblib's workers, each with a GPU of its own
        joblib = ["hydra/launcher=devices", f"hydra.launcher.devices={count}"]
    found = {
        "in process": [],
        f"trainer.devices={count}": [f"trainer.devices={count}"],
        f"joblib x {count}": [*rounds, *joblib],
        f"submitit_local x {count}": [*rounds, "hydra/launcher=submitit_local"],
    }
    if importlib.util.find_spec("ray"):
        found[f"ray x {count}"] = [*rounds, "hydra/launcher=ray"]
    return found


def command(*arguments: str) -> tuple[float, float, str]:
    """Wall and processor seconds of a command, and what it said on the side."""
    began, before = perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    ended = subprocess.run([sys.executable, "-m", "cl_lightning", *arguments], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return perf_counter() - began, cpu, ended.stderr


def measure(
    folder: Path, count: int, steps: int, width: int, patience: float | None, accelerator: str, points: int
) -> list[Measured]:
    """Every way in turn, all from the same first task; and Independent from its own."""
    options, first, found = task(steps, width, patience, accelerator, points), {}, []
    for learner in ("mntdp_d", "independent"):
        command(*options, f"learner={learner}", f"outputs={folder / learner}", "checkpoints=all")
        (first[learner],) = (folder / learner).rglob("run.json")
    all_ways = [("mntdp_d", *each) for each in ways(count, accelerator, 7 * points + 1).items()]
    all_ways.append(("independent", "Independent, in process", []))
    for number, (learner, way, more) in enumerate(all_ways):
        outputs = folder / str(number)
        more = [*more, f"learner={learner}"]
        branch = [
            f"run={first[learner].parent}",
            "from_task=1",
            f"outputs={outputs}",
            f"hydra.sweep.dir={outputs}",
        ]
        wall, cpu, err = command(*more, *options, *branch)
        (path,) = outputs.rglob("results.json")
        results = json.loads(path.read_text())
        seconds = results["costs"][1]["seconds"]
        trained = seconds.get("train", 0.0) + seconds.get("score", 0.0)
        told = next((line for line in err.splitlines() if " ranks sent " in line), "")
        found.append(Measured(way, told, wall, cpu, trained, results))
    return found


def show(found: Sequence[Measured], count: int) -> None:
    """A row a way."""
    base = found[0]
    print("| way | wall s | of one process | processor s | training and scoring s | the rest, a process |")
    print("| --- | --- | --- | --- | --- | --- |")
    for way, _, wall, cpu, trained, _ in found:
        processes = 1 if "in process" in way else count
        most = next((most for name, most in LARGEST.items() if name in way), None) if count == 2 else None
        ratio = f"{wall / base.wall:.2f}" + (f" (at most {most})" if most else "")
        print(
            f"| {way} | {wall:.1f} | {ratio} | {cpu:.1f} | {trained:.1f} | {wall - trained / processes:.1f} |"
        )
    print("\n".join(["", *(each.told for each in found if each.told)]))


def tell_overhead(seconds: dict[str, float]) -> None:
    """Print what a process does besides training, as far as it can be told apart."""
    commands = {
        "imports": ["-c", "import cl_lightning.runs.run"],
        "composing": ["-m", "cl_lightning", "--cfg", "job"],
    }
    told = {}
    for what, words in commands.items():
        began = perf_counter()
        subprocess.run([sys.executable, *words], capture_output=True, check=True)
        told[what] = perf_counter() - began
    told |= {part: value for part, value in seconds.items() if part not in ("train", "score", "cpu")}
    print("Of the rest, in seconds:", ", ".join(f"{what} {value:.1f}" for what, value in told.items()))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--count", type=int, help="devices, or jobs at once: all GPUs, else 2")
    parser.add_argument("--steps", type=int, default=320, help="mini-batches of each candidate, at most")
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--patience", type=float)
    parser.add_argument("--accelerator", default="cpu")
    parser.add_argument("--points", type=int, choices=(1, 6), default=6, help="of the grid")
    given = parser.parse_args(arguments)
    given.count = given.count or (torch.cuda.device_count() if given.accelerator == "cuda" else 2)
    with tempfile.TemporaryDirectory() as folder:
        found = measure(
            Path(folder),
            given.count,
            given.steps,
            given.width,
            given.patience,
            given.accelerator,
            given.points,
        )
    show(found, given.count)
    print(f"Candidates: {found[0].results['selected'][1]['candidates']}")
    tell_overhead(found[0].results["costs"][1]["seconds"])


if __name__ == "__main__":
    main()
