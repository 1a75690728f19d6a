"""Fruits on white: the stand-in for Fruits 360."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import torch

from cl_lightning.config.checking import Count
from cl_lightning.data.sources.synthetic.drawing import (
    Drawn,
    Draws,
    colours,
    grid,
    ink,
    look,
    over,
    to_bytes,
    window,
)
from cl_lightning.data.sources.synthetic.shapes import layers, shapes

SIDE = 100


@dataclass(frozen=True)
class Fruits(Drawn):
    """Ten fruits in the shape and numbers of Fruits 360's ten most frequent classes (Pfuelb & Gepperth 2019).

    A silhouette that turns on white, round because brightness follows the distance to the outline, in a skin
    that runs from one hue to another, with or without spots, and a stem. Hues of neighbouring classes
    overlap.
    """

    train: Count = 6_148
    test: Count = 2_052

    kind = "fruits"
    classes = tuple(shapes()["fruits"])
    chunk = 100

    def draw(self, labels: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        draws, fields = Draws(len(labels), generator), fruit_fields()
        size, nothing = draws.uniform(1.0, 1.6), torch.zeros(len(labels))
        angle, shear = draws.uniform(-math.pi, math.pi), draws.uniform(-0.15, 0.15)
        theta = window(angle, shear, size * draws.uniform(0.85, 1.18), size, nothing, nothing)
        body, stem = look(fields[labels], grid(theta, SIDE, draws.clouds(2, 4, SIDE) * 0.05)).split(1, 1)
        hue, change, spots = SKINS[labels][:, :, None, None, None].unbind(1)
        blush = torch.sigmoid(draws.clouds(1, 3, SIDE) * 3)[:, 0]
        hue = hue[:, 0] + change[:, 0] * blush + draws.normal(1, 1) * 0.03
        saturation, value = draws.uniform(0.5, 0.95, 1, 1), draws.uniform(0.65, 1, 1, 1)
        skin = colours(hue, saturation.expand_as(blush), value.expand_as(blush))
        shade = 0.45 + 0.55 * (1 - (1 + body / 0.45).clamp(0, 1) ** 2).sqrt()  # as of a ball
        shade = shade + 0.12 * draws.clouds(1, 2, SIDE)
        specks = torch.sigmoid((draws.clouds(1, 25, SIDE) - 0.9) * 8)
        fruit = (skin * shade + spots * specks * 0.3).clamp(0, 1)
        picture = over(torch.ones(len(labels), 3, SIDE, SIDE), ink(body, 0.0, 0.015), fruit)
        hue, saturation = draws.uniform(0.07, 0.3, 1, 1), draws.uniform(0.4, 0.8, 1, 1)
        wood = colours(hue, saturation, draws.uniform(0.2, 0.55, 1, 1))
        picture = over(picture, ink(stem, 0.0, 0.015), wood)
        return to_bytes(picture + draws.normal(3, SIDE, SIDE) * 0.01)


# hue, how far the blush moves it, how strong the specks are
SKINS = torch.tensor([
    [0.97, 0.03, 0.0], [0.05, -0.07, 0.0], [0.07, -0.06, 0.2], [0.98, 0.02, 1.0], [0.0, 0.03, 0.0],
    [0.03, 0.08, 0.4], [0.23, 0.03, 0.4],
    [0.15, 0.02, 0.0], [0.15, 0.02, 0.5], [0.17, 0.05, 0.4],
])  # fmt: skip


@cache
def fruit_fields() -> torch.Tensor:
    """(10 fruits, body and stem, 64, 64)"""
    return torch.stack([layers(fruit.values()) for fruit in shapes()["fruits"].values()])
