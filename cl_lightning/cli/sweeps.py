"""A sweep: its folder, which it holds, what it tells its jobs, its record, and the table that it ends in."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf, open_dict, read_write

from cl_lightning.cli.jobs import Job, begun, from_here
from cl_lightning.cli.slurm import left_in
from cl_lightning.config.resolvers import sweep_name
from cl_lightning.errors import Refusal, plain
from cl_lightning.selection.stream_level import Choice, Scored, winning
from cl_lightning.selection.sweep import JOBS, OURS, SUBMIT, as_override, read_jobs
from cl_lightning.store.atomic import read_json, write_json


def sweep_grid(sweeper: Any, arguments: list[str]) -> Any:
    """Every combination of the values on the command line, with a record and a table."""
    returns, folder = [], sweeper.launcher.folder
    with sweep_lock(sweeper):
        OmegaConf.save(sweeper.config, folder / "multirun.yaml")  # as Hydra's own does
        for jobs in batches(sweeper, combinations(sweeper, arguments)):
            sweeper.validate_batch_is_legal(jobs)
            returns.append(sweeper.launcher.launch(jobs, len(sweeper.launcher.jobs)))
        if sweeper.launcher.leaves:
            return returns
        write_sweep(sweeper, "grid", arguments, [], [])
    show_runs(sweeper.launcher.jobs)
    return returns


def combinations(sweeper: Any, arguments: Sequence[str]) -> list[list[str]]:
    """The overrides of each combination of values: of the command line, and of a study's file."""
    given = [f"{key}={value}" for key, value in (sweeper.params or {}).items()]
    parser = OverridesParser.create(config_loader=sweeper.hydra_context.config_loader)
    values: dict[str, list[str]] = {}
    for override in parser.parse_overrides([*given, *arguments]):
        if override.is_sweep_override() and not override.is_discrete_sweep():
            raise Refusal(
                f"{override.input_line} names no values to go through. Name some, as in "
                f"{override.key_or_group}=1,2, or add a sweeper that draws them, as hydra/sweeper=optuna."
            )
        key = override.get_key_element()
        if override.is_delete():
            values[key] = [str(override.input_line)]  # where it names no value, Hydra 1.4 deletes any
        elif override.is_sweep_override():
            values[key] = [f"{key}={value}" for value in override.sweep_string_iterator()]
        else:
            values[key] = [f"{key}={override.get_value_element_as_str()}"]
    return [list(combination) for combination in product(*values.values())]


def batches(sweeper: Any, jobs: list[list[str]]) -> Iterator[list[list[str]]]:
    """The jobs in parts of ``max_batch_size``; all at once without one, and where nobody waits for them."""
    size = None if sweeper.launcher.leaves else sweeper.max_batch_size
    for first in range(0, len(jobs), size or len(jobs)):
        yield jobs[first : first + (size or len(jobs))]


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
        begun.append((sweeper.config, None))
        yield


def draws_others(config: DictConfig) -> bool:
    """A study tries other values when its command is given again, where its sampler draws without a seed."""
    return (config.hydra.sweeper.get("sampler") or {}).get("seed", 0) is None


