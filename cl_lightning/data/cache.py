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
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from filelock import FileLock

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
    """A source as it lies in the cache. ``digest`` is a hash of every pixel and label."""

    name: str
    classes: tuple[str, ...]
    train: Pool
    test: Pool
    digest: str

    @property
    def shape(self) -> tuple[int, int, int]:
        channels, height, width = self.train.x.shape[1:]
        return channels, height, width


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
