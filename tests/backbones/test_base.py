"""What every network keeps to."""

from __future__ import annotations

import copy
import io
from itertools import combinations

import pytest
import torch
import torch.nn as nn

from cl_lightning.backbones import Backbone
from cl_lightning.backbones.base import ByTask
from cl_lightning.config.checking import check_value
from cl_lightning.data.task import Head
from cl_lightning.errors import Refusal
from tests.backbones.networks import CONVOLUTIONAL, EVERY, PAIRS, SHAPE, buffers, on_meta, parameters

TASKS = torch.tensor([0, 2, 1, 0, 1])
every_network = pytest.mark.parametrize("name", EVERY)
every_convolutional = pytest.mark.parametrize("name", CONVOLUTIONAL)


def build(name: str, **options: object) -> Backbone:
    torch.manual_seed(0)
    return EVERY[name](SHAPE, options.pop("head", PAIRS), **options)


def images(n: int = 5) -> torch.Tensor:
    return torch.rand(n, *SHAPE, generator=torch.Generator().manual_seed(1))


def drawn(network: nn.Module, *arguments: object) -> torch.Tensor:
    """Its output where dropout draws from one seed."""
    torch.manual_seed(2)
    return network(*arguments)


@every_network
@pytest.mark.parametrize("heads", ["shared", "per_task"])
@pytest.mark.parametrize("training", [True, False])
def test_its_stages_one_after_the_other_are_forward_to_the_bit(name: str, heads: str, training: bool) -> None:
    network = build(name, heads=heads).train(training)
    logits = drawn(copy.deepcopy(network), images(), TASKS)
    torch.manual_seed(2)
    h = images()
    for module in network.path_modules().values():
        h = module(h, TASKS)
    assert logits.shape == (5, 6)
    assert torch.equal(h, logits)


@every_network
def test_its_stages_hold_every_parameter_and_buffer_once_and_are_no_copies(name: str) -> None:
    network = build(name)
    for tensors in (nn.Module.parameters, nn.Module.buffers):
        in_modules = [t for module in network.path_modules().values() for t in tensors(module)]
        assert [id(t) for t in in_modules] == [id(t) for t in tensors(network)]


@every_network
def test_a_path_of_the_stages_of_two_networks_is_a_network(name: str) -> None:
    one, other = build(name).eval(), EVERY[name](SHAPE, PAIRS).eval()
    path_modules = list(zip(one.path_modules().values(), other.path_modules().values()))
    for branch in range(len(path_modules) + 1):
        path = [own if i < branch else new for i, (own, new) in enumerate(path_modules)]
        h = images()
        for module in path:
            h = module(h, TASKS)
        assert h.shape == (5, 6)
        expected = {0: other, len(path_modules): one}.get(branch)
        assert expected is None or torch.equal(h, expected(images(), TASKS))


@every_network
@pytest.mark.parametrize("heads", ["shared", "per_task"])
def test_its_head_makes_logits_of_its_features(name: str, heads: str) -> None:
    network = build(name, heads=heads).eval()
    features = network.features(images(), TASKS)
    logits = network.head(features, TASKS) if heads == "per_task" else network.head(features)
    assert features.dim() == 2
    assert torch.equal(logits, network(images(), TASKS))


@every_network
def test_it_needs_the_task_where_it_has_layers_a_task_and_there_alone(name: str) -> None:
    assert build(name, heads="per_task").needs_task
    assert build(name).needs_task == ("input layer a task" in name)
    if not build(name).needs_task:
        assert build(name)(images()).shape == (5, 6)


@every_network
def test_a_head_a_task_leaves_the_outputs_of_others_out(name: str) -> None:
    logits = build(name, heads="per_task").eval()(images(), TASKS)
    assert torch.equal(logits.isneginf(), PAIRS.foreign[TASKS])


@every_network
def test_layers_of_tasks_begin_with_weights_of_their_own(name: str) -> None:
    network = build(name, heads="per_task")
    for layers in (module.layers for module in network.modules() if isinstance(module, ByTask)):
        weights = [layer.weight for layer in layers]
        assert len(weights) == 3
        assert not any(torch.equal(one, other) for one, other in combinations(weights, 2))


@every_network
def test_heads_that_contradict_the_stream_are_refused(name: str) -> None:
    with pytest.raises(Refusal, match="multi_train_test"):
        build(name, heads="per_task", head=Head("single", 6, PAIRS.owned))
    with pytest.raises(Refusal, match=r"backbone\.heads=many must be one of shared, per_task"):
        check_value(EVERY[name].func, "heads", "many", "backbone.heads")


