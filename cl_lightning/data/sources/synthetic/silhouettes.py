"""Silhouettes of objects in three layers, a body, its parts and its details: ten kinds by hand, a hundred in
families of five."""

from __future__ import annotations

import math
from functools import cache

import torch

from cl_lightning.data.sources.synthetic.drawing import (
    NOTHING,
    box,
    curve,
    ellipse,
    line,
    plane,
    polygon,
    symmetric,
    union,
)

Layers = tuple[torch.Tensor, torch.Tensor, torch.Tensor]

# The ten objects, looking to the right; two views each


@cache
def object_fields() -> torch.Tensor:
    """(10 classes, 2 views, 3 layers, 64, 64)"""
    views = (
        (airplane_aside(), airplane_above()),
        (automobile(0.0), automobile(0.18)),
        (bird_standing(), bird_flying()),
        (cat_face(), cat_sitting()),
        (deer(0.0), deer(0.2)),
        (dog_face(), dog_standing()),
        (frog_front(), frog_aside()),
        (horse(0.0), horse(0.3)),
        (ship(), sailing_ship()),
        (truck(0.1), truck(-0.15)),
    )
    return torch.stack([torch.stack([torch.stack(layers) for layers in pair]) for pair in views])


def airplane_aside() -> Layers:
    body = union(ellipse(0, 0, 0.85, 0.14), polygon((-0.85, -0.45), (-0.65, -0.45), (-0.45, 0), (-0.8, 0)))
    return (
        body,
        polygon((-0.1, 0.02), (0.2, 0.02), (-0.25, 0.5), (-0.45, 0.5)),
        line([(-0.4, -0.03), (0.55, -0.03)], 0.025),
    )


def airplane_above() -> Layers:
    body = union(
        ellipse(0, 0, 0.85, 0.12),
        polygon((-0.15, -0.8), (0.05, -0.8), (0.3, 0), (0.05, 0.8), (-0.15, 0.8), (0.0, 0)),
    )
    return (
        body,
        polygon((-0.85, -0.35), (-0.7, -0.35), (-0.55, 0), (-0.7, 0.35), (-0.85, 0.35)),
        ellipse(0.62, 0, 0.1, 0.06),
    )


def wheels(*centres: float, y: float = 0.42, radius: float = 0.17) -> torch.Tensor:
    return union(*(ellipse(x, y, radius, radius) for x in centres))


def automobile(height: float) -> Layers:
    cabin = polygon((-0.5, 0), (-0.32, -0.3 - height), (0.2, -0.3 - height), (0.42, 0))
    windows = union(polygon((-0.4, -0.03), (-0.27, -0.23 - height), (-0.08, -0.23 - height), (-0.08, -0.03)),
                    polygon((0.0, -0.03), (0.0, -0.23 - height), (0.15, -0.23 - height),
                            (0.31, -0.03)))  # fmt: skip
    return union(cabin, box(-0.82, 0, 0.82, 0.36) - 0.04), wheels(-0.48, 0.48), windows


def bird_standing() -> Layers:
    body = union(
        ellipse(0, 0.05, 0.48, 0.28, 0.3),
        ellipse(0.42, -0.35, 0.2, 0.19),
        polygon((-0.35, -0.05), (-0.9, 0.0), (-0.85, 0.2)),
    )
    legs = union(
        line([(-0.05, 0.25), (-0.08, 0.75), (0.1, 0.75)], 0.025),
        line([(0.1, 0.25), (0.12, 0.75), (0.3, 0.75)], 0.025),
    )
    return (
        union(body, legs),
        ellipse(-0.1, 0.0, 0.32, 0.15, -0.2),
        union(polygon((0.58, -0.42), (0.9, -0.32), (0.58, -0.25)), ellipse(0.47, -0.4, 0.04, 0.04)),
    )


def bird_flying() -> Layers:
    wings = union(
        curve([(0, 0.1), (-0.3, -0.7), (-0.9, -0.45)], 0.07),
        curve([(0, 0.1), (0.3, -0.7), (0.9, -0.45)], 0.07),
    )
    return (
        union(ellipse(0, 0.15, 0.2, 0.32), wings),
        polygon((0, 0.3), (0.22, 0.75), (-0.22, 0.75)),
        polygon((-0.07, -0.12), (0.07, -0.12), (0, -0.3)),
    )


