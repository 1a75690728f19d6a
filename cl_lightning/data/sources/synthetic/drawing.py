"""What every family of synthetic images is drawn with: distance fields, random looks at them, clutter, and
the loop over images.

A shape is a signed distance field of 64 x 64, negative inside, over the square (-1, 1) x (-1, 1) with y
pointing down. Fields make the width of a stroke and the softness of an edge plain offsets. An image is a look
at one or more fields through a random window, so that images are drawn in batches, thousands at a time, by
one ``grid_sample``.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F

from cl_lightning.config.checking import Count, Size
from cl_lightning.randomness import rng

FIELD = 64  # pixels of a distance field
Point = tuple[float, float]


class Draws:
    """Random numbers for a batch of ``n`` images, all from one generator, in the order in which they are
    asked for."""

    def __init__(self, n: int, generator: torch.Generator) -> None:
        self.n, self.generator = n, generator

    def uniform(self, low: float, high: float, *shape: int) -> torch.Tensor:
        return torch.rand(self.n, *shape, generator=self.generator) * (high - low) + low

    def normal(self, *shape: int) -> torch.Tensor:
        return torch.randn(self.n, *shape, generator=self.generator)

    def pick(self, choices: int) -> torch.Tensor:
        return torch.randint(choices, (self.n,), generator=self.generator)

    def chance(self, probability: float, *shape: int) -> torch.Tensor:
        """1.0 with the probability, else 0.0."""
        return (torch.rand(self.n, *shape, generator=self.generator) < probability).float()

    def clouds(self, channels: int, cells: int, side: int) -> torch.Tensor:
        """Smooth noise (n, channels, side, side): normal numbers on a grid of ``cells`` x ``cells``,
        interpolated."""
        return F.interpolate(
            self.normal(channels, cells, cells), size=(side, side), mode="bilinear", align_corners=True
        )


@dataclass(frozen=True)
class Drawn:
    """A source of drawn images, a pure function of its arguments: ``train`` and ``test`` images of as many of
    each class as the numbers allow, in random order. A family names its ``kind`` and ``classes`` and draws
    batches of labels."""

    train: Count
    test: Count
    seed: Size = 0

    kind: ClassVar[str]
    # A change of pixels changes this number, and with it the cache entry and every fingerprint.
    version: ClassVar[int] = 1
    classes: ClassVar[tuple[str, ...]]
    chunk: ClassVar[int] = 1000  # images drawn at once

    def identity(self) -> dict:
        """What the pixels depend on: the key of the cache."""
        about = {"kind": f"synthetic-{self.kind}", "version": self.version}
        return {**about, "train": self.train, "test": self.test, "seed": self.seed}

    def decode(self) -> dict[str, torch.Tensor]:
        arrays = {}
        for split, count in (("train", self.train), ("test", self.test)):
            order = torch.randperm(count, generator=rng(self.kind, self.seed, split, "order"))
            labels = self.ordered(count)[order]
            arrays[f"{split}_x"], arrays[f"{split}_y"] = self.images(split, labels), labels
        return arrays

    def ordered(self, count: int) -> torch.Tensor:
        """The labels of ``count`` images before they are shuffled."""
        return torch.arange(count).remainder(len(self.classes))

    def images(self, split: str, labels: torch.Tensor) -> torch.Tensor:
        images = torch.empty(0)
        for first in range(0, len(labels), self.chunk):
            part = self.draw(labels[first : first + self.chunk], rng(self.kind, self.seed, split, first))
            images = torch.empty(len(labels), *part.shape[1:], dtype=torch.uint8) if first == 0 else images
            images[first : first + self.chunk] = part
        return images

    def draw(self, labels: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        """Images (n, channels, height, width) of bytes for labels (n,)."""
        raise NotImplementedError


def to_bytes(images: torch.Tensor) -> torch.Tensor:
    """Values from 0 to 1 as bytes; the argument is spent."""
    return images.clamp_(0, 1).mul_(255).round_().to(torch.uint8)


# Looks at fields


def window(
    angle: torch.Tensor,
    shear: torch.Tensor,
    width: torch.Tensor,
    height: torch.Tensor,
    right: torch.Tensor,
    down: torch.Tensor,
) -> torch.Tensor:
    """Affine maps (n, 2, 3) from image to field; a width above 1 makes the shape narrower than its field."""
    cos, sin = angle.cos(), angle.sin()
    across = torch.stack([width * cos, width * (shear * cos - sin), right], 1)
    along = torch.stack([height * sin, height * (shear * sin + cos), down], 1)
    return torch.stack([across, along], 1)


def grid(theta: torch.Tensor, side: int, warp: torch.Tensor | None = None) -> torch.Tensor:
    """Where in the field each pixel looks: (n, side, side, 2), bent by ``warp`` (n, 2, side, side)."""
    straight = F.affine_grid(theta, [len(theta), 1, side, side], align_corners=False)
    return straight if warp is None else straight + warp.permute(0, 2, 3, 1)


def look(fields: torch.Tensor, where: torch.Tensor) -> torch.Tensor:
    """Distances (n, layers, side, side) in fields (n, layers, 64, 64), seen at ``where``."""
    return F.grid_sample(fields, where, padding_mode="border", align_corners=False)


def ink(distance: torch.Tensor, offset: torch.Tensor | float, softness: torch.Tensor | float) -> torch.Tensor:
    """How much of a pixel a shape covers, from 0 to 1, when it is widened by ``offset`` and its edge blurred
    by ``softness``."""
    return torch.sigmoid((offset - distance) / softness)


def over(canvas: torch.Tensor, cover: torch.Tensor, paint: torch.Tensor) -> torch.Tensor:
    """``paint`` (n, c, ...) laid over ``canvas`` (n, c, side, side) where ``cover`` (n, 1, side, side) is
    1."""
    return torch.lerp(canvas, paint.expand_as(canvas), cover)


def stray_stroke(draws: Draws, side: int) -> torch.Tensor:
    """Ink (n, side, side) of one short straight stroke somewhere in the image: clutter that templates cannot
    learn."""
    x, y = draws.uniform(-0.9, 0.9, 1, 1), draws.uniform(-0.9, 0.9, 1, 1)
    direction, half = draws.uniform(0, math.pi, 1, 1), draws.uniform(0.05, 0.3, 1, 1)
    axis = torch.linspace(-1, 1, side)
    dx, dy = axis[None, None, :] - x, axis[None, :, None] - y
    along = (dx * direction.cos() + dy * direction.sin()).abs().sub(half).clamp_min(0)
    across = dy * direction.cos() - dx * direction.sin()
    return torch.sigmoid((0.05 - (along**2 + across**2).sqrt()) / 0.03)


def colours(hue: torch.Tensor, saturation: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Red, green and blue (n, 3, ...) of hues on a circle of length 1."""
    sector = torch.stack([(hue * 6 + shift) % 6 for shift in (5, 3, 1)], 1)
    return value.unsqueeze(1) * (1 - saturation.unsqueeze(1) * torch.minimum(sector, 4 - sector).clamp(0, 1))


