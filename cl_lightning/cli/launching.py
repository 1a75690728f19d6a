"""Launchers of Hydra's, held to this: a job that fails or is killed ends no other."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

from hydra.core.utils import JobReturn, JobStatus
from omegaconf import DictConfig, OmegaConf

from cl_lightning.cli.jobs import Job, ended_jobs
from cl_lightning.cli.sentences import sentence
from cl_lightning.cli.slurm import followed, leave, refusals, refuse_left
from cl_lightning.cli.watching import watched
from cl_lightning.errors import Refusal
from cl_lightning.selection.sweep import read_job, write_job


class WatchedLauncher:
    """A launcher of Hydra's, whose jobs are watched; one that fails gives None, and ends no other."""

    def __init__(self, launcher: Any, config: DictConfig) -> None:
        self.launcher, self.folder = launcher, Path(config.hydra.sweep.dir).resolve()
        self.jobs = ended_jobs  # those that have ended
        self.leaves = bool(OmegaConf.select(config, "hydra.callbacks.sweep.submit"))  # its jobs to Slurm
        if self.leaves and type(launcher).__name__ != "SlurmLauncher":
            raise Refusal("--submit leaves a sweep to Slurm: add hydra/launcher=submitit_slurm.")

    def launch(self, overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        numbers = range(initial_job_idx, initial_job_idx + len(overrides))
        refuse_left(self.folder)
        for number, own in zip(numbers, overrides):  # in the place of what an earlier start said
            write_job(self.folder, number, {"overrides": list(own)})
        if self.leaves:
            leave(self.folder, dict(zip(numbers, submitted(self.launcher, overrides, initial_job_idx))))
            return []
        with watched(self.folder, overrides, initial_job_idx):
            try:
                with submitted_jobs(self.launcher):
                    ended = list(self.launcher.launch(overrides, initial_job_idx=initial_job_idx))
            except (KeyboardInterrupt, SystemExit):
                end_processes()
                raise
            except Exception as error:  # of joblib where the process of a job was killed: it ends all jobs
                if not any({"folder", "failed"} & read_job(self.folder, number).keys() for number in numbers):
                    raise  # the launcher could not start any
                ended = [failed_job(error) for _ in overrides]
        for number, own, job in zip(numbers, overrides, ended):
            about = read_job(self.folder, number)
            failure = why_it_failed(about, job)
            value = about.get("value") if "done" in about else None
            self.jobs.append(Job(list(own), failure, value, about.get("folder")))
            job.status, job.return_value = JobStatus.COMPLETED, value  # else Hydra raises what failed
        return ended


def failed_job(error: Exception) -> JobReturn:
    return JobReturn(status=JobStatus.FAILED, _return_value=error)


def why_it_failed(about: Mapping[str, Any], job: JobReturn) -> str | None:
    """Why a job failed; None if it did not. What the job has written itself counts: a launcher may lose
    it."""
    if "done" in about or "failed" in about:
        return about.get("failed")
    if job.status != JobStatus.FAILED:
        return "It ended and said nothing. The same command makes it again."
    error = job._return_value  # reading return_value raises it
    if isinstance(error, Refusal):
        return sentence(error)
    what = "It was killed" if "folder" in about else "It had not begun when the launcher broke off"
    return f"{what} ({type(error).__name__}). The same command does what is missing."


def submitted(launcher: Any, overrides: Sequence[Sequence[str]], first: int) -> list[str]:
    """The ids in Slurm of jobs that are handed to it, and not waited for."""
    ids = []

    def noted(job: Any) -> list[None]:
        ids.append(job.job_id)
        return [None]

    with patch.object(import_module("submitit").Job, "results", noted), refusals():
        launcher.launch(overrides, initial_job_idx=first)
    return ids


@contextmanager
def submitted_jobs(launcher: Any) -> Iterator[None]:
    """Have submitit return a job whose process was killed as one that failed: it would raise while others
    still run. When the sweep is interrupted, its jobs in Slurm are cancelled, which asks them to end."""
    if "submitit" not in type(launcher).__module__:
        yield
        return
    submitit = import_module("submitit")
    results, map_array, jobs = submitit.Job.results, submitit.Executor.map_array, []

    def returned(job: Any) -> list[Any]:
        try:
            return results(job)
        except Exception as error:
            return [failed_job(error)]

    def noted(*arguments: Any) -> list[Any]:
        jobs.extend(found := map_array(*arguments))
        return found

    try:
        with (
            patch.object(submitit.Job, "results", returned),
            patch.object(submitit.Executor, "map_array", noted),
            refusals(),
            followed() if type(launcher).__name__ == "SlurmLauncher" else nullcontext(),
        ):
            yield
    except (KeyboardInterrupt, SystemExit):
        for job in jobs:
            if isinstance(job, submitit.SlurmJob):
                job.cancel(check=False)
        raise


def end_processes() -> None:
    """Ask the jobs that run in child processes to save and to end (SIGTERM). They are found on Linux
    alone."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # of a process that has just ended
            if int(stat.read_text().rpartition(")")[2].split()[1]) == os.getpid():
                os.kill(int(stat.parent.name), signal.SIGTERM)