def cat_face() -> Layers:
    head = union(ellipse(0, 0.1, 0.6, 0.5), symmetric((0.45, -0.75), (0.58, 0.0), (0.1, -0.25)))
    whiskers = union(
        *(line([(s * 0.15, 0.28), (s * 0.8, 0.28 + d)], 0.012) for s in (-1, 1) for d in (-0.08, 0.1))
    )
    return (
        head,
        union(ellipse(-0.25, 0.0, 0.1, 0.13), ellipse(0.25, 0.0, 0.1, 0.13)),
        union(symmetric((0.08, 0.2), (0, 0.32)), whiskers),
    )


def cat_sitting() -> Layers:
    head = union(
        ellipse(0.15, -0.4, 0.28, 0.24),
        polygon((-0.1, -0.5), (-0.08, -0.85), (0.1, -0.6)),
        polygon((0.2, -0.6), (0.38, -0.85), (0.4, -0.5)),
    )
    body = union(
        ellipse(-0.05, 0.3, 0.36, 0.48),
        head,
        curve([(-0.3, 0.7), (-1.0, 0.7), (-0.5, -0.1), (-0.85, -0.1)], 0.06),
    )
    return (
        body,
        ellipse(0.1, 0.35, 0.16, 0.3),
        union(ellipse(0.06, -0.42, 0.05, 0.06), ellipse(0.26, -0.42, 0.05, 0.06)),
    )


def quadruped(
    length: float,
    depth: float,
    leg: float,
    thick: float,
    neck: tuple[float, float],
    muzzle: float,
    lowest: float = 0.8,
) -> torch.Tensor:
    """A body on four legs, with a neck that ends ``neck`` from the shoulder, and a head as long as
    ``muzzle``."""
    y = lowest - leg - depth
    legs = [
        line([(x * length, y), (x * length + lean, lowest)], thick)
        for x, lean in ((-0.85, -0.03), (-0.6, 0.05), (0.6, -0.05), (0.85, 0.03))
    ]
    shoulder, nose = (0.75 * length, y - 0.3 * depth), (0.75 * length + neck[0], y - 0.3 * depth + neck[1])
    head = ellipse(nose[0] + 0.5 * muzzle, nose[1] + 0.15 * muzzle, muzzle, 0.5 * muzzle, 0.35)
    return union(ellipse(0, y, length, depth), *legs, line([shoulder, nose], 0.45 * depth), head)


def deer(lower: float) -> Layers:
    body = quadruped(0.45, 0.2, 0.45, 0.04, (0.2, -0.4 + lower), 0.16)
    x, y = 0.56, -0.33 + lower
    left, right = ((x, y), (x - 0.1, y - 0.45)), ((x, y), (x + 0.25, y - 0.4))
    tines = ((x - 0.06, y - 0.25), (x - 0.28, y - 0.35)), ((x + 0.14, y - 0.22), (x + 0.1, y - 0.42))
    antlers = union(*(line(stem, 0.03) for stem in (left, right, *tines)))
    return (
        body,
        antlers,
        union(
            ellipse(-0.42, 0.05, 0.09, 0.12),
            *(ellipse(0.12 * i - 0.2, 0.08 + 0.06 * (i % 2), 0.03, 0.03) for i in range(4)),
        ),
    )


def dog_face() -> Layers:
    ears = union(ellipse(-0.58, 0.0, 0.17, 0.45, 0.15), ellipse(0.58, 0.0, 0.17, 0.45, -0.15))
    details = union(
        ellipse(0, 0.2, 0.15, 0.1),
        ellipse(-0.2, -0.2, 0.07, 0.07),
        ellipse(0.2, -0.2, 0.07, 0.07),
        line([(0, 0.25), (0, 0.5)], 0.02),
    )
    return union(ellipse(0, -0.1, 0.52, 0.52), ellipse(0, 0.3, 0.36, 0.34)), ears, details


