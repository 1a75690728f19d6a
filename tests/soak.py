"""Kills at random: ``python -m tests.soak --kills 300 --page docs/reliability.md``. Ends with 0 if every run
and every sweep ended as the undisturbed one: results, curves, and the tensors of the last checkpoint.
``--disks`` fills the disk at each write of a run in turn.

Runs are forked from this process, which has everything imported, so that kills fall into the run and not into
its start. A third of the kills come at an operation on files, a third at any instant, a third in bursts,
while the run is still finding out where it was.

Sweeps are searches over whole streams. Kills hit the sweeper, with its jobs in its own process or in others,
or the process of a job.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from cl_lightning.cli.command import main as command
from cl_lightning.config.trees import leaves
from cl_lightning.parallel import ranks
from cl_lightning.runs.run import run as run_config
from cl_lightning.selection.sweep import read_job
from cl_lightning.store.files import load_plain
from tests import disks
from tests.commands import SMALL, but_what_may_differ, configure, folder_of, run
from tests.dying import dying
from tests.ranks import started
from tests.test_contract import NAMES, named_by

SHORT = (
    "trainer.batch_size=16", "trainer.block=2", "trainer.checkpoint_minutes=0.0005", "backbone.dropout=0.2",
    "trainer.max_epochs=12", "trainer.patience=1000", "trainer.log_every=1",
)  # fmt: skip
COMMANDS = {
    "default": SHORT,
    "gem with probes": (
        *SHORT,
        "learner=gem",
        "selection=none",
        "trainer.probe_every=7",
        "trainer.patience=null",
    ),
    "shares with carry": (*SHORT, "trainer.candidates_at_once=2", "trainer.optimizer_state=carry"),
    "branch": (*SHORT, "trainer.optimizer=sgd", "selection=none", "from_task=1"),
    "W&B": (*SHORT, "logger=[csv,wandb]", "logger.wandb.mode=offline", "selection=none"),
    "mntdp_d with k of 2": (
        *SHORT,
        "learner=mntdp_d",
        "learner.k=2",
        "selection=none",
        "backbone.dropout=0.0",
    ),
}
OF_LEARNERS = tuple(option for option in SHORT if "max_epochs" not in option and "dropout" not in option)
OF_LEARNERS = (*OF_LEARNERS, "trainer.patience=null", "stream.head=multi_test")
AT_FILES = ("tensors written", "before a record", "after a rename", "record written")


@contextmanager
def silence() -> Iterator[None]:
    """Runs show what they came to."""
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        yield


def finished(function: Callable[[], object], seconds: float | None) -> bool:
    """Run for so long, then kill; whether it had ended before."""
    child = multiprocessing.get_context("fork").Process(target=function)
    child.start()
    child.join(seconds)
    if child.exitcode is None and child.pid is not None:
        os.kill(child.pid, signal.SIGKILL)
        child.join()
    return child.exitcode == 0


def disturbed(how: str, draw: random.Random, duration: float, function: Callable[[], object]) -> bool:
    """One start of a run that is killed in a way; whether it had ended before."""
    if how == "files":
        fault = f"{draw.choice(AT_FILES)}:{draw.randint(1, 12)}"
        return finished(lambda: dying(fault, function), None)
    return finished(
        function, draw.uniform(0.02, 0.3) if how == "burst" else draw.uniform(0.05, 0.8 * duration)
    )


@dataclass(frozen=True)
class Row:
    """What kills of one command came to."""

    name: str
    kills: Counter[str]
    runs: int
    different: int

    def said(self, seconds: float) -> Row:
        words = f"{self.name}: {self.kills.total()} kills ({dict(self.kills)}) in {self.runs} runs of "
        words += f"{seconds:.1f} s, {self.different} ended otherwise"
        print(words, file=sys.__stdout__, flush=True)
        return self


def soak(name: str, kills: int, draw: random.Random, scratch: Path, overrides: tuple[str, ...]) -> Row:
    """Kill runs of one command so often."""
    began, table, runs, different = time.monotonic(), Counter[str](), 0, 0
    expected = but_what_may_differ(run(scratch / "whole", *overrides))
    duration = time.monotonic() - began
    while table.total() < kills:
        again, over = partial(run, scratch / str(runs), *overrides), False
        while table.total() < kills and not over:
            how = draw.choice(("files", "instant", "burst"))
            for _ in range(draw.randint(2, 4) if how == "burst" else 1):
                over = over or disturbed(how, draw, duration, again)
                table[how] += not over
        same = but_what_may_differ(again()) == expected
        same = same and all(of(scratch / str(runs)) == of(scratch / "whole") for of in (curves, last_tensors))
        different += not (same and not list((scratch / str(runs)).rglob("*.building")))
        runs += 1
    return Row(name, table, runs, different).said(duration)


def curves(outputs: Path) -> list[str]:
    return next(outputs.glob("*/*/*/logs.csv")).read_text().splitlines()


def last_tensors(outputs: Path) -> list[tuple[str, Any]]:
    """All that the last checkpoint holds, tensors as their bytes."""
    content = load_plain(max(outputs.glob("*/*/*/tasks/*.pt")))
    return [
        (path, leaf.reshape(-1).view(torch.uint8).tolist() if isinstance(leaf, torch.Tensor) else repr(leaf))
        for path, leaf in leaves(content)
    ]


# ---- sweeps ------------------------------------------------------------------------------------------------

SEARCH = (
    *SMALL, "learner=ewc", "stream=permuted", "stream.tasks=2", "selection=stream_level", "seed=0,1",
    "selection.stream={learner.strength:[0,100000,30]}", "selection.grid.lr=[0.01]", "logger=none",
    "trainer.max_epochs=20", "trainer.patience=null", "trainer.block=1", "trainer.checkpoint_minutes=0.001",
)  # fmt: skip
JOBLIB = ("hydra/launcher=joblib", "hydra.launcher.n_jobs=2")


VICTIMS = ("sweeper", "sweeper", *["sweeper beside its jobs", "job"] * bool(find_spec("joblib")))


def soak_sweeps(
    kills: int,
    draw: random.Random,
    scratch: Path,
    victims: Sequence[str] = VICTIMS,
    sweep: Sequence[str] = SEARCH,
) -> Row:
    """Kill sweeps of one command so often."""
    began, table, sweeps, different = time.monotonic(), Counter[str](), 0, 0
    assert command([*sweep, f"outputs={scratch / 'whole'}"]) == 0
    duration, expected = time.monotonic() - began, what_is_left(scratch / "whole")
    while table.total() < kills:
        outputs, over = scratch / str(sweeps), False
        arguments = [*sweep, f"outputs={outputs}"]
        while table.total() < kills and not over:
            victim = draw.choice(victims)
            if victim == "sweeper":
                over = finished(partial(command, arguments), draw.uniform(0.05, duration))
            else:
                over = swept([*arguments, *JOBLIB], victim == "job", draw.uniform(0, duration / 2), outputs)
            table[victim] += not over
        different += (command(arguments), what_is_left(outputs)) != (0, expected)
        sweeps += 1
    return Row(scratch.name, table, sweeps, different).said(duration)


def swept(arguments: list[str], job: bool, seconds: float, outputs: Path) -> bool:
    """One start of a sweep, with jobs in processes of their own, whose sweeper or job is killed so long after
    the first job began; whether it had ended before."""
    sweep = subprocess.Popen(
        [sys.executable, "-m", "cl_lightning", *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    while sweep.poll() is None and not at_work(outputs):
        time.sleep(0.01)
    with suppress(subprocess.TimeoutExpired):
        sweep.wait(seconds)
    victims = at_work(outputs)[:1] if job else [sweep.pid]
    over = sweep.poll() is not None or not victims
    for process in victims:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    sweep.wait()  # without a job it ends by itself
    with suppress(ProcessLookupError):
        os.killpg(sweep.pid, signal.SIGKILL)  # jobs without a sweeper
    while at_work(outputs):
        time.sleep(0.01)
    return over


def at_work(outputs: Path) -> list[int]:
    """The processes of jobs that run."""
    jobs = [
        read_job(path.parents[1], int(path.stem)) for path in sorted(outputs.glob("*/sweeps/*/jobs/*.json"))
    ]
    begun = [job["process"] for job in jobs if "process" in job and not {"done", "failed"} & job.keys()]
    return [process for process in begun if is_alive(process)]


def is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def what_is_left(outputs: Path) -> dict[str, Any]:
    """All that a sweep leaves, without the seconds and the place."""
    (sweep,) = outputs.glob("*/sweeps/*/sweep.json")
    left: dict[str, Any] = {}
    for path in [sweep, *sweep.parent.glob("best/*.yaml")]:
        lines = path.read_text().replace(str(outputs), "").splitlines()
        left[path.name] = [line for line in lines if "seconds" not in line]
    for path in outputs.glob("*/*/*/results.json"):
        left[path.parent.name] = but_what_may_differ(json.loads(path.read_text()))
    return left


ROUNDS = (
    "hydra/sweeper=cl_task_level", *SMALL, *SHORT, "learner=mntdp_d", "backbone.dropout=0.0",
    "trainer.candidates_at_once=5",
)  # fmt: skip


def soak_devices(kills: int, draw: random.Random, scratch: Path) -> Row:
    """Kill ranks of runs on two or three devices so often, or ask them to end."""
    ranks.SILENT = 3.0
    began, table, runs, different = time.monotonic(), Counter[str](), 0, 0
    expected = but_what_may_differ(run(scratch / "whole", *SHORT))
    duration = time.monotonic() - began
    while table.total() < kills:
        cfg, over = configure(f"outputs={scratch / str(runs)}", *SMALL, *SHORT), False
        while table.total() < kills and not over:
            count, how = draw.choice((2, 2, 3)), draw.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGTERM))
            with started(count, lambda rank: run_config(cfg, [])) as processes:  # noqa: B023
                processes[0].join(draw.uniform(0.05, duration))
                victim = draw.randrange(count)
                over = all(process.exitcode == 0 for process in processes)
                os.kill(processes[victim].pid or 0, how) if processes[victim].is_alive() else None
                for process in processes:
                    process.join(60)
                    assert process.exitcode is not None, "a rank did not end within a minute"
            table[f"{how.name} at rank {victim}"] += not over
        found = run(scratch / str(runs), *SHORT)
        different += but_what_may_differ(found) != expected
        runs += 1
    return Row("ranks", table, runs, different).said(duration)


# ---- disks and the page ------------------------------------------------------------------------------------


def soak_disks(scratch: Path) -> Row:
    """Fill the disk at each write of a run in turn."""
    opened, expected = disks.whole(scratch / "whole")
    began, table, different = time.monotonic(), Counter[str](), 0
    for number in range(len(opened)):
        trouble = disks.trouble(scratch / str(number), number, expected)
        print(trouble, end="\n" * bool(trouble), file=sys.__stdout__, flush=True)
        different += bool(trouble)
        table["a full disk"] += 1
    return Row("disks", table, len(opened), different).said((time.monotonic() - began) / len(opened))


PAGE = """# Reliability

