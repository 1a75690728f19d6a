"""Files that are each there whole or not at all, on disks that may show late what other machines wrote."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep
from typing import Any, TypeVar

T = TypeVar("T")


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Errors of the disk get this path where they have none: a write that fails does not know where."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and error.filename is None:
            error.filename = str(path)
        raise


@contextmanager
def write_whole(path: Path, through: bool = True) -> Iterator[Path]:
    """A path to write to that takes its final name when the block ends well: readers see all of a file or
    none of it. ``through``: it is also on the disk then, should the machine lose its power."""
    path.parent.mkdir(parents=True, exist_ok=True)
    building = path.with_name(path.name + ".building")
    try:
        with naming(path):
            yield building
            if through:
                with building.open("rb+") as file:
                    os.fsync(file.fileno())
            building.replace(path)
    except BaseException:
        building.unlink(missing_ok=True)
        raise
    if through:
        sync_folder(path.parent)


def write_json(path: Path, content: Any, through: bool = True) -> None:
    with write_whole(path, through) as building:
        building.write_text(json.dumps(content, indent=1))


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file; empty where there is none, or no such file."""
    try:
        return dict(json.loads(path.read_text()))
    except (OSError, ValueError, TypeError, RecursionError):
        return {}


def sync_folder(folder: Path) -> None:
    """Write a rename through to the disk, where the system can."""
    if hasattr(os, "O_DIRECTORY"):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def is_there(path: Path) -> bool:
    """Whether a file is there. A disk that machines share (NFS) may say for a minute that a name which was
    not there still is not, so the folder's listing is asked, too."""
    if path.is_file():
        return True
    with suppress(FileNotFoundError, NotADirectoryError):
        return path.name in os.listdir(path.parent)
    return False


def in_time(look: Callable[[], T | None], seconds: float) -> T | None:
    """Repeat ``look`` for so many seconds, until it finds something; None if it does not."""
    until = monotonic() + seconds
    while (found := look()) is None and monotonic() < until:
        sleep(1)
    return found