def dog_standing() -> Layers:
    body = union(
        quadruped(0.52, 0.22, 0.3, 0.08, (0.12, -0.2), 0.22),
        curve([(-0.45, 0.2), (-0.75, 0.1), (-0.8, -0.35)], 0.05),
    )
    return (
        body,
        ellipse(0.5, 0.1, 0.1, 0.24, 0.2),
        union(ellipse(0.85, 0.12, 0.06, 0.05), ellipse(0.64, 0.0, 0.04, 0.04)),
    )


def frog_front() -> Layers:
    legs = union(
        curve([(-0.4, 0.3), (-1.1, -0.1), (-0.7, 0.7)], 0.1),
        curve([(0.4, 0.3), (1.1, -0.1), (0.7, 0.7)], 0.1),
    )
    eyes = union(ellipse(-0.3, -0.32, 0.17, 0.17), ellipse(0.3, -0.32, 0.17, 0.17))
    details = union(
        ellipse(-0.3, -0.34, 0.07, 0.07),
        ellipse(0.3, -0.34, 0.07, 0.07),
        curve([(-0.4, 0.05), (0, 0.25), (0.4, 0.05)], 0.025),
    )
    return union(ellipse(0, 0.2, 0.58, 0.42), legs), eyes, details


def frog_aside() -> Layers:
    body = union(
        polygon((-0.7, 0.5), (-0.2, -0.1), (0.45, -0.4), (0.8, -0.15), (0.45, 0.5)) - 0.05,
        line([(0.4, 0.3), (0.5, 0.65), (0.7, 0.65)], 0.05),
    )
    leg = union(line([(-0.3, 0.5), (0.0, 0.05), (-0.55, 0.2), (-0.4, 0.62), (0.1, 0.62)], 0.09))
    return union(body, ellipse(0.4, -0.42, 0.15, 0.15)), leg, ellipse(0.43, -0.44, 0.07, 0.07)


def horse(lower: float) -> Layers:
    body = quadruped(0.5, 0.25, 0.42, 0.07, (0.2, -0.42 + lower), 0.2)
    tail = curve([(-0.45, 0.05), (-0.8, 0.0), (-0.7, 0.55)], 0.07)
    return (
        body,
        union(tail, line([(0.25, -0.05 + lower / 3), (0.45, -0.5 + lower)], 0.09)),
        ellipse(0.72, -0.4 + lower, 0.03, 0.03),
    )


def ship() -> Layers:
    hull = polygon((-0.9, 0.15), (0.95, 0.15), (0.7, 0.6), (-0.75, 0.6))
    decks = union(box(-0.6, -0.12, 0.4, 0.15), box(-0.4, -0.35, 0.15, -0.12))
    return (
        hull,
        decks,
        union(box(-0.25, -0.75, -0.08, -0.35), *(ellipse(x, 0.02, 0.05, 0.05) for x in (-0.4, -0.1, 0.2))),
    )


def sailing_ship() -> Layers:
    hull = union(
        polygon((-0.8, 0.4), (0.85, 0.4), (0.55, 0.72), (-0.6, 0.72)), line([(0, 0.4), (0, -0.85)], 0.035)
    )
    return (
        hull,
        union(
            polygon((0.07, -0.8), (0.65, 0.28), (0.07, 0.28)),
            polygon((-0.07, -0.6), (-0.55, 0.28), (-0.07, 0.28)),
        ),
        line([(-0.7, 0.5), (0.65, 0.5)], 0.03),
    )


def truck(cab: float) -> Layers:
    cabin = polygon((0.4, -0.3 - cab), (0.7, -0.3 - cab), (0.88, 0.0), (0.88, 0.36), (0.4, 0.36))
    window = polygon((0.5, -0.2 - cab), (0.66, -0.2 - cab), (0.78, 0.02), (0.5, 0.02))
    return (
        union(box(-0.9, -0.55, 0.32, 0.3), box(-0.9, 0.25, 0.5, 0.38)),
        union(cabin, wheels(-0.65, -0.35, 0.6, y=0.45, radius=0.15)),
        window,
    )


