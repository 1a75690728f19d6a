"""Networks of linear layers that grow in width, and are used up to the widths that they had."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor

from cl_lightning.errors import Refusal
from cl_lightning.learners.base import Learner
from cl_lightning.learners.parts.one_task import own_network
from cl_lightning.randomness import seeded

Layers = list[list[Tensor]]  # of each hidden one the weight (units, units below) and the bias


class Wide(nn.Module):
    """Hidden layers with ReLU and dropout, and the head of one task."""

    def __init__(self, hidden: Sequence[nn.Linear], head: nn.Linear, dropout: float) -> None:
        super().__init__()
        self.hidden, self.head, self.dropout = nn.ModuleList(hidden), head, nn.Dropout(dropout)

    def layers(self) -> Layers:
        return [[layer.weight, layer.bias] for layer in self.hidden if isinstance(layer, nn.Linear)]

    @property
    def widths(self) -> list[int]:
        return [len(bias) for _, bias in self.layers()]

    def forward(self, x: Tensor) -> Tensor:
        return self.head(features(x, self.layers(), self.widths, self.dropout))


def features(x: Tensor, hidden: Layers, widths: Sequence[int], dropout: Callable = lambda h: h) -> Tensor:
    """What the first units of each layer give. Copies of the weights have the layout, and so the bits, of
    layers that never grew."""
    h = x.flatten(1)
    for (weight, bias), width in zip(hidden, widths):
        h = dropout(F.linear(h, weight[:width, : h.shape[1]].contiguous(), bias[:width]).relu())
    return h


def first_network(learner: Learner, task: int, num_outputs: int) -> Wide:
    """A new network of linear layers for one task."""
    network = own_network(learner, task, num_outputs)
    named = [part for module in network.path_modules().values() for part in module.named_children()]
    layers = [part for _, part in named if isinstance(part, nn.Linear)]
    plain = all(isinstance(part, PLAIN) and name != "input_dropout" for name, part in named)
    if not plain or len(layers) < 2:
        raise Refusal(
            f"{type(learner).__name__} adds units to hidden linear layers with ReLU, and this network has "
            "other parts, or none. Use backbone=mlp, without input_dropout."
        )
    rates = [part.p for _, part in named if isinstance(part, nn.Dropout)]
    return Wide(layers[:-1], layers[-1], max(rates, default=0.0))


PLAIN = (nn.Flatten, nn.Linear, nn.ReLU, nn.Dropout)


@torch.no_grad()
def widened_by(old: Layers, added: Sequence[int], num_outputs: int, dropout: float, *key: object) -> Wide:
    """The layers with so many units more, each of them connected to all units below and above, and a new
    head. New weights are drawn as torch draws those of layers of this size."""
    with seeded(*key):
        sizes = [old[0][0].shape[1], *(len(bias) + n for (_, bias), n in zip(old, added))]
        hidden = [nn.Linear(below, width) for below, width in pairwise(sizes)]
        wide = Wide(hidden, nn.Linear(sizes[-1], num_outputs), dropout).to(old[0][0].device)
    put_back(wide, old)
    return wide


@torch.no_grad()
def put_back(wide: Wide, old: Layers) -> None:
    """Old units get the weights that they had from old units below."""
    for now, before in zip(wide.layers(), old):
        for values, kept in zip(now, before):
            values[tuple(slice(n) for n in kept.shape)] = kept
