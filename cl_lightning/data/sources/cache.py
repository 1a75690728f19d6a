"""Decoded images, kept on disk and mapped into memory.

A source is decoded once for all runs of a machine: into a folder named by what its pixels depend on, under a
file lock, renamed into place when complete. Later starts map the files and decode nothing.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from filelock import FileLock

from cl_lightning.data.sources.encoded import regular
from cl_lightning.data.sources.sizes import all_fit
from cl_lightning.errors import Refusal
from cl_lightning.store.atomic import naming

SPLITS = ("train", "test")
ARRAYS = tuple(f"{split}_{part}" for split in SPLITS for part in "xy")


class Source(Protocol):
    """Where images come from. ``decode`` gives bytes ``{train,test}_x`` (n, channels, height, width) and
    ``{train,test}_y`` (n,).

    A source with a ``side`` may give a list of images (channels, height, width) of several sizes: all become
    side x side. Where it also gives ``val_{x,y}``, validation examples are drawn from these alone.
    """

    classes: tuple[str, ...]

    def identity(self) -> dict: ...
    def decode(self) -> Mapping[str, torch.Tensor | Sequence[torch.Tensor]]: ...


class Pool:
    """All images of one split of a source: x (n, channels, height, width) bytes, y (n,) class numbers."""

    def __init__(self, x: torch.Tensor, y: torch.Tensor) -> None:
        self.x, self.y = x, y

    @property
    def shape(self) -> torch.Size:
        """The shape of one image."""
        return self.x.shape[1:]

    @cached_property
    def by_class(self) -> dict[int, torch.Tensor]:
        """The rows of each class that has any, in their own order."""
        order = self.y.argsort(stable=True)
        present, counts = self.y.unique(return_counts=True)
        return dict(zip(present.tolist(), order.split(counts.tolist())))


@dataclass(frozen=True)
class Images:
    """A source as it lies in the cache. ``digest`` is a hash of every pixel and label; a label of -1 is in no
    class."""

    name: str
    classes: tuple[str, ...]
    train: Pool
    test: Pool
    digest: str
    substitute: Substitute | None = None  # where it stands in for another
    for_validation: int = 0  # so many rows at the end of the training pool are for validation alone

    def parted(self, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Rows of the training pool that may be trained on, and those for validation alone."""
        cut = len(self.train.y) - self.for_validation
        return rows[rows < cut], rows[rows >= cut]

    @property
    def shape(self) -> tuple[int, int, int]:
        channels, height, width = self.train.shape
        return channels, height, width

    @property
    def source(self) -> str:
        """Where the pixels are from, whatever the stream calls it."""
        return self.substitute.source if self.substitute else self.name

    def counts(self) -> torch.Tensor:
        """(classes,) Training images of each class."""
        return torch.tensor([len(self.train.by_class.get(c, ())) for c in range(len(self.classes))])

    def subset(self, classes: Sequence[int]) -> Images:
        """Some of the classes, numbered by their place in the list. Pixels are shared, not copied."""
        if list(classes) == list(range(len(self.classes))):
            return self
        number = torch.full((len(self.classes) + 1,), -1)  # the last one is -1 itself
        number[list(classes)] = torch.arange(len(classes))
        train, test = (Pool(pool.x, number[pool.y]) for pool in (self.train, self.test))
        names = tuple(self.classes[c] for c in classes)
        digest = hashlib.sha256(f"{self.digest} {list(classes)}".encode()).hexdigest()
        return replace(self, classes=names, train=train, test=test, digest=digest)

    def class_index(self, name: str | int) -> int:
        """The number of a class by its name; of a stand-in, by the name of the class in its place in the
        source asked for."""
        names = self.substitute.classes if self.substitute and self.substitute.classes else self.classes
        index = names.index(name) if name in names else name
        if isinstance(index, int) and 0 <= index < len(self.classes):
            return index
        if index != name:
            raise Refusal(
                f"{self.source} stands in for {self.name} with {len(self.classes)} classes: there is none "
                f"for {name!r}."
            )
        raise Refusal(
            f"{self.name} has no class {name!r}; it has "
            f"{', '.join(self.classes[:20])}{', ...' * (len(self.classes) > 20)}."
        )


@dataclass(frozen=True)
class Substitute:
    """What stands in for a source under its name."""

    source: str  # where the pixels are really from
    classes: tuple[str, ...]  # of the source that it stands in for, by number


