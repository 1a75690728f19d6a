"""Generative adversarial networks, small ones, for learners that replay what they generate."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import torch
import torch.nn as nn
from torch import Tensor
from torch.func import functional_call
from torch.nn.functional import softplus

from cl_lightning.randomness import moved

Kind = Literal["mlp", "conv"]
NOISE = 100  # numbers that an image is made of
SLOPE = 0.2  # of LeakyReLU, as in Farquhar and Gal 2018
# Adam's there, too.
SETTINGS = {"optimizer": "adam", "betas": [0.5, 0.999], "weight_decay": 0.0, "clip": None}


class GAN(nn.Module):
    """A generator of images in [0, 1], and a discriminator that gives the log-odds of real ones."""

    def __init__(self, kind: Kind, shape: Sequence[int]) -> None:
        super().__init__()
        self.generator, self.discriminator = generator(kind, shape), discriminator(kind, shape)


def generator(kind: Kind, shape: Sequence[int]) -> nn.Sequential:
    """100-256-512-1024-pixels; or a dense layer, and two convolutions 5x5 behind an up-sampling each."""
    channels, height, width = shape
    if kind == "mlp":
        layers = dense(NOISE, 256, 512, 1024, torch.Size(shape).numel())[:-1]
    else:
        low = (128, -(-height // 4), -(-width // 4))
        layers = [
            *dense(NOISE, torch.Size(low).numel()), nn.Unflatten(1, low),
            nn.Upsample(scale_factor=2), nn.Conv2d(128, 64, 5, padding=2), nn.LeakyReLU(SLOPE),
            nn.Upsample(size=(height, width)), nn.Conv2d(64, channels, 5, padding=2), nn.Flatten(),
        ]  # fmt: skip
    return nn.Sequential(*layers, nn.Sigmoid(), nn.Unflatten(1, tuple(shape)))


def discriminator(kind: Kind, shape: Sequence[int]) -> nn.Sequential:
    """pixels-512-256-1; or two convolutions 5x5 with steps of 2, and a dense layer."""
    channels, height, width = shape
    if kind == "mlp":
        return nn.Sequential(nn.Flatten(), *dense(torch.Size(shape).numel(), 512, 256, 1)[:-1])
    units = 128 * -(-height // 4) * -(-width // 4)
    return nn.Sequential(
        nn.Conv2d(channels, 64, 5, 2, 2), nn.LeakyReLU(SLOPE),
        nn.Conv2d(64, 128, 5, 2, 2), nn.LeakyReLU(SLOPE),
        nn.Flatten(), nn.Linear(units, 1),
    )  # fmt: skip


def dense(*units: int) -> list[nn.Module]:
    """Linear layers with a LeakyReLU behind each."""
    return [layer for pair in pairwise(units) for layer in (nn.Linear(*pair), nn.LeakyReLU(SLOPE))]


def adversarial_loss(gan: GAN, real: Tensor, count: int) -> Tensor:
    """The loss of one step of both networks, on ``count`` generated images: of the discriminator,
    -log D(real) - log(1 - D(generated)); of the generator, -log D(generated), without a gradient for D
    (Goodfellow et al. 2014, the loss that does not saturate). Pixels are shown to D in [-1, 1]."""
    made = gan.generator(torch.randn(count, NOISE, device=next(gan.parameters()).device))
    odds = gan.discriminator(2 * torch.cat([real, made.detach()]) - 1)
    held = {name: p.detach() for name, p in gan.discriminator.named_parameters()}
    fooled = functional_call(gan.discriminator, held, (2 * made - 1,))
    of_real = softplus(-odds[: len(real)]).sum() / max(len(real), 1)  # a small mini-batch may have none
    return of_real + softplus(odds[len(real) :]).mean() + softplus(-fooled).mean()


@torch.no_grad()
def generated(
    kind: Kind, shape: Sequence[int], weights: Tensor, count: int, draws: torch.Generator
) -> Tensor:
    """Images of a generator with these weights, all in a row."""
    with torch.device("meta"):  # its numbers are not needed
        network = generator(kind, shape)
    names, like = zip(*network.named_parameters())
    parts = weights.split([p.numel() for p in like])
    named = {name: part.view(p.shape) for name, part, p in zip(names, parts, like)}
    noise = moved(torch.randn(count, NOISE, generator=draws), weights.device)
    return torch.cat([functional_call(network, named, (part,)) for part in noise.split(1000)])


def generator_of(gan: nn.Module) -> Tensor:
    """Its generator's weights in a row, which can be stored."""
    assert isinstance(gan, GAN)
    return torch.cat([p.detach().flatten() for p in gan.generator.parameters()])
