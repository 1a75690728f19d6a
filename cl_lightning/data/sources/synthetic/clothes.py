"""Clothes, shoes and bags in grey: the stand-in for Fashion-MNIST."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import torch

from cl_lightning.config.checking import Count
from cl_lightning.data.sources.synthetic.drawing import (
    NOTHING,
    Drawn,
    Draws,
    box,
    curve,
    ellipse,
    grid,
    ink,
    line,
    look,
    polygon,
    symmetric,
    to_bytes,
    union,
    window,
    without,
)  # fmt: skip

SIDE = 28
Layers = tuple[torch.Tensor, torch.Tensor]


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
    classes = (
        "T-shirt/top",
        "Trouser",
        "Pullover",
        "Dress",
        "Coat",
        "Sandal",
        "Shirt",
        "Sneaker",
        "Bag",
        "Ankle boot",
    )
    chunk = 2000

    def draw(self, labels: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        draws, fields = Draws(len(labels), generator), cut_fields()
        seen = fields[labels, draws.pick(fields.shape[1])]
        width, height = draws.uniform(0.9, 1.3), draws.uniform(0.92, 1.2)
        angle, shear = draws.uniform(-0.1, 0.1), draws.uniform(-0.12, 0.12)
        theta = window(angle, shear, width, height, draws.uniform(-0.08, 0.08), draws.uniform(-0.08, 0.08))
        outline, seams = look(seen, grid(theta, SIDE, draws.clouds(2, 4, SIDE) * 0.05)).split(1, 1)
        cover = ink(outline, draws.uniform(-0.03, 0.05, 1, 1, 1), 0.03)
        drawn_seams = ink(seams, draws.uniform(-0.01, 0.01, 1, 1, 1), 0.03) * draws.uniform(
            -0.35, 0.35, 1, 1, 1
        )
        grey = (
            draws.uniform(0.3, 0.95, 1, 1, 1)
            + cloth(draws)
            + drawn_seams
            - 0.15 * ink(outline.abs(), 0.03, 0.03)
        )
        return to_bytes(
            cover * grey.clamp(0.08, 1) + draws.normal(1, SIDE, SIDE) * draws.uniform(0.01, 0.1, 1, 1, 1)
        )


def cloth(draws: Draws) -> torch.Tensor:
    """Light and pattern (n, 1, 28, 28) around 0: folds on all, and nothing, stripes either way, or a
    print."""
    axis = torch.linspace(-1, 1, SIDE)
    wave = draws.uniform(3, 8, 1, 1, 1) * math.pi, draws.uniform(0, 2 * math.pi, 1, 1, 1)
    across, along = (
        (wave[0] * way + wave[1]).sin() for way in (axis[None, None, :, None], axis[None, None, None, :])
    )
    patterns = torch.stack(torch.broadcast_tensors(across * 0, across, along, draws.clouds(1, 9, SIDE)))
    pattern = patterns[draws.pick(4), torch.arange(draws.n)]
    return pattern * draws.uniform(0.05, 0.3, 1, 1, 1) + draws.clouds(1, 4, SIDE) * 0.08


@cache
def cut_fields() -> torch.Tensor:
    """(10 classes, 3 cuts, outline and seams, 64, 64)"""
    cuts = (
        [tee(0.5, 0.38), tee(0.42, 0.3), tank_top()],
        [trouser(0.14, 0.85), trouser(0.2, 0.85), trouser(0.17, 0.7)],
        [jumper(0.0, 0.38), jumper(0.06, 0.42), jumper(0.03, 0.34)],
        [dress(0.0, 0.35), dress(0.25, 0.5), dress(0.0, 0.22)],
        [coat(0.8, 0.36), coat(0.85, 0.42), coat(0.72, 0.38)],
        [sandal(0.0), sandal(0.3), slipper()],
        [shirt(0.36), shirt(0.42), short_shirt()],
        [sneaker(0.0), sneaker(0.12), sneaker(0.06, plain=True)],
        [bag(0.35), bag(0.55), clutch()],
        [boot(0.55, 0.0), boot(0.75, 0.0), boot(0.6, 0.25)],
    )
    return torch.stack([torch.stack([torch.stack(layers) for layers in kind]) for kind in cuts])


def collar() -> torch.Tensor:
    return ellipse(0, -0.82, 0.2, 0.16)


def tee(sleeve: float, width: float) -> Layers:
    body = symmetric(
        (0.2, -0.78),
        (0.45, -0.66),
        (0.45 + 0.8 * sleeve, -0.2),
        (0.65, 0.0 - 0.1 * sleeve),
        (width + 0.02, -0.3),
        (width, 0.72),
    )
    return without(body, collar()), union(
        line([(-width - 0.02, -0.3), (-0.42, -0.6)]), line([(width + 0.02, -0.3), (0.42, -0.6)])
    )


def tank_top() -> Layers:
    body = symmetric((0.2, -0.8), (0.32, -0.78), (0.3, -0.4), (0.42, -0.2), (0.42, 0.72))
    return without(body, ellipse(0, -0.8, 0.18, 0.35)), line([(-0.4, 0.6), (0.4, 0.6)])


def trouser(leg: float, length: float) -> Layers:
    legs = symmetric((0.3, -0.85), (0.38, -0.3), (0.2 + leg, length), (0.1, length), (0.03, -0.2))
    return legs, union(line([(-0.3, -0.72), (0.3, -0.72)]), line([(0, -0.7), (0, -0.2)]))


def sleeves(width: float, lift: float, length: float) -> torch.Tensor:
    return symmetric(
        (0.2, -0.78),
        (0.46, -0.68),
        (0.74, 0.45 + lift),
        (0.57, 0.52 + lift),
        (width + 0.04, -0.2),
        (width, length),
    )


def jumper(lift: float, width: float) -> Layers:
    cuffs = union(
        line([(-0.72, 0.4 + lift), (-0.56, 0.46 + lift)], 0.02),
        line([(0.72, 0.4 + lift), (0.56, 0.46 + lift)], 0.02),
    )
    return without(sleeves(width, lift, 0.7), collar()), union(
        line([(-width, 0.6), (width, 0.6)], 0.02), cuffs
    )


def dress(flare: float, hem: float) -> Layers:
    body = symmetric((0.14, -0.88), (0.28, -0.86), (0.24, -0.5), (0.2, -0.25), (hem, 0.88))
    return without(body, ellipse(0, -0.9, 0.14, 0.25 - flare * 0.3)), line(
        [(-0.2, -0.22), (0.2, -0.22)], 0.02
    )


def coat(length: float, width: float) -> Layers:
    front = union(line([(0, -0.6), (0, length)], 0.015), line([(-0.2, -0.75), (0, -0.3), (0.2, -0.75)], 0.02))
    pockets = union(line([(-0.3, 0.3), (-0.15, 0.35)], 0.02), line([(0.3, 0.3), (0.15, 0.35)], 0.02))
    return without(sleeves(width, 0.12, length), symmetric((0.12, -0.85), (0, -0.6))), union(front, pockets)


def buttons(*heights: float) -> torch.Tensor:
    return union(*(ellipse(0, y, 0.04, 0.04) for y in heights))


def shirt(width: float) -> Layers:
    front = union(
        line([(-0.18, -0.8), (0, -0.62), (0.18, -0.8)], 0.03), buttons(-0.4, -0.15, 0.1, 0.35, 0.55)
    )
    return without(sleeves(width, 0.0, 0.75), symmetric((0.1, -0.85), (0, -0.68))), front


def short_shirt() -> Layers:
    body = tee(0.42, 0.37)[0]
    return body, union(
        line([(-0.18, -0.74), (0, -0.56), (0.18, -0.74)], 0.03), buttons(-0.35, -0.05, 0.25, 0.5)
    )


def sandal(heel: float) -> Layers:
    sole = polygon(
        (-0.85, 0.3 - heel),
        (-0.3, 0.35),
        (0.85, 0.35),
        (0.85, 0.45),
        (-0.3, 0.47),
        (-0.6, 0.42 - heel * 0.7),
        (-0.7, 0.5),
        (-0.85, 0.5),
    )
    straps = union(
        curve([(-0.8, 0.3 - heel), (-0.6, -0.4 - heel), (-0.3, 0.35)], 0.05),
        curve([(0.0, 0.35), (0.4, -0.2), (0.75, 0.35)], 0.07),
    )
    return union(sole, straps), NOTHING


def slipper() -> Layers:
    sole = polygon((-0.85, 0.25), (0.85, 0.3), (0.85, 0.42), (-0.85, 0.42))
    return union(
        sole, curve([(0.0, 0.3), (0.3, -0.35), (0.75, 0.3)], 0.1), line([(0.0, 0.3), (0.6, -0.02)], 0.06)
    ), line([(-0.8, 0.33), (0.8, 0.36)])


def sneaker(rise: float, plain: bool = False) -> Layers:
    shoe = polygon(
        (-0.85, -0.15 - rise),
        (-0.6, -0.08 - rise),
        (-0.25, -0.2 - rise),
        (0.2, 0.02),
        (0.8, 0.15),
        (0.88, 0.42),
        (-0.85, 0.42),
    )
    laces = union(
        *(
            line([(x, -0.1 + 0.3 * x - 0.5 * rise), (x + 0.1, 0.05 + 0.3 * x)], 0.02)
            for x in (-0.15, 0.0, 0.15)
        )
    )
    sole = line([(-0.85, 0.34), (0.88, 0.34)], 0.03)
    return shoe, sole if plain else union(sole, laces)


def bag(height: float) -> Layers:
    handle = without(ellipse(0, -0.1, 0.42, 0.2 + height), ellipse(0, -0.1, 0.34, 0.12 + height))
    body = symmetric((0.62, -0.15), (0.72, 0.65))
    return union(body, handle), union(line([(-0.65, 0.1), (0.65, 0.1)], 0.015), box(-0.08, 0.02, 0.08, 0.2))


def clutch() -> Layers:
    return box(-0.85, -0.4, 0.85, 0.5) - 0.03, union(
        line([(-0.85, -0.4), (0, 0.15), (0.85, -0.4)], 0.015), ellipse(0, 0.15, 0.07, 0.07)
    )


def boot(shaft: float, heel: float) -> Layers:
    shoe = polygon(
        (-0.6, -shaft),
        (0.05, -shaft),
        (0.12, 0.0),
        (0.75, 0.2),
        (0.85, 0.45),
        (0.1, 0.5 - 0.4 * heel),
        (-0.25, 0.5 - 0.8 * heel),
        (-0.35, 0.65),
        (-0.6, 0.65),
    )
    return shoe, union(
        line([(-0.6, 0.42 - 0.3 * heel), (0.85, 0.42)], 0.02), line([(-0.2, -shaft), (-0.2, -0.1)], 0.02)
    )