def open_images(name: str, source: Source, cache: str | Path) -> Images:
    """The images of ``source``, decoded now if they never were."""
    folder = cache_folder(name, source, cache)
    if not is_complete(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with naming(folder), FileLock(f"{folder}.lock"):
            if not is_complete(folder):
                write(folder, source)
    try:
        meta, arrays = read(folder, source.classes)
    except Exception:  # whatever damaged files raise
        warnings.warn(f"{folder} is damaged: its images are made again.", stacklevel=2)
        with naming(folder), FileLock(f"{folder}.lock"):
            write(folder, source)
        meta, arrays = read(folder, source.classes)
    train, test = (Pool(arrays[f"{split}_x"], arrays[f"{split}_y"]) for split in SPLITS)
    digest, apart = meta["digest"], meta.get("for_validation", 0)
    if apart:
        digest = hashlib.sha256(f"{digest} {apart}".encode()).hexdigest()
    return Images(name, tuple(source.classes), train, test, digest, for_validation=apart)


def cache_folder(name: str, source: Source, cache: str | Path) -> Path:
    """The folder in which the decoded images of ``source`` lie, or will."""
    identity = json.dumps(identity_of(source), sort_keys=True)
    return Path(cache).expanduser() / f"{name}-{hashlib.sha256(identity.encode()).hexdigest()[:16]}"


def is_complete(folder: Path) -> bool:
    return (folder / "meta.json").is_file()


def shape_in(folder: Path) -> tuple[int, ...]:
    """The shape (channels, height, width) of the images in a folder of the cache; empty where it is not
    known."""
    with suppress(Exception):  # whatever missing and damaged files raise
        return np.load(regular(folder / "train_x.npy"), mmap_mode="r").shape[1:]
    return ()


def identity_of(source: Source) -> dict:
    side = getattr(source, "side", None)
    return source.identity() | ({} if side is None else {"side": side})


def read(folder: Path, classes: Sequence[str]) -> tuple[dict, dict[str, torch.Tensor]]:
    """What is known of a folder of the cache, and its files, mapped into memory. All bytes are compared with
    the digest: that takes 0.25 s for 60,000 colour images of 32 x 32."""
    meta = json.loads((folder / "meta.json").read_text())
    if meta["classes"] != list(classes):
        raise ValueError("its classes are others")
    # "c": writes stay private
    arrays = {key: np.load(regular(folder / f"{key}.npy"), mmap_mode="c") for key in ARRAYS}
    if digest_of(arrays) != meta["digest"]:
        raise ValueError("its images or labels changed since they were written")
    return meta, {key: torch.from_numpy(array) for key, array in arrays.items()}


def digest_of(arrays: Mapping[str, np.ndarray]) -> str:
    """A hash of every pixel and label."""
    digest = hashlib.sha256()
    for key in ARRAYS:
        digest.update(f"{key}{arrays[key].dtype}{arrays[key].shape}".encode())
        digest.update(arrays[key].data)
    return digest.hexdigest()


def write(folder: Path, source: Source) -> None:
    """Decode into a neighbouring folder and rename it: whoever sees the name sees all of it."""
    building = folder.with_name(folder.name + ".building")
    shutil.rmtree(building, ignore_errors=True)  # left by a process that was killed; the lock says it is ours
    building.mkdir()
    try:
        arrays = decoded(source)
        apart = len(arrays["val_y"]) if "val_y" in arrays else 0
        for part in "xy" if apart else "":
            arrays[f"train_{part}"] = np.concatenate([arrays[f"train_{part}"], arrays[f"val_{part}"]])
        for key in ARRAYS:
            np.save(building / f"{key}.npy", arrays[key])
        identity, classes = identity_of(source), list(source.classes)
        apart_too = {"for_validation": apart} if apart else {}
        about = {"identity": identity, "classes": classes, "digest": digest_of(arrays), **apart_too}
        (building / "meta.json").write_text(json.dumps(about, indent=1))
    except BaseException:
        shutil.rmtree(building, ignore_errors=True)
        raise
    shutil.rmtree(folder, ignore_errors=True)
    building.replace(folder)


def decoded(source: Source) -> dict[str, np.ndarray]:
    """What the source gives, images of several sizes brought to one."""
    side, arrays = getattr(source, "side", None), {}
    for key, value in source.decode().items():
        if not isinstance(value, torch.Tensor):
            value = same_size(value, side, type(source).__name__)
        arrays[key] = value.contiguous().numpy()
    return arrays


def same_size(images: Sequence[torch.Tensor], side: int | None, who: str) -> torch.Tensor:
    if side is not None:
        return all_fit(images, side)
    shapes = {tuple(image.shape) for image in images}
    if len(shapes) == 1:
        return torch.stack(list(images))
    raise Refusal(
        f"{who} gives images of {len(shapes)} different shapes and has no side to bring them to. Give it "
        "one, as in side=32."
    )
