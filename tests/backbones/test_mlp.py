"""Networks have the published sizes and do what their keys say."""

import pytest
import torch
import torch.nn as nn

from cl_lightning.backbones import MLP
from cl_lightning.data.task import Head
from cl_lightning.errors import Refusal

TEN = Head("domain", 10, (tuple(range(10)),) * 20)
PAIRS = Head("multi_train_test", 6, ((0, 1), (2, 3), (4, 5)))


def count(network: nn.Module) -> int:
    return sum(p.numel() for p in network.parameters())


@pytest.mark.parametrize(
    ("sizes", "divide_by", "parameters"),
    [((100, 100), 1, 89_610), ((100, 100), 20, 4_015), ((1000, 1000), 1, 1_796_010), ((200, 200), 1, 199_210), ((800,) * 3, 1, 1_917_610)],
)
def test_parameter_counts_are_the_published_ones(sizes: tuple, divide_by: int, parameters: int) -> None:
    assert count(MLP((1, 28, 28), TEN, sizes, divide_by=divide_by)) == parameters


def test_twenty_narrow_networks_have_80300_parameters() -> None:
    assert 20 * count(MLP((1, 28, 28), TEN, (100, 100), divide_by=20)) == 80_300


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
    layer = MLP((1, 28, 28), TEN, (100,), init="glorot").trunk.linear1
    bound = (6 / 884) ** 0.5
    assert 0.95 * bound < layer.weight.abs().max() <= bound
    assert not layer.bias.any()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"heads": "many"}, "shared or per_task"),
        ({"dropout": 1.0}, r"\[0, 1\)"),
        ({"init": "best"}, "not known"),
        ({"divide_by": 200}, "without units"),
        ({"heads": "per_task", "head": Head("single", 6, PAIRS.owned)}, "multi_train_test"),
    ],
)
def test_impossible_networks_are_refused(options: dict, says: str) -> None:
    with pytest.raises(Refusal, match=says):
        MLP((1, 28, 28), options.pop("head", PAIRS), (100, 100), **options)


def test_an_input_layer_a_task_has_the_published_size_and_is_chosen_row_by_row() -> None:
    assert count(MLP((1, 28, 28), TEN, (100, 100), inputs="per_task")) == 1_581_110
    network, x, task = MLP((1, 4, 4), PAIRS, (8,), inputs="per_task"), torch.rand(9, 1, 4, 4), torch.tensor([0, 1, 2] * 3)
    mixed = network(x, task)
    for t in range(3):
        assert torch.allclose(mixed[task == t], network(x[task == t], t), atol=1e-6)
    network(x[:2], 1).sum().backward()
    assert [layer.weight.grad is None for layer in network.inputs.layers] == [True, False, True]
