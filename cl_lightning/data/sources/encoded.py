"""PNG, JPEG and other image files, decoded: what parquet files and folders have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cl_lightning.data.sources.sizes import as_bytes, fit
from cl_lightning.errors import Refusal

GREY = ("1", "L", "LA")
DEEP = ("I", "F", "I;16", "I;16B", "I;16L", "I;16N")
FORMATS = ("PNG", "JPEG", "BMP", "GIF", "PPM", "TIFF", "WEBP")  # others start programs: EPS, for one


def decode_splits(
    name: str, splits: Mapping[str, Sequence[bytes | Path]], side: int | None
) -> dict[str, torch.Tensor]:
    """All images as bytes (n, channels, height, width) a split: grey where all are grey, else colour; brought
    to ``side`` where given."""
    images = {
        split: [one(name, split, number, image, side) for number, image in enumerate(files)]
        for split, files in splits.items()
    }
    shapes = sorted({image.shape for decoded in images.values() for image in decoded})
    if len({shape[1:] for shape in shapes}) > 1:
        raise Refusal(
            f"The images of {name!r} have {len(shapes)} different shapes (channels, height, width), "
            f"{shapes[0]} to {shapes[-1]}, and a network has one input shape.\n"
            f"Set data.sources.{name}.side, and all become side x side: scaled, and the middle cut out."
        )
    channels = max(shape[0] for shape in shapes)
    return {split: torch.from_numpy(stacked(decoded, channels)) for split, decoded in images.items()}


def stacked(images: list[np.ndarray], channels: int) -> np.ndarray:
    return np.stack([np.broadcast_to(image, (channels, *image.shape[1:])) for image in images])


def one(name: str, split: str, number: int, image: bytes | Path, side: int | None) -> np.ndarray:
    try:
        picture = opened(image)
        return as_bytes(picture if side is None else fit(picture, side))
    except Exception as reason:  # whatever the decoding library raises
        what = f"{image}" if isinstance(image, Path) else f"Image {number} of the {split} split of {name!r}"
        raise Refusal(
            f"{what} cannot be read: {first_line(reason)}\nIts file is damaged, or none of "
            f"{', '.join(FORMATS)}: download it again, or take the image out."
        ) from reason


def opened(image: bytes | Path) -> Any:
    """The picture, grey or colour, 8 bits a channel."""
    from PIL import Image

    file = regular(image) if isinstance(image, Path) else BytesIO(image)
    with Image.open(file, formats=FORMATS) as picture:
        if picture.mode in DEEP:
            raise ValueError(f"it has more than 8 bits a channel (mode {picture.mode})")
        return picture.convert("L" if picture.mode in GREY else "RGB")


def regular(file: Path) -> Path:
    """The file, refused if it is no regular one: to open a named pipe would wait for ever."""
    if file.exists() and not file.is_file():
        raise OSError(f"{file} is no regular file")
    return file


def check_labels(name: str, split: str, labels: Sequence[Any], classes: Sequence[str]) -> list[int]:
    """Class numbers that there are classes for."""
    for number, label in enumerate(labels):
        if not isinstance(label, int) or not 0 <= label < len(classes):
            raise Refusal(
                f"Image {number} of the {split} split of {name!r} has the label {label!r}, but there are "
                f"classes 0 to {len(classes) - 1}. Set data.sources.{name}.label and .classes to the right "
                "ones."
            )
    return list(labels)


def first_line(reason: BaseException) -> str:
    return (str(reason).splitlines() or [type(reason).__name__])[0]
