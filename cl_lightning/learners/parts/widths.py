"""Networks of linear layers that grow in width, and are used up to the widths that they had."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils import skip_init

from cl_lightning.data.task import Batch, Task
from cl_lightning.errors import Refusal
from cl_lightning.learners.base import Candidate, Learner, Needs
from cl_lightning.learners.parts.growing_list import GrowingList
from cl_lightning.learners.parts.one_task import own_network, widened
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


def wide_of(hidden: Layers, head: Sequence[Tensor], dropout: float) -> Wide:
    """A network of copies of these weights."""

    def linear(weight: Tensor, bias: Tensor) -> nn.Linear:
        layer = skip_init(nn.Linear, weight.shape[1], weight.shape[0])
        layer.weight, layer.bias = (nn.Parameter(values.detach().clone()) for values in (weight, bias))
        return layer

    return Wide([linear(*layer) for layer in hidden], linear(*head), dropout)


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


class Widens(Learner):
    """A learner whose hidden layers grow. Each task has a head of its own, and is predicted with the first
    units of each layer, as many as there were when it was learned."""

    needs = Needs(task_id_at_test=True)
    starts_anew = True
    first_as_finetune = False  # its layers are in the memory

    def __init__(self, **base: Any) -> None:
        super().__init__(**base)
        self.dropout = first_network(self, 0, 1).dropout.p
        self.network = None
        self.heads = GrowingList(lambda below, outputs: nn.Linear(below, outputs).requires_grad_(False))
        self.memory["hidden"], self.memory["widths"] = [], []  # layers; their widths after each task

    def logits(self, c: Candidate, batch: Batch) -> Tensor:
        return widened(c.network(batch.x), self.head, batch.learning)

    def adopt(self, c: Candidate, task: Task) -> None:
        wide: Any = c.network
        self.memory["hidden"] = [[values.detach() for values in layer] for layer in wide.layers()]
        outputs = len(task.head.owned[task.index])
        self.heads.add(wide.head.requires_grad_(False), below=wide.head.in_features, outputs=outputs)
        self.memory["widths"] = [*self.memory["widths"], wide.widths]

    def predicts(self, task: int) -> bool:
        return task < len(self.heads)

    def forward(self, x: Tensor, task: int | None) -> Tensor:
        assert task is not None, "declared in needs"
        h = features(x, self.memory["hidden"], self.memory["widths"][task])
        return widened(self.heads[task](h), self.head, task)
