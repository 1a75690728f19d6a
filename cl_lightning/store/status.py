"""How a run fares: a small file in its folder, for whoever looks on."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

from cl_lightning.errors import Diverged, Refusal, RoundOver
from cl_lightning.store.atomic import read_json, write_json
from cl_lightning.store.folder import is_held

State = Literal["running", "waiting", "done", "interrupted", "diverged", "failed"]


@dataclass(frozen=True)
class Status:
    """The state of a run, and how many of its tasks are learned and tested."""

    state: State
    learned: int = 0
    tasks: int = 0
    process: int | None = None
    machine: str | None = None
    said: str | None = None  # why it diverged or failed

    def __str__(self) -> str:
        where = f" after {self.learned} of {self.tasks} tasks" if self.state != "done" and self.tasks else ""
        who = f" by process {self.process} on {self.machine}" if self.state == "running" else ""
        return f"{self.state}{where}{who}"


def write_status(folder: Path, status: Status) -> None:
    write_json(folder / "status.json", asdict(status), through=False)  # it is only told


def read_status(folder: Path) -> Status | None:
    """What the run said last; None where it said nothing."""
    try:
        return Status(**read_json(folder / "status.json"))
    except TypeError:
        return None


def status_of(folder: Path) -> Status | None:
    """What the run said last, if that can be: one that says it runs and is held by nobody was killed."""
    status = read_status(folder)
    if status is None or status.state != "running":
        return status
    return status if is_held(folder) else replace(status, state="interrupted", process=None, machine=None)


class Progress:
    """Writes the status of a run while it is held: how far it is, and how it ended."""

    def __init__(self, folder: Path) -> None:
        self.folder, before = folder, read_status(folder) or Status("running")
        own = Status("running", process=os.getpid(), machine=platform.node())
        self.status = replace(own, learned=before.learned, tasks=before.tasks)  # until it says more

    def say(self, learned: int, tasks: int) -> None:
        self.status = replace(self.status, learned=learned, tasks=tasks)
        write_status(self.folder, self.status)

    def end(self, state: State, said: str | None = None) -> None:
        write_status(self.folder, replace(self.status, state=state, process=None, machine=None, said=said))


@contextmanager
def status_kept(folder: Path) -> Iterator[Progress]:
    """Keep the status of a run while it is held, and write how it ends, however it ends."""
    progress = Progress(folder)
    try:
        yield progress
    except RoundOver:
        progress.end("waiting")
        raise
    except Exception as error:
        said = str(error) if isinstance(error, Refusal) else f"{type(error).__name__}: {error}"
        with suppress(OSError):  # a full disk has no place for it: the first error is told
            progress.end("diverged" if isinstance(error, Diverged) else "failed", said)
        raise
    except BaseException:
        progress.end("interrupted")
        raise
    progress.end("done")