# Twenty families of five; each builds its body and its parts from the member's share of the way from first to
# last, 0 to 1


def aquatic_mammals(t: float) -> tuple[torch.Tensor, ...]:
    tail = polygon((-0.6, 0.05), (-0.95, -0.25 + 0.4 * t), (-0.85, 0.1), (-0.95, 0.4))
    return union(ellipse(0.05, 0, 0.75, 0.22 + 0.2 * t), tail), union(
        ellipse(0.1, 0.25, 0.12, 0.3, 0.6), ellipse(0.0, -0.3, 0.12, 0.15)
    )


def fish(t: float) -> tuple[torch.Tensor, ...]:
    body = ellipse(0.15, 0, 0.6, 0.2 + 0.35 * t)
    return body, union(
        polygon((-0.35, 0), (-0.9, -0.45), (-0.75, 0), (-0.9, 0.45)), ellipse(0.5, -0.08, 0.07, 0.07)
    )


def flowers(t: float) -> tuple[torch.Tensor, ...]:
    petals, radius = 4 + round(6 * t), 0.42
    ring = [
        ellipse(radius * math.cos(a), radius * math.sin(a) - 0.15, 0.26 - 0.1 * t, 0.26 - 0.1 * t)
        for a in (2 * math.pi * i / petals for i in range(petals))
    ]
    return union(*ring, ellipse(0, -0.15, 0.3, 0.3)), union(
        ellipse(0, -0.15, 0.17, 0.17), line([(0, 0.45), (0.05, 0.95)], 0.05)
    )


def food_containers(t: float) -> tuple[torch.Tensor, ...]:
    width, neck = 0.3 + 0.55 * t, 0.12 + 0.6 * t
    return symmetric((neck, -0.8 + 0.5 * t), (width, -0.25 + 0.3 * t), (0.8 * width, 0.75)), symmetric(
        (neck, -0.8 + 0.5 * t), (neck, -0.55 + 0.45 * t)
    )


def fruit_and_vegetables(t: float) -> tuple[torch.Tensor, ...]:
    return union(
        ellipse(-0.2 * t, 0.15, 0.55, 0.6 - 0.15 * t), ellipse(0.25 * t, -0.1 - 0.2 * t, 0.4, 0.4)
    ), union(line([(0, -0.4), (0.1, -0.85)], 0.06), ellipse(0.3, -0.7, 0.22, 0.1))


def electrical_devices(t: float) -> tuple[torch.Tensor, ...]:
    height = 0.3 + 0.4 * t
    return box(-0.75, -height, 0.75, height), union(
        box(-0.55, -0.7 * height, 0.25, 0.7 * height),
        ellipse(0.5, -0.1, 0.1, 0.1),
        ellipse(0.5, 0.15, 0.1, 0.1),
    )


def furniture(t: float) -> tuple[torch.Tensor, ...]:
    legs = union(line([(-0.65, 0.2), (-0.65, 0.85)], 0.07), line([(0.65, 0.2), (0.65, 0.85)], 0.07))
    return union(box(-0.75, 0.0, 0.75, 0.3), box(-0.75, -0.9 * t, -0.55, 0.3)), legs


def insects(t: float) -> tuple[torch.Tensor, ...]:
    legs = union(
        *(
            line([(s * 0.8, y - 0.15), (s * 0.4, y), (0, y), (-s * 0.4, y), (-s * 0.8, y - 0.15)], 0.03)
            for s, y in ((1, -0.2), (1, 0.1), (1, 0.4))
        )
    )
    return union(ellipse(0, 0.15, 0.15 + 0.25 * t, 0.55), ellipse(0, -0.5, 0.18, 0.18)), union(
        legs, *(ellipse(s * 0.4, 0.0, 0.15 + 0.2 * t, 0.3, s * 0.7) for s in (-1, 1))
    )


