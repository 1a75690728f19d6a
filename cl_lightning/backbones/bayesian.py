"""Layers whose weights are normal variables, for variational inference by mean field."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor

from cl_lightning.backbones.mlp import MLP

Sampling = Literal["local", "weights"]
TINY = 1e-16  # variance: the root of 0 has no gradient


class Gaussian(nn.Module):
    """A layer with a mean and a log-variance for each weight and bias, all independent.

    In training, ``local`` draws what comes out of the layer, for each example and unit by itself (local
    reparametrisation, Kingma et al. 2015): the mean is x m, and the variance x^2 exp(v). ``weights`` draws
    the weights, once for a mini-batch. In evaluation mode each call draws the weights once. ``off`` computes
    with the means alone: an ordinary network.
    """

    weight: Tensor
    bias: Any
    weight_log_var: nn.Parameter
    bias_log_var: nn.Parameter | None
    sampling: Sampling | Literal["off"]

    def begin(self, log_var: float, sampling: Sampling) -> None:
        """Make the variances of a layer that has its means. A bias is optional, as in torch's layers."""
        self.sampling = sampling
        self.weight_log_var = nn.Parameter(torch.full_like(self.weight, log_var))
        made = None if self.bias is None else nn.Parameter(torch.full_like(self.bias, log_var))
        self.register_parameter("bias_log_var", made)

    def forward(self, x: Tensor) -> Tensor:
        if self.sampling == "off":
            return self.product(x, self.weight, self.bias)
        if self.sampling == "weights" or not self.training:
            drawn = [None if v is None else m + (v / 2).exp() * torch.randn_like(m) for m, v in self.normals]
            return self.product(x, *drawn)
        mean = self.product(x, self.weight, self.bias)
        variance = self.product(x * x, *(None if v is None else v.exp() for _, v in self.normals))
        return mean + (variance + TINY).sqrt() * torch.randn_like(mean)

    @property
    def normals(self) -> tuple[tuple[Any, Any], ...]:
        """The mean and the log-variance of weights, and of biases."""
        return (self.weight, self.weight_log_var), (self.bias, self.bias_log_var)

    def product(self, x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
        raise NotImplementedError


class GaussianLinear(Gaussian, nn.Linear):
    def product(self, x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
        return F.linear(x, weight, bias)  # type: ignore[arg-type]


class GaussianConv2d(Gaussian, nn.Conv2d):
    def product(self, x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
        # Private: what Conv2d computes with other weights than its own, whatever its padding.
        return self._conv_forward(x, weight, bias)  # type: ignore[arg-type]


OF: dict[type[nn.Module], type[Gaussian]] = {nn.Linear: GaussianLinear, nn.Conv2d: GaussianConv2d}


def gaussian(network: nn.Module, log_var: float = -6.0, sampling: Sampling = "local") -> nn.Module:
    """The network itself, its linear and convolutional layers made Gaussian. Their weights become means;
    layers that are Gaussian stay as they are."""
    for layer in network.modules():
        if type(layer) in OF:
            layer.__class__ = OF[type(layer)]
            layer.begin(log_var, sampling)  # type: ignore[operator]
    return network


def gaussians(network: nn.Module) -> Iterator[Gaussian]:
    """The Gaussian layers of a network, in its order."""
    return (layer for layer in network.modules() if isinstance(layer, Gaussian))


def switched(network: nn.Module, sampling: Sampling | Literal["off"]) -> nn.Module:
    """The network itself, with another way to draw."""
    for layer in gaussians(network):
        layer.sampling = sampling
    return network


def divergence(layer: Gaussian, prior: Gaussian | None) -> Tensor:
    """KL(layer || prior) in nats. ``prior`` has no gradient; None: the standard normal, N(0, 1) a weight.

    1/2 sum [exp(v - v0) + (m - m0)^2 exp(-v0) - (v - v0) - 1]: 0 to the bit where both are the same, with a
    gradient of 0.
    """
    total = layer.weight.new_zeros(())
    for i, (m, v) in enumerate(layer.normals):
        if m is None:
            continue
        if prior is None:
            terms = v.exp() + m * m - v - 1
        else:
            m0, v0 = (each.detach() for each in prior.normals[i])
            terms = (v - v0).exp() + (m - m0).square() * (-v0).exp() - (v - v0) - 1
        total = total + terms.sum() / 2
    return total


class Bayesian(MLP):
    """An MLP with a normal variable for each weight and bias. ``log_var`` is the log-variance that they begin
    with: -6 in the code of Nguyen et al. 2018, ln(1e-6) = -13.8 in their paper. With -13.8 a weight hardly
    moves after the first task, with -6 it forgets."""

    def __init__(self, *, log_var: float = -6.0, sampling: Sampling = "local", **mlp: Any) -> None:
        super().__init__(**mlp)
        gaussian(self, log_var, sampling)