def any_colour(draws: Draws) -> torch.Tensor:
    """One random colour (n, 3, 1, 1) an image."""
    return colours(draws.uniform(0, 1, 1, 1), draws.uniform(0.1, 0.9, 1, 1), draws.uniform(0.2, 1, 1, 1))


# Shapes as fields


@cache
def plane() -> tuple[torch.Tensor, torch.Tensor]:
    """x and y (64, 64) at the centres of a field's pixels."""
    axis = (torch.arange(FIELD) + 0.5) / (FIELD / 2) - 1
    return axis.expand(FIELD, FIELD), axis[:, None].expand(FIELD, FIELD)


def ellipse(x: float, y: float, rx: float, ry: float, turn: float = 0.0) -> torch.Tensor:
    """Distance to an ellipse; exact for a circle, of first order near the outline else."""
    px, py = plane()[0] - x, plane()[1] - y
    px, py = px * math.cos(turn) + py * math.sin(turn), py * math.cos(turn) - px * math.sin(turn)
    level, slope = torch.hypot(px / rx, py / ry), torch.hypot(px / rx**2, py / ry**2)
    return level * (level - 1) / slope.clamp_min(1e-6)


def line(points: Sequence[Point], half: float = 0.0) -> torch.Tensor:
    """Distance to a broken line of half width ``half`` with round ends."""
    px, py = plane()
    gaps = []
    for (ax, ay), (bx, by) in pairwise(points):
        length = max((bx - ax) ** 2 + (by - ay) ** 2, 1e-9)
        t = (((px - ax) * (bx - ax) + (py - ay) * (by - ay)) / length).clamp(0, 1)
        gaps.append(torch.hypot(px - ax - t * (bx - ax), py - ay - t * (by - ay)))
    return torch.stack(gaps).amin(0) - half


