"""A sweep: its folder, which it holds, its record there, and the table that it ends in."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from cl_lightning.cli.jobs import Job
from cl_lightning.config.resolvers import sweep_name
from cl_lightning.errors import Refusal, plain
from cl_lightning.selection.stream_level import Choice, Scored, winning
from cl_lightning.selection.sweep import read_job, read_jobs
from cl_lightning.store.atomic import read_json, write_json


def sweep_grid(sweeper: Any, arguments: list[str], sweep: Callable[[list[str]], Any]) -> Any:
    """Hydra's own sweep, with its record and table."""
    with sweep_lock(sweeper):
        returns = sweep(arguments)
        write_sweep(sweeper, "grid", arguments, [], [])
    show_runs(sweeper.launcher.jobs)
    tell_unsent(sweeper)
    return returns


def combinations(sweeper: Any, arguments: Sequence[str]) -> list[list[str]]:
    """The overrides of each combination of values: of the command line, and of a study's file."""
    given = [f"{key}={value}" for key, value in (sweeper.params or {}).items()]
    parser = OverridesParser.create(config_loader=sweeper.hydra_context.config_loader)
    parts = sweeper.split_arguments(parser.parse_overrides([*given, *arguments]), None)
    return [list(combination) for combination in parts[0]]


@contextmanager
def sweep_lock(sweeper: Any) -> Iterator[None]:
    """The folder of a sweep belongs to one process at a time, and to one sweep for ever."""
    from cl_lightning.store.folder import locked

    folder = sweeper.launcher.folder
    with locked(folder):
        found = read_sweep(folder)
        if found.get("name", sweep_name(sweeper.config)) != sweep_name(sweeper.config):
            raise Refusal(
                f"{folder} is the folder of another sweep: {' '.join(found['arguments'])}\n"
                "Give another with hydra.sweep.dir=, or leave it out: each sweep then has its own."
            )
        try:
            yield
        finally:
            tell_state(sweeper)


def tell_state(sweeper: Any) -> None:
    """Say how far a sweep came, however it ended, where it lies, and what goes on with it and shows it."""
    folder, top = sweeper.launcher.folder, Path(sweeper.config.outputs) / str(sweeper.config.name)
    jobs = read_jobs(folder)
    done = sum("done" in about for about in jobs)
    lines = [f"{done} of {len(jobs)} jobs are done. The sweep lies in {folder}"]
    if done < len(jobs):
        lines.append(f"  to go on: python -m cl_lightning {shlex.join(sys.argv[1:])}")
    lines.append(f"  to see it: python -m cl_lightning.report {shlex.quote(str(top))} --validation")
    if jobs:
        print(*map(plain, lines), sep="\n", file=sys.stderr)


def write_sweep(
    sweeper: Any, kind: str, arguments: Sequence[str], scored: Sequence[Scored], choices: Sequence[Choice]
) -> None:
    """``sweep.json``: what was swept and what came of it, without clocks and test numbers."""
    from cl_lightning.store.status import status_of

    rows, folder, jobs = [], sweeper.launcher.folder, sweeper.launcher.jobs
    for place, job in enumerate(jobs):
        status = status_of(Path(job.folder)) if job.folder else None
        state = status.state if status else "failed" if job.failure else "done"
        row = {"overrides": job.overrides, "run": run_from(folder, job), "state": state}
        rows.append({**row, "validation": job.value, **({"point": scored[place].number} if scored else {})})
    chosen = [
        {**asdict(choice), "runs": [run_from(folder, job) for job in winning(choice, jobs, scored)]}
        for choice in choices
    ]
    content: Mapping[str, Any] = {
        "schema": 2,
        "kind": kind,
        "name": sweep_name(sweeper.config),
        "arguments": list(arguments),
        "jobs": rows,
        "chosen": chosen,
    }
    write_json(folder / "sweep.json", content)


def run_from(folder: Path, job: Job) -> str | None:
    """The folder of a job's run, as seen from the sweep's."""
    return job.folder and os.path.relpath(job.folder, folder)


def read_sweep(folder: Path) -> dict[str, Any]:
    """``sweep.json`` of a folder; empty where no sweep has ended."""
    return read_json(folder / "sweep.json")


def show_runs(jobs: Sequence[Job]) -> None:
    """A table of all finished runs, seeds aggregated: validation first, then test."""
    from cl_lightning.cli.report import print_groups
    from cl_lightning.report.groups import groups_in

    folders = [Path(job.folder) for job in jobs if job.folder and not job.failure]
    if folders:
        print_groups(groups_in(folders))


def tell_unsent(sweeper: Any) -> None:
    """Where the sweep's runs log to Weights & Biases: say what sends those that were finished before, and
    that it does not have."""
    from cl_lightning.runs.announce import command_to_send

    folder, jobs = sweeper.launcher.folder, sweeper.launcher.jobs
    shown = sorted(Path(job.folder) for job in jobs if read_job(folder, job.number).get("shown"))
    unsent = [each for each in shown if not (each / "wandb.json").is_file()]
    if unsent and wandb_options(sweeper):
        said = "What was finished before is only shown. This sends it to W&B (--project=NAME says where)"
        print(f"{said}:\n  {command_to_send(*unsent)}", file=sys.stderr)


def wandb_options(sweeper: Any) -> dict[str, Any] | None:
    """The keys of the jobs' logger that is Weights & Biases'; None where they have none."""
    from cl_lightning.loggers.wandb_run import options_in

    first = sweeper.launcher.jobs[0].overrides
    cfg = sweeper.hydra_context.config_loader.load_sweep_config(sweeper.config, first)
    loggers: Any = OmegaConf.to_container(cfg.logger, resolve=True)
    return options_in(loggers)
