"""Convolutional networks have the published sizes and refuse what leaves nothing of an image."""

from __future__ import annotations

import pytest
import torch
import torch.nn as nn

from cl_lightning.backbones import CONV, AlexNet
from cl_lightning.config.checking import check_arguments
from cl_lightning.data.task import Head
from cl_lightning.errors import Refusal
from tests.backbones.networks import TEN, macs, on_meta, parameters

CIFAR = (3, 32, 32)
FIVE = Head("domain", 5, (tuple(range(5)),))


def test_alexnet_has_the_published_modules() -> None:
    network, shape, found = on_meta(AlexNet, CIFAR, FIVE), CIFAR, []
    for module in network.path_modules().values():
        multiplications = macs(module, *shape)
        shape = tuple(module(torch.empty(1, *shape, device="meta")).shape[1:])
        found.append((parameters(module), multiplications, shape))
    assert found == [
        (3136, 2_583_552, (64, 14, 14)),
        (73_856, 10_616_832, (128, 6, 6)),
        (131_328, 3_276_800, (1024,)),
        (2_099_200, 2_097_152, (2048,)),
        (4_196_352, 4_194_304, (2048,)),
        (10_245, 2048 * 5, (5,)),
    ]
    assert parameters(network) == 6_514_117
    assert macs(network, *CIFAR) == sum(multiplications for _, multiplications, _ in found)


def test_alexnet_has_6524362_parameters_with_ten_classes() -> None:
    assert parameters(on_meta(AlexNet, CIFAR, TEN)) == 6_524_362


@pytest.mark.parametrize(
    ("widen", "tasks", "megabytes"),
    [(1, 6, 26.616), (2.5, 6, 163.984), (2.5, 5, 163.734), (3.2, 10, 269.301)],
)
def test_wide_alexnets_with_a_head_and_masks_a_task_take_the_memory_published_for_hat(
    widen: float, tasks: int, megabytes: float
) -> None:
    head = Head("domain", 10, (tuple(range(10)),) * tasks)
    network = on_meta(AlexNet, CIFAR, head, widen=widen, heads="per_task")
    masks = tasks * sum(int(widen * width) for width in (64, 128, 256, 2048, 2048))
    assert round((parameters(network) + masks) * 4e-6, 3) == megabytes


def rates(network: nn.Module) -> dict[str, float]:
    return {
        name: module.p for name, module in network.trunk.named_children() if isinstance(module, nn.Dropout)
    }


def test_dropout_of_alexnet_has_the_published_rates() -> None:
    expected = {
        "conv1_dropout": 0.2,
        "conv2_dropout": 0.2,
        "conv3_dropout": 0.5,
        "linear1_dropout": 0.5,
        "linear2_dropout": 0.5,
    }
    assert rates(on_meta(AlexNet, CIFAR, TEN)) == expected
    assert rates(on_meta(AlexNet, CIFAR, TEN, dropouts=[0] * 5)) == {}


def test_alexnet_takes_19_pixels_and_refuses_18() -> None:
    assert AlexNet((1, 19, 19), TEN, widen=0.05)(torch.rand(2, 1, 19, 19)).shape == (2, 10)
    for shape in ((1, 18, 18), (1, 40, 18), (1, 18, 40)):
        with pytest.raises(Refusal, match="at least 19x19"):
            AlexNet(shape, TEN)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"dropouts": (0.5, 0.5)}, "of length at least 5 and at most 5"),
        ({"dropouts": (0.2, 0.2, 0.5, 0.5, 1.0)}, "each value a number of at least 0 and below 1"),
        ({"widen": 0}, "a number above 0"),
        ({"widen": 0.001}, "without units"),
    ],
)
def test_impossible_alexnets_are_refused(options: dict, says: str) -> None:
    with pytest.raises(Refusal, match=says):
        check_arguments(AlexNet, options, "backbone", ["input_shape", "head"])
        AlexNet(CIFAR, TEN, **options)


@pytest.mark.parametrize(
    ("shape", "count"),
    [
        ((1, 28, 28), 3_274_634),
        ((1, 32, 32), 4_257_674),
        ((3, 32, 32), 4_259_274),
        ((3, 100, 100), 41_024_970),
    ],
)
def test_conv_has_the_published_parameters(shape: tuple[int, ...], count: int) -> None:
    network = on_meta(CONV, shape, TEN)
    assert parameters(network) == count
    assert sum(parameters(module) for module in network.path_modules().values()) == count


def test_conv_pools_odd_sizes_up() -> None:
    path_modules = on_meta(CONV, (1, 25, 27), TEN).path_modules()
    h = path_modules["conv1"](torch.empty(1, 1, 25, 27, device="meta"))
    assert h.shape == (1, 32, 13, 14)
    assert path_modules["conv2"](h).shape == (1, 64 * 7 * 7)


def test_conv_has_dropout_behind_its_linear_layer_alone() -> None:
    assert rates(on_meta(CONV, (1, 28, 28), TEN, dropout=0.5)) == {"linear1_dropout": 0.5}
    assert rates(on_meta(CONV, (1, 28, 28), TEN)) == {}


def test_conv_begins_with_normal_weights_cut_at_two_deviations_and_no_biases() -> None:
    network = CONV((1, 12, 12), TEN)
    layers = [module for module in network.modules() if isinstance(module, nn.Linear | nn.Conv2d)]
    assert len(layers) == 4
    for layer in layers:
        assert layer.weight.abs().max() <= 0.2
        assert not layer.bias.any()
    wide = network.trunk.linear1.weight
    assert wide.abs().max() > 0.199
    assert abs(wide.std() - 0.08796) < 1e-3  # of a unit normal cut at two deviations: 0.8796