def large_carnivores(t: float) -> tuple[torch.Tensor, ...]:
    return quadruped(0.6, 0.22 + 0.08 * t, 0.28, 0.09, (0.15, -0.15), 0.22), union(
        curve([(-0.55, 0.2), (-0.95, 0.3), (-0.9, -0.5 + 0.5 * t)], 0.05),
        ellipse(0.55, 0.0, 0.16 * t + 0.08, 0.16 * t + 0.08),
    )


def buildings(t: float) -> tuple[torch.Tensor, ...]:
    width = 0.8 - 0.5 * t
    body = union(
        box(-width, -0.1 - 0.7 * t, width, 0.8),
        symmetric((0.0, -0.7 - 0.2 * t), (width + 0.05, -0.1 - 0.6 * t)),
    )
    return body, union(
        *(
            box(x - 0.08, y - 0.09, x + 0.08, y + 0.09)
            for x in (-0.5 * width, 0.5 * width)
            for y in (0.1, 0.45)
        )
    )


def landscapes(t: float) -> tuple[torch.Tensor, ...]:
    ridge = polygon(
        (-1.2, 0.3),
        (-0.5, 0.1 - 0.6 * t),
        (0.0, 0.15),
        (0.5, 0.0 - 0.7 * t),
        (1.2, 0.3),
        (1.2, 1.2),
        (-1.2, 1.2),
    )
    return ridge, union(box(-1.2, 0.6, 1.2, 1.2), ellipse(0.5, -0.7, 0.35 - 0.2 * t, 0.17))


def herbivores(t: float) -> tuple[torch.Tensor, ...]:
    return quadruped(0.5, 0.3, 0.3, 0.12, (0.2, -0.35 + 0.4 * t), 0.18), union(
        curve([(0.65, 0.0), (1.0, 0.2), (0.8, 0.7 * t + 0.1)], 0.06),
        ellipse(-0.1, -0.15, 0.25, 0.25 - 0.15 * t),
    )


def medium_mammals(t: float) -> tuple[torch.Tensor, ...]:
    return quadruped(0.45, 0.25, 0.16, 0.06, (0.2, -0.1), 0.2), union(
        ellipse(-0.65, 0.2 - 0.4 * t, 0.35, 0.14 + 0.12 * t, 0.9 * t),
        polygon((0.5, 0.1), (0.55, -0.2), (0.7, 0.05)),
    )


def invertebrates(t: float) -> tuple[torch.Tensor, ...]:
    arms = union(
        *(
            curve([(0, 0), (s * 0.6, -0.6 + d), (s * 0.9, d)], 0.04)
            for s in (-1, 1)
            for d in (-0.4, -0.05, 0.3, 0.65)
        )
    )
    return union(ellipse(0, 0.1, 0.25 + 0.3 * t, 0.5 - 0.15 * t), ellipse(0, -0.35, 0.2, 0.2)), arms


def people(t: float) -> tuple[torch.Tensor, ...]:
    size = 0.36 - 0.18 * t
    limbs = union(
        line([(-0.55, 0.25), (0, -0.15), (0.55, 0.25)], 0.08), line([(-0.2, 0.9), (0, 0.3), (0.2, 0.9)], 0.09)
    )
    return union(symmetric((0.2, -0.25), (0.22 + 0.25 * (1 - t), 0.5)), limbs), ellipse(
        0, -0.5, size, size * 1.15
    )


def reptiles(t: float) -> tuple[torch.Tensor, ...]:
    body = curve(
        [(-0.95, 0.5 - 0.5 * t), (-0.3, -0.7 + 0.8 * t), (0.2, 0.9 - 0.5 * t), (0.8, -0.2)], 0.12 + 0.14 * t
    )
    return union(body, ellipse(0.78, -0.15, 0.2, 0.14)), union(
        *(line([(x, 0.1), (x + 0.1, 0.55)], 0.06) for x in (-0.4, 0.0, 0.4))
    )