A run that is killed goes on with the same command, and ends with the same results, curves and tensors. What
follows was killed with SIGKILL: at operations on files, at random instants, and in bursts while it was still
finding out where it was. A run counts as *otherwise* if one number, one line of a curve or one bit of the
last checkpoint is another than in a run that nobody disturbed, or if a file is left over. This prints the
table again:

```bash
{command}
```

| what | kills | how | runs | otherwise |
| --- | --- | --- | --- | --- |
{rows}
"""


def page(rows: Sequence[Row], command: str) -> str:
    lines = (
        f"| {row.name} | {row.kills.total()} | "
        + ", ".join(f"{how} {count}" for how, count in sorted(row.kills.items()))
        + f" | {row.runs} | {row.different} |"
        for row in rows
    )
    return PAGE.format(command=command, rows="\n".join(lines))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200, help="of runs")
    parser.add_argument("--sweeps", type=int, default=20, help="kills of sweeps")
    parser.add_argument("--rounds", type=int, default=20, help="kills of sweeps in rounds")
    parser.add_argument("--devices", type=int, default=20, help="kills of runs on several devices")
    parser.add_argument("--learners", type=int, default=2, help="kills of each learner")
    parser.add_argument("--disks", action="store_true", help="fill the disk at each write")
    parser.add_argument("--page", type=Path, help="write a page with the table there")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    draw, rows = random.Random(options.seed), []
    with tempfile.TemporaryDirectory() as scratch, silence():
        os.environ.setdefault("CL_LIGHTNING_CACHE", str(Path(scratch) / "cache"))
        run(Path(scratch) / "before", *SHORT)  # what the branch begins with
        before = folder_of(configure(f"outputs={Path(scratch) / 'before'}", *SMALL, *SHORT))
        for name, overrides in COMMANDS.items():
            own = (*overrides, f"run={before}") if name == "branch" else overrides
            if not options.kills:
                break
            rows.append(soak(name, options.kills // len(COMMANDS), draw, Path(scratch) / name, own))
        for learner in NAMES if options.learners else ():
            own = (*OF_LEARNERS, f"learner={learner}", *named_by(learner))
            rows.append(soak(learner, options.learners, draw, Path(scratch) / "learners" / learner, own))
        if options.sweeps:
            rows.append(soak_sweeps(options.sweeps, draw, Path(scratch) / "sweeps"))
        if options.rounds:
            rows.append(soak_sweeps(options.rounds, draw, Path(scratch) / "rounds", sweep=ROUNDS))
        if options.devices:
            rows.append(soak_devices(options.devices, draw, Path(scratch) / "devices"))
        if options.disks:
            rows.append(soak_disks(Path(scratch) / "disks"))
    if options.page:
        options.page.write_text(page(rows, f"python -m tests.soak {' '.join(sys.argv[1:])}"))
    return 1 if any(row.different for row in rows) else 0


if __name__ == "__main__":
    raise SystemExit(main())
