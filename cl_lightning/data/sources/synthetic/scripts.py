"""Invented writing: the stand-ins for KMNIST, Devanagari and MADBase. Each script has a family of strokes of
its own.

The signs of a script are fixed: ``seed`` changes who writes, not what is written.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch

from cl_lightning.config.checking import Count
from cl_lightning.data.sources.synthetic.drawing import (
    Drawn,
    Draws,
    curve,
    ellipse,
    grid,
    ink,
    line,
    look,
    stray_stroke,
    to_bytes,
    union,
    window,
)
from cl_lightning.data.sources.synthetic.shapes import layers, shapes
from cl_lightning.randomness import rng


@dataclass(frozen=True)
class Pen:
    """How a script is written: how far signs turn and bend, how much wider than its field a stroke is, and
    how much of it can fade."""

    side: int
    turn: float
    bend: float
    widths: tuple[float, float]
    faintest: float
    noise: float


def write(fields: torch.Tensor, pen: Pen, draws: Draws) -> torch.Tensor:
    """Signs (n, 1, side, side) of bytes from their distance fields (n, 64, 64)."""
    angle, shear = draws.uniform(-pen.turn, pen.turn), draws.uniform(-pen.turn, pen.turn) * 1.5
    width, height = draws.uniform(0.85, 1.3), draws.uniform(0.85, 1.25)
    theta = window(angle, shear, width, height, draws.uniform(-0.15, 0.15), draws.uniform(-0.15, 0.15))
    warp = draws.clouds(2, 5, pen.side) * draws.uniform(0.3 * pen.bend, pen.bend, 1, 1, 1)
    distance = look(fields[:, None], grid(theta, pen.side, warp))
    drawn = ink(distance, draws.uniform(*pen.widths, 1, 1, 1), draws.uniform(0.02, 0.05, 1, 1, 1))
    drawn = torch.maximum(drawn, stray_stroke(draws, pen.side)[:, None] * draws.chance(0.4, 1, 1, 1))
    faded = drawn * draws.uniform(pen.faintest, 1, 1, 1, 1)
    return to_bytes(faded + draws.normal(1, pen.side, pen.side) * draws.uniform(0.01, pen.noise, 1, 1, 1))


@dataclass(frozen=True)
class CursiveScript(Drawn):
    """Ten running characters in KMNIST's shape and numbers: two or three long curves a sign, and three ways
    to write each sign that look nothing like each other, as in old Japanese hands."""

    train: Count = 60_000
    test: Count = 10_000

    kind = "cursive-script"
    classes = ("o", "ki", "su", "tsu", "na", "ha", "ma", "ya", "re", "wo")
    chunk = 2000

    def draw(self, labels: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        draws, fields = Draws(len(labels), generator), cursive_fields()
        pen = Pen(28, turn=0.3, bend=0.2, widths=(0.02, 0.1), faintest=0.15, noise=0.35)
        return write(fields[labels, draws.pick(fields.shape[1])], pen, draws)


@dataclass(frozen=True)
class HeadlineScript(Drawn):
    """46 signs in the shape and numbers of the Devanagari character data: strokes that hang from a head line,
    most of them beside an upright."""

    train: Count = 78_200
    test: Count = 13_800

    kind = "headline-script"
    classes = (
        "ka", "kha", "ga", "gha", "kna", "cha", "chha", "ja", "jha", "yna", "taamatar", "thaa", "daa",
        "dhaa", "adna", "tabala",
        "tha", "da", "dha", "na", "pa", "pha", "ba", "bha", "ma", "yaw", "ra",
        "la", "waw", "motosaw", "petchiryakha",
        "patalosaw", "ha", "chhya", "tra", "gya", *"0123456789",
    )  # fmt: skip
    chunk = 2000

    def draw(self, labels: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        pen = Pen(32, turn=0.12, bend=0.07, widths=(0.01, 0.06), faintest=0.2, noise=0.25)
        return write(headline_fields()[labels], pen, Draws(len(labels), generator))


@dataclass(frozen=True)
class SignDigits(Drawn):
    """Ten plain signs in the shape and numbers of MADBase, after the Arabic digits there: a dot, a stroke,
    hooks, a ring, a wedge and its reverse."""

    train: Count = 60_000
    test: Count = 10_000

    kind = "sign-digits"
    classes = tuple("0123456789")
    chunk = 2000

    def draw(self, labels: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        pen = Pen(28, turn=0.3, bend=0.16, widths=(0.0, 0.1), faintest=0.15, noise=0.4)
        return write(sign_fields()[labels], pen, Draws(len(labels), generator))


@cache
def cursive_fields() -> torch.Tensor:
    """(10 signs, 3 ways, 64, 64)"""
    generator = rng("cursive-script", "signs")

    def sign() -> torch.Tensor:
        strokes = []
        for _ in range(2 + int(torch.randint(2, (1,), generator=generator))):
            points = torch.rand(5, 2, generator=generator) * 2.4 - 1.2
            strokes.append(curve([(x, y) for x, y in points.tolist()]))
        return union(*strokes)

    return torch.stack([torch.stack([sign() for _ in range(3)]) for _ in CursiveScript.classes])


@cache
def headline_fields() -> torch.Tensor:
    """(46 signs, 64, 64)"""
    generator = rng("headline-script", "signs")

    def number(low: float, high: float) -> float:
        return low + (high - low) * float(torch.rand(1, generator=generator))

    def sign() -> torch.Tensor:
        upright = number(-0.2, 0.6)
        strokes = [line([(-0.75, -0.65), (0.75, -0.65)], 0.03)]
        if number(0, 1) < 0.7:
            strokes.append(line([(upright, -0.65), (upright, 0.8)], 0.03))
        for _ in range(2):
            top = number(-0.65, 0.65)
            points = [(top, -0.65), *((number(-0.95, 0.95), number(-0.5, 1.0)) for _ in range(3))]
            strokes.append(curve(points, 0.03))
        if number(0, 1) < 0.3:
            strokes.append(ellipse(number(-0.6, 0.6), number(0.2, 0.7), 0.12, 0.12))
        return union(*strokes)

    return torch.stack([sign() for _ in HeadlineScript.classes])


@cache
def sign_fields() -> torch.Tensor:
    """(10 signs, 64, 64)"""
    return layers(shapes()["sign_digits"].values())
