"""The tools that synthetic images are drawn with."""

from __future__ import annotations

import colorsys

import pytest
import torch

from cl_lightning.data.sources.synthetic.digits import imbalanced
from cl_lightning.data.sources.synthetic.drawing import (
    Draws,
    box,
    colours,
    ellipse,
    grid,
    ink,
    line,
    look,
    plane,
    polygon,
    symmetric,
    union,
    window,
    without,
)
from cl_lightning.data.sources.synthetic.shapes import layer
from cl_lightning.data.sources.synthetic.textures import PATTERNS, seen
from cl_lightning.randomness import rng

x, y = plane()


def test_a_circle_and_a_box_are_exact_distances_negative_inside() -> None:
    assert torch.allclose(ellipse(0.1, -0.2, 0.5, 0.5), torch.hypot(x - 0.1, y + 0.2) - 0.5, atol=1e-4)
    right_of_it = (x > 0.5) & (y.abs() < 0.2)
    field = box(-0.4, -0.3, 0.4, 0.3)
    assert torch.allclose(field[right_of_it], (x - 0.4)[right_of_it], atol=1e-5)
    assert torch.equal(field < 0, (x.abs() < 0.4) & (y.abs() < 0.3))


def test_corners_in_either_order_give_the_same_polygon() -> None:
    corners = [(-0.5, -0.5), (0.6, -0.3), (0.1, 0.7)]
    assert torch.allclose(polygon(*corners), polygon(*reversed(corners)), atol=1e-6)


def test_a_symmetric_shape_is_its_own_mirror_image() -> None:
    field = symmetric((0.3, -0.7), (0.6, 0.1), (0.2, 0.8))
    assert torch.allclose(field, field.flip(1), atol=1e-5)


def test_shapes_are_joined_and_cut_like_sets() -> None:
    a, b = ellipse(-0.2, 0, 0.4, 0.4), line([(0, 0), (0.8, 0.1)], 0.1)
    assert torch.equal(union(a, b) < 0, (a < 0) | (b < 0))
    assert torch.equal(without(a, b) < 0, (a < 0) & (b > 0))


def test_a_described_layer_is_what_its_shapes_are_widened_cut_and_joined_at_a_members_place() -> None:
    solid = without(polygon((-0.5, -0.5), (0.5, 0.0), (-0.5, 0.5)) - 0.1, ellipse(-0.2, 0, 0.1, 0.15))
    wanted = union(solid, line([(0, 0.4), (0.2, 0.5)], 0.25))
    text = "polygon -.5,-.5 1-.5t,0 -.5,0+.5t + .1 - ellipse -.2 0 .1 .15; line .05+.2t 0,.4 .2,.5"
    assert torch.equal(layer(text, t=1.0), wanted)
    assert not torch.equal(layer(text, t=0.5), wanted)


def test_an_unmoved_look_at_a_field_covers_what_the_shape_does() -> None:
    one, nothing, field = torch.ones(1), torch.zeros(1), ellipse(0, 0, 0.6, 0.3)
    cover = ink(
        look(field[None, None], grid(window(nothing, nothing, one, one, nothing, nothing), 64)), 0.0, 1e-4
    )
    assert torch.equal(cover[0, 0] > 0.5, field < 0)


@pytest.mark.parametrize(
    ("hue", "saturation", "value"), [(0.0, 1.0, 1.0), (0.3, 0.5, 0.8), (0.72, 0.9, 0.4), (0.95, 0.2, 1.0)]
)
def test_colours_are_those_of_the_standard_library(hue: float, saturation: float, value: float) -> None:
    drawn = colours(*(torch.tensor([number]) for number in (hue, saturation, value)))
    assert drawn[0].tolist() == pytest.approx(colorsys.hsv_to_rgb(hue, saturation, value), abs=1e-5)


@pytest.mark.parametrize("count", [10, 999, 345_035])
def test_imbalanced_sizes_fall_and_sum_to_all(count: int) -> None:
    sizes = imbalanced(count, 10, 0.0202)
    assert sizes.sum() == count
    assert sizes[0] - sizes[-1] == pytest.approx(0.0202 * count, abs=1)


@pytest.mark.parametrize("name", PATTERNS)
def test_every_texture_has_a_contrast_of_its_own(name: str) -> None:
    periods, turn, pattern = PATTERNS[name]
    bright = pattern(seen(Draws(3, rng("texture")), torch.full((3,), periods), turn))
    assert bright.shape == (3, 72, 72)
    assert bright.isfinite().all()
    assert bright.clamp(0, 1).flatten(1).std(1).min() > 0.03
