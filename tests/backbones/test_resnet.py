"""Residual networks have the published sizes."""

from __future__ import annotations

import copy
from typing import get_args

import pytest
import torch
import torch.nn as nn

from cl_lightning.backbones import ResNet, ResNet18
from cl_lightning.backbones.resnet import Modules
from cl_lightning.config.checking import check_value
from cl_lightning.data.task import Head
from cl_lightning.errors import Refusal
from tests.backbones.networks import TEN, buffers, macs, on_meta, parameters

CIFAR = (3, 32, 32)
HUNDRED = Head("multi_train_test", 100, tuple(tuple(range(5 * t, 5 * t + 5)) for t in range(20)))
FIVE = Head("domain", 5, (tuple(range(5)),))


def sizes(network: nn.Module) -> list[int]:
    return [parameters(module) for module in network.path_modules().values()]


@pytest.mark.parametrize(
    ("modules", "of_each"),
    [
        (3, [149_824, 304_384, 152_842]),
        (6, [1856, 147_968, 152_192, 152_192, 152_192, 650]),
        (7, [1856, 147_968, 152_192, 152_192, 78_208, 73_984, 650]),
        (10, [1856, 73_984, 73_984, 78_208, 73_984, 78_208, 73_984, 78_208, 73_984, 650]),
    ],
)
def test_the_modules_of_every_grouping_have_the_published_parameters(
    modules: int, of_each: list[int]
) -> None:
    network = on_meta(ResNet, CIFAR, TEN, modules=modules)
    assert sizes(network) == of_each
    assert parameters(network) == sum(of_each) == 607_050


def test_seven_modules_have_the_published_buffers_and_operations() -> None:
    network, shape = on_meta(ResNet, CIFAR, TEN), CIFAR
    path_modules = network.path_modules().values()
    assert [buffers(module) for module in path_modules] == [129, 516, 645, 645, 387, 258, 0]
    counted = []
    for module in path_modules:
        counted.append(macs(module, *shape))
        shape = module(torch.empty(1, *shape, device="meta")).shape[1:]
    assert counted == [1_769_472, 150_994_944, 38_797_312, 9_699_328, 1_245_184, 1_179_648, 640]
    assert macs(network, *CIFAR) == sum(counted) == 203_686_528


def test_with_five_classes_it_has_606725_parameters_and_2580_buffers() -> None:
    network = on_meta(ResNet, CIFAR, FIVE)
    assert (parameters(network), buffers(network)) == (606_725, 2580)


def test_its_modules_give_the_published_shapes() -> None:
    h, shapes = torch.empty(2, *CIFAR, device="meta"), []
    for module in on_meta(ResNet, CIFAR, TEN).path_modules().values():
        h = module(h)
        shapes.append(tuple(h.shape[1:]))
    assert shapes == [(64, 32, 32), (64, 32, 32), (64, 16, 16), (64, 8, 8), (64, 4, 4), (64,), (10,)]


def test_the_grouping_changes_neither_names_nor_initial_weights() -> None:
    states = []
    for modules in (3, 6, 7, 10):
        torch.manual_seed(0)
        states.append(ResNet((1, 8, 8), TEN, width=4, modules=modules).state_dict())
    for other in states[1:]:
        assert list(other) == list(states[0])
        assert all(torch.equal(a, b) for a, b in zip(states[0].values(), other.values()))


def test_a_stage_trained_alone_leaves_the_running_statistics_of_the_frozen_ones() -> None:
    network = ResNet((1, 8, 8), TEN, width=4)
    *frozen, last, head = network.path_modules().values()
    before = copy.deepcopy([module.eval().state_dict() for module in frozen])
    h = torch.rand(6, 1, 8, 8)
    for module in (*frozen, last, head):
        h = module(h)
    assert all(
        torch.equal(a, b)
        for module, kept in zip(frozen, before)
        for a, b in zip(module.state_dict().values(), kept.values())
    )
    assert last.state_dict()["block8.first.bn.num_batches_tracked"] == 1


def test_initial_weights_are_pytorchs() -> None:
    weight = ResNet(CIFAR, TEN, width=32).trunk.block1.first.conv.weight
    bound = (32 * 9) ** -0.5  # uniform
    assert 0.98 * bound < weight.abs().max() <= bound


def test_groupings_that_do_not_exist_are_refused() -> None:
    with pytest.raises(Refusal, match=r"backbone\.modules=5 must be one of 3, 6, 7, 10"):
        check_value(ResNet, "modules", 5, "backbone.modules")
    for modules in get_args(Modules):
        assert len(ResNet(CIFAR, TEN, width=2, modules=modules).path_modules()) == modules


def test_the_reduced_resnet18_has_the_published_blocks() -> None:
    network = on_meta(ResNet18, CIFAR, HUNDRED)
    assert sizes(network) == [540 + 40, 7280, 7280, 22_640, 28_960, 90_080, 115_520, 359_360, 461_440, 16_100]
    assert (parameters(network), buffers(network)) == (1_109_240, 3_020)


def test_with_21_feature_maps_it_would_have_another_size() -> None:
    assert parameters(on_meta(ResNet18, CIFAR, HUNDRED, width=21)) == 1_221_901


def test_a_head_a_task_of_the_reduced_resnet18_is_a_slice_of_its_wide_one() -> None:
    network = on_meta(ResNet18, CIFAR, HUNDRED, heads="per_task")
    assert parameters(network.trunk) == 1_093_140
    assert [parameters(layer) for layer in network.head.layers] == [805] * 20


def test_a_twentieth_of_the_reduced_resnet18_has_2946_parameters() -> None:
    assert (
        parameters(on_meta(ResNet18, CIFAR, FIVE, divide_by=20))
        == parameters(on_meta(ResNet18, CIFAR, FIVE, width=1))
        == 2946
    )
