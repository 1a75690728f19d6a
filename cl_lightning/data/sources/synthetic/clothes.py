"""Clothes, shoes and bags in grey: the stand-in for Fashion-MNIST."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import torch

from cl_lightning.config.checking import Count
from cl_lightning.data.sources.synthetic.drawing import Drawn, Draws, grid, ink, look, to_bytes, window
from cl_lightning.data.sources.synthetic.shapes import layers, shapes

SIDE = 28


@dataclass(frozen=True)
class Clothes(Drawn):
    """Ten classes of clothing in Fashion-MNIST's shape and numbers, upright and in the middle as there.

    A class has two or three cuts: a silhouette and its seams, stretched in width and length. Cloth is shaded
    by folds, and plain, striped across, striped along or printed. T-shirts, pullovers, coats, shirts and
    dresses are easily confused, as are shoes.
    """

    train: Count = 60_000
    test: Count = 10_000

    kind = "clothes"
    classes = tuple(shapes()["clothes"])
    chunk = 2000

    def draw(self, labels: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        draws, fields = Draws(len(labels), generator), cut_fields()
        seen = fields[labels, draws.pick(fields.shape[1])]
        width, height = draws.uniform(0.9, 1.3), draws.uniform(0.92, 1.2)
        angle, shear = draws.uniform(-0.1, 0.1), draws.uniform(-0.12, 0.12)
        theta = window(angle, shear, width, height, draws.uniform(-0.08, 0.08), draws.uniform(-0.08, 0.08))
        outline, seams = look(seen, grid(theta, SIDE, draws.clouds(2, 4, SIDE) * 0.05)).split(1, 1)
        cover = ink(outline, draws.uniform(-0.03, 0.05, 1, 1, 1), 0.03)
        drawn_seams = ink(seams, draws.uniform(-0.01, 0.01, 1, 1, 1), 0.03)
        drawn_seams = drawn_seams * draws.uniform(-0.35, 0.35, 1, 1, 1)
        grey = draws.uniform(0.3, 0.95, 1, 1, 1) + cloth(draws) + drawn_seams
        worn = cover * (grey - 0.15 * ink(outline.abs(), 0.03, 0.03)).clamp(0.08, 1)
        return to_bytes(worn + draws.normal(1, SIDE, SIDE) * draws.uniform(0.01, 0.1, 1, 1, 1))


def cloth(draws: Draws) -> torch.Tensor:
    """Light and pattern (n, 1, 28, 28) around 0: folds on all, and nothing, stripes either way, or a
    print."""
    axis = torch.linspace(-1, 1, SIDE)
    often, phase = draws.uniform(3, 8, 1, 1, 1) * math.pi, draws.uniform(0, 2 * math.pi, 1, 1, 1)
    across, along = ((often * way + phase).sin() for way in (axis[:, None], axis[None, :]))
    patterns = torch.stack(torch.broadcast_tensors(across * 0, across, along, draws.clouds(1, 9, SIDE)))
    pattern = patterns[draws.pick(4), torch.arange(draws.n)]
    return pattern * draws.uniform(0.05, 0.3, 1, 1, 1) + draws.clouds(1, 4, SIDE) * 0.08


@cache
def cut_fields() -> torch.Tensor:
    """(10 classes, 3 cuts, outline and seams, 64, 64)"""
    kinds = shapes()["clothes"].values()
    return torch.stack([torch.stack([layers(cut.values()) for cut in cuts]) for cuts in kinds])
