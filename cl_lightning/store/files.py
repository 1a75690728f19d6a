"""Files of records: each is there whole or not at all, and belongs to one run and one key."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import warnings
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import torch
from pydantic import TypeAdapter

from cl_lightning.errors import Refusal
from cl_lightning.store.atomic import is_there, write_whole

T = TypeVar("T")


@dataclass(frozen=True)
class Saved:
    """A file of tensors, as its record names it."""

    file: str
    bytes: int
    crc: str


class Store:
    """The records of one run, in its folder.

    A record is a JSON file ``<key>.json``, with the run it belongs to, its key, and a checksum. Tensors lie
    beside it in a file that the record names with its checksum; they are written first, so that a record
    never names what is not there.
    """

    def __init__(self, folder: Path, run: str) -> None:
        self.folder, self.run = folder, run

    @property
    def own(self) -> Store:
        """The same store for this process alone: of several ranks, the others do not read or write with
        it."""
        return self

    def save(self, key: str, record: T, saved: Saved | None = None) -> T:
        """Write a record; ``saved`` are the tensors that belong to it, written before."""
        content = {
            "run": self.run,
            "key": key,
            "tensors": None if saved is None else vars(saved),
            "record": adapter(type(record)).dump_python(record, mode="json"),
        }
        text = json.dumps({**content, "crc": checksum(content)}, indent=1, allow_nan=False)
        with write_whole(self.folder / f"{key}.json") as building:
            building.write_text(text)
        return record

    def save_tensors(self, name: str, tensors: Any) -> Saved:
        """Write tensors and plain values to ``<name>.pt``, for a record to name; with that the folder is
        written through to the disk."""
        path = self.folder / f"{name}.pt"
        with write_whole(path, through=False) as building:
            return Saved(f"{name}.pt", *write_tensors(tensors, building))

    def load(self, key: str, kind: type[T]) -> T | None:
        """A record; None where it is missing or, with a warning, damaged."""
        content = self._content(key)
        return None if content is None else adapter(kind).validate_python(content["record"])

    def _content(self, key: str) -> dict[str, Any] | None:
        path = self.folder / f"{key}.json"
        if not is_there(path):
            return None
        content = content_of(path)
        if content is None and not path.is_file():  # another job has just removed it
            return None
        if content is not None and (content["run"], content["key"]) == (self.run, key):
            return content
        what = "damaged" if content is None else "from another place or run"
        warnings.warn(f"{path} is {what}: the work recorded in it is done again.", stacklevel=3)
        return None

    def saved(self, key: str) -> Saved | None:
        """The tensors of a record, if their file is there and whole; a warning says so where it is not."""
        content = self._content(key)
        return None if content is None or content["tensors"] is None else self._whole(content)

    def _whole(self, content: dict[str, Any]) -> Saved | None:
        saved = Saved(**content["tensors"])
        path = self.folder / saved.file
        with suppress(FileNotFoundError):  # another job may just have removed it
            if path.stat().st_size == saved.bytes and file_checksum(path) == saved.crc:
                return saved
        warnings.warn(
            f"{path} is {'damaged' if path.is_file() else 'gone'}: the work recorded in it is done again.",
            stacklevel=3,
        )
        return None

    def records(self, folder: str, kind: type[T]) -> list[T]:
        """The records in a folder, in the order of their names, that are whole with their tensors."""
        keys = [f"{folder}/{path.stem}" for path in sorted((self.folder / folder).glob("*.json"))]
        return [record for key in keys if (record := self._checked(key, kind)) is not None]

    def _checked(self, key: str, kind: type[T]) -> T | None:
        """A record that is whole with its tensors."""
        content = self._content(key)
        whole = content is not None and (content["tensors"] is None or self._whole(content) is not None)
        return adapter(kind).validate_python(content["record"]) if content and whole else None

    def tensors(self, key: str) -> Any:
        """What was saved beside a record: tensors and plain values. Anything that would run code is
        refused."""
        saved = self.saved(key)
        if saved is None:
            raise Refusal(
                f"{self.folder / key}.pt was whole a moment ago and is not now. The same command goes on "
                "where it was."
            )
        return load_plain(self.folder / saved.file)

    def get_or_make(self, key: str, kind: type[T], make: Callable[[], tuple[T, Any]]) -> T:
        """The record of some work, read back if it is there with its tensors; else the work is done, and its
        record and tensors saved."""
        if (found := self._checked(key, kind)) is not None:
            return found
        record, tensors = make()
        return self.save(key, record, None if tensors is None else self.save_tensors(key, tensors))

    def drop(self, key: str) -> None:
        """Remove a record with its tensors, or all those of a folder."""
        shutil.rmtree(self.folder / key, ignore_errors=True)
        for suffix in (".pt", ".json"):  # tensors alone look as if their record did not show
            (self.folder / f"{key}{suffix}").unlink(missing_ok=True)


_adapters: dict[Any, TypeAdapter] = {}


def adapter(kind: type[T]) -> TypeAdapter[T]:
    """Writes and reads records of a kind; made once."""
    if kind not in _adapters:
        _adapters[kind] = TypeAdapter(kind)
    return _adapters[kind]


def content_of(path: Path) -> dict[str, Any] | None:
    """What a record's file holds; None where it is damaged."""
    try:
        content = json.loads(path.read_bytes())
        crc = content.pop("crc")
        return content if crc == checksum(content) else None
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def checksum(content: dict[str, Any]) -> str:
    return f"{zlib.crc32(json.dumps(content, allow_nan=False).encode()):08x}"


def file_checksum(path: Path) -> str:
    crc = 0
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            crc = zlib.crc32(chunk, crc)
    return f"{crc:08x}"


class Summed:
    """A file for ``torch.save`` that sums up what is written to it, so that nothing is read back."""

    def __init__(self, file: BinaryIO) -> None:
        self.file, self.bytes, self.crc = file, 0, 0

    def write(self, chunk: Any) -> int:
        written = self.file.write(chunk)
        self.bytes, self.crc = self.bytes + written, zlib.crc32(chunk, self.crc)
        return written

    def flush(self) -> None:
        self.file.flush()


def write_tensors(tensors: Any, path: Path) -> tuple[int, str]:
    """Write tensors and plain values; returns the bytes written and their checksum. Where the
    disk is full torch raises a RuntimeError about its own bookkeeping, and this the disk's error."""
    own = torch.serialization.get_crc32_options()
    try:
        torch.serialization.set_crc32_options(False)  # torch.load does not read sums of its own
        with path.open("wb") as file:
            summed: Any = Summed(file)
            torch.save(tensors, summed)
            os.fsync(file.fileno())
        return summed.bytes, f"{summed.crc:08x}"
    except RuntimeError as reason:
        if not isinstance(reason.__context__, OSError):
            raise
        raise reason.__context__ from None
    finally:
        torch.serialization.set_crc32_options(own)


def load_plain(path: Path) -> Any:
    """Tensors and plain values; anything that would run code is refused."""
    try:
        return torch.load(path, weights_only=True, map_location="cpu")
    except pickle.UnpicklingError as reason:
        raise Refusal(
            f"{path} holds more than tensors and plain values, so it is not loaded: it was not written by "
            "this program. Remove the run's folder, or start afresh with resume=false."
        ) from reason
