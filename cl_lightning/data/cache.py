"""Decoded images, kept on disk and mapped into memory.

A source is decoded once for all runs of a machine: into a folder named by what its pixels depend on, under a file
lock, renamed into place when complete. Later starts map the files and decode nothing.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import warnings
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from filelock import FileLock

from cl_lightning.errors import Refusal
from cl_lightning.protocol import not_for_learners

SPLITS = ("train", "test")
ARRAYS = tuple(f"{split}_{part}" for split in SPLITS for part in "xy")


class Source(Protocol):
    """Where images come from. ``decode`` gives bytes ``{train,test}_x`` (n, channels, height, width) and ``{train,test}_y`` (n,)."""

    classes: tuple[str, ...]

    def identity(self) -> dict: ...
    def decode(self) -> dict[str, torch.Tensor]: ...


class Pool:
    """All images of one split of a source: x (n, channels, height, width) bytes, y (n,) class numbers. Closed to learners."""

    def __init__(self, x: torch.Tensor, y: torch.Tensor) -> None:
        self._parts = (x, y)

    @property
    def x(self) -> torch.Tensor:
        not_for_learners("pool")
        return self._parts[0]

    @property
    def y(self) -> torch.Tensor:
        not_for_learners("pool")
        return self._parts[1]


@dataclass(frozen=True)
class Images:
    """A source as it lies in the cache. ``digest`` is a hash of every pixel and label; a label of -1 is in no class."""

    name: str
    classes: tuple[str, ...]
    train: Pool
    test: Pool
    digest: str
    substitute: Substitute | None = None  # where it stands in for another

    @property
    def shape(self) -> tuple[int, int, int]:
        channels, height, width = self.train.x.shape[1:]
        return channels, height, width

    @property
    def source(self) -> str:
        """Where the pixels are from, whatever the stream calls it."""
        return self.substitute.source if self.substitute else self.name

    def counts(self) -> torch.Tensor:
        """(classes,) Training images of each class."""
        return self.train.y[self.train.y >= 0].bincount(minlength=len(self.classes))

    def only(self, classes: Sequence[int]) -> Images:
        """Some of the classes, numbered by their place in the list. Pixels are shared, not copied."""
        if list(classes) == list(range(len(self.classes))):
            return self
        number = torch.full((len(self.classes) + 1,), -1)  # the last one is -1 itself
        number[list(classes)] = torch.arange(len(classes))
        pools = [Pool(pool.x, number[pool.y]) for pool in (self.train, self.test)]
        digest = hashlib.sha256(f"{self.digest} {list(classes)}".encode()).hexdigest()
        return replace(self, classes=tuple(self.classes[c] for c in classes), train=pools[0], test=pools[1], digest=digest)

    def number(self, name: str | int) -> int:
        """The number of a class that is called by its name, or by that of the class it stands in for."""
        for names in (self.classes, self.substitute.classes if self.substitute else ()):
            if name in names:
                return names.index(name)
        if isinstance(name, int) and 0 <= name < len(self.classes):
            return name
        raise Refusal(f"{self.name} has no class {name!r}; it has {', '.join(self.classes[:20])}{', ...' * (len(self.classes) > 20)}.")


@dataclass(frozen=True)
class Substitute:
    """What stands in for a source under its name."""

    source: str  # where the pixels are really from
    classes: tuple[str, ...]  # of the source that it stands in for, by number


def open_images(name: str, source: Source, cache: str | Path) -> Images:
    """The images of ``source``, decoded now if they never were."""
    identity = json.dumps(source.identity(), sort_keys=True)
    folder = Path(cache).expanduser() / f"{name}-{hashlib.sha256(identity.encode()).hexdigest()[:16]}"
    if not (folder / "meta.json").is_file():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{folder}.lock"):
            if not (folder / "meta.json").is_file():
                write(folder, source, identity)
    try:
        meta, arrays = read(folder)
    except (OSError, ValueError, KeyError):
        warnings.warn(f"{folder} is damaged: its images are made again.", stacklevel=2)
        with FileLock(f"{folder}.lock"):
            write(folder, source, identity)
        meta, arrays = read(folder)
    pools = {split: Pool(arrays[f"{split}_x"], arrays[f"{split}_y"]) for split in SPLITS}
    return Images(name, tuple(meta["classes"]), pools["train"], pools["test"], meta["digest"])


def read(folder: Path) -> tuple[dict, dict[str, torch.Tensor]]:
    meta, arrays = json.loads((folder / "meta.json").read_text()), {}
    for key in ARRAYS:
        array = np.load(folder / f"{key}.npy", mmap_mode="c")  # "c": writes stay private
        if zlib.crc32(array.data) != meta["checksums"][key]:
            raise ValueError(f"{key} has changed")
        arrays[key] = torch.from_numpy(array)
    return meta, arrays


def write(folder: Path, source: Source, identity: str) -> None:
    """Decode into a neighbouring folder and rename it: whoever sees the name sees all of it."""
    building = folder.with_name(folder.name + ".building")
    shutil.rmtree(building, ignore_errors=True)  # left by a process that was killed; the lock says it is ours
    building.mkdir()
    arrays, digest, checksums = source.decode(), hashlib.sha256(), {}
    for key in ARRAYS:
        array = arrays[key].contiguous().numpy()
        digest.update(f"{key}{array.dtype}{array.shape}".encode())
        digest.update(array.data)
        checksums[key] = zlib.crc32(array.data)
        np.save(building / f"{key}.npy", array)
    meta = {"identity": json.loads(identity), "classes": list(source.classes), "digest": digest.hexdigest(), "checksums": checksums}
    (building / "meta.json").write_text(json.dumps(meta, indent=1))
    shutil.rmtree(folder, ignore_errors=True)
    building.replace(folder)
