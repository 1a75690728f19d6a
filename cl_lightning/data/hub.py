"""Real data sets in the Hugging Face Hub's parquet layout, from a local folder or from the Hub itself."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cl_lightning.errors import Refusal


@dataclass(frozen=True)
class ParquetImages:
    """``<root>/<folder>`` where it exists, else the Hub's ``repository`` at ``revision``. ``datasets`` is imported only to decode."""

    folder: str
    repository: str
    revision: str
    image: str
    label: str
    classes: tuple[str, ...]
    root: str | None = None

    @cached_property
    def local(self) -> Path | None:
        place = Path(self.root).expanduser() / self.folder if self.root else None
        return place if place is not None and any(place.glob("**/*.parquet")) else None

    def identity(self) -> dict:
        columns = {"kind": "parquet", "image": self.image, "label": self.label}
        if self.local is None:
            return {**columns, "repository": self.repository, "revision": self.revision}
        files = sorted(self.local.glob("**/*.parquet"))
        return {**columns, "files": [[f.name, f.stat().st_size, f.stat().st_mtime_ns] for f in files]}

    def decode(self) -> dict[str, torch.Tensor]:
        import datasets

        datasets.disable_progress_bars()
        arrays = {}
        with tempfile.TemporaryDirectory() as scratch:
            for split in ("train", "test"):
                rows = self.rows(split, scratch)
                for column in (self.image, self.label):
                    if column not in rows.column_names:
                        raise Refusal(
                            f"The data set {self.folder!r} has no column {column!r}; it has {', '.join(rows.column_names)}. "
                            f"Set data.sources.{self.folder}.image and .label to the right ones."
                        )
                arrays[f"{split}_x"] = torch.from_numpy(self.pixels(rows, split))
                arrays[f"{split}_y"] = torch.tensor(self.labels(rows, split), dtype=torch.int64)
        return arrays

    def pixels(self, rows: Any, split: str) -> np.ndarray:
        try:
            images = [as_array(image) for image in rows[self.image]]
        except Exception as reason:  # whatever the decoding library raises
            raise Refusal(
                f"Image {unreadable(rows, self.image)} of the {split} split of {self.folder!r} cannot be read: {first_line(reason)}\n"
                "Its file is damaged: download it again, or take the image out."
            ) from reason
        sizes = sorted({image.shape for image in images})
        if len(sizes) > 1:
            raise Refusal(
                f"The {split} images of {self.folder!r} have {len(sizes)} different shapes (channels, height, width), "
                f"{sizes[0]} to {sizes[-1]}. Bring them to one size first: a network has one input shape."
            )
        return np.stack(images)

    def labels(self, rows: Any, split: str) -> list[int]:
        labels = list(rows[self.label])
        wrong = next((i for i, label in enumerate(labels) if not isinstance(label, int) or not 0 <= label < len(self.classes)), None)
        if wrong is not None:
            raise Refusal(
                f"Image {wrong} of the {split} split of {self.folder!r} has the label {labels[wrong]!r}, but there are classes 0 to "
                f"{len(self.classes) - 1}. Set data.sources.{self.folder}.label and .classes to the right ones."
            )
        return labels

    def rows(self, split: str, scratch: str) -> Any:
        import datasets

        if self.local is not None:
            files = sorted(str(f) for f in self.local.glob(f"**/*{split}*.parquet"))
            if not files:
                raise Refusal(f"{self.local} holds no parquet file for the split {split!r}. Its files must have {split!r} in their names.")
            try:
                return datasets.Dataset.from_parquet(files, cache_dir=scratch)
            except Exception as reason:  # whatever the library raises
                if isinstance(reason, OSError) and reason.errno is not None:
                    raise  # the disk's fault, not the file's
                raise Refusal(
                    f"The parquet files of {self.folder!r} cannot be read: {first_line(reason.__cause__ or reason)}\n"
                    f"One of {', '.join(files)} is damaged: download it again."
                ) from reason
        try:
            return datasets.load_dataset(self.repository, revision=self.revision, split=split)
        except (ConnectionError, OSError, ValueError) as reason:  # no network, offline mode, no such repository
            where = f"in {Path(self.root).expanduser() / self.folder}" if self.root else "on this machine (data.root is not set)"
            raise Refusal(
                f"The images of {self.folder!r} are not {where}, and the Hub's {self.repository} could not be read: {first_line(reason)}\n"
                "Set CL_LIGHTNING_DATA (or data.root) to a folder that holds them, connect to the network, or use data=synthetic."
            ) from reason


def unreadable(rows: Any, column: str) -> int:
    """The number of the first image that cannot be decoded."""
    for i in range(len(rows)):
        try:
            as_array(rows[i][column])
        except Exception:
            return i
    return -1


def as_array(image: Any) -> np.ndarray:
    """A PIL image as bytes (channels, height, width)."""
    pixels = np.asarray(image.convert("L" if image.mode in ("L", "1", "I", "P") else "RGB"))
    return pixels[None] if pixels.ndim == 2 else np.ascontiguousarray(pixels.transpose(2, 0, 1))


def first_line(reason: BaseException) -> str:
    return (str(reason).splitlines() or [type(reason).__name__])[0]
