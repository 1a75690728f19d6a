"""Coloured objects on clutter: the stand-ins for CIFAR-10 and CIFAR-100.

An object is three layers of shapes, painted over each other: a body, its parts, its details. It is seen
mirrored or not, turned, scaled, shifted and bent, on a background of clouds among fragments of other objects,
sometimes half hidden behind one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from cl_lightning.config.checking import Count
from cl_lightning.data.sources.synthetic.drawing import (
    Drawn,
    Draws,
    any_colour,
    colours,
    grid,
    ink,
    look,
    over,
    to_bytes,
    window,
)
from cl_lightning.data.sources.synthetic.silhouettes import FINE_CLASSES, KIN, family_fields, object_fields

SIDE = 32


@dataclass(frozen=True)
class Objects(Drawn):
    """Ten kinds of objects in CIFAR-10's shape and numbers.

    Every kind has two views, and colours that are likelier than others, its own and its surroundings': a hint
    that is quickly learned and often wrong. The rest is in the shapes: hard from 400 images, possible from
    4000. Features of these objects serve other objects, and neither digits nor textures.
    """

    train: Count = 50_000
    test: Count = 10_000

    kind = "objects"
    classes = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")

    def draw(self, labels: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        draws, fields = Draws(len(labels), generator), object_fields()
        here, itself = (likely(draws, HUES[labels][:, place]) for place in (0, 1))
        canvas = background(draws, fields.flatten(0, 1), fragments=1, ground=here)
        seen = fields[labels, draws.pick(fields.shape[1])]
        theta = pose(draws, turn=0.25, smallest=1.45, largest=0.95, shift=0.22)
        distance = look(seen, grid(theta, SIDE, draws.clouds(2, 4, SIDE) * 0.05))
        painted = paint(draws, canvas, distance, vivid(draws, canvas, itself))
        hazy = torch.lerp(canvas, painted, draws.uniform(0.45, 1, 1, 1, 1))
        canvas = fragment(draws, hazy, fields.flatten(0, 1), probability=0.35)
        return photograph(draws, canvas, noise=0.08)


@dataclass(frozen=True)
class FineObjects(Drawn):
    """A hundred kinds of objects in 20 families of five, in CIFAR-100's shape and numbers.

    A family shares its silhouette; its members differ in proportions, in a mark (plain, striped, spotted,
    banded, two-coloured) and, loosely, in their hue: easier to tell apart than ``Objects``, from a tenth of
    the images of a class.
    """

    train: Count = 50_000
    test: Count = 10_000

    kind = "fine-objects"
    classes = FINE_CLASSES

    def draw(self, labels: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        draws, fields = Draws(len(labels), generator), family_fields()
        family, member = KIN[labels].unbind(1)
        canvas = background(draws, fields.flatten(0, 1), fragments=1, ground=any_colour(draws))
        theta = pose(draws, turn=0.15, smallest=1.2, largest=0.95, shift=0.1)
        distance = look(fields[family, member], grid(theta, SIDE, draws.clouds(2, 4, SIDE) * 0.03))
        hue = (family * 0.381966 + member * 0.2)[:, None, None] + draws.normal(1, 1) * 0.03
        tints = [
            colours(hue + turn, draws.uniform(0.55, 0.95, 1, 1), draws.uniform(0.5, 1, 1, 1))
            for turn in (0.0, 0.15, 0.5)
        ]
        return photograph(draws, paint(draws, canvas, distance, tints), noise=0.03)


def pose(draws: Draws, turn: float, smallest: float, largest: float, shift: float) -> torch.Tensor:
    mirrored = 1 - 2 * draws.chance(0.5)
    size, slim = draws.uniform(largest, smallest), draws.uniform(0.85, 1.18)
    angle, shear = draws.uniform(-turn, turn), draws.uniform(-turn, turn) / 2
    right, down = draws.uniform(-shift, shift), draws.uniform(-shift, shift)
    return window(angle, shear, mirrored * size * slim, size / slim, right, down)


HUES = torch.tensor([
    [0.58, 0.6], [0.1, 0.0], [0.5, 0.85], [0.85, 0.1], [0.3, 0.08], [0.95, 0.15], [0.4, 0.3],
    [0.22, 0.05], [0.65, 0.75], [0.02, 0.5],
])  # of the surroundings and of the body of each of the ten classes, on a circle of length 1  # fmt: skip


def likely(draws: Draws, hue: torch.Tensor) -> torch.Tensor:
    """Colours (n, 3, 1, 1), three in four of a hue near ``hue`` (n,), the others of any."""
    near = hue[:, None, None] + draws.normal(1, 1) * 0.05
    hue = torch.where(draws.chance(0.75, 1, 1) > 0, near, draws.uniform(0, 1, 1, 1))
    return colours(hue % 1, draws.uniform(0.3, 0.9, 1, 1), draws.uniform(0.25, 0.9, 1, 1))


def background(draws: Draws, fields: torch.Tensor, fragments: int, ground: torch.Tensor) -> torch.Tensor:
    """Two colours that run into each other, clouds, and fragments of any object anywhere."""
    half = torch.sigmoid(draws.clouds(1, 3, SIDE) * 3)
    canvas = over(ground.expand(-1, -1, SIDE, SIDE), half * 0.7, any_colour(draws))
    canvas = canvas + draws.clouds(3, 6, SIDE) * 0.06 + draws.clouds(1, 12, SIDE) * 0.05
    for _ in range(fragments):
        canvas = fragment(draws, canvas, fields, probability=0.8)
    return canvas


def fragment(draws: Draws, canvas: torch.Tensor, fields: torch.Tensor, probability: float) -> torch.Tensor:
    """One layer of a random object, turned freely, mostly outside of the image or small."""
    angle, away = draws.uniform(-math.pi, math.pi), draws.uniform(-math.pi, math.pi)
    size, nothing = draws.uniform(1.3, 2.6), torch.zeros(draws.n)
    theta = window(angle, nothing, size, size, nothing, nothing)
    centre = 0.85 * torch.stack([away.cos(), away.sin()], 1)[:, :, None]
    theta[:, :, 2:] = -theta[:, :, :2] @ centre
    layer = fields[draws.pick(len(fields)), draws.pick(2)][:, None]
    cover = ink(look(layer, grid(theta, SIDE)), 0.0, 0.05) * draws.chance(probability, 1, 1, 1)
    return over(canvas, cover, any_colour(draws))


def paint(
    draws: Draws, canvas: torch.Tensor, distance: torch.Tensor, tints: list[torch.Tensor]
) -> torch.Tensor:
    """The layers (n, 3, side, side) of an object over the canvas, each in its tint, shaded as by a light from
    a random side."""
    shade = 1 + 0.2 * draws.clouds(1, 2, SIDE) + 0.1 * draws.clouds(1, 8, SIDE)
    offset = draws.uniform(-0.01, 0.03, 1, 1, 1)
    for layer, tint in zip(distance.split(1, 1), tints):
        canvas = over(canvas, ink(layer, offset, 0.035), tint * shade)
    return canvas


def vivid(draws: Draws, canvas: torch.Tensor, body: torch.Tensor) -> list[torch.Tensor]:
    """Three colours for a body, its parts and its details, each away from the brightness of what it is laid
    on."""
    below, tints = canvas.mean((1, 2, 3), keepdim=True), []
    for tint in (body, any_colour(draws), any_colour(draws)):
        brightness = tint.mean(1, keepdim=True)
        gap = draws.uniform(0.2, 0.45, 1, 1, 1)
        target = torch.where(below > 0.45, below - gap, below + gap)
        tints.append((tint + target - brightness).clamp(0, 1))
        below = tints[-1].mean(1, keepdim=True)
    return tints


def photograph(draws: Draws, canvas: torch.Tensor, noise: float) -> torch.Tensor:
    """Exposure, contrast and noise of a small camera."""
    middle, contrast = draws.uniform(0.4, 0.6, 1, 1, 1), draws.uniform(0.7, 1.0, 1, 1, 1)
    grain = draws.normal(3, SIDE, SIDE) * draws.uniform(0.3 * noise, noise, 1, 1, 1)
    return to_bytes((canvas - 0.5) * contrast + middle + grain)
