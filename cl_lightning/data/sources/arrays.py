"""One's own arrays: a NumPy ``.npz`` file."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cl_lightning.config.checking import Text
from cl_lightning.errors import Refusal

ARRAYS = ("train_x", "train_y", "test_x", "test_y")
OF_VALIDATION = ("val_x", "val_y")  # may be left out
CALL = "numpy.savez(file, train_x=..., train_y=..., test_x=..., test_y=...)"


@dataclass(frozen=True)
class Arrays:
    """``train_x``, ``train_y``, ``test_x`` and ``test_y`` in a file that ``numpy.savez`` wrote. Where it also
    has ``val_x`` and ``val_y``, validation examples are drawn from these alone, and training examples never.

    Images are bytes, or floats in [0, 1], of shape (n, height, width), (n, channels, height, width) or (n,
    height, width, channels) with one or three channels; floats (n, d) are vectors of features, taken as they
    are. Labels are class numbers. Without ``classes``, classes are named by their numbers.
    """

    file: Text
    classes: tuple[Text, ...] = ()
    licence: Text | None = None
    citation: Text | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "classes", tuple(self.classes) or self.numbered())

    @property
    def place(self) -> Path:
        return Path(self.file).expanduser()

    def identity(self) -> dict:
        self.check_place()
        status = self.place.stat()
        file = [self.place.name, status.st_size, status.st_mtime_ns]
        return {"kind": "arrays", "file": file, "classes": list(self.classes)}

    def decode(self) -> dict[str, torch.Tensor]:
        arrays = self.load(*ARRAYS, *self.of_validation())
        splits = [key.removesuffix("_x") for key in arrays if key.endswith("_x")]
        made: dict[str, torch.Tensor] = {}
        for split in splits:
            images = self.images(f"{split}_x", arrays[f"{split}_x"])
            labels = self.labels(split, arrays[f"{split}_y"], len(images))
            made |= {f"{split}_x": torch.from_numpy(images), f"{split}_y": torch.from_numpy(labels)}
        shapes = {tuple(made[f"{split}_x"].shape[1:]) for split in splits}
        if len(shapes) > 1:
            raise Refusal(
                f"{' and '.join(f'{split}_x' for split in splits)} of {self.place} differ in shape "
                f"(channels, height, width): {sorted(shapes)}."
            )
        return made

    def of_validation(self) -> tuple[str, ...]:
        """The names of arrays for validation, if the file has any."""
        with suppress(Refusal):
            self.load("val_x")
            return OF_VALIDATION
        return ()

    def numbered(self) -> tuple[str, ...]:
        labels = self.load("train_y")["train_y"]
        if not labels.size or labels.dtype.kind not in "iu":
            return ("0",)
        if (last := int(labels.max())) >= labels.size:
            raise Refusal(
                f"train_y of {self.place} has the class number {last}, but only {labels.size} labels. Number "
                "classes from 0; or, where most classes have no image, give `classes` their names."
            )
        return tuple(map(str, range(last + 1)))

    def check_place(self) -> None:
        if not self.place.is_file():
            raise Refusal(f"{self.place} is not there. It should be a file written by {CALL}.")

    def load(self, *keys: str) -> dict[str, np.ndarray]:
        self.check_place()
        try:
            with np.load(self.place, allow_pickle=False) as file:
                missing = [key for key in keys if key not in getattr(file, "files", ())]
                if not missing:
                    return {key: file[key] for key in keys}
        except Exception as reason:  # whatever damaged archives raise
            raise Refusal(
                f"{self.place} is no .npz file of plain arrays: {reason}\nWrite it with {CALL}."
            ) from reason
        raise Refusal(f"{self.place} has no array {' and no '.join(missing)}. Write it with {CALL}.")

    def images(self, key: str, array: np.ndarray) -> np.ndarray:
        """The images as bytes (n, channels, height, width); features as floats (n, d, 1, 1)."""
        if array.ndim == 2 and array.dtype.kind == "f" and array.size and np.isfinite(array).all():
            return np.ascontiguousarray(array, dtype=np.float32)[:, :, None, None]
        if array.dtype.kind == "f" and array.size and ((array >= 0) & (array <= 1)).all():  # and no NaN
            array = np.round(array * 255).astype(np.uint8)
        if array.dtype != np.uint8 or not array.size:
            raise Refusal(
                f"{key} of {self.place} must hold bytes (uint8) or floats in [0, 1], and at least one "
                f"image; {describe(array)}"
            )
        if array.ndim == 3:
            array = array[:, None]
        elif array.ndim == 4 and array.shape[1] not in (1, 3) and array.shape[3] in (1, 3):
            array = array.transpose(0, 3, 1, 2)
        if array.ndim != 4 or array.shape[1] not in (1, 3):
            shapes = "(n, height, width), (n, channels, height, width) or (n, height, width, channels)"
            raise Refusal(
                f"{key} of {self.place} must have the shape (n, d), as floats, of features, or as images "
                f"{shapes} with 1 or 3 channels; {describe(array)}"
            )
        return np.ascontiguousarray(array)

    def labels(self, split: str, array: np.ndarray, count: int) -> np.ndarray:
        if array.dtype.kind not in "iu" or array.shape != (count,):
            raise Refusal(
                f"{split}_y of {self.place} must be {count} class numbers, one an image; {describe(array)}"
            )
        wrong = np.flatnonzero((array < 0) | (array >= len(self.classes)))
        if len(wrong):
            raise Refusal(
                f"{split}_y[{wrong[0]}] of {self.place} is {array[wrong[0]]}, but there are classes 0 to "
                f"{len(self.classes) - 1}. Number classes from 0; give `classes` their names."
            )
        return array.astype(np.int64)

    def numbers(self) -> dict[str, int]:
        """How many images each split has."""
        return {split: len(self.load(f"{split}_y")[f"{split}_y"]) for split in ("train", "test")}

    def location(self) -> str:
        return str(self.place)


def describe(array: Any) -> str:
    return f"it has the shape {array.shape} and the type {array.dtype}."