def curve(points: Sequence[Point], half: float = 0.0) -> torch.Tensor:
    """Distance to the smooth curve (Bezier) that the points steer."""
    steps, steered = torch.linspace(0, 1, 14)[:, None, None], torch.tensor(points)[None].expand(14, -1, -1)
    while steered.shape[1] > 1:
        steered = steered[:, :-1] * (1 - steps) + steered[:, 1:] * steps
    return line([(x, y) for x, y in steered[:, 0].tolist()], half)


def polygon(*corners: Point) -> torch.Tensor:
    """Signed distance to a polygon."""
    px, py = plane()
    inside = torch.zeros(FIELD, FIELD, dtype=torch.bool)
    for (ax, ay), (bx, by) in zip(corners, corners[1:] + corners[:1]):
        if ay != by:
            inside ^= ((py > ay) != (py > by)) & (px < ax + (py - ay) * (bx - ax) / (by - ay))
    outline = line([*corners, corners[0]])
    return torch.where(inside, -outline, outline)


def box(left: float, top: float, right: float, bottom: float) -> torch.Tensor:
    return polygon((left, top), (right, top), (right, bottom), (left, bottom))


def symmetric(*corners: Point) -> torch.Tensor:
    """A polygon that is its own mirror image: the corners of its right half, from top to bottom."""
    return polygon(*corners, *((-x, y) for x, y in reversed(corners)))


def union(*fields: torch.Tensor) -> torch.Tensor:
    return torch.stack(fields).amin(0)


def without(field: torch.Tensor, *holes: torch.Tensor) -> torch.Tensor:
    return torch.maximum(field, -union(*holes))


NOTHING = torch.full((FIELD, FIELD), 1.0)  # far from any shape

# Glyphs of fonts

FONTS = (
    "DejaVuSans", "DejaVuSans-Bold", "DejaVuSans-Oblique", "DejaVuSansMono", "DejaVuSerif",
    "DejaVuSerif-Italic",
    "STIXGeneral", "STIXGeneralBolIta", "cmr10", "cmss10", "cmtt10", "cmti10",
)  # fmt: skip


@cache
def glyph_fields(characters: tuple[str, ...], fonts: tuple[str, ...] = FONTS) -> torch.Tensor:
    """Signed distances (fonts, characters, 64, 64) to each character's outline, in units of half an image."""
    from PIL import Image, ImageDraw, ImageFont

    rows = []
    for name in fonts:
        font = ImageFont.truetype(str(font_file(name)), 48)
        for character in characters:
            left, top, right, bottom = font.getbbox(character)
            glyph = Image.new("1", (FIELD, FIELD))
            corner = ((FIELD - right - left) / 2, (FIELD - bottom - top) / 2)
            ImageDraw.Draw(glyph).text(corner, character, fill=1, font=font)
            inside = torch.from_numpy(np.array(glyph, dtype=bool))
            rows.append((distance_to(inside) - distance_to(~inside)) / (FIELD / 2))
    return torch.stack(rows).reshape(len(fonts), len(characters), FIELD, FIELD)


def font_file(name: str) -> Path:
    """A font that ships with matplotlib, found without importing it."""
    spec = importlib.util.find_spec("matplotlib")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "mpl-data" / "fonts" / "ttf" / f"{name}.ttf"


def distance_to(mask: torch.Tensor) -> torch.Tensor:
    """Exact Euclidean distance (h, w) of every pixel to the nearest pixel of ``mask``: first along columns,
    then along rows."""
    gap = torch.arange(FIELD, dtype=torch.float32)
    squared = (gap[:, None] - gap[None, :]) ** 2
    # The minimum over source rows k of f(k, j) + (i - k)^2.
    along_columns = torch.where(mask, 0.0, 1e9)[None].add(squared[:, :, None]).amin(1)
    return along_columns[:, None, :].add(squared[None]).amin(2).sqrt()
