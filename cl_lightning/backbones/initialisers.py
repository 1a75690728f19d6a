"""How weights of linear and convolutional layers begin. Draws are those of torch's default generator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch.nn as nn

Layer = nn.Linear | nn.Conv2d
Init = Literal["torch", "torch_unbiased", "glorot", "fan_in", "tenth"]


def initialise(network: nn.Module, initialiser: Callable[[Layer], None]) -> None:
    """Give all its layers the weights and biases with which they begin."""
    for layer in (module for module in network.modules() if isinstance(module, Layer)):
        initialiser(layer)


def glorot(layer: Layer) -> None:
    """Uniform in +-sqrt(6 / (fan_in + fan_out)), bias 0: as in the code of Lopez-Paz and Ranzato 2017, but
    for multimodal networks."""
    nn.init.xavier_uniform_(layer.weight)
    zero_bias(layer)


def torch_unbiased(layer: Layer) -> None:
    """The weights that PyTorch drew when it made the layer, uniform in +-1/sqrt(fan_in), and bias 0: as in
    the multimodal networks of Lopez-Paz and Ranzato 2017, in their code."""
    zero_bias(layer)


def fan_in(layer: Layer) -> None:
    """Normal with deviation 1/sqrt(fan_in), bias 0: the fully connected networks of Pfülb and Gepperth 2019.

    Their code scales the third hidden layer by its own width instead of by that of its input, which is the
    same number only where the two are equal. Here it is the input's width in every layer.
    """
    cut_normal(layer, layer.weight[0].numel() ** -0.5)
    zero_bias(layer)


def tenth(layer: Layer) -> None:
    """Normal with deviation 0.1, bias 0.1: the EWC network of Pfülb and Gepperth 2019."""
    cut_normal(layer, 0.1)
    if layer.bias is not None:
        nn.init.constant_(layer.bias, 0.1)


def tenth_unbiased(layer: Layer) -> None:
    """Normal with deviation 0.1, bias 0: the convolutional network of Pfülb and Gepperth 2019."""
    cut_normal(layer, 0.1)
    zero_bias(layer)


def cut_normal(layer: Layer, deviation: float) -> None:
    """Draws beyond two deviations are drawn again. ``deviation`` is that of the uncut normal."""
    nn.init.trunc_normal_(layer.weight, std=deviation, a=-2 * deviation, b=2 * deviation)


def zero_bias(layer: Layer) -> None:
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)


INITIALISERS: dict[Init, Callable[[Layer], None]] = {
    "torch": lambda layer: None,
    "torch_unbiased": torch_unbiased,
    "glorot": glorot,
    "fan_in": fan_in,
    "tenth": tenth,
}