def tell_state(config: DictConfig, trials: int | None, broken_off: bool) -> None:
    """Say how far a sweep came, however it ended, where it lies, and what goes on with it and shows it. One
    that was broken off may have jobs to come, or a choice to make, though all that began are done."""
    folder, top = Path(config.hydra.sweep.dir).resolve(), Path(config.outputs) / str(config.name)
    jobs, left = read_jobs(folder), left_in(folder)
    done, of = sum("done" in about for about in jobs), trials or len(jobs)
    lines = [f"{done} of {of} jobs are done. The sweep lies in {folder}"]
    if left:
        lines[0] = f"{len(left)} of {of} jobs are with Slurm ({', '.join(left.values())}). {lines[0]}"
        lines.append(f"  to see how they are: python -m cl_lightning.report status {shlex.quote(str(top))}")
    if done < of or broken_off:
        words = [word for word in sys.argv[1:] if word != SUBMIT]
        how = "to go on, once they have ended" if left else "to go on"
        if draws_others(config):
            how = "to try other values (with hydra.sweeper.sampler.seed=0 it would go on with the same)"
        lines.append(f"  {how}: python -m cl_lightning {shlex.join(words)}")
    lines.append(f"  to see it: python -m cl_lightning.report {shlex.quote(str(top))} --validation")
    if offline := [path for about in jobs if "folder" in about for path in unsynced(Path(about["folder"]))]:
        lines.append(f"  to sync W&B: wandb sync {shlex.join(map(str, offline))}")
    shown = {about["folder"] for about in jobs if "unsent" in about}
    if unsent := sorted(folder for folder in shown if not Path(folder, "wandb.json").is_file()):
        told = "to send what was only shown to W&B (--project=NAME says where)"
        lines.append(f"  {told}: python -m cl_lightning.report wandb {shlex.join(unsent)}")
    if jobs or broken_off:
        print(*map(plain, lines), sep="\n", file=sys.stderr)


def unsynced(run: Path) -> list[Path]:
    """The offline run of W&B that has all of a run, where it was not sent: that of the last attempt."""
    attempts = json.loads((run / "wandb.json").read_text()) if (run / "wandb.json").is_file() else []
    found = run.glob(f"wandb/offline-run-*-{attempts[-1]['id']}") if attempts else []
    return [Path(from_here(path)) for path in found if not list(path.glob("*.synced"))]


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
    show_folders([Path(job.folder) for job in jobs if job.folder and not job.failure])


def show_folders(folders: Sequence[Path]) -> None:
    from cl_lightning.cli.report import print_groups
    from cl_lightning.report.groups import groups_in

    if folders:
        print_groups(groups_in(folders))


# ---- what sweeps tell their jobs, and say at their end -----------------------------------------------------


class Told(Callback):
    """What a sweep tells its jobs: its folder, since by their own arguments they would name another; and by
    overrides of this callback's keys what Hydra 1.4 lets no job have in ``hydra.sweeper``. And what a sweep
    with another sweeper says at its end, as ours do."""

    def __init__(self, **told: Any) -> None:
        pass  # jobs read the configuration

    def on_multirun_start(self, config: DictConfig, **_: Any) -> None:
        check_direction(config.hydra.sweeper)
        folder = str(Path(config.hydra.sweep.dir).resolve())
        with read_write(config.hydra), open_dict(config.hydra):
            config.hydra.overrides.hydra.append(f"hydra.sweep.dir={as_override(folder)}")
        if is_of_another(config):
            for path in Path(folder, JOBS).glob("*.json"):
                path.unlink()  # what jobs said in an earlier start
            begun.append((config, config.hydra.sweeper.get("n_trials")))

    def on_multirun_end(self, config: DictConfig, **_: Any) -> None:
        if is_of_another(config):
            if sys.exc_info()[0] is None:  # Hydra 1.4 also calls this where a sweep is broken off
                begun[:] = [(config, None)]  # it has had all of its jobs
            jobs = read_jobs(Path(config.hydra.sweep.dir).resolve())
            show_folders([Path(job["folder"]) for job in jobs if "done" in job])


def is_of_another(config: DictConfig) -> bool:
    """True where a sweep has a sweeper that is not ours, such as Optuna's."""
    return not str(config.hydra.sweeper._target_).startswith(OURS)


def check_direction(sweeper: DictConfig) -> None:
    """End a sweep, before any job, where Optuna would look for the lowest accuracy, as it does when it is
    told nothing. (Of other exceptions in a callback Hydra makes warnings.)"""
    direction = sweeper.get("direction")
    if "optuna" in str(sweeper._target_) and getattr(direction, "name", direction) != "maximize":
        print(
            "hydra/sweeper=optuna looks for the lowest value, and a run returns its validation accuracy. "
            "Add hydra.sweeper.direction=maximize.",
            file=sys.stderr,
        )
        raise SystemExit(2)
