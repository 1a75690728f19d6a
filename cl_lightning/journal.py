"""The append-only record of a run: what it resumes from, and what its results are made of.

Rows are lines of JSON, written through to the disk one by one. Tensors lie beside them in ``checkpoints/``, as plain
values that ``torch.load(weights_only=True)`` accepts; a row names its file only when that is complete.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import torch


class Journal:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
        self.path = folder / "journal.jsonl"
        self.rows: list[dict] = read_rows(self.path)

    def append(self, event: str, /, **values: Any) -> dict:
        row = {"event": event, **values}
        line = json.dumps(row, allow_nan=False)
        with self.path.open("a") as file:
            file.write(line + "\n")
            file.flush()
            os.fsync(file.fileno())
        self.rows.append(json.loads(line))  # as a restart will read it
        return self.rows[-1]

    def find(self, event: str, **values: Any) -> dict | None:
        """The newest row with these values."""
        matching = (row for row in reversed(self.rows) if row["event"] == event and all(row.get(k) == v for k, v in values.items()))
        return next(matching, None)

    def all(self, event: str) -> list[dict]:
        return [row for row in self.rows if row["event"] == event]

    def save(self, name: str, content: Any) -> str:
        """Write tensors and plain values; returns the name to put in a row."""
        path = self.folder / "checkpoints" / f"{name}.pt"
        with write_whole(path) as building:
            torch.save(content, building)
        return path.name

    def load(self, name: str) -> Any:
        return torch.load(self.folder / "checkpoints" / name, weights_only=True, map_location="cpu")

    def drop(self, name: str) -> None:
        (self.folder / "checkpoints" / name).unlink(missing_ok=True)


class write_whole:
    """A path to write to that takes its final name when the block ends well: readers see all of a file or none of it."""

    def __init__(self, path: Path) -> None:
        self.path, self.building = path, path.with_name(path.name + ".building")

    def __enter__(self) -> Path:
        return self.building

    def __exit__(self, failed: type[BaseException] | None, *_: object) -> None:
        if failed is None:
            with self.building.open("rb+") as file:
                os.fsync(file.fileno())
            self.building.replace(self.path)
        else:
            self.building.unlink(missing_ok=True)


def read_rows(path: Path) -> list[dict]:
    """All complete rows; a last line that a kill cut short is taken away."""
    if not path.is_file():
        return []
    content = path.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    if whole != content:
        with write_whole(path) as building:
            building.write_bytes(whole)
    return [json.loads(line) for line in whole.splitlines()]
