"""Sweeps: a job that fails ends no other; the sweep tells how its jobs fare, and ends in a table."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from pathlib import Path
from threading import Event, Thread
from time import monotonic
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.utils import JobReturn, JobStatus
from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from cl_lightning.cli.sentences import sentence
from cl_lightning.conf_dir import LOOKS, sweep_name
from cl_lightning.errors import Refusal
from cl_lightning.selection.stream_level import Choice, Point, Scored, choose, outer_points
from cl_lightning.selection.sweep import OURS, as_override, in_a_sweep, read_job, read_jobs, write_job

OF_SWEEPS = (
    "hydra.mode",
    "hydra/launcher",
    "hydra.launcher",
    "hydra/sweeper",
    "hydra.sweeper",
    "hydra.sweep.",
)
AS_A_JOB = (  # of a search over whole streams: a run as by hand, which tells that sweep how it fares
    "selection=task_level",
    "hydra.mode=MULTIRUN",
    f"hydra.sweeper._target_={OURS}sweepers.StreamLevel",
)
POLLED = 0.5  # seconds between two looks at the jobs


@dataclass(frozen=True)
class Job:
    """A job that has ended."""

    number: int
    overrides: list[str]
    failure: str | None  # None: it did not fail
    value: float | None  # what its run returned: the mean validation accuracy at the end of the stream
    folder: str | None  # of its run


_jobs: list[Job] = []  # of the sweep that is going on; a process has one at a time


def new_sweep() -> list[Job]:
    """The list that will hold the jobs of the next sweep as they end."""
    _jobs.clear()
    return _jobs


# ---- launching -------------------------------------------------------------------------------------------


class WatchedLauncher:
    """A launcher of Hydra's, whose jobs are watched; one that fails gives None, and ends no other."""

    def __init__(self, launcher: Any, config: DictConfig) -> None:
        self.launcher, self.folder = launcher, Path(config.hydra.sweep.dir).resolve()
        self.jobs = _jobs  # those that have ended

    def launch(self, overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        numbers = range(initial_job_idx, initial_job_idx + len(overrides))
        for number in numbers:
            write_job(self.folder, number, {})  # in the place of what an earlier start said
        with watched(self.folder, overrides, initial_job_idx):
            try:
                with lost_jobs_are_returned(self.launcher):
                    ended = list(self.launcher.launch(overrides, initial_job_idx=initial_job_idx))
            except (KeyboardInterrupt, SystemExit):
                end_processes()
                raise
            except Exception as error:  # of joblib where the process of a job was killed: it ends all jobs
                if not any(read_job(self.folder, number) for number in numbers):
                    raise  # the launcher could not start any
                ended = [failed_job(error) for _ in overrides]
        for number, own, job in zip(numbers, overrides, ended):
            about = read_job(self.folder, number)
            failure = why_it_failed(about, job)
            value = about.get("value") if "done" in about else None
            _jobs.append(Job(number, list(own), failure, value, about.get("folder")))
            job.status, job.return_value = JobStatus.COMPLETED, value  # else Hydra raises what failed
        return ended


def failed_job(error: Exception) -> JobReturn:
    return JobReturn(status=JobStatus.FAILED, _return_value=error)


def why_it_failed(about: Mapping[str, Any], job: JobReturn) -> str | None:
    """What a job has said of itself counts: a launcher may have lost it."""
    if "done" in about or "failed" in about:
        return about.get("failed")
    if job.status != JobStatus.FAILED:
        return "It ended and said nothing. The same command makes it again."
    error = job._return_value  # reading return_value raises it
    if isinstance(error, Refusal):
        return sentence(error)
    what = "It was killed" if "folder" in about else "It had not begun when the launcher broke off"
    return f"{what} ({type(error).__name__}). The same command does what is missing."


@contextmanager
def lost_jobs_are_returned(launcher: Any) -> Iterator[None]:
    """Have submitit return a job whose process was killed as one that failed: it would raise while others
    still run."""
    if "submitit" not in type(launcher).__module__:
        yield
        return
    submitted = import_module("submitit").Job
    results = submitted.results

    def returned(job: Any) -> list[Any]:
        try:
            return results(job)
        except Exception as error:
            return [failed_job(error)]

    submitted.results = returned
    try:
        yield
    finally:
        submitted.results = results


def end_processes() -> None:
    """Have the jobs that run in processes of their own saved and ended, as by SIGTERM. (Linux tells which
    they are.)"""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # of a process that has just ended
            if int(stat.read_text().rpartition(")")[2].split()[1]) == os.getpid():
                os.kill(int(stat.parent.name), signal.SIGTERM)


# ---- watching --------------------------------------------------------------------------------------------


@contextmanager
def watched(folder: Path, overrides: Sequence[Sequence[str]], first: int) -> Iterator[None]:
    """While jobs run, whatever runs them: a line for each that ends, and on a terminal where the others
    are."""
    over = Event()
    watch = Watch(folder, overrides, first)
    thread = Thread(target=watch.run, args=(over,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        watch.look()
        watch.close()


class Watch:
    """Looks at the files in which jobs and runs say how they fare."""

    def __init__(self, folder: Path, overrides: Sequence[Sequence[str]], first: int) -> None:
        self.folder, self.overrides, self.first = folder, overrides, first
        self.said: dict[int, str] = {}
        self.console, self.began = Console(stderr=True), monotonic()
        self.live = self.console.status("") if self.console.is_terminal else None

    def run(self, over: Event) -> None:
        if self.live:
            self.live.start()
        while not over.wait(POLLED):
            self.look()

    def look(self) -> None:
        from cl_lightning.store.status import read_status

        running = []
        for place, own in enumerate(self.overrides):
            about = read_job(self.folder, self.first + place)
            status = read_status(Path(about["folder"])) if "folder" in about else None
            if "failed" in about:
                said = " ".join(about["failed"].splitlines())
                self.say(
                    place, f"{'diverged' if status and status.state == 'diverged' else 'failed'}: {said}"
                )
            elif "done" in about:  # its status may still be that of an earlier start
                self.say(place, "done")
            elif status is not None:
                running.append(f"{self.name(own)}: {status.learned} of {status.tasks} tasks")
        if self.live:
            done = f"{len(self.said)} of {len(self.overrides)} jobs ended{self.left()}"
            self.live.update("; ".join([done, *running[:4]]))

    def say(self, place: int, how: str) -> None:
        if place not in self.said:
            self.said[place] = how
            left = self.left() if len(self.said) < len(self.overrides) else ""
            line = (
                f"job {place + 1} of {len(self.overrides)} ({self.name(self.overrides[place])}) {how}{left}"
            )
            self.console.print(line, highlight=False, markup=False, soft_wrap=True)

    def name(self, own: Sequence[str]) -> str:
        return " ".join(different(own, self.overrides) or own)

    def left(self) -> str:
        from cl_lightning.callbacks.progress import clock

        ended, still = len(self.said), len(self.overrides) - len(self.said)
        return f", {clock((monotonic() - self.began) / ended * still)} left" if ended and still else ""

    def close(self) -> None:
        if self.live:
            self.live.stop()


def different(own: Sequence[str], jobs: Sequence[Sequence[str]]) -> list[str]:
    """The overrides of a job that not all jobs have."""
    return [override for override in own if not all(override in other for other in jobs)]


def failures(jobs: Sequence[Job]) -> list[str]:
    """Lines that name each job that failed by what it has and not all jobs have, and say why."""
    failed = [job for job in jobs if job.failure]
    lines = [f"{len(failed)} of {len(jobs)} jobs failed. The same command again does only what is missing."]
    for job in failed:
        own = different(job.overrides, [other.overrides for other in jobs])
        lines.append(f"  {' '.join(own or job.overrides)}: {' '.join(str(job.failure).splitlines())}")
    return lines if failed else []


# ---- sweeps ----------------------------------------------------------------------------------------------


def sweep_grid(sweeper: Any, arguments: list[str], sweep: Callable[[list[str]], Any]) -> Any:
    """Hydra's own sweep, with its record and table."""
    with held(sweeper):
        returns = sweep(arguments)
        write_sweep(sweeper, "grid", arguments, [], [])
    show_runs(_jobs)
    show_on_wandb(sweeper)
    return returns


def refuse_another_sweeper(settings: Mapping[str, Any]) -> None:
    if settings:
        raise Refusal(
            "selection=stream_level is a sweep of its own, and hydra/sweeper= names another. Leave one out."
        )


@contextmanager
def held(sweeper: Any) -> Iterator[None]:
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
        yield


def sweep_streams(sweeper: Any, arguments: list[str]) -> Any:
    """Learn whole streams, one a point of the outer grid, seed and combination; choose by validation data at
    the end."""
    from cl_lightning.cli.choice import show_choices

    jobs, scored, over_seeds = jobs_of_search(sweeper, arguments)
    sweeper.validate_batch_is_legal(jobs)
    size, returns = sweeper.max_batch_size or len(jobs), []
    with held(sweeper):
        for first in range(0, len(jobs), size):
            returns.append(sweeper.launcher.launch(jobs[first : first + size], initial_job_idx=first))
        found = [replace(each, score=job.value) for each, job in zip(scored, _jobs)]
        choices = choose(found, over_seeds)
        leave(sweeper, arguments, found, choices, over_seeds)
    show_choices(_jobs, found, choices)
    show_on_wandb(sweeper)
    return returns


def jobs_of_search(sweeper: Any, arguments: list[str]) -> tuple[list[list[str]], list[Scored], bool]:
    """The jobs of a search over whole streams, what each is in it, and whether all seeds choose together."""
    loader = sweeper.hydra_context.config_loader
    given = [f"{key}={value}" for key, value in (sweeper.params or {}).items()]
    parsed = OverridesParser.create(config_loader=loader).parse_overrides([*given, *arguments])
    jobs, scored = [], []
    for combination in sweeper.split_arguments(parsed, None)[0]:
        cfg = loader.load_sweep_config(sweeper.config, combination)
        base = [override for override in combination if not of_the_search(override)]
        others = tuple(
            override
            for override in base
            if override.lstrip("+~").partition("=")[0].partition(".")[0] not in ("seed", *LOOKS)
        )
        for number, point in enumerate(points_for(cfg)):
            values = [f"{key}={as_override(value)}" for key, value in point.items()]
            jobs.append([*base, *AS_A_JOB, *values])
            scored.append(Scored(others, int(cfg.seed), number, None))
    return jobs, scored, bool(cfg.selection.over_seeds)


def leave(
    sweeper: Any, arguments: list[str], found: Sequence[Scored], choices: Sequence[Choice], over_seeds: bool
) -> None:
    """What a search over whole streams leaves: its record, the winners' files, a mark in their runs."""
    from cl_lightning.cli.choice import take_back, write_best, write_choice

    folder, loader = sweeper.launcher.folder, sweeper.hydra_context.config_loader
    winners = [winning(choice, _jobs, found) for choice in choices]
    take_back(folder, winners)
    write_sweep(sweeper, "stream_level", arguments, found, choices)
    for choice, chosen in zip(choices, winners):
        own = [job for job, each in zip(_jobs, found) if is_for(choice, each)]
        also = different(choice.others, [other.others for other in choices])
        record = write_choice(own, chosen, choice)
        write_best(folder, chosen, choice, record, over_seeds, loader, sweeper.config, also)


def is_for(choice: Choice, scored: Scored) -> bool:
    """Whether a choice is one among these jobs."""
    return scored.others == choice.others and scored.seed in choice.seeds


def winning(choice: Choice, jobs: Sequence[Job], scored: Sequence[Scored]) -> list[Job]:
    """The jobs of the point that was chosen: one a seed."""
    return [job for job, each in zip(jobs, scored) if is_for(choice, each) and each.number == choice.number]


def of_the_search(override: str) -> bool:
    """Whether an override is for the search over streams, and not for its jobs."""
    name = override.lstrip("+~").partition("=")[0]
    return name in ("selection", "selection.over_seeds") or (
        name.partition(".stream")[0] == "selection" and ".stream" in name
    )


def points_for(cfg: DictConfig) -> list[Point]:
    """The outer grid of a configuration: the command's, else that of the experiment for its learner."""
    from cl_lightning.identity import learner_name

    selection: Any = OmegaConf.to_container(cfg.selection, resolve=True)
    grid = selection["stream"] or tuned_grid(cfg)
    points = outer_points(grid) if grid else []
    if not points:
        raise Refusal(
            f"selection=stream_level has no outer grid for learner {learner_name(cfg)}: the experiment "
            "names none. "
            "Give one, as in 'selection.stream={learner.strength:[1,10,100]}', or use selection=task_level."
        )
    return points


def tuned_grid(cfg: DictConfig) -> Any:
    from cl_lightning.identity import learner_name

    tuned: Any = OmegaConf.to_container(cfg.tuned, resolve=True)
    return tuned.get(learner_name(cfg), {}).get("stream")


def write_sweep(
    sweeper: Any, kind: str, arguments: Sequence[str], scored: Sequence[Scored], choices: Sequence[Choice]
) -> None:
    """``sweep.json``: what was swept and what came of it, without clocks and test numbers."""
    from cl_lightning.store.status import status_of
    from cl_lightning.store.whole import write_whole

    rows, folder = [], sweeper.launcher.folder
    for place, job in enumerate(_jobs):
        status = status_of(Path(job.folder)) if job.folder else None
        state = status.state if status else "failed" if job.failure else "done"
        row = {"overrides": job.overrides, "run": run_from(folder, job), "state": state}
        rows.append({**row, "validation": job.value, **({"point": scored[place].number} if scored else {})})
    chosen = [
        {**asdict(choice), "runs": [run_from(folder, job) for job in winning(choice, _jobs, scored)]}
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
    with write_whole(folder / "sweep.json") as building:
        building.write_text(json.dumps(content, indent=1))


def run_from(folder: Path, job: Job) -> str | None:
    """The folder of a job's run, as seen from the sweep's."""
    return job.folder and os.path.relpath(job.folder, folder)


def read_sweep(folder: Path) -> dict[str, Any]:
    """``sweep.json`` of a folder; empty where no sweep has ended."""
    try:
        return json.loads((folder / "sweep.json").read_text())
    except (OSError, ValueError):
        return {}


def show_runs(jobs: Sequence[Job]) -> None:
    """A table of all finished runs, seeds aggregated: validation first, then test."""
    from cl_lightning.cli.report import print_groups
    from cl_lightning.report.compare import groups_in

    folders = [Path(job.folder) for job in jobs if job.folder and not job.failure]
    if folders:
        print_groups(groups_in(folders))


def show_on_wandb(sweeper: Any) -> None:
    """Where the sweep's runs log to Weights & Biases: a run that sums it up, with its table; and what sends
    the runs that it does not have, because they were finished before."""
    from cl_lightning.cli.dashboard import send
    from cl_lightning.loggers.wandb_run import options_in
    from cl_lightning.opening import command_to_send

    folder = sweeper.launcher.folder
    if jobs := sweeper.launcher.jobs:
        cfg = sweeper.hydra_context.config_loader.load_sweep_config(sweeper.config, jobs[0].overrides)
        loggers: Any = OmegaConf.to_container(cfg.logger, resolve=True)
        if options := options_in(loggers):
            send(folder, options)
            shown = [Path(about["folder"]) for about in read_jobs(folder) if about.get("shown")]
            if unsent := sorted(run for run in shown if not (run / "wandb.json").is_file()):
                command = command_to_send(unsent, options)
                said = "Runs that were finished before are only shown. This sends them to W&B"
                print(f"{said}:\n  {command}", file=sys.stderr)


def own_command() -> list[str]:
    """The arguments of this run alone; of a sweep's job, those that make the same run without the sweep."""
    if not in_a_sweep():
        return sys.argv[1:]
    hydra = HydraConfig.get()
    folders = [
        f"--config-dir={source.path}"
        for source in hydra.runtime.config_sources
        if source.provider == "command-line"
    ]
    kept = [override for override in hydra.overrides.hydra if not override.lstrip("+~").startswith(OF_SWEEPS)]
    by_file = not any(
        override.startswith("hydra.mode") for override in hydra.overrides.hydra
    )  # as studies in conf/experiment
    own = [override for override in hydra.overrides.task if not override.startswith("share=")]
    return [*folders, *kept, *["hydra.mode=RUN"] * by_file, *own]
