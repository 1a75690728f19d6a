"""Dynamically expandable networks: a task retrains the units that it needs, adds units, and splits those that
drifted (Yoon et al. 2018)."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor

from cl_lightning.config.checking import NotNegative, Size
from cl_lightning.data.task import Batch, Task
from cl_lightning.learners.base import Candidate, Phase, Phases
from cl_lightning.learners.parts.one_task import widened
from cl_lightning.learners.parts.widths import Wide, Widens, features, first_network, wide_of, widened_by


class Held(nn.Module):
    """A layer before a phase. The phase trains what leads to ``units`` from the units ``below``."""

    weight: Tensor
    bias: Tensor
    units: Tensor
    below: Tensor

    def __init__(self, layer: Sequence[Tensor], units: Tensor, below: Tensor) -> None:
        super().__init__()
        for name, values in zip(("weight", "bias"), layer):
            self.register_buffer(name, values.detach().clone(), persistent=False)
        self.register_buffer("units", units.clone())
        self.register_buffer("below", below.clone())

    def put_back(self, weight: Tensor, bias: Tensor) -> None:
        weight.copy_(torch.where(self.units[:, None] & self.below, weight, self.weight))
        bias.copy_(torch.where(self.units, bias, self.bias))


class Part(Wide):
    """A network of which a part is trained. Its head reads the units ``read`` of the last layer alone."""

    read: Tensor

    def __init__(self, wide: Wide, units: Sequence[Tensor], below: Sequence[Tensor], read: Tensor) -> None:
        hidden: Any = wide.hidden
        super().__init__([*hidden], wide.head, wide.dropout.p)
        self.held: Any = nn.ModuleList(map(Held, wide.layers(), units, below))
        self.register_buffer("read", read.clone())

    def put_back(self) -> None:
        for held, layer in zip(self.held, self.layers()):
            held.put_back(*layer)
        self.head.weight.mul_(self.read)

    def train_only(self, used: Sequence[Tensor]) -> None:
        """``used``: inputs, and units of each layer."""
        for held, below, units in zip(self.held, used, used[1:]):
            held.below.copy_(below)
            held.units.copy_(units)
        self.read.copy_(used[-1])

    @property
    def trained(self) -> list[Tensor]:
        return [self.held[0].below, *(held.units for held in self.held)]


class DEN(Widens):
    """The first task is learned with weights that shrink by ``l1`` after each mini-batch, and with l2 / 2
    |W|^2. Each later one has up to three phases.

    Selective retraining: in the first tenth of the mini-batches the new head is trained alone, and shrinks by
    ``l1``. Units from which non-zero weights lead to it are S; from then on weights between units of S are
    trained, with ``drift`` / 2 |W_S - W_S before|^2. Expansion, where the training loss is above
    ``threshold``: ``units`` more in each layer read all below, and are read by new ones and the head. They
    alone are trained; their weights shrink by ``l1``, and what leads to a unit also by ``group`` in length;
    units to which nothing leads go. Split: an old unit whose weights moved by more than ``split``, the
    ``splits`` farthest in each layer, gets the weights that it had, and a new unit those that it has. New
    units and the head read the new one in the place of the old one; then S, without what was split, and
    all new units are trained with the same penalty.

    Where paper and released code disagree: all columns of the head count (the code takes the first), and the
    farthest units are split (the code takes the nearest above the threshold). The loss is cross-entropy, as
    of all learners (in both, one logistic loss a class). Old units that moved by less are not put back: old
    tasks may lose by them.
    """

    def __init__(
        self,
        *,
        l1: NotNegative = 1e-5,
        l2: NotNegative = 1e-4,
        drift: NotNegative = 0.5,
        threshold: NotNegative = 0.01,
        units: Size = 10,
        group: NotNegative = 1e-3,
        split: NotNegative = 0.05,
        splits: Size = 10,
        **base: Any,
    ) -> None:
        super().__init__(**base)
        self.l1, self.l2, self.drift, self.group = l1, l2, drift, group
        self.threshold, self.units, self.split, self.splits = threshold, units, split, splits

    # ---- a task --------------------------------------------------------------------------------------------

    def learn(self, task: Task) -> Phases:
        if not task.index:
            best = yield self.phase("train", first_network(self, 0, len(task.head.owned[0])))
            self.adopt(best.candidate, task)
            return
        best = yield self.phase("retrain", self.with_new_head(task))
        network: Any = best.candidate.network
        used, loss = network.trained, self.once("loss", lambda: self.mean_loss(network, task))
        if loss > self.threshold and self.units:
            best = yield self.phase("expand", self.expanded(network, task))
        wide = self.without_idle(best.candidate)
        added = [now - before for now, before in zip(wide.widths, network.widths)]
        if any(map(len, moved := self.moved(wide))):
            best = yield self.phase("split", self.after_split(wide, moved, used))
        self.adopt(best.candidate, task)
        counts, split = [int(units.sum()) for units in used], [len(which) for which in moved]
        self.notes = {"used": counts, "loss": loss, "added": added, "split": split}

    def phase(self, name: str, network: Wide) -> Phase:
        return Phase([Candidate(copy.deepcopy(network), point) for point in self.grid], name=name)

    def adopt(self, c: Candidate, task: Task) -> None:
        super().adopt(Candidate(self.without_idle(c), c.hparams), task)

    # ---- a mini-batch --------------------------------------------------------------------------------------

    def loss(self, c: Candidate, batch: Batch) -> Tensor:
        network: Any = c.network
        if not self.memory["hidden"]:
            return super().loss(c, batch) + self.l2 / 2 * squares(c.parameters)
        layers = zip(network.layers(), self.memory["hidden"])
        moved = [block(now, old) - old for layer, before in layers for now, old in zip(layer, before)]
        return super().loss(c, batch) + self.drift / 2 * squares(moved)

    @torch.no_grad()
    def after_step(self, c: Candidate, batch: Batch) -> None:
        assert batch.steps is not None, "known in training"
        network: Any = c.network
        done, tenth = batch.key[-1] + 1, max(1, batch.steps // 10)
        finds_units = batch.phase == "retrain" and done <= tenth
        if finds_units or batch.phase in ("train", "expand"):
            shrink(network.head.weight, self.l1)
        if batch.phase in ("train", "expand"):
            for weight, _ in network.layers():
                shrink(weight, self.l1, self.group if batch.phase == "expand" else 0.0)
        if isinstance(network, Part):
            network.put_back()
            if finds_units and done == tenth:
                network.train_only(used_units(network))

    # ---- networks between phases ---------------------------------------------------------------------------

    def with_new_head(self, task: Task) -> Part:
        """None of its hidden weights is trained yet."""
        old, outputs = self.memory["hidden"], len(task.head.owned[task.index])
        wide = widened_by(old, [0] * len(old), outputs, self.dropout, self.seed, "init", task.index)
        none = [torch.zeros_like(bias, dtype=torch.bool) for _, bias in old]
        inputs = torch.zeros_like(old[0][0][0], dtype=torch.bool)
        return Part(wide, none, [inputs, *none], ~none[-1])

    @torch.no_grad()
    def mean_loss(self, network: Wide, task: Task) -> float:
        total = 0.0
        for x, y in zip(task.train.x.split(1000), task.train.y.split(1000)):
            logits = network.head(features(x, network.layers(), network.widths))
            total += F.cross_entropy(widened(logits, self.head, task.index), y, reduction="sum").item()
        return total / len(task.train)

    @torch.no_grad()
    def expanded(self, network: Part, task: Task) -> Part:
        """Old units do not read new ones."""
        old, head, last = network.layers(), network.head, network.widths[-1]
        key = (self.seed, "init", task.index, "expand")
        wide = widened_by(old, [self.units] * len(old), head.out_features, self.dropout, *key)
        for (weight, _), (before, _) in zip(wide.layers(), old):
            weight[: len(before), before.shape[1] :] = 0
        wide.head.weight[:, :last] = head.weight
        wide.head.bias.copy_(head.bias)
        new = [torch.arange(len(bias), device=bias.device) >= len(before[1])
               for (_, bias), before in zip(wide.layers(), old)]  # fmt: skip
        every = [torch.ones_like(weight[0], dtype=torch.bool) for weight, _ in wide.layers()]
        return Part(wide, new, every, torch.cat([network.read, new[-1][last:]]))

    def without_idle(self, c: Candidate) -> Wide:
        """Its network without new units to which no weight leads."""
        wide: Any = c.network
        old = self.memory["widths"][-1] if self.memory["widths"] else wide.widths
        stay = [weight.ne(0).any(1) | (torch.arange(len(weight), device=weight.device) < n)
                for (weight, _), n in zip(wide.layers(), old)]  # fmt: skip
        if all(units.all() for units in stay):
            return wide
        read = [torch.ones_like(wide.layers()[0][0][0], dtype=torch.bool), *stay]
        hidden = [[weight[units][:, below], bias[units]]
                  for (weight, bias), units, below in zip(wide.layers(), stay, read)]  # fmt: skip
        return wide_of(hidden, (wide.head.weight[:, read[-1]], wide.head.bias), self.dropout)

    @torch.no_grad()
    def moved(self, wide: Wide) -> list[Tensor]:
        """The old units of each layer that moved too far, in order."""
        found = []
        for (weight, _), (before, _) in zip(wide.layers(), self.memory["hidden"]):
            far = (block(weight, before) - before).norm(dim=1)
            farthest = far.argsort(descending=True, stable=True)[: self.splits]
            found.append(farthest[far[farthest] > self.split].sort().values)
        return found

    @torch.no_grad()
    def after_split(self, wide: Wide, moved: Sequence[Tensor], used: Sequence[Tensor]) -> Part:
        """``used`` are units of the old widths."""
        hidden, units, below, under = [], [], [used[0]], moved[0][:0]  # inputs are not split
        for layer, before, which, was in zip(wide.layers(), self.memory["hidden"], moved, used[1:]):
            weight, bias = (torch.cat([values, values[which]]) for values in layer)
            weight = handed_on(weight, under, len(was))
            weight[which] = F.pad(before[0][which], (0, weight.shape[1] - before[0].shape[1]))
            bias[which] = before[1][which]
            below.append(torch.cat([was, was.new_ones(len(bias) - len(was))]))
            units.append(below[-1].index_fill(0, which, False))
            hidden.append([weight, bias])
            under = which
        head = (handed_on(wide.head.weight, under, 0), wide.head.bias)
        return Part(wide_of(hidden, head, self.dropout), units, below, below[-1])

    def published_memory(self, learned: int) -> int:
        """Besides weights, a whole number for each hidden layer of each task."""
        return super().published_memory(learned) + 4 * learned * len(self.memory["hidden"])


def used_units(network: Wide) -> list[Tensor]:
    """Of inputs and of each layer, the units from which weights lead to the head that are not 0."""
    found = [network.head.weight.ne(0).any(0)]
    for weight, _ in network.layers()[::-1]:
        found.insert(0, weight[found[0]].ne(0).any(0))
    return found


def shrink(weight: Tensor, l1: float, group: float = 0.0) -> None:
    """Nearer to 0: each weight by ``l1``, and then all that lead to a unit by ``group`` in length."""
    weight.copy_(F.softshrink(weight, l1))
    if group:
        weight.mul_((1 - group / weight.norm(dim=1, keepdim=True).clamp(min=1e-12)).clamp(min=0))


def handed_on(weight: Tensor, which: Tensor, first: int) -> Tensor:
    """From row ``first`` on, weights from these units become those from new units, which are appended."""
    new, weight = weight[:, which].clone(), weight.clone()
    new[:first] = 0
    weight[first:, which] = 0
    return torch.cat([weight, new], dim=1)


def block(now: Tensor, old: Tensor) -> Tensor:
    """What was there before it grew."""
    return now[tuple(slice(n) for n in old.shape)]


def squares(tensors: Sequence[Tensor]) -> Any:
    return sum(values.square().sum() for values in tensors)
