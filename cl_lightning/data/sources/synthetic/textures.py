"""47 textures: the stand-in for the Describable Textures Dataset (Cimpoi et al. 2014)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

from cl_lightning.config.checking import Count, Size
from cl_lightning.data.sources.synthetic.drawing import Drawn, Draws, any_colour, over, to_bytes
from cl_lightning.randomness import rng

LEAST, MOST = 40, 72  # pixels of a side


class Surface:
    """Points (u, v) of a batch of square pictures, in units of a pattern's period, and random patterns over
    them.

    u and v: (n, 72, 72). Whole numbers are the corners of a lattice; each of its cells has random numbers of
    its own.
    """

    def __init__(
        self, draws: Draws, u: torch.Tensor, v: torch.Tensor, table: torch.Tensor | None = None
    ) -> None:
        self.draws, self.u, self.v = draws, u, v
        self.table = torch.rand(draws.n * 256, 4, generator=draws.generator) if table is None else table
        self.first = torch.arange(draws.n)[:, None, None] * 256

    def at(self, u: torch.Tensor, v: torch.Tensor) -> Surface:
        """The same random cells under other coordinates."""
        return Surface(self.draws, u, v, self.table)

    def numbers(self, i: torch.Tensor, j: torch.Tensor) -> torch.Tensor:
        """Four random numbers (n, 72, 72, 4) of the cell in column i and row j."""
        return self.table[self.place(i, j)]

    def place(self, i: torch.Tensor, j: torch.Tensor) -> torch.Tensor:
        return self.first + (i.long() & 15) * 16 + (j.long() & 15)

    def cells(self, jitter: float, stagger: float = 0.0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Distances to the nearest point and to the second nearest, one point a cell, and the nearest cell's
        numbers."""
        column, row = self.u.floor(), self.v.floor()
        near, second = torch.full_like(self.u, 9.0), torch.full_like(self.u, 9.0)
        owner = torch.zeros(*self.u.shape, 4)
        for down in (-1, 0, 1):
            for right in (-1, 0, 1):
                j = row + down
                shift = stagger * (j % 2)
                i = (self.u - shift).floor() + right if stagger else column + right
                own = self.numbers(i, j)
                x, y = i + shift + 0.5 + jitter * (own[..., 0] - 0.5), j + 0.5 + jitter * (own[..., 1] - 0.5)
                gap = torch.hypot(self.u - x, self.v - y)
                owner = torch.where((gap < near)[..., None], own, owner)
                second = torch.minimum(second, torch.maximum(gap, near))
                near = torch.minimum(near, gap)
        return near, second, owner

    def noise(self, across: float = 1.0, along: float = 1.0) -> torch.Tensor:
        """Smooth noise from 0 to 1 with one random value a cell of ``across`` x ``along`` periods."""
        u, v = self.u / across, self.v / along
        i, j = u.floor(), v.floor()
        s, t = smooth(u - i), smooth(v - j)
        values = self.table[:, 2].contiguous()
        corners = [[values[self.place(i + a, j + b)] for a in (0, 1)] for b in (0, 1)]
        upper, lower = (torch.lerp(left, right, s) for left, right in corners)
        return torch.lerp(upper, lower, t)

    def rough(self) -> torch.Tensor:
        """Noise of three sizes."""
        return (
            4 * self.noise()
            + 2 * self.at(self.u + 3.1, self.v + 5.7).noise(0.5, 0.5)
            + self.at(self.u + 7.3, self.v).noise(0.25, 0.25)
        ) / 7

    def polar(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Radius and angle (in turns) around a point near the middle."""
        x, y = self.u - self.draws.uniform(-0.6, 0.6, 1, 1), self.v - self.draws.uniform(-0.6, 0.6, 1, 1)
        return torch.hypot(x, y), torch.atan2(y, x) / (2 * math.pi)


def smooth(t: torch.Tensor) -> torch.Tensor:
    return t * t * (3 - 2 * t)


def wave(x: torch.Tensor) -> torch.Tensor:
    """A wave from 0 to 1 and back, once a unit."""
    return 0.5 - 0.5 * torch.cos(2 * math.pi * x)


def part(x: torch.Tensor) -> torch.Tensor:
    return x - x.floor()


def zigzag(x: torch.Tensor) -> torch.Tensor:
    return (2 * part(x) - 1).abs()


def above(x: torch.Tensor, level: float, softness: float = 0.08) -> torch.Tensor:
    return torch.sigmoid((x - level) / softness)


def thread(x: torch.Tensor, half: torch.Tensor | float) -> torch.Tensor:
    """A thin bright line at every whole number."""
    return above(half - (x - x.round()).abs(), 0.0, 0.03)


def woven(s: Surface) -> torch.Tensor:
    over_first = (s.u.floor() + s.v.floor()) % 2
    return torch.where(over_first > 0, 0.35 + 0.65 * wave(s.u), 0.65 * wave(s.v))


def interlaced(s: Surface) -> torch.Tensor:
    a, b = thread(s.u, 0.26), thread(s.v, 0.26)
    upper = (s.u.round() + s.v.round()) % 2 > 0
    return torch.where(upper, torch.maximum(a, 0.5 * b * (1 - a)), torch.maximum(0.5 * b, a * (1 - b)))


def braided(s: Surface) -> torch.Tensor:
    strands = [
        wave(s.u + 0.4 * torch.sin(2 * math.pi * (s.v / 2 + third)) + third) for third in (0.0, 1 / 3, 2 / 3)
    ]
    return torch.stack(strands).amax(0) ** 3


def bubbly(s: Surface) -> torch.Tensor:
    near, _, own = s.cells(0.6)
    radius = 0.25 + 0.25 * own[..., 3]
    return torch.maximum(thread_at(near - radius, 0.07), 0.7 * above(0.1 - near, 0.0, 0.04))


def thread_at(distance: torch.Tensor, half: float) -> torch.Tensor:
    return above(half - distance.abs(), 0.0, 0.03)


def specks(s: Surface, size: float, share: float, stretch: float = 1.0) -> torch.Tensor:
    near, _, own = s.at(s.u, s.v / stretch).cells(0.9)
    return above(size - near, 0.0, 0.05) * (own[..., 3] < share)


def bumpy(s: Surface) -> torch.Tensor:
    near, _, own = s.cells(0.7)
    return 0.6 - 1.4 * near**2 + 0.8 * own[..., 0]


def cracked(s: Surface) -> torch.Tensor:
    near, second, _ = s.cells(1.0)
    return above(second - near, 0.09, 0.02) * (0.75 + 0.25 * s.rough())


def crystalline(s: Surface) -> torch.Tensor:
    near, _, own = s.cells(1.0)
    return 0.7 * own[..., 2] + 0.5 * near


def porous(s: Surface) -> torch.Tensor:
    near, _, own = s.cells(1.0)
    return above(near - 0.5 * own[..., 3], 0.0, 0.05)


def paisley(s: Surface) -> torch.Tensor:
    drops = s.at(s.u + 0.25 * wave(s.v), s.v * 0.8).cells(0.2, stagger=0.5)[0]
    return torch.maximum(above(0.16 - drops, 0.0, 0.04), thread_at(drops - 0.33, 0.07))


def honeycombed(s: Surface) -> torch.Tensor:
    near, second, _ = s.at(s.u, s.v / 0.866).cells(0.0, stagger=0.5)
    return above(second - near, 0.12, 0.03)


def scaly(s: Surface) -> torch.Tensor:
    row = s.v.floor()
    x, y = part(s.u + 0.5 * (row % 2)) - 0.5, part(s.v)
    low = torch.hypot(x, y) < 0.52
    return torch.where(low, 0.25 + 1.2 * torch.hypot(x, y), 0.15 + 0.5 * y)


def knitted(s: Surface) -> torch.Tensor:
    return wave(s.v * 1.5 + 0.8 * zigzag(s.u)) * (0.3 + 0.7 * wave(2 * s.u))


def cobwebbed(s: Surface) -> torch.Tensor:
    radius, turns = s.polar()
    return torch.maximum(
        thread(turns * 9, 0.05 / radius.clamp_min(0.3)), thread(radius * 1.6 + 0.25 * zigzag(turns * 9), 0.09)
    )


def spiralled(s: Surface) -> torch.Tensor:
    radius, turns = s.polar()
    return above(wave(1.3 * radius + turns), 0.5)


def swirly(s: Surface) -> torch.Tensor:
    bent = s.at(s.u + 3 * s.noise(2.5, 2.5), s.v)
    return wave(bent.u + 2.5 * s.at(s.u + 9.5, s.v + 4.2).noise(2.5, 2.5))


def stained(s: Surface) -> torch.Tensor:
    spill = s.noise(2.2, 2.2) + 0.25 * s.rough()
    return 0.55 * above(spill, 0.62, 0.02) + 0.45 * thread_at(spill - 0.62, 0.05)


def waffled(s: Surface) -> torch.Tensor:
    x, y = 2 * part(s.u) - 1, 2 * part(s.v) - 1
    wall = torch.maximum(x.abs(), y.abs())
    inside = 0.3 + 0.35 * torch.where(x.abs() > y.abs(), x, y).sign() * (wall > 0.35)
    return torch.where(wall > 0.75, torch.ones_like(wall), inside)


def crosshatched(s: Surface) -> torch.Tensor:
    first, second = s.u + s.v, s.u - s.v
    return torch.maximum(
        thread(first, 0.12) * (0.3 + 0.7 * s.noise()), thread(second, 0.12) * (1 - 0.7 * s.noise())
    )


def stratified(s: Surface) -> torch.Tensor:
    layers = s.v + 0.8 * s.noise(3, 3)
    own = s.numbers(torch.zeros_like(s.u), layers.floor())[..., 2]
    return own * 0.8 + 0.2 * part(layers)


def studded(s: Surface) -> torch.Tensor:
    near = s.cells(0.0)[0]
    glint = torch.hypot(part(s.u) - 0.4, part(s.v) - 0.4)
    return above(0.3 - near, 0.0, 0.03) * (0.45 + 0.55 * above(0.13 - glint, 0.0, 0.04))


def lacelike(s: Surface) -> torch.Tensor:
    near, _, _ = s.cells(0.0)
    corner = s.at(s.u + 0.5, s.v + 0.5).cells(0.0)[0]
    rings = (near - 0.42, near - 0.2, corner - 0.16)
    return torch.stack([thread_at(ring, 0.05) for ring in rings]).amax(0)


Pattern = Callable[[Surface], torch.Tensor]

# name: (periods over the shorter side, how far a picture may be turned, brightness from 0 to 1 at every
# point)
PATTERNS: dict[str, tuple[float, float, Pattern]] = {
    "banded": (7, 0.15, lambda s: s.numbers(torch.zeros_like(s.u), s.v.floor())[..., 2]),
    "blotchy": (4, 3, lambda s: above(s.rough(), 0.5, 0.06)),
    "braided": (3, 0.3, braided),
    "bubbly": (3.5, 3, bubbly),
    "bumpy": (4.5, 3, bumpy),
    "chequered": (5, 0.8, lambda s: (s.u.floor() + s.v.floor()) % 2),
    "cobwebbed": (3, 3, cobwebbed),
    "cracked": (3.5, 3, cracked),
    "crosshatched": (6, 0.2, crosshatched),
    "crystalline": (3.5, 3, crystalline),
    "dotted": (7, 0.8, lambda s: above(0.26 - s.cells(0.0)[0], 0.0, 0.05)),
    "fibrous": (9, 0.4, lambda s: s.noise(1, 9) * 0.6 + 0.4 * s.at(s.u * 2 + 5, s.v + s.u).noise(1, 9)),
    "flecked": (7, 3, lambda s: 1 - specks(s, 0.3, 0.4, 1.7)),
    "freckled": (6, 3, lambda s: 0.75 - 0.5 * specks(s, 0.28, 0.8)),
    "frilly": (3, 0.4, lambda s: part(s.v + 0.25 * torch.sin(2 * math.pi * 1.7 * s.u + 2 * s.noise()))),
    "gauzy": (8, 0.5, lambda s: 0.4 + 0.2 * wave(s.u) * wave(s.v) + 0.5 * (s.noise(4, 4) - 0.5)),
    "grid": (4.5, 0.8, lambda s: torch.maximum(thread(s.u, 0.09), thread(s.v, 0.09))),
    "grooved": (5, 0.3, lambda s: part(s.u) ** 2),
    "honeycombed": (4, 3, honeycombed),
    "interlaced": (4, 0.8, interlaced),
    "knitted": (4, 0.2, knitted),
    "lacelike": (3, 0.8, lacelike),
    "lined": (6, 0.12, lambda s: 1 - thread(s.v, 0.1)),
    "marbled": (3, 3, lambda s: wave(0.5 * s.u + 2.2 * s.rough())),
    "matted": (
        7,
        3,
        lambda s: (
            s.at(s.u + 1.5 * s.noise(3, 3), s.v).noise(0.6, 3) * 0.5
            + s.at(s.u, s.v + 1.5 * s.noise(3, 3)).noise(3, 0.6) * 0.5
        ),
    ),
    "meshed": (
        4.5,
        0.15,
        lambda s: torch.maximum(thread(0.7 * (s.u + s.v), 0.12), thread(0.7 * (s.u - s.v), 0.12)),
    ),
    "paisley": (3.2, 0.4, paisley),
    "perforated": (4.5, 0.8, lambda s: above(s.cells(0.0)[0], 0.3, 0.03)),
    "pitted": (
        6,
        3,
        lambda s: 0.7 - 0.6 * specks(s, 0.3, 0.7) + 0.3 * specks(s.at(s.u - 0.2, s.v - 0.2), 0.3, 0.7),
    ),
    "pleated": (3, 0.2, lambda s: zigzag(s.u + 0.05 * s.noise(3, 3))),
    "polka-dotted": (3.5, 0.5, lambda s: above(0.32 - s.cells(0.0, stagger=0.5)[0], 0.0, 0.03)),
    "porous": (5, 3, porous),
    "potholed": (
        2,
        3,
        lambda s: (
            above(s.cells(0.7)[0] + 0.5 * (s.rough() - 0.5), 0.3, 0.03)
            * (0.6 + 0.4 * s.at(s.u * 9, s.v * 9).noise())
        ),
    ),
    "scaly": (4, 0.2, scaly),
    "smeared": (
        2.5,
        0.4,
        lambda s: s.at(s.u, s.v * 2).noise(3, 1) * 0.7 + 0.3 * s.at(s.u, s.v * 6).noise(3, 1),
    ),
    "spiralled": (3.2, 3, spiralled),
    "sprinkled": (8, 3, lambda s: specks(s, 0.3, 0.35)),
    "stained": (3, 3, stained),
    "stratified": (6, 0.25, stratified),
    "striped": (4.5, 0.6, lambda s: above(wave(s.u), 0.5)),
    "studded": (4, 0.8, studded),
    "swirly": (3, 3, swirly),
    "veined": (2.5, 3, lambda s: above(0.05 - (s.rough() - 0.5).abs(), 0.0, 0.02)),
    "waffled": (3.5, 0.4, waffled),
    "woven": (5, 0.8, woven),
    "wrinkled": (
        3,
        3,
        lambda s: ((s.rough() - 0.5).abs() + (s.at(s.u + 4.4, s.v + 8.8).rough() - 0.5).abs()) * 2.2,
    ),
    "zigzagged": (4, 0.15, lambda s: above(wave(s.v + 0.5 * zigzag(s.u)), 0.5)),
}


@dataclass(frozen=True)
class Textures(Drawn):
    """47 textures under DTD's names, 80 training and 40 test images a class, of many sizes and shapes.

    Each class is a formula for brightness: waves, lattices, cells around random points (Worley 1996), smooth
    noise (Perlin 1985). A picture sees it at its own scale, turn and bend, between two or three colours of
    its own, under uneven light. ``decode`` gives lists of (3, height, width) with sides from 40 to 72.
    """

    train: Count = 3760
    test: Count = 1880
    seed: Size = 0
    side: int | None = 32  # what the cache brings all pictures to; no matter of ``decode``

    kind = "textures"
    classes = tuple(PATTERNS)

    def images(self, split: str, labels: torch.Tensor) -> list[torch.Tensor]:  # type: ignore[override]
        """One class after the other, so that a formula is computed for many pictures at once."""
        pictures: list[torch.Tensor] = [torch.empty(0)] * len(labels)
        for label, name in enumerate(self.classes):
            rows = (labels == label).nonzero().flatten().tolist()
            of_class = self.pictures(name, len(rows), rng(self.kind, self.seed, split, name)) if rows else ()
            for row, picture in zip(rows, of_class):
                pictures[row] = picture
        return pictures

    def pictures(self, name: str, n: int, generator: torch.Generator) -> list[torch.Tensor]:
        periods, turn, pattern = PATTERNS[name]
        draws = Draws(n, generator)
        heights, widths = (torch.randint(LEAST, MOST + 1, (n,), generator=generator) for _ in "hw")
        surface = seen(draws, periods * MOST / torch.minimum(heights, widths), turn)
        bright = pattern(surface).clamp(0, 1)[:, None]
        ground = any_colour(draws).expand(-1, -1, MOST, MOST)
        colour = over(ground, smooth(draws.clouds(1, 3, MOST).sigmoid()) * 0.5, any_colour(draws))
        contrast = draws.uniform(0.25, 0.45, 1, 1, 1) * (1 - 2 * draws.chance(0.25, 1, 1, 1))
        picture = 0.5 * colour + 0.25 + (bright - 0.5) * 2 * contrast
        picture = picture + 0.4 * (bright - 0.5) * (any_colour(draws) - 0.5)
        picture = picture + draws.clouds(1, 2, MOST) * 0.06
        picture = picture + draws.normal(3, MOST, MOST) * draws.uniform(0.01, 0.06, 1, 1, 1)
        return [
            whole[:, :height, :width].clone()
            for whole, height, width in zip(to_bytes(picture), heights.tolist(), widths.tolist())
        ]


def seen(draws: Draws, periods: torch.Tensor, turn: float) -> Surface:
    """A surface seen from a random place, turned by up to ``turn``, a little bent, with ``periods`` (n,) over
    72 pixels."""
    axis = torch.linspace(-0.5, 0.5, MOST)
    bend = draws.clouds(2, 4, MOST) * 0.02
    x, y = axis[None, None, :] + bend[:, 0], axis[None, :, None] + bend[:, 1]
    angle, scale = draws.uniform(-turn, turn, 1, 1), (periods * draws.uniform(0.8, 1.25))[:, None, None]
    u, v = (x * angle.cos() - y * angle.sin()) * scale, (x * angle.sin() + y * angle.cos()) * scale
    return Surface(draws, u, v)
