"""A list of modules that a checkpoint can make again."""

from __future__ import annotations

import pytest
import torch.nn as nn

from cl_lightning.learners.parts.growing_list import GrowingList


@pytest.mark.parametrize(
    "part", [slice(1, 3), slice(None), slice(None, -1), slice(None, None, -2), slice(4, 9)]
)
def test_a_slice_has_the_very_modules_of_its_places(part: slice) -> None:
    built, layers = GrowingList(lambda units: nn.Linear(2, units)), [nn.Linear(2, n) for n in (1, 2, 3, 4)]
    for layer in layers:
        built.add(layer, units=layer.out_features)
    assert len(built[part]) == len(layers[part])
    assert all(one is other for one, other in zip(built[part], layers[part]))
    assert (built[1], built[-1]) == (layers[1], layers[-1])
    assert list(built) == layers
