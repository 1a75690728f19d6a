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
from cl_lightning.learners.parts.growing_list import GrowingList
from cl_lightning.learners.parts.one_task import own_network
from cl_lightning.randomness import seeded


class Wide(nn.Module):
    """Hidden layers with ReLU and dropout, and the head of one task."""

    def __init__(self, hidden: Sequence[nn.Linear], head: nn.Linear, dropout: float) -> None:
        super().__init__()
        self.hidden, self.head, self.dropout = nn.ModuleList(hidden), head, nn.Dropout(dropout)

    @property
    def widths(self) -> list[int]:
        return [layer.out_features for layer in linears(self.hidden)]

    def forward(self, x: Tensor) -> Tensor:
        return self.head(features(x, linears(self.hidden), self.widths, self.dropout))


def linears(modules: nn.ModuleList) -> list[nn.Linear]:
    return [layer for layer in modules if isinstance(layer, nn.Linear)]


def features(
    x: Tensor, hidden: Sequence[nn.Linear], widths: Sequence[int], dropout: Callable = lambda h: h
) -> Tensor:
    """What the first units of each layer give. Copies of the weights have the layout, and so the bits, of
    layers that never grew."""
    h = x.flatten(1)
    for layer, width in zip(hidden, widths):
        weight = layer.weight[:width, : h.shape[1]].contiguous()
        h = dropout(F.linear(h, weight, layer.bias[:width]).relu())
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
def widened_by(
    old: Sequence[nn.Linear], added: Sequence[int], num_outputs: int, dropout: float, *key: object
) -> Wide:
    """The layers with so many units more, each of them connected to all units below and above, and a new
    head. New weights are drawn as torch draws those of layers of this size."""
    with seeded(*key):
        sizes = [old[0].in_features, *(layer.out_features + n for layer, n in zip(old, added))]
        hidden = [nn.Linear(below, width) for below, width in pairwise(sizes)]
        wide = Wide(hidden, nn.Linear(sizes[-1], num_outputs), dropout).to(old[0].weight.device)
    put_back(hidden, old)
    return wide


@torch.no_grad()
def put_back(wider: Sequence[nn.Linear], old: Sequence[nn.Linear]) -> None:
    """Old units get the weights that they had from old units below."""
    for now, before in zip(wider, old):
        rows, columns = before.weight.shape
        now.weight[:rows, :columns] = before.weight
        now.bias[:rows] = before.bias


def grown(hidden: Sequence[nn.Linear] = ()) -> GrowingList:
    """Layers that a checkpoint can make again."""
    layers = GrowingList(lambda below, width: nn.Linear(below, width).requires_grad_(False))
    for layer in hidden:
        layers.add(layer.requires_grad_(False), below=layer.in_features, width=layer.out_features)
    return layers
