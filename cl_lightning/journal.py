"""The append-only record of a run: what it resumes from, and what its results are made of.

Rows are lines of JSON, written through to the disk one by one. Tensors lie beside them in ``checkpoints/``, as plain
values that ``torch.load(weights_only=True)`` accepts. A row names its file only when that is complete, with its checksum.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import warnings
import zlib
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any

import torch

from cl_lightning import faults
from cl_lightning.errors import Refusal

FORMAT = 4  # of rows and checkpoints; other ones are not read


class Journal:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
        self.path = folder / "journal.jsonl"
        self.rows: list[dict] = read_rows(self.path)
        self._behind: Future | None = None

    def append(self, event: str, /, **values: Any) -> dict:
        line = line_of({"event": event, **values})
        faults.reached("journal.append")
        with self.path.open("a") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        self.rows.append(row_of(line))  # as a restart will read it
        return self.rows[-1]

    def find(self, event: str, **values: Any) -> dict | None:
        """The newest row with these values."""
        matching = (row for row in reversed(self.rows) if row["event"] == event and all(row.get(k) == v for k, v in values.items()))
        return next(matching, None)

    def all(self, event: str) -> list[dict]:
        return [row for row in self.rows if row["event"] == event]

    def rewind(self, length: int) -> None:
        """Keep the first rows only: what came after was built on something that is lost."""
        del self.rows[length:]
        with write_whole(self.path) as building:
            building.write_text("".join(map(line_of, self.rows)))

    # ---- files ----------------------------------------------------------------------------------------------

    def save(self, name: str, write: Callable[[Path], Any]) -> dict[str, Any]:
        """Have a file written; returns its name and checksum, to put in a row."""
        path = self.folder / "checkpoints" / f"{name}.pt"
        with write_whole(path) as building:
            write(building)
            faults.reached("checkpoint.write")
            checksum = checksum_of(building)
        return {"file": path.name, "checksum": checksum}

    def save_behind(self, name: str, write: Callable[[Path], Any], event: str, /, **values: Any) -> None:
        """Have a file written and a row appended that names it in ``saved``. Only the writing holds up the caller: checksum, disk
        and row follow in a thread. ``settle`` waits for them; call it before anything else is saved or appended."""
        self.settle()
        path = self.folder / "checkpoints" / f"{name}.pt"
        whole = write_whole(path)
        try:
            write(whole.building)
        except BaseException:
            whole.building.unlink(missing_ok=True)
            raise

        def complete() -> None:
            with whole as building:
                faults.reached("checkpoint.write")
                checksum = checksum_of(building)
            self.append(event, **values, saved={"file": path.name, "checksum": checksum})

        self._behind = ThreadPoolExecutor(1, "journal").submit(complete)

    def settle(self) -> None:
        """Wait for what ``save_behind`` still does, and raise what it raised."""
        behind, self._behind = self._behind, None
        if behind is not None:
            behind.result()

    def intact(self, saved: dict[str, Any]) -> bool:
        """Whether a file is there, whole and unchanged; a warning says so where it is not."""
        path = self.folder / "checkpoints" / saved["file"]
        if path.is_file() and checksum_of(path) == saved["checksum"]:
            return True
        warnings.warn(f"{path} is {'damaged' if path.is_file() else 'gone'}: going back to the checkpoint before it.", stacklevel=2)
        return False

    def place(self, saved: dict[str, Any]) -> Path:
        return self.folder / "checkpoints" / saved["file"]

    def load(self, saved: dict[str, Any]) -> Any:
        return load_plain(self.place(saved))

    def drop(self, saved: dict[str, Any]) -> None:
        self.place(saved).unlink(missing_ok=True)


def load_plain(path: Path) -> Any:
    """Tensors and plain values; anything that would run code is refused."""
    try:
        return torch.load(path, weights_only=True, map_location="cpu")
    except pickle.UnpicklingError as reason:
        raise Refusal(
            f"{path} holds more than tensors and plain values, so it is not loaded: it was not written by this program. "
            "Remove the run's folder, or start afresh with resume=false."
        ) from reason


class write_whole:
    """A path to write to that takes its final name when the block ends well: readers see all of a file or none of it."""

    def __init__(self, path: Path) -> None:
        self.path, self.building = path, path.with_name(path.name + ".building")

    def __enter__(self) -> Path:
        return self.building

    def __exit__(self, failed: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if failed is not None:
            self.building.unlink(missing_ok=True)
            return
        with self.building.open("rb+") as file:
            os.fsync(file.fileno())
        self.building.replace(self.path)
        sync_folder(self.path.parent)


def sync_folder(folder: Path) -> None:
    """Write a rename through to the disk, where the system can."""
    if hasattr(os, "O_DIRECTORY"):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def checksum_of(path: Path) -> str:
    with path.open("rb") as file:
        digest = hashlib.sha256()
        while chunk := file.read(1 << 20):
            digest.update(chunk)
        return digest.hexdigest()


def line_of(row: dict) -> str:
    """A row as a line of JSON whose last value is a checksum of all before it."""
    body = json.dumps(row, allow_nan=False)
    return f'{body[:-1]}, "crc": "{zlib.crc32(body.encode()):08x}"}}\n'


def row_of(line: str) -> dict:
    """The row of a line; ValueError where it is damaged."""
    row = json.loads(line)
    crc = row.pop("crc")
    if line_of(row).rstrip() != line.rstrip():
        raise ValueError(f"checksum {crc} does not fit")
    return row


def read_rows(path: Path) -> list[dict]:
    """All rows up to the first that is cut short or damaged; what follows is taken away, and learned again."""
    if not path.is_file():
        return []
    lines, rows = path.read_bytes().split(b"\n"), []
    for line in lines[:-1]:
        try:
            rows.append(row_of(line.decode()))
        except (ValueError, KeyError, TypeError, AttributeError):
            warnings.warn(f"{path} is damaged in line {len(rows) + 1}: going back to the line before it.", stacklevel=2)
            break
    if len(rows) < len(lines) - 1 or lines[-1]:
        with write_whole(path) as building:
            building.write_text("".join(map(line_of, rows)))
    return rows
