"""Images of several sizes, brought to one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from PIL.Image import Image


def fit(image: Image, side: int) -> Image:
    """``side`` x ``side``: the shorter side scaled (bicubic, aspect kept), then the middle cut out, as Veniat
    et al. (2021) do with DTD."""
    from PIL.Image import Resampling

    width, height = image.size
    if (width, height) == (side, side):
        return image
    size = (side, side * height // width) if width < height else (side * width // height, side)
    left, top = round((size[0] - side) / 2), round((size[1] - side) / 2)
    return image.resize(size, Resampling.BICUBIC).crop((left, top, left + side, top + side))


def all_fit(images: Sequence[torch.Tensor], side: int) -> torch.Tensor:
    """Byte images (channels, height, width) of any sizes as one tensor (n, channels, side, side)."""
    from PIL import Image

    def fitted(image: torch.Tensor) -> np.ndarray:
        pixels = image[0] if len(image) == 1 else image.permute(1, 2, 0)
        return as_bytes(fit(Image.fromarray(np.ascontiguousarray(pixels.numpy())), side))

    return torch.from_numpy(np.stack([fitted(image) for image in images]))


def as_bytes(image: Image) -> np.ndarray:
    """A grey or colour image as bytes (channels, height, width)."""
    pixels = np.asarray(image)
    return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