def small_mammals(t: float) -> tuple[torch.Tensor, ...]:
    ears = union(
        ellipse(0.35, -0.45, 0.1, 0.15 + 0.25 * t, 0.2), ellipse(0.55, -0.4, 0.1, 0.15 + 0.25 * t, 0.5)
    )
    return union(ellipse(-0.15, 0.25, 0.5, 0.4), ellipse(0.4, -0.05, 0.3, 0.27)), union(
        ears, curve([(-0.6, 0.4), (-1.0, 0.3), (-0.9, -0.4)], 0.12 - 0.08 * t)
    )


def trees(t: float) -> tuple[torch.Tensor, ...]:
    crown = union(symmetric((0.05 + 0.5 * t, -0.9), (0.6, 0.2)), ellipse(0, -0.3, 0.3 + 0.4 * t, 0.5))
    return crown, line([(0, 0.2), (0, 0.95)], 0.1)


def vehicles(t: float) -> tuple[torch.Tensor, ...]:
    body = union(box(-0.85, -0.1, 0.85, 0.35), box(-0.85, -0.6, -0.75 + 1.6 * t, 0.1))
    return body, wheels(-0.55, 0.55, y=0.45, radius=0.32 - 0.15 * t)


def machines(t: float) -> tuple[torch.Tensor, ...]:
    body = union(polygon((-0.7, 0.35), (-0.5, -0.1), (0.5, -0.1), (0.8, 0.35)), box(-0.3, -0.5, 0.2, 0.1))
    return body, union(
        line([(0.1, -0.3), (0.9, -0.3 - 0.5 * t)], 0.07), line([(-0.6, 0.55), (0.65, 0.55)], 0.12 + 0.1 * t)
    )


FAMILIES = (
    (aquatic_mammals, "beaver dolphin otter seal whale"),
    (fish, "aquarium_fish flatfish ray shark trout"),
    (flowers, "orchid poppy rose sunflower tulip"),
    (food_containers, "bottle bowl can cup plate"),
    (fruit_and_vegetables, "apple mushroom orange pear sweet_pepper"),
    (electrical_devices, "clock keyboard lamp telephone television"),
    (furniture, "bed chair couch table wardrobe"),
    (insects, "bee beetle butterfly caterpillar cockroach"),
    (large_carnivores, "bear leopard lion tiger wolf"),
    (buildings, "bridge castle house road skyscraper"),
    (landscapes, "cloud forest mountain plain sea"),
    (herbivores, "camel cattle chimpanzee elephant kangaroo"),
    (medium_mammals, "fox porcupine possum raccoon skunk"),
    (invertebrates, "crab lobster snail spider worm"),
    (people, "baby boy girl man woman"),
    (reptiles, "crocodile dinosaur lizard snake turtle"),
    (small_mammals, "hamster mouse rabbit shrew squirrel"),
    (trees, "maple_tree oak_tree palm_tree pine_tree willow_tree"),
    (vehicles, "bicycle bus motorcycle pickup_truck train"),
    (machines, "lawn_mower rocket streetcar tank tractor"),
)
PLACES = {
    name: (family, member)
    for family, (_, names) in enumerate(FAMILIES)
    for member, name in enumerate(names.split())
}
FINE_CLASSES = tuple(sorted(PLACES))
KIN = torch.tensor([PLACES[name] for name in FINE_CLASSES])  # (100, 2): family and member of each class


@cache
def family_fields() -> torch.Tensor:
    """(20 families, 5 members, 3 layers, 64, 64)"""
    rows = []
    for build, _ in FAMILIES:
        for member, mark in enumerate(marks()):
            body, parts = build(member / 4)
            rows.append(torch.stack([body, parts, torch.maximum(body + 0.05, mark)]))
    return torch.stack(rows).unflatten(0, (len(FAMILIES), 5))


def marks() -> tuple[torch.Tensor, ...]:
    """What members wear: nothing, stripes, spots, a band, another colour on one half."""
    x, y = plane()
    stripes = 0.06 * torch.cos(2 * math.pi * 3.5 * (x + 0.3 * y)) - 0.01
    spots = 0.07 * torch.cos(2 * math.pi * 2.5 * (x + y)) * torch.cos(2 * math.pi * 2.5 * (x - y)) + 0.02
    return NOTHING, stripes, spots, (y - 0.1).abs() - 0.12, x