@pytest.mark.parametrize("name", [name for name in EVERY if "without hidden" not in name])
def test_it_divides_its_units_among_tasks_until_none_are_left(name: str) -> None:
    assert parameters(build(name, divide_by=2)) < parameters(build(name))
    with pytest.raises(Refusal, match="without units"):
        build(name, divide_by=5000)


@every_network
def test_it_is_built_and_called_on_meta_with_the_shapes_it_has_elsewhere(name: str) -> None:
    real, meta = build(name), on_meta(EVERY[name], SHAPE, PAIRS)
    assert [(n, t.shape, t.stride()) for n, t in real.state_dict().items()] == [
        (n, t.shape, t.stride()) for n, t in meta.state_dict().items()
    ]
    logits = meta(images().to("meta"), TASKS)
    assert (logits.shape, logits.is_meta) == ((5, 6), True)


@every_network
def test_a_saved_state_is_plain_and_makes_the_same_network_of_another(name: str) -> None:
    network, other, file = build(name), EVERY[name](SHAPE, PAIRS), io.BytesIO()
    drawn(network, images(), TASKS)  # running statistics move
    torch.save(network.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(network.eval()(images(), TASKS), other.eval()(images(), TASKS))


@every_network
def test_a_copy_computes_the_same_and_shares_nothing(name: str) -> None:
    network = build(name)
    copied, before = copy.deepcopy(network), drawn(network.eval(), images(), TASKS)
    assert torch.equal(copied.eval()(images(), TASKS), before)
    with torch.no_grad():
        for p in copied.parameters():
            p.zero_()
    assert torch.equal(network(images(), TASKS), before)


@every_network
def test_all_parameters_get_finite_gradients(name: str) -> None:
    network = build(name)
    nn.functional.cross_entropy(
        drawn(network, images(30), TASKS.repeat(6)), torch.arange(6).repeat(5)
    ).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in network.parameters())


@every_network
def test_without_training_mode_nothing_is_drawn_and_no_buffer_moves(name: str) -> None:
    network = build(name).eval()
    before = copy.deepcopy(dict(network.named_buffers()))
    assert torch.equal(drawn(network, images(), TASKS), network(images(), TASKS))
    assert all(torch.equal(before[name], buffer) for name, buffer in network.named_buffers())


@every_convolutional
def test_channels_last_is_the_same_network_to_rounding(name: str) -> None:
    """Without dropout: its masks are drawn in the order of memory."""
    plain, last = build(name, channels_last=False), build(name, channels_last=True)
    assert all(torch.equal(p, q) for p, q in zip(plain.parameters(), last.parameters()))
    assert torch.allclose(plain.eval()(images()), last.eval()(images()), rtol=1e-4, atol=1e-5)
    for network in (plain.double().train(), last.double().train()):
        for dropout in (module for module in network.modules() if isinstance(module, nn.Dropout)):
            dropout.eval()
        nn.functional.cross_entropy(network(images(8).double()), torch.arange(8) % 6).backward()
    for p, q in zip(plain.parameters(), last.parameters()):
        assert torch.allclose(p.grad, q.grad, rtol=1e-8, atol=1e-10)


@every_convolutional
def test_channels_last_outlives_copies_saving_loading_and_moving(name: str) -> None:
    network, file = build(name, channels_last=True), io.BytesIO()
    torch.save(network.state_dict(), file)
    file.seek(0)
    state = torch.load(file, weights_only=True)
    loaded, assigned = build(name, channels_last=True), build(name, channels_last=False)
    loaded.load_state_dict(state)
    assigned.load_state_dict(state, assign=True)
    cast = copy.deepcopy(network).to(torch.bfloat16).to("cpu", torch.float32)
    for each in (network, copy.deepcopy(network), loaded, assigned, cast, copy.deepcopy(network).to("meta")):
        assert strides(each) == strides(network)
    assert strides(build(name, channels_last=False)) != strides(network)


def strides(network: nn.Module) -> list[tuple[int, ...]]:
    return [p.stride() for p in network.parameters() if p.dim() == 4]


@every_convolutional
@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32), (3, 64, 64), (3, 100, 100)])
def test_it_takes_images_of_any_size(name: str, shape: tuple[int, ...]) -> None:
    network = on_meta(EVERY[name], shape, PAIRS)
    assert network(torch.empty(2, *shape, device="meta")).shape == (2, 6)


def test_only_batch_normalisation_brings_buffers() -> None:
    assert {name.split()[0] for name in EVERY if buffers(build(name))} == {"ResNet", "ResNet18"}
