"""Kills at random instants: ``python -m tests.soak --kills 100``. Ends with 0 if every run ended with the results of the undisturbed one.

Runs are forked from this process, which has everything imported, so that kills fall into the run and not into its start.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import signal
import tempfile
import time
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import torch

from tests.commands import but_what_may_differ, run

OPTIONS = (
    "trainer.batch_size=16", "trainer.block=2", "trainer.checkpoint_minutes=0.0005", "backbone.dropout=0.2",
    "trainer.max_epochs=12", "stream.tasks=3", "trainer.patience=1000",
)  # fmt: skip


def quietly(outputs: Path) -> None:
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        run(outputs, *OPTIONS)


def finished(outputs: Path, seconds: float | None) -> bool:
    """Run for so long, then kill; whether it had ended before."""
    child = multiprocessing.get_context("fork").Process(target=quietly, args=(outputs,))
    child.start()
    child.join(seconds)
    if child.exitcode is None and child.pid is not None:
        os.kill(child.pid, signal.SIGKILL)
        child.join()
    return child.exitcode == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    instants = random.Random(options.seed)
    kills = runs = identical = resumed = 0
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["CL_LIGHTNING_CACHE"] = str(Path(scratch) / "cache")
        expected = but_what_may_differ(run(Path(scratch) / "whole", *OPTIONS))
        began = time.monotonic()
        assert finished(Path(scratch) / "timing", None)
        duration = time.monotonic() - began
        while kills < options.kills:
            outputs = Path(scratch) / str(runs)
            while kills < options.kills and not finished(outputs, instants.uniform(0.05, 0.6 * duration)):
                kills += 1
            results = but_what_may_differ(run(outputs, *OPTIONS))
            runs += 1
            identical += results == expected
            journal = next(outputs.glob("*/*/*/journal.jsonl")).read_text()
            resumed += journal.count('"event": "inside"') > 0
    print(
        f"{kills} kills in {runs} runs of {duration:.1f} s: {identical} of {runs} ended with identical results; {resumed} saved inside a phase"
    )
    return 0 if identical == runs else 1


if __name__ == "__main__":
    raise SystemExit(main())
