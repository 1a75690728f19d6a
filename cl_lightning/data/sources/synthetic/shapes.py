"""The silhouettes that ``shapes.yaml`` describes, as distance fields."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import torch
import yaml

from cl_lightning.data.sources.synthetic.drawing import (
    NOTHING,
    Point,
    box,
    curve,
    ellipse,
    line,
    polygon,
    symmetric,
    union,
    without,
)

NUMBER = re.compile(r"(-?[\d.]+)(?:([-+][\d.]+)t)?")


@cache
def shapes() -> dict[str, Any]:
    """All silhouettes, by what they are of."""
    return yaml.load(Path(__file__).with_name("shapes.yaml").read_text(), yaml.CSafeLoader)


def layers(texts: Iterable[str]) -> torch.Tensor:
    """(layers, 64, 64)"""
    return torch.stack([layer(text) for text in texts])


def layer(text: str, t: float = 0.0) -> torch.Tensor:
    """The distance to the nearest shape of a layer. ``t`` is the place of a member in its family."""
    return union(*(shape(each, t) for each in text.split("; ")))


def shape(text: str, t: float) -> torch.Tensor:
    solid, *holes = text.split(" - ")
    outline, _, wider = solid.partition(" + ")
    field = drawn(outline, t) - float(wider or 0)
    return without(field, *(drawn(hole, t) for hole in holes)) if holes else field


def drawn(text: str, t: float) -> torch.Tensor:
    """
    >>> torch.equal(drawn("box -.5 0 .5+.5t .5", 1.0), box(-0.5, 0.0, 1.0, 0.5))
    True
    """
    name, *words = text.split()
    values: list[Any] = [tuple(number(part, t) for part in word.split(",")) for word in words]
    return SHAPES[name](*(value if len(value) > 1 else value[0] for value in values))


def number(text: str, t: float) -> float:
    """
    >>> number("-.2", 0.5), number(".2-.1t", 0.5)
    (-0.2, 0.15000000000000002)
    """
    found = NUMBER.fullmatch(text)
    assert found is not None, f"{text} is a number of shapes.yaml"
    return float(found[1]) + float(found[2] or 0) * t


def petals(count: float, x: float, y: float, radius: float, size: float) -> torch.Tensor:
    turns = [2 * math.pi * i / round(count) for i in range(round(count))]
    return union(*(ellipse(x + radius * math.cos(a), y + radius * math.sin(a), size, size) for a in turns))


def animal(
    length: float, depth: float, leg: float, thick: float, right: float, down: float, muzzle: float
) -> torch.Tensor:
    """A body on four legs, with a neck that ends so far from the shoulder, and a head as long as
    ``muzzle``."""
    ground = 0.8
    y = ground - leg - depth
    legs = [
        line([(x * length, y), (x * length + lean, ground)], thick)
        for x, lean in ((-0.85, -0.03), (-0.6, 0.05), (0.6, -0.05), (0.85, 0.03))
    ]
    shoulder: Point = (0.75 * length, y - 0.3 * depth)
    nose = (shoulder[0] + right, shoulder[1] + down)
    head = ellipse(nose[0] + 0.5 * muzzle, nose[1] + 0.15 * muzzle, muzzle, 0.5 * muzzle, 0.35)
    return union(ellipse(0, y, length, depth), *legs, line([shoulder, nose], 0.45 * depth), head)


SHAPES: dict[str, Callable[..., torch.Tensor]] = {
    "ellipse": ellipse,
    "box": box,
    "polygon": polygon,
    "mirrored": symmetric,
    "line": lambda half, *points: line(points, half),
    "curve": lambda half, *points: curve(points, half),
    "petals": petals,
    "animal": animal,
    "nothing": lambda: NOTHING,
}
