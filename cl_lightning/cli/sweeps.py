"""Sweeps (``--multirun``): a job that fails ends no other, and all that failed are told at the end."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from hydra.core.hydra_config import HydraConfig
from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn, JobStatus

from cl_lightning.cli.sentences import sentence
from cl_lightning.selection.sweep import in_a_sweep

OF_SWEEPS = (
    "hydra.mode",
    "hydra/launcher",
    "hydra.launcher",
    "hydra/sweeper",
    "hydra.sweeper",
    "hydra.sweep.",
)


@dataclass(frozen=True)
class Job:
    """A job that has ended."""

    overrides: list[str]
    failure: str | None  # None: it did not fail


@contextmanager
def told() -> Iterator[list[Job]]:
    """Tell the jobs of a sweep inside, as they end. The sweeper gets None for one that failed, and goes
    on."""
    jobs: list[Job] = []
    original = Plugins.instantiate_launcher

    def instantiate_launcher(plugins: Plugins, **given: Any) -> SimpleNamespace:
        return SimpleNamespace(launch=partial(launch, original(plugins, **given).launch, jobs))

    with patch.object(Plugins, "instantiate_launcher", instantiate_launcher):
        yield jobs


def launch(
    launch_all: Any, jobs: list[Job], overrides: Sequence[Sequence[str]], **given: Any
) -> Sequence[JobReturn]:
    """Launch jobs, and tell what became of each."""
    try:
        ended: Sequence[JobReturn] = launch_all(overrides, **given)
    except (KeyboardInterrupt, SystemExit):
        end_processes()
        raise
    for job in ended:
        error = job._return_value if job.status == JobStatus.FAILED else None
        jobs.append(Job(list(job.overrides or ()), error and sentence(error)))
        if error:
            job.status, job.return_value = JobStatus.COMPLETED, None
    return ended


def end_processes() -> None:
    """Have the jobs that run in processes of their own saved and ended, as by SIGTERM. (Linux tells which
    they are.)"""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # of a process that has just ended
            if int(stat.read_text().rpartition(")")[2].split()[1]) == os.getpid():
                os.kill(int(stat.parent.name), signal.SIGTERM)


def failures(jobs: Sequence[Job]) -> list[str]:
    """Lines that name each job that failed by what it has and not all jobs have, and say why."""
    failed = [job for job in jobs if job.failure]
    lines = [f"{len(failed)} of {len(jobs)} jobs failed. The same command again does only what is missing."]
    for job in failed:
        own = [
            override for override in job.overrides if not all(override in other.overrides for other in jobs)
        ]
        lines.append(f"  {' '.join(own or job.overrides)}: {' '.join(str(job.failure).splitlines())}")
    return lines if failed else []


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
    return [*folders, *kept, *["hydra.mode=RUN"] * by_file, *hydra.overrides.task]
