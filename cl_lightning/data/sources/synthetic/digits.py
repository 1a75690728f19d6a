"""Digits and letters from fonts: the stand-ins for MNIST, EMNIST, SVHN and NotMNIST. The first three share
their shapes."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from cl_lightning.config.checking import Count
from cl_lightning.data.sources.synthetic.drawing import (
    FONTS,
    Drawn,
    Draws,
    any_colour,
    glyph_fields,
    grid,
    ink,
    look,
    over,
    stray_stroke,
    to_bytes,
    window,
)

DIGITS = tuple("0123456789")
SIDE = 28


@dataclass(frozen=True)
class Digits(Drawn):
    """Ten classes of digits in MNIST's shape and numbers.

    A glyph of one of several fonts is seen through a random rotation, shear, scale and shift, cut at a random
    stroke width, blurred by a random softness, faded, and covered with a stray stroke and noise.
    """

    train: Count = 60_000
    test: Count = 10_000

    kind = "digits"
    version = 2
    classes = DIGITS
    chunk = 2000

    def draw(self, labels: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        draws, fields = Draws(len(labels), generator), glyph_fields(DIGITS)
        font, angle, shear = draws.pick(len(fields)), draws.uniform(-0.25, 0.25), draws.uniform(-0.25, 0.25)
        width, height = draws.uniform(0.75, 1.15), draws.uniform(0.8, 1.1)
        theta = window(angle, shear, width, height, draws.uniform(-0.14, 0.14), draws.uniform(-0.14, 0.14))
        distance = look(fields[font, labels][:, None], grid(theta, SIDE))[:, 0]
        drawn = ink(distance, draws.uniform(-0.035, 0.06, 1, 1), draws.uniform(0.02, 0.05, 1, 1))
        drawn = torch.maximum(drawn, stray_stroke(draws, SIDE))
        drawn = drawn * draws.uniform(0.28, 1.0, 1, 1)
        return to_bytes(drawn + draws.normal(SIDE, SIDE) * draws.uniform(0.02, 0.23, 1, 1))[:, None]


@dataclass(frozen=True)
class PenDigits(Drawn):
    """The ten digits of EMNIST By_Class, ordered by decreasing frequency and imbalanced as there: the largest
    class has 2.02 % of all images more than the smallest (Pfuelb & Gepperth 2019, table 1).

    Fonts as in ``Digits``, bent as by a hand: every image has an elastic warp of its own and a pen of its own
    width, and can be faint.
    """

    train: Count = 345_035
    test: Count = 57_918

    kind = "pen-digits"
    classes = tuple("1730268945")
    chunk = 2000

    def ordered(self, count: int) -> torch.Tensor:
        return torch.arange(len(self.classes)).repeat_interleave(imbalanced(count, len(self.classes), 0.0202))

    def draw(self, labels: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        draws, fields = Draws(len(labels), generator), glyph_fields(self.classes)
        font, angle, shear = draws.pick(len(fields)), draws.uniform(-0.3, 0.3), draws.uniform(-0.4, 0.4)
        width, height = draws.uniform(0.8, 1.25), draws.uniform(0.8, 1.15)
        theta = window(angle, shear, width, height, draws.uniform(-0.12, 0.12), draws.uniform(-0.12, 0.12))
        warp = draws.clouds(2, 4, SIDE) * draws.uniform(0.03, 0.16, 1, 1, 1)
        distance = look(fields[font, labels][:, None], grid(theta, SIDE, warp))
        drawn = ink(distance, draws.uniform(-0.05, 0.1, 1, 1, 1), draws.uniform(0.03, 0.08, 1, 1, 1))
        drawn = drawn * draws.uniform(0.2, 1.0, 1, 1, 1)
        return to_bytes(drawn + draws.normal(1, SIDE, SIDE) * draws.uniform(0.0, 0.25, 1, 1, 1))


def imbalanced(count: int, classes: int, gap: float) -> torch.Tensor:
    """Sizes (classes,) that fall evenly from the first class to the last, by ``gap`` times ``count`` in all,
    and sum to ``count``."""
    falling = count * (1 / classes + gap * torch.linspace(0.5, -0.5, classes, dtype=torch.float64))
    edges = falling.cumsum(0).round_().long()
    return edges.diff(prepend=edges.new_zeros(1))


@dataclass(frozen=True)
class StreetDigits(Drawn):
    """House numbers in SVHN's shape and numbers: the class is the digit in the middle.

    Three digits of one font and colour stand side by side on a wall of another colour; the outer two are cut
    by the border. Light falls unevenly, contrast is often low, one in ten is dark on light, and the
    photograph is blurred and noisy.
    """

    train: Count = 73_257
    test: Count = 26_032

    kind = "street-digits"
    classes = DIGITS

    def draw(self, labels: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        draws, fields, side = Draws(len(labels), generator), glyph_fields(DIGITS, FONTS[:5]), 32
        font, angle, shear = draws.pick(len(fields)), draws.uniform(-0.08, 0.08), draws.uniform(-0.1, 0.1)
        width, height, down = draws.uniform(0.9, 1.2), draws.uniform(0.85, 1.1), draws.uniform(-0.1, 0.1)
        right, pitch = draws.uniform(-0.08, 0.08), draws.uniform(1.1, 1.3)
        offset, softness = draws.uniform(-0.02, 0.06, 1, 1, 1), draws.uniform(0.03, 0.07, 1, 1, 1)
        cover = torch.zeros(len(labels), 1, side, side)
        for place in (-1, 0, 1):
            digit = labels if place == 0 else draws.pick(10)
            theta = window(angle, shear, width, height, right - place * pitch, down)
            there = 1.0 if place == 0 else draws.chance(0.5, 1, 1, 1)
            distance = look(fields[font, digit][:, None], grid(theta, side))
            cover = torch.maximum(cover, there * ink(distance, offset, softness))
        wall = 0.05 + 0.35 * any_colour(draws)
        paint = wall + draws.uniform(0.08, 0.65, 1, 1, 1) * (0.6 + 0.4 * any_colour(draws))
        picture = over(wall + draws.clouds(3, 3, side) * 0.08 + draws.clouds(1, 8, side) * 0.04, cover, paint)
        picture = picture * (1 + draws.clouds(1, 2, side) * 0.15)
        picture = torch.where(draws.chance(0.1, 1, 1, 1) > 0, 1 - picture, picture)
        return to_bytes(picture + draws.normal(3, side, side) * draws.uniform(0.02, 0.12, 1, 1, 1))


@dataclass(frozen=True)
class Letters(Drawn):
    """Letters A to J in many faces, in NotMNIST's shape and numbers.

    Faces differ more than digits do: from hair lines to fat strokes, hollow outlines, white on black or black
    on white, shadows, wild slants and proportions.
    """

    train: Count = 529_114
    test: Count = 18_724

    kind = "letters"
    classes = tuple("ABCDEFGHIJ")
    chunk = 2000

    def draw(self, labels: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        draws, fields = Draws(len(labels), generator), glyph_fields(self.classes, FACES)
        face, angle, shear = draws.pick(len(fields)), draws.uniform(-0.2, 0.2), draws.uniform(-0.5, 0.5)
        width, height = draws.uniform(0.7, 1.5), draws.uniform(0.75, 1.25)
        theta = window(angle, shear, width, height, draws.uniform(-0.15, 0.15), draws.uniform(-0.15, 0.15))
        distance = look(fields[face, labels][:, None], grid(theta, SIDE, draws.clouds(2, 4, SIDE) * 0.05))
        offset, softness = draws.uniform(-0.06, 0.12, 1, 1, 1), draws.uniform(0.02, 0.05, 1, 1, 1)
        hollow = draws.chance(0.25, 1, 1, 1)
        outline = torch.where(hollow > 0, distance.abs() - 0.04, distance)
        drawn = ink(outline, torch.where(hollow > 0, 0.02, offset), softness)
        shadow = ink(distance.roll((2, 2), (2, 3)), offset, softness) * draws.chance(0.2, 1, 1, 1) * 0.5
        drawn = torch.maximum(drawn, shadow)
        drawn = torch.where(draws.chance(0.2, 1, 1, 1) > 0, 1 - drawn, drawn)
        return to_bytes(drawn + draws.normal(1, SIDE, SIDE) * draws.uniform(0.0, 0.15, 1, 1, 1))


FACES = (
    *FONTS, "DejaVuSans-BoldOblique", "DejaVuSansMono-Bold", "DejaVuSerif-Bold", "DejaVuSerif-BoldItalic",
    "STIXGeneralBol",
    "STIXGeneralItalic", "cmb10",
)  # fmt: skip
