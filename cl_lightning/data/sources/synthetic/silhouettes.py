"""Silhouettes of objects in three layers, a body, its parts and its details: ten kinds, and a hundred in
families of five."""

from __future__ import annotations

import math
from functools import cache

import torch

from cl_lightning.data.sources.synthetic.drawing import NOTHING, plane
from cl_lightning.data.sources.synthetic.shapes import layer, layers, shapes

FAMILIES = shapes()["families"]
PLACES = {
    name: (family, member)
    for family, each in enumerate(FAMILIES.values())
    for member, name in enumerate(each["members"].split())
}
FINE_CLASSES = tuple(sorted(PLACES))
KIN = torch.tensor([PLACES[name] for name in FINE_CLASSES])  # (100, 2): family and member of each class


@cache
def object_fields() -> torch.Tensor:
    """(10 classes, 2 views, 3 layers, 64, 64)"""
    kinds = shapes()["objects"].values()
    return torch.stack([torch.stack([layers(view.values()) for view in views]) for views in kinds])


@cache
def family_fields() -> torch.Tensor:
    """(20 families, 5 members, 3 layers, 64, 64)"""
    rows = []
    for family in FAMILIES.values():
        for member, mark in enumerate(marks()):
            body, parts = (layer(family[name], member / 4) for name in ("body", "parts"))
            rows.append(torch.stack([body, parts, torch.maximum(body + 0.05, mark)]))
    return torch.stack(rows).unflatten(0, (len(FAMILIES), 5))


def marks() -> tuple[torch.Tensor, ...]:
    """What members wear: nothing, stripes, spots, a band, another colour on one half."""
    x, y = plane()
    stripes = 0.06 * torch.cos(2 * math.pi * 3.5 * (x + 0.3 * y)) - 0.01
    spots = 0.07 * torch.cos(2 * math.pi * 2.5 * (x + y)) * torch.cos(2 * math.pi * 2.5 * (x - y)) + 0.02
    return NOTHING, stripes, spots, (y - 0.1).abs() - 0.12, x
