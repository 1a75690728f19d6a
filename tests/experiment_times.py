"""What a run of each published experiment takes: ``python -m tests.experiment_times [NAME...]``.

Each begins with its file's own learner, in this process, and is stopped after a budget of processor seconds
(``--seconds``): then the display's own estimate of the whole, a range, is taken. Drawing images is not
counted. The numbers go to ``docs/experiment_times.json``, from which ``python -m tests.tables`` makes a
column. Studies, whose runs are those of other experiments, are left out.

``--tasks`` are learned before it is stopped. From two on, the first one's time is left out of the estimate:
a learner that grows begins with one candidate. ``--of`` takes what learning took from finished runs, or from
an extract of them, in the place of a measurement.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from rich.console import Console

import cl_lightning.callbacks.progress as progress
import cl_lightning.runs.making as making
from cl_lightning.cli.help import choices_of
from cl_lightning.cli.papers import groups_or_extracts
from cl_lightning.config.compose import compose_config
from cl_lightning.config.resolvers import conf_dir
from cl_lightning.runs.run import run
from tests.docs import ROOT

KEPT = ROOT / "docs" / "experiment_times.json"
OWN = {
    "experiment",
    "learner",
    "data",
    "data.substitute",
    "seed",
}  # keys that leave an experiment's own settings as they are


class Enough(BaseException):
    """The budget is used up."""


class Stopwatch(progress.ProgressDisplay):
    """Stops a run that has used up its budget, with an estimate of what all of it takes."""

    budget, least = 20.0, 0
    found: tuple[float, float] = (0.0, 0.0)

    def __init__(self, **options: Any) -> None:
        super().__init__(Console(file=io.StringIO()), **options)
        self.begun = time.process_time()

    def on_train_batch_end(self, *_: Any) -> None:
        self.look()

    def on_evaluated(self, *arguments: Any) -> None:
        super().on_evaluated(*arguments)
        self.look()

    def look(self) -> None:
        if self.task == self.tasks:  # what is left, as a reference, is measured to its end
            return
        spent = time.process_time() - self.begun
        left = self.pace.of_stream(self.task, self.elapsed(), self.of_phase())
        if spent > self.budget and left and len(self.pace.known) >= self.least:
            if self.least > 1:
                del self.pace.known[0]
                left = self.pace.of_stream(self.task, self.elapsed(), self.of_phase())
            type(self).found = (spent + left[0], spent + left[1])
            raise Enough

    def on_stream_end(self) -> None:
        super().on_stream_end()
        if self.found == (0.0, 0.0):
            type(self).found = (time.process_time() - self.begun,) * 2


def measured(name: str, budget: float) -> dict[str, Any]:
    """Processor seconds of a run, at least and at most; equal where it ended."""
    Stopwatch.budget, Stopwatch.found = budget, (0.0, 0.0)
    with tempfile.TemporaryDirectory() as folder:
        cfg = compose_config(f"+experiment={name}", f"outputs={folder}", "figures=false", "logger=none")
        with suppress(Enough):
            run(cfg)
    low, high = (round(seconds) for seconds in Stopwatch.found)
    return {"learner": str(cfg.learner.name), "seconds": [low, high], "budget": round(budget)}


def recorded(name: str, places: list[Path]) -> dict[str, Any]:
    """Processor seconds of learning alone, of finished runs with the file's own settings; the data may be
    real."""
    learner = str(compose_config(f"+experiment={name}").learner.name)
    for group in groups_or_extracts(places):
        keys = {word.lstrip("+").partition("=")[0] for word in group.command}
        if (group.experiment, group.learner) == (name, learner) and keys <= OWN:
            seconds, _ = group.mean_and_deviation("cpu_seconds") or (0.0, None)
            return {"learner": learner, "seconds": [round(seconds)] * 2, "learning": True}
    raise SystemExit(f"No finished runs of +experiment={name} with its own settings and {learner} lie there.")


def single() -> list[str]:
    """The experiments that are one run."""
    files = choices_of("experiment", [Path(conf_dir())])
    return [name for name, path in files.items() if "\nhydra:" not in path.read_text()]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="experiments; default: all")
    parser.add_argument("--seconds", type=float, default=60.0, help="of the processor, for each")
    parser.add_argument("--tasks", type=int, default=0, help="to learn at least")
    parser.add_argument("--of", nargs="+", type=Path, metavar="RUNS", help="take it from runs or extracts")
    options = parser.parse_args()
    Stopwatch.least = options.tasks
    progress.monotonic = time.process_time  # type: ignore[assignment, attr-defined]
    making.ProgressDisplay = Stopwatch  # type: ignore[misc, attr-defined]
    for name in options.names or single():
        kept = json.loads(KEPT.read_text()) if KEPT.is_file() else {}
        kept[name] = recorded(name, options.of) if options.of else measured(name, options.seconds)
        KEPT.write_text(json.dumps(dict(sorted(kept.items())), indent=1) + "\n")
        print(name, kept[name], flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
