"""Values of networks: what the specifications say, written with torch.nn.functional on the same weights, and
the distributions that initial weights have."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

from cl_lightning.backbones import CONV, LWTA, MLP, AlexNet, ResNet, ResNet18
from cl_lightning.backbones.resnet import Block
from cl_lightning.config.build import backbone_of
from tests.backbones.networks import PAIRS, TEN
from tests.commands import configure

Weights = dict[str, torch.Tensor]
SHAPE = (3, 21, 26)  # neither square nor even
TASKS = torch.tensor([1, 0, 2, 1, 1, 2])


class ByHand:
    """Layers with a network's weights. Batch norm writes its running statistics as it should."""

    def __init__(self, network: nn.Module, training: bool) -> None:
        self.w = {name: t.detach().clone() for name, t in network.state_dict().items()}
        self.training = training

    def linear(self, name: str, h: torch.Tensor) -> torch.Tensor:
        return F.linear(h, self.w[f"{name}.weight"], self.w[f"{name}.bias"])

    def conv(self, name: str, h: torch.Tensor, padding: int = 0, stride: int = 1) -> torch.Tensor:
        return F.conv2d(h, self.w[f"{name}.weight"], self.w.get(f"{name}.bias"), stride, padding)

    def dropout(self, h: torch.Tensor, rate: float) -> torch.Tensor:
        return F.dropout(h, rate, self.training)

    def norm(self, name: str, h: torch.Tensor) -> torch.Tensor:
        w, name = self.w, f"{name}." * bool(name)
        if self.training:
            mean, var = h.mean((0, 2, 3)), h.var((0, 2, 3), correction=0)
            n = h.numel() / h.shape[1]
            for key, batch in (("mean", mean), ("var", var * n / (n - 1))):
                old = w[f"{name}bn.running_{key}"]
                w[f"{name}bn.running_{key}"] = 0.9 * old + 0.1 * batch
            w[f"{name}bn.num_batches_tracked"] += 1
        else:
            mean, var = w[f"{name}bn.running_mean"], w[f"{name}bn.running_var"]
        mean, var, scale, shift = (
            v[:, None, None] for v in (mean, var, w[f"{name}bn.weight"], w[f"{name}bn.bias"])
        )
        return (h - mean) / (var + 1e-5).sqrt() * scale + shift

    def convolution(self, name: str, h: torch.Tensor, size: int, stride: int = 1) -> torch.Tensor:
        return self.norm(name, self.conv(f"{name}.conv", h, size // 2, stride))

    def block(self, name: str, h: torch.Tensor, stride: int, projects: bool) -> torch.Tensor:
        inner = F.relu(self.convolution(f"{name}first", h, 3, stride))
        outer = self.convolution(f"{name}second", inner, 3)
        return F.relu(outer + (self.convolution(f"{name}shortcut", h, 1, stride) if projects else h))


def winners(h: torch.Tensor) -> torch.Tensor:
    pairs = h.reshape(len(h), -1, 2)
    return torch.where(pairs == pairs.amax(2, keepdim=True), pairs, 0.0).reshape(h.shape)


def mlp(layers: int, activation: Callable = F.relu, inputs: float = 0.0, hidden: float = 0.0) -> Callable:
    def forward(o: ByHand, x: torch.Tensor) -> torch.Tensor:
        h = o.dropout(x.flatten(1), inputs)
        for i in range(1, layers + 1):
            h = o.dropout(activation(o.linear(f"trunk.linear{i}", h)), hidden)
        return o.linear("head", h)

    return forward


def multimodal(o: ByHand, x: torch.Tensor) -> torch.Tensor:
    """A first layer and an output layer a task, row by row; outputs of other tasks are out of the choice."""
    rows = []
    for image, task in zip(x.flatten(1), TASKS.tolist()):
        h = F.relu(o.linear(f"trunk.linear1.layers.{task}", image))
        own = o.linear(f"head.layers.{task}", F.relu(o.linear("trunk.linear2", h)))
        row = torch.full((6,), -torch.inf, dtype=x.dtype)
        row[2 * task : 2 * task + 2] = own
        rows.append(row)
    return torch.stack(rows)


def conv(o: ByHand, x: torch.Tensor) -> torch.Tensor:
    """ICANN 2018 and ICLR 2019: two convolutions 5x5, SAME, each halved and rounded up; dropout behind the
    units alone."""
    for i in (1, 2):
        x = F.relu(o.conv(f"trunk.conv{i}", x, padding=2))
        odd = (0, x.shape[3] % 2, 0, x.shape[2] % 2)  # SAME: one more column or row where a half is left
        x = F.max_pool2d(F.pad(x, odd, value=-torch.inf), 2)
    return o.linear("head", o.dropout(F.relu(o.linear("trunk.linear1", x.flatten(1))), 0.5))


def alexnet(o: ByHand, x: torch.Tensor) -> torch.Tensor:
    """Table 9 of Veniat et al. 2021: three convolutions of 4x4, 3x3 and 2x2 without padding, two linear
    layers."""
    for i, rate in ((1, 0.2), (2, 0.2), (3, 0.5)):
        x = F.max_pool2d(o.dropout(F.relu(o.conv(f"trunk.conv{i}", x)), rate), 2)
    h = x.flatten(1)
    for i in (1, 2):
        h = o.dropout(F.relu(o.linear(f"trunk.linear{i}", h)), 0.5)
    return o.linear("head", h)


def cnn(o: ByHand, x: torch.Tensor) -> torch.Tensor:
    """Farquhar and Gal 2018, appendix: two convolutions 3x3 without padding, then pooling and dropout."""
    for i in (1, 2):
        x = F.relu(o.conv(f"trunk.conv{i}", x))
    h = o.dropout(F.max_pool2d(x, 2), 0.25).flatten(1)
    return o.linear("head", o.dropout(F.relu(o.linear("trunk.linear1", h)), 0.25))


def bayesian(o: ByHand, x: torch.Tensor) -> torch.Tensor:
    """Outputs are drawn in training (Kingma et al. 2015), and weights in evaluation."""
    h = x.flatten(1)
    for name in ("trunk.linear1", "trunk.linear2", "head"):
        w, b = o.w[f"{name}.weight"], o.w[f"{name}.bias"]
        var_w, var_b = o.w[f"{name}.weight_log_var"].exp(), o.w[f"{name}.bias_log_var"].exp()
        if o.training:
            mean, var = F.linear(h, w, b), F.linear(h**2, var_w, var_b)
            h = mean + var**0.5 * torch.randn(mean.shape, dtype=h.dtype)
        else:
            w = w + var_w**0.5 * torch.randn(w.shape, dtype=h.dtype)
            h = F.linear(h, w, b + var_b**0.5 * torch.randn(b.shape, dtype=h.dtype))
        h = h if name == "head" else F.relu(h)
    return h


def resnet(widening: bool) -> Callable:
    """Table 8 of Veniat et al. 2021, where all is of one width; widths double in Lopez-Paz and Ranzato
    2017."""

    def forward(o: ByHand, x: torch.Tensor) -> torch.Tensor:
        h = F.relu(o.convolution("trunk.stem", x, 3))
        for i, stride in enumerate((1, 1, 2, 1, 2, 1, 2, 1), start=1):
            assert not widening or len(o.w[f"trunk.block{i}.first.conv.weight"]) == 20 * 2 ** ((i - 1) // 2)
            h = o.block(f"trunk.block{i}.", h, stride, projects=stride == 2)
        return o.linear("head", h.mean((2, 3)))

    return forward


CHOICES: dict[str, tuple[tuple[str, ...], Callable]] = {  # of conf/backbone, and the same by hand
    "mlp": ((), mlp(2)),
    "mlp_mntdp": ((), mlp(2)),
    "fc": (("backbone.sizes=[20,30,10]",), mlp(3)),
    "fc_dropout": ((), mlp(2, inputs=0.2, hidden=0.5)),
    "fc_ewc": ((), mlp(2, inputs=0.2, hidden=0.5)),
    "lwta": ((), mlp(2, winners)),
    "conv": (("backbone.dropout=0.5",), conv),
    "alexnet": ((), alexnet),
    "bayesian": (("backbone.log_var=-3.0",), bayesian),
    "mc_dropout": ((), cnn),
    "resnet": (("backbone.width=24",), resnet(False)),
    "resnet_small": ((), resnet(False)),
    "resnet18_gem": ((), resnet(True)),
}
OTHERS: dict[str, tuple[Callable[[], nn.Module], Callable]] = {
    "multimodal": (
        lambda: MLP(SHAPE, PAIRS, (9, 7), inputs="per_task", heads="per_task"),
        multimodal,
    ),
    "narrow ResNet": (lambda: ResNet(SHAPE, TEN, width=3), resnet(False)),  # strides by hand there
}


def network_of(name: str) -> nn.Module:
    if name in OTHERS:
        return OTHERS[name][0]()
    return backbone_of(configure(f"backbone={name}", *CHOICES[name][0]))(input_shape=SHAPE, head=TEN)


def anywhere(network: nn.Module) -> nn.Module:
    """With weights and statistics of which none is 0 or 1, in double precision."""
    torch.manual_seed(0)
    network = network.double()
    with torch.no_grad():
        for name, tensor in network.state_dict().items():
            if name.endswith(("bias", "running_mean")):
                tensor.normal_(0, 0.3)
            elif "bn" in name and tensor.is_floating_point():
                tensor.uniform_(0.5, 2)
    return network


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", [*CHOICES, *OTHERS])
def test_a_network_computes_what_is_written_by_hand_and_keeps_its_statistics(
    name: str, training: bool
) -> None:
    network, by_hand = anywhere(network_of(name)).train(training), {**CHOICES, **OTHERS}[name][1]
    x = torch.rand(6, *SHAPE, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    own = ByHand(network, training)
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(2)
        expected = by_hand(own, x)
        torch.manual_seed(2)
        torch.testing.assert_close(network(x, TASKS), expected, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(dict(network.state_dict()), own.w, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(
    ("channels", "width", "stride"), [(8, 8, 1), (8, 8, 2), (8, 12, 1), (3, 3, 2), (3, 9, 2), (9, 3, 1)]
)
def test_a_block_computes_what_is_written_by_hand(
    channels: int, width: int, stride: int, training: bool
) -> None:
    block = anywhere(Block(channels, width, stride)).train(training)
    x, own = torch.randn(4, channels, 7, 10, dtype=torch.float64), ByHand(block, training)
    expected = own.block("", x, stride, projects=stride > 1 or channels != width)
    torch.testing.assert_close(block(x), expected, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(dict(block.state_dict()), own.w, rtol=1e-9, atol=1e-9)


# ---- initial weights ---------------------------------------------------------------------------------------


def uniform(bound: float) -> Callable[[torch.Tensor], torch.Tensor]:
    """The distribution function of a uniform one in +-bound."""
    return lambda x: (x / bound + 1).clamp(0, 2) / 2


def cut_normal(deviation: float) -> Callable[[torch.Tensor], torch.Tensor]:
    """The distribution function of a normal one that is drawn again beyond two deviations."""

    def cdf(x: torch.Tensor) -> torch.Tensor:
        normal = 0.5 * (1 + torch.erf(x.clamp(-2 * deviation, 2 * deviation) / deviation / 2**0.5))
        outside = 0.5 * (1 - math.erf(2 / 2**0.5))
        return (normal - outside) / (1 - 2 * outside)

    return cdf


def is_drawn_from(values: torch.Tensor, cdf: Callable[[torch.Tensor], torch.Tensor]) -> bool:
    """The test of Kolmogorov and Smirnov: a true sample fails once in a thousand."""
    n, below = values.numel(), cdf(values.detach().double().flatten().sort().values)
    steps = torch.arange(n + 1, dtype=torch.float64) / n
    return float(torch.maximum(steps[1:] - below, below - steps[:-1]).max()) * n**0.5 < 1.95


def fans(layer: nn.Module) -> tuple[int, int]:
    weight: Any = layer.weight
    return weight[0].numel(), weight[:, 0].numel()


BY_PYTORCH = (lambda i, o: uniform(i**-0.5), "drawn")
TENTH = (lambda i, o: cut_normal(0.1), 0.0)
BEGINS: dict[str, tuple[Callable[[], nn.Module], tuple[Callable, Any]]] = {
    "torch": (lambda: MLP((1, 9, 9), TEN, (300, 40)), BY_PYTORCH),
    "torch_unbiased": (
        lambda: MLP((1, 9, 9), TEN, (300, 40), init="torch_unbiased"),
        (BY_PYTORCH[0], 0.0),
    ),
    "glorot": (
        lambda: MLP((1, 9, 9), TEN, (300, 40), init="glorot"),
        (lambda i, o: uniform((6 / (i + o)) ** 0.5), 0.0),
    ),
    "fan_in": (
        lambda: LWTA((1, 9, 9), TEN, (100, 300), init="fan_in"),
        (lambda i, o: cut_normal(i**-0.5), 0.0),
    ),
    "tenth": (
        lambda: MLP((1, 9, 9), TEN, (300, 40), init="tenth"),
        (lambda i, o: cut_normal(0.1), 0.1),
    ),
    "CONV": (lambda: CONV((1, 16, 16), TEN), TENTH),
    "AlexNet": (lambda: AlexNet((3, 24, 24), TEN, widen=0.2), BY_PYTORCH),
    "ResNet": (lambda: ResNet((3, 8, 8), TEN, width=24), BY_PYTORCH),
    "ResNet18": (lambda: ResNet18((3, 8, 8), TEN, width=5), BY_PYTORCH),
    "multimodal": (
        lambda: MLP((1, 9, 9), PAIRS, (70, 60), init="glorot", inputs="per_task", heads="per_task"),
        (lambda i, o: uniform((6 / (i + o)) ** 0.5), 0.0),
    ),
}


@pytest.mark.parametrize("name", BEGINS)
def test_every_layer_begins_with_draws_of_its_distribution(name: str) -> None:
    make, (of_fans, bias) = BEGINS[name]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = make()
    layers = [layer for layer in network.modules() if isinstance(layer, nn.Linear | nn.Conv2d)]
    assert len(layers) > 2
    for layer in layers:
        assert is_drawn_from(layer.weight, of_fans(*fans(layer)))
        if layer.bias is not None and bias != "drawn":
            assert layer.bias.tolist() == pytest.approx([bias] * len(layer.bias))
    if bias == "drawn":
        scaled = [layer.bias * fans(layer)[0] ** 0.5 for layer in layers if layer.bias is not None]
        assert is_drawn_from(torch.cat(scaled), uniform(1.0))
    for norm in (module for module in network.modules() if isinstance(module, nn.BatchNorm2d)):
        assert (norm.weight == 1).all()
        assert (norm.bias == 0).all()
