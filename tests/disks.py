"""Disks that are full from a write on: the system then refuses each further byte, until there is space again.

``python -m tests.soak --disks`` tries every write of a run.
"""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.commands import SMALL, but_what_may_differ, command, results_in

RUN = (*SMALL, "stream.tasks=2", "trainer.max_epochs=1", "trainer.checkpoint_minutes=0")
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


class Disk:
    """A disk below a folder: it notes which files are opened to be written, and is full from one of these
    on. Then a file takes some bytes at most."""

    def __init__(self, below: Path, full_from: int | None = None, bytes_left: int = 0) -> None:
        self.below, self.full_from, self.bytes_left = str(below), full_from, bytes_left
        self.opened: list[str] = []

    def open(self, path: str) -> None:
        if path.startswith(self.below):
            if len(self.opened) == self.full_from:
                limit_files(self.bytes_left)
            self.opened.append(path[len(self.below) + 1 :])


disks: list[Disk] = []
listening = False


@contextmanager
def on(disk: Disk) -> Iterator[Disk]:
    """What is written inside goes to this disk; there is space again at the end."""
    global listening
    if not listening:  # the hook stays: none can be taken away
        sys.addaudithook(hook)
        listening = True
    disks.append(disk)
    try:
        yield disk
    finally:
        disks.remove(disk)
        limit_files(resource.RLIM_INFINITY)


def hook(event: str, arguments: Sequence[Any]) -> None:
    if disks and event == "open" and isinstance(arguments[0], str | os.PathLike) and arguments[2] & WRITING:
        for disk in disks:
            disk.open(os.fspath(arguments[0]))


def limit_files(most: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


def arguments_in(folder: Path, *more: str) -> list[str]:
    own_cache = [] if any(word.startswith("cache=") for word in more) else [f"cache={folder / 'cache'}"]
    return [*RUN, f"outputs={folder}", *own_cache, *more]


def whole(folder: Path, *more: str) -> tuple[list[str], dict[str, Any]]:
    """The files that a run opens to write, one after another, and its results."""
    with on(Disk(folder)) as disk:
        command(*arguments_in(folder, *more))
    return disk.opened, but_what_may_differ(results_in(folder))


def trouble(folder: Path, full_from: int, expected: dict[str, Any], *more: str) -> str:
    """What is wrong with a run on a disk that is full from this write on; empty where all is well: a sentence
    names where there is no space, and with space the same command ends as if nothing had been."""
    with on(Disk(folder, full_from, bytes_left=60 * (full_from % 2))) as disk:
        told = command(*arguments_in(folder, *more), check=False)
    at, words = disk.opened[full_from], told.stderr
    if told.returncode != 2 and at.rpartition("/")[2] != "status.json.building":
        return f"{at}: exit code {told.returncode}"
    is_sentence = "Traceback" not in words and len(words.splitlines()) <= 5
    if told.returncode and not (is_sentence and f"{folder}/" in words and "ulimit" in words):
        return f"{at}: {words}"
    again = command(*arguments_in(folder, *more), check=False)
    if again.returncode or but_what_may_differ(results_in(folder)) != expected:
        return f"{at}: {again.returncode} {again.stderr}"
    left = [str(path) for path in folder.rglob("*.building")]
    return f"{at}: {left} is left" if left else ""
