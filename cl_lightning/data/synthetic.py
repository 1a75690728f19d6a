"""Digits drawn on this machine: the stand-in for MNIST that needs no download.

A glyph of one of several fonts is turned into a signed distance field once. An image is that field, seen through a
random rotation, shear, scale and shift, cut at a random stroke width, blurred by a random softness, and covered with
stray strokes and noise. Fields make the stroke width a plain offset, and drawing 60,000 images takes seconds.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from cl_lightning.randomness import rng

VERSION = 1  # a change of pixels changes this number, and with it the cache entry and every fingerprint
FONTS = (
    "DejaVuSans", "DejaVuSans-Bold", "DejaVuSans-Oblique", "DejaVuSansMono", "DejaVuSerif", "DejaVuSerif-Italic",
    "STIXGeneral", "STIXGeneralBolIta", "cmr10", "cmss10", "cmtt10", "cmti10",
)  # fmt: skip
SIDE = 28
FIELD = 64  # pixels of a distance field; an image shows (-1, 1) x (-1, 1) of it
CHUNK = 2000


@dataclass(frozen=True)
class Digits:
    """Ten classes of digits in MNIST's shape and numbers; a pure function of its arguments."""

    train: int = 60_000
    test: int = 10_000
    seed: int = 0

    classes = tuple("0123456789")

    def identity(self) -> dict:
        """What the pixels depend on: the key of the cache."""
        return {"kind": "synthetic-digits", "version": VERSION, "train": self.train, "test": self.test, "seed": self.seed}

    def decode(self) -> dict[str, torch.Tensor]:
        fields = glyph_fields()
        arrays = {}
        for split, count in (("train", self.train), ("test", self.test)):
            labels = torch.arange(count).remainder(10)[torch.randperm(count, generator=rng("digits", self.seed, split, "order"))]
            chunks = [
                draw(fields, labels[first : first + CHUNK], rng("digits", self.seed, split, first)) for first in range(0, count, CHUNK)
            ]
            arrays[f"{split}_x"], arrays[f"{split}_y"] = torch.cat(chunks), labels
        return arrays


def draw(fields: torch.Tensor, labels: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Images (n, 1, 28, 28) of bytes for labels (n,), from fields (fonts, 10, 64, 64)."""
    n = len(labels)

    def uniform(low: float, high: float, *shape: int) -> torch.Tensor:
        return torch.rand(n, *shape, generator=generator) * (high - low) + low

    font = torch.randint(len(fields), (n,), generator=generator)
    angle, shear = uniform(-0.25, 0.25), uniform(-0.25, 0.25)
    width, height = uniform(0.75, 1.15), uniform(0.8, 1.1)  # of the window on the field: above 1 the digit is smaller
    cos, sin = angle.cos(), angle.sin()
    theta = torch.stack(
        [
            torch.stack([width * cos, width * (shear * cos - sin), uniform(-0.14, 0.14)], 1),
            torch.stack([height * sin, height * (shear * sin + cos), uniform(-0.14, 0.14)], 1),
        ],
        1,
    )
    grid = F.affine_grid(theta, [n, 1, SIDE, SIDE], align_corners=False)
    distance = F.grid_sample(fields[font, labels][:, None], grid, padding_mode="border", align_corners=False)[:, 0]
    stroke, softness = uniform(-0.035, 0.06, 1, 1), uniform(0.02, 0.05, 1, 1)
    ink = torch.sigmoid((stroke - distance) / softness)
    ink = torch.maximum(ink, stray_stroke(uniform))
    ink = ink * uniform(0.7, 1.0, 1, 1)
    noise = torch.randn(n, SIDE, SIDE, generator=generator) * uniform(0.02, 0.12, 1, 1)
    return (ink + noise).clamp_(0, 1).mul_(255).round_().to(torch.uint8)[:, None]


def stray_stroke(uniform: Callable[..., torch.Tensor]) -> torch.Tensor:
    """Ink (n, 28, 28) of one short straight stroke somewhere in the image: clutter that templates cannot learn."""
    x, y, direction, half = uniform(-0.9, 0.9, 1, 1), uniform(-0.9, 0.9, 1, 1), uniform(0, math.pi, 1, 1), uniform(0.05, 0.3, 1, 1)
    axis = torch.linspace(-1, 1, SIDE)
    dx, dy = axis[None, None, :] - x, axis[None, :, None] - y
    along = (dx * direction.cos() + dy * direction.sin()).abs().sub(half).clamp_min(0)
    across = dy * direction.cos() - dx * direction.sin()
    return torch.sigmoid((0.05 - (along**2 + across**2).sqrt()) / 0.03)


def glyph_fields() -> torch.Tensor:
    """Signed distances (fonts, 10, 64, 64) to each digit's outline, negative inside, in units of half an image."""
    from PIL import Image, ImageDraw, ImageFont

    rows = []
    for name in FONTS:
        font = ImageFont.truetype(str(font_file(name)), 48)
        for digit in Digits.classes:
            left, top, right, bottom = font.getbbox(digit)
            glyph = Image.new("1", (FIELD, FIELD))
            corner = ((FIELD - right - left) / 2, (FIELD - bottom - top) / 2)
            ImageDraw.Draw(glyph).text(corner, digit, fill=1, font=font)
            inside = torch.from_numpy(np.array(glyph, dtype=bool))
            rows.append((distance_to(inside) - distance_to(~inside)) / (FIELD / 2))
    return torch.stack(rows).reshape(len(FONTS), 10, FIELD, FIELD)


def font_file(name: str) -> Path:
    """A font that ships with matplotlib, found without importing it."""
    spec = importlib.util.find_spec("matplotlib")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "mpl-data" / "fonts" / "ttf" / f"{name}.ttf"


def distance_to(mask: torch.Tensor) -> torch.Tensor:
    """Exact Euclidean distance (h, w) of every pixel to the nearest pixel of ``mask``: first along columns, then along rows."""
    gap = torch.arange(FIELD, dtype=torch.float32)
    squared = (gap[:, None] - gap[None, :]) ** 2
    along_columns = torch.where(mask, 0.0, 1e9)[None].add(squared[:, :, None]).amin(1)  # min over source rows k of f(k, j) + (i - k)^2
    return along_columns[:, None, :].add(squared[None]).amin(2).sqrt()
