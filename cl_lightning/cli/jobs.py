"""The jobs of a sweep: what came of each, and the command that makes its run alone."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from cl_lightning.selection.sweep import in_a_sweep, name_of

OF_SWEEPS = (
    "hydra.mode", "hydra/launcher", "hydra.launcher", "hydra/sweeper", "hydra.sweeper", "hydra.sweep.",
    "hydra.callbacks.sweep.",
)  # fmt: skip


@dataclass(frozen=True)
class Job:
    """A job that has ended."""

    overrides: list[str]
    failure: str | None  # None: it did not fail
    value: float | None  # what its run returned: the mean validation accuracy at the end of the stream
    folder: str | None  # of its run


ended_jobs: list[Job] = []  # of the sweep that is going on; a process has one at a time
begun: list[tuple[DictConfig, int | None]] = []  # the sweep itself, and how many jobs it will have if known


def new_sweep() -> list[Job]:
    """The list that will hold the jobs of the next sweep as they end."""
    ended_jobs.clear()
    begun.clear()
    return ended_jobs


def failures(jobs: Sequence[Job]) -> list[str]:
    """A line for each job that failed: the overrides in which it differs from the others, and why."""
    failed = [job for job in jobs if job.failure]
    lines = [f"{len(failed)} of {len(jobs)} jobs failed. The same command again does only what is missing."]
    for job in failed:
        name = name_of(job.overrides, [other.overrides for other in jobs])
        lines.append(f"  {name}: {' '.join(str(job.failure).splitlines())}")
    return lines if failed else []


def own_command() -> list[str]:
    """The arguments of this run alone; of a sweep's job, those that make the same run without the sweep."""
    if not in_a_sweep():
        return sys.argv[1:]
    hydra = HydraConfig.get()
    folders = [f"--config-dir={folder}" for folder in config_dirs(hydra)]
    single = "hydra.mode=RUN"  # a file may say that it is a sweep
    return [*folders, *without_sweeps(hydra), single, *hydra.overrides.task]


def without_sweeps(hydra: Any) -> list[str]:
    """The overrides of Hydra's own settings that are not about sweeps."""
    return [override for override in hydra.overrides.hydra if not override.lstrip("+~").startswith(OF_SWEEPS)]


def from_here(folder: str | Path) -> str:
    """A folder as one would type it: without the path to where the command was given."""
    folder = Path(folder)
    return str(folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder)


def config_dirs(hydra: Any) -> list[str]:
    """The folder that ``--config-dir`` names, if any."""
    return [source.path for source in hydra.runtime.config_sources if source.provider == "command-line"]
