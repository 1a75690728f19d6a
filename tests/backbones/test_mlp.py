"""Networks have the published sizes and do what their keys say."""

from __future__ import annotations

import pytest
import torch
import torch.nn as nn

from cl_lightning.backbones import LWTA, MLP
from cl_lightning.config.checking import check_arguments
from cl_lightning.data.task import Head
from cl_lightning.errors import Refusal
from tests.backbones.networks import PAIRS, TEN, macs, on_meta, parameters

MNIST = (1, 28, 28)

PUBLISHED = [
    ("mlp_gem", MLP, (100, 100), {}, 89_610),
    ("mlp_gem_indep", MLP, (100, 100), {"divide_by": 20}, 4_015),
    ("mlp_gem_multimodal", MLP, (100, 100), {"inputs": "per_task"}, 1_581_110),
    ("fc_200x2", MLP, (200,) * 2, {}, 199_210),
    ("fc_400x2", MLP, (400,) * 2, {}, 478_410),
    ("fc_800x2", MLP, (800,) * 2, {}, 1_276_810),
    ("fc_200x3", MLP, (200,) * 3, {}, 239_410),
    ("fc_400x3", MLP, (400,) * 3, {}, 638_810),
    ("fc_800x3", MLP, (800,) * 3, {}, 1_917_610),
    ("lwta_200x2", LWTA, (200,) * 2, {}, 478_410),
    ("lwta_400x2", LWTA, (400,) * 2, {}, 1_276_810),
    ("lwta_800x2", LWTA, (800,) * 2, {}, 3_833_610),
    ("lwta_200x3", LWTA, (200,) * 3, {}, 638_810),
    ("lwta_800x3", LWTA, (800,) * 3, {}, 6_395_210),
    ("mlp_fg_split", MLP, (256,) * 2, {}, 269_322),
    ("mlp_fg_fashion_ewc", MLP, (256,) * 4, {}, 400_906),
    ("mlp_den_rcl", MLP, (312, 128), {}, 286_274),
    ("mlp_mntdp", MLP, (1000, 1000), {}, 1_796_010),
]


@pytest.mark.parametrize(
    ("make", "sizes", "options", "published"),
    [row[1:] for row in PUBLISHED],
    ids=[row[0] for row in PUBLISHED],
)
def test_parameter_counts_are_the_published_ones(
    make: type[MLP], sizes: tuple, options: dict, published: int
) -> None:
    assert parameters(on_meta(make, MNIST, TEN, sizes, **options)) == published


def test_twenty_narrow_networks_have_80300_parameters() -> None:
    assert 20 * parameters(on_meta(MLP, MNIST, TEN, (100, 100), divide_by=20)) == 80_300


def test_the_network_of_mntdp_has_the_three_published_modules() -> None:
    network = on_meta(MLP, MNIST, TEN, (1000, 1000))
    path_modules = network.path_modules()
    assert list(path_modules) == ["linear1", "linear2", "head"]
    assert [parameters(module) for module in path_modules.values()] == [785_000, 1_001_000, 10_010]
    assert macs(network, *MNIST) == 1_794_000


def test_parameters_have_the_names_that_checkpoints_have() -> None:
    names = [name for name, _ in MLP(MNIST, TEN, (8,), dropout=0.5, input_dropout=0.2).named_parameters()]
    assert names == ["trunk.linear1.weight", "trunk.linear1.bias", "head.weight", "head.bias"]


def test_a_head_a_task_is_the_masked_slice_of_a_wide_layer() -> None:
    torch.manual_seed(0)
    several, wide = MLP((1, 4, 4), PAIRS, (8,), heads="per_task"), MLP((1, 4, 4), PAIRS, (8,))
    wide.trunk.load_state_dict(several.trunk.state_dict())
    with torch.no_grad():
        for own, layer in zip(PAIRS.owned, several.head.layers):
            wide.head.weight[list(own)], wide.head.bias[list(own)] = layer.weight, layer.bias
    x, task = torch.rand(9, 1, 4, 4), torch.tensor([0, 1, 2] * 3)
    expected = PAIRS.mask(wide(x), task)
    assert torch.allclose(several(x, task), expected, atol=1e-6)
    assert torch.allclose(several(x, 1), PAIRS.mask(wide(x), 1), atol=1e-6)


def test_heads_of_tasks_that_are_not_in_a_batch_get_no_gradient() -> None:
    network = MLP((1, 4, 4), PAIRS, (8,), heads="per_task")
    logits = network(torch.rand(4, 1, 4, 4), torch.tensor([2, 0, 2, 0]))
    nn.functional.cross_entropy(logits, torch.tensor([4, 1, 5, 0])).backward()
    assert [layer.weight.grad is None for layer in network.head.layers] == [False, True, False]
    assert all(p.grad.isfinite().all() for p in network.parameters() if p.grad is not None)


def test_task_heads_without_a_task_are_refused() -> None:
    with pytest.raises(Refusal, match="without the task's number"):
        MLP((1, 4, 4), PAIRS, (8,), heads="per_task")(torch.rand(1, 1, 4, 4))


def test_glorot_draws_within_its_bound_and_has_no_bias() -> None:
    layer = MLP(MNIST, TEN, (100,), init="glorot").trunk.linear1
    bound = (6 / 884) ** 0.5
    assert 0.95 * bound < layer.weight.abs().max() <= bound
    assert not layer.bias.any()


