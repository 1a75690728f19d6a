"""What a sweep asks Slurm through submitit: how its jobs are, and to keep them when the sweep leaves."""

from __future__ import annotations

import getpass
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from time import time
from typing import Any
from unittest.mock import patch

from cl_lightning.errors import Refusal
from cl_lightning.store.atomic import read_json, write_json

ENDED = (
    "COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE",
    "REVOKED",
)  # fmt: skip
SUBMITTED = "submitted.json"  # in a sweep's folder: the id in Slurm of each job that it left there


def states() -> dict[str, str]:
    """The state of each job of this user that Slurm knows of: it forgets one minutes after its end."""
    asked = ["squeue", "--noheader", "--array", "--states=all", "--format=%i|%T", "--user", getpass.getuser()]
    said = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
    return dict(line.strip().split("|") for line in said.splitlines())


@contextmanager
def refusals() -> Iterator[None]:
    """What ``sbatch`` says against jobs, as a sentence."""
    try:
        yield
    except Exception as error:
        if type(error).__name__ != "FailedJobError":  # submitit's
            raise
        raise Refusal(
            f"Slurm took no job: {' '.join(str(error).split())}\n"
            "hydra.launcher.partition, hydra.launcher.account and others tell it more: --cfg hydra has all."
        ) from error


def has_accounting() -> bool:
    """Whether ``sacct`` answers. Where there is no Slurm at all, submitit says so."""
    try:
        return subprocess.run(["sacct", "--jobs=1"], capture_output=True).returncode == 0
    except FileNotFoundError:
        return True


@contextmanager
def followed() -> Iterator[None]:
    """Have submitit ask ``squeue`` how its jobs are where Slurm has no accounting: ``sacct`` would print an
    error at each look, and who cannot know that a job was cancelled waits for it for ever."""
    if has_accounting():
        yield
        return
    watcher: Any = import_module("submitit").SlurmJob.watcher

    def look() -> None:
        try:
            known = states()
        except subprocess.CalledProcessError:
            return  # Slurm does not answer just now
        for job in watcher._registered:
            state = known.get(job, "COMPLETED")
            watcher._info_dict[job] = {"State": state if state in ENDED else "RUNNING"}
        watcher._last_status_check = time()

    with patch.object(watcher, "update", look):
        yield


# ---- jobs that are left to Slurm ---------------------------------------------------------------------------


def leave(folder: Path, ids: dict[int, str]) -> None:
    """Note the jobs of a sweep that ends before they do."""
    write_json(folder / SUBMITTED, {str(number): name for number, name in ids.items()})


def left_in(folder: Path) -> dict[int, str]:
    """The jobs of a sweep, by number, that it left to Slurm and that have not ended there."""
    ids = read_json(folder / SUBMITTED)
    if not ids:
        return {}
    try:
        known = states()
    except (FileNotFoundError, subprocess.CalledProcessError):
        known = {}  # asked where there is no Slurm
    return {int(number): name for number, name in ids.items() if known.get(name, ENDED[0]) not in ENDED}


def refuse_left(folder: Path) -> None:
    """Refuse to begin jobs again that Slurm still has."""
    if left := left_in(folder):
        raise Refusal(
            f"{len(left)} jobs of this sweep are still with Slurm: {', '.join(left.values())}.\n"
            "python -m cl_lightning.report status tells how they are, scancel ends them. Then the same "
            "command does what is missing."
        )