def test_torch_unbiased_has_exactly_the_weights_that_pytorch_draws_and_no_bias() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(7)
        network = MLP((1, 4, 4), PAIRS, (8, 9), init="torch_unbiased")
        torch.manual_seed(7)
        own = [nn.Linear(16, 8), nn.Linear(8, 9), nn.Linear(9, 6)]
    assert all(layer.bias.all() for layer in own)
    for layer, of_pytorch in zip((network.trunk.linear1, network.trunk.linear2, network.head), own):
        assert torch.equal(layer.weight, of_pytorch.weight)
        assert torch.equal(layer.bias, torch.zeros_like(of_pytorch.bias))


def test_torch_unbiased_draws_within_one_over_the_root_of_the_inputs() -> None:
    torch.manual_seed(0)
    layer = MLP((1, 10, 10), TEN, (250, 400), init="torch_unbiased").trunk.linear2
    bound = 250**-0.5
    assert 0.999 * bound < layer.weight.abs().max() <= bound * (1 + 1e-6)
    assert abs(layer.weight.std() / bound - 3**-0.5) < 0.01  # of a uniform distribution


@pytest.mark.parametrize(("init", "deviation", "bias"), [("fan_in", 250**-0.5, 0.0), ("tenth", 0.1, 0.1)])
def test_normal_weights_are_cut_at_two_deviations(init: str, deviation: float, bias: float) -> None:
    torch.manual_seed(0)
    layer = MLP((1, 10, 10), TEN, (250, 400), init=init).trunk.linear2
    assert 1.99 * deviation < layer.weight.abs().max() <= 2 * deviation
    assert abs(layer.weight.std() / deviation - 0.8796) < 0.01  # of a unit normal cut at two deviations
    assert torch.equal(layer.bias, torch.full((400,), bias))


def test_input_dropout_drops_pixels_and_scales_the_rest() -> None:
    network = MLP(MNIST, TEN, (8,), input_dropout=0.2)
    x = network.path_modules()["linear1"][:2](torch.ones(50, *MNIST))
    assert abs((x == 0).float().mean() - 0.2) < 0.01
    assert torch.allclose(x[x != 0], torch.tensor(1.25))
    assert torch.equal(network.eval().trunk[:2](torch.ones(2, *MNIST)), torch.ones(2, 784))


def winners(h: list[list[float]]) -> torch.Tensor:
    return LWTA(MNIST, TEN, (1,)).trunk.winners1(torch.tensor(h))


def test_the_winner_of_a_block_keeps_its_value_and_its_sign() -> None:
    assert winners([[3.0, 1.0, -2.0, -1.0]]).tolist() == [[3.0, 0.0, 0.0, -1.0]]


def test_a_tie_keeps_both() -> None:
    assert winners([[2.0, 2.0, -1.0, -1.0]]).tolist() == [[2.0, 2.0, -1.0, -1.0]]


def test_gradients_flow_through_winners_alone() -> None:
    h = torch.tensor([[3.0, 1.0, -2.0, -1.0, 5.0, 5.0]], requires_grad=True)
    LWTA(MNIST, TEN, (1,)).trunk.winners1(h).sum().backward()
    assert h.grad.tolist() == [[1.0, 0.0, 0.0, 1.0, 1.0, 1.0]]


def test_an_lwta_layer_has_one_unit_a_block_that_is_not_zero() -> None:
    h = LWTA(MNIST, TEN, (30,)).features(torch.rand(5, *MNIST))
    assert h.shape == (5, 60)
    assert ((h != 0).reshape(5, 30, 2).sum(2) == 1).all()


def test_blocks_of_a_divided_lwta_stay_whole() -> None:
    assert LWTA(MNIST, TEN, (5,), divide_by=2).trunk.linear1.out_features == 4


def test_an_lwta_is_not_taken_for_a_plain_mlp() -> None:
    from cl_lightning.engine.stack import linears

    assert linears(LWTA(MNIST, TEN, (64,))) == linears(MLP(MNIST, TEN, (64,), input_dropout=0.2)) == []
    assert len(linears(MLP(MNIST, TEN, (64,)))) == 2


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"heads": "many"}, "one of shared, per_task"),
        ({"dropout": 1.0}, r"dropout=1\.0 must be a number of at least 0 and below 1"),
        ({"input_dropout": -0.1}, r"input_dropout=-0\.1 must be a number of at least 0 and below 1"),
        ({"init": "fanin"}, "one of torch, torch_unbiased, glorot, fan_in, tenth"),
        ({"divide_by": 0}, "a whole number of at least 1"),
        ({"divide_by": 200}, "without units"),
        ({"heads": "per_task", "head": Head("single", 6, PAIRS.owned)}, "multi_train_test"),
    ],
)
def test_impossible_networks_are_refused(options: dict, says: str) -> None:
    head = options.pop("head", PAIRS)
    with pytest.raises(Refusal, match=says):
        check_arguments(MLP, {"sizes": [100, 100], **options}, "backbone", ["input_shape", "head"])
        MLP(MNIST, head, (100, 100), **options)


def test_an_input_layer_a_task_is_chosen_row_by_row() -> None:
    network, x, task = (
        MLP((1, 4, 4), PAIRS, (8,), inputs="per_task"),
        torch.rand(9, 1, 4, 4),
        torch.tensor([0, 1, 2] * 3),
    )
    mixed = network(x, task)
    for t in range(3):
        assert torch.allclose(mixed[task == t], network(x[task == t], t), atol=1e-6)
    network(x[:2], 1).sum().backward()
    assert [layer.weight.grad is None for layer in network.trunk.linear1.layers] == [True, False, True]
