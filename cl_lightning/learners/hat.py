"""Hard attention to the task: each task learns which units it uses, and later tasks leave alone what was used
(Serrà et al. 2018)."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn as nn
from torch import Tensor

from cl_lightning.config.checking import NotNegative, Positive
from cl_lightning.data.task import Batch, Task
from cl_lightning.errors import Refusal
from cl_lightning.learners.base import Candidate, Learner, Needs
from cl_lightning.learners.parts.growing_list import GrowingList
from cl_lightning.learners.parts.held import hold, note
from cl_lightning.learners.parts.one_task import own_network, widened
from cl_lightning.randomness import rng

# What may be in a module beside its layer: it keeps units apart, and leaves at 0 those that are.
PLAIN = (nn.ReLU, nn.Dropout, nn.MaxPool2d, nn.Flatten)


class Gated(nn.Module):
    """A trunk whose units have gates, and the head of one task."""

    def __init__(self, trunk: nn.ModuleList, head: nn.Module, embedding: Tensor) -> None:
        super().__init__()
        self.trunk, self.head, self.embedding = trunk, head, nn.Parameter(embedding)

    def forward(self, h: Tensor, s: float) -> Tensor:
        for module, a in zip(self.trunk, torch.sigmoid(s * self.embedding).split(units(self.trunk))):
            h = module(h)
            h = h * spread(a, h.shape[1]).view(-1, *[1] * (h.dim() - 2))
        return self.head(h)


class HAT(Learner):
    """Gates a = sigmoid(s e) multiply what each layer gives. s rises in each epoch from 1/s_max to s_max, and
    is s_max at test. A, the greatest a of all tasks so far, says how much a unit is used. The loss is
    cross-entropy + strength sum a (1 - A) / sum (1 - A).

    Of each step of a weight the part min(A of its output, A of its input) is taken back. The paper multiplies
    gradients by 1 less this, which is the same for SGD; momentum, Adam and decay would still move what is in
    use. The gradient of e is multiplied by s_max/s (cosh(s e) + 1) / (cosh(e) + 1): it is s_max times what it
    were with s = 1 there. Then the norm of the whole gradient is cut at 10,000, and after the step e at -6
    and 6. Gates that stay between 0 and 1 let old tasks' logits drift a little.
    """

    needs = Needs(task_id_at_test=True)
    grid_keys, starts_anew, first_as_finetune = ("strength",), True, False

    def __init__(self, *, strength: NotNegative = 0.75, s_max: Positive = 400.0, **base: Any) -> None:
        super().__init__(**base)
        self.strength, self.s_max = strength, s_max
        self.network, self.trunk = None, self.parts(0, 1)[0]
        self.heads = GrowingList(lambda num_outputs: self.parts(0, num_outputs)[1])
        self.memory["e"] = []  # (units,) of each task

    def parts(self, task: int, num_outputs: int) -> tuple[nn.ModuleList, nn.Module]:
        *trunk, head = own_network(self, task, num_outputs).path_modules().values()
        for module in trunk:
            if [part for part in module if not isinstance(part, PLAIN)] != [layer_of(module)]:
                raise Refusal(
                    "HAT gates the units of one linear layer or convolution in each module, with ReLU, "
                    "dropout and max pooling.\nThis network has other parts, which would go on moving under "
                    "old tasks. Use backbone=alexnet, mlp or conv."
                )
        return nn.ModuleList(trunk), head

    def candidates(self, task: Task) -> list[Candidate]:
        _, head = self.parts(task.index, len(task.head.owned[task.index]))
        e = torch.randn(sum(units(self.trunk)), generator=rng(self.seed, "gates", task.index))
        return [Candidate(copy.deepcopy(Gated(self.trunk, head, e)), point) for point in self.grid]

    def s(self, batch: Batch) -> float:
        share = batch.index_in_epoch / max(batch.batches_per_epoch - 1, 1)
        return 1 / self.s_max + (self.s_max - 1 / self.s_max) * share

    def used(self) -> Tensor:
        """(units,) A."""
        none = next(self.trunk.parameters()).new_zeros(sum(units(self.trunk)))
        return torch.stack([none, *(torch.sigmoid(self.s_max * e) for e in self.memory["e"])]).amax(0)

    def logits(self, c: Candidate, batch: Batch) -> Tensor:
        s = self.s(batch) if c.network.training else self.s_max
        return widened(c.network(batch.x, s), self.head, batch.learning)

    def loss(self, c: Candidate, batch: Batch) -> Tensor:
        a, free = torch.sigmoid(self.s(batch) * gated(c).embedding), 1 - self.used()
        penalty = (a * free).sum() / free.sum().clamp(min=1e-6)  # 0 where all units are in use
        return super().loss(c, batch) + c.hparams.get("strength", self.strength) * penalty

    @torch.no_grad()
    def after_backward(self, c: Candidate, batch: Batch) -> None:
        e, s = gated(c).embedding, self.s(batch)
        e.grad *= self.s_max / s * (torch.cosh((s * e).clamp(-50, 50)) + 1) / (torch.cosh(e) + 1)
        nn.utils.clip_grad_norm_(c.parameters, 10_000)
        note(c, gated(c).trunk.parameters())

    def after_step(self, c: Candidate, batch: Batch) -> None:
        gated(c).embedding.clamp_(-6, 6)
        hold(c, self.masks())

    def masks(self) -> Iterator[Tensor]:
        """min(A of its output, A of its input) of each weight in the trunk; pixels are in use."""
        below = self.used().new_ones(1)
        for module, A in zip(self.trunk, self.used().split(units(self.trunk))):
            for w in module.parameters():
                both = torch.minimum(A[:, None], spread(below, w.shape[1])) if w.dim() > 1 else A
                yield both.view(*both.shape, *[1] * (w.dim() - both.dim()))
            below = A

    def adopt(self, c: Candidate, task: Task) -> None:
        self.trunk = gated(c).trunk
        self.heads.add(gated(c).head, num_outputs=len(task.head.owned[task.index]))
        self.memory["e"] = [*self.memory["e"], gated(c).embedding.detach()]

    def account(self) -> dict[str, Any]:
        """Units a layer: in all, those with an open gate in this task, and those with one in any task."""
        opened, sizes = torch.stack(self.memory["e"]) > 0, units(self.trunk)
        of_task, of_any = ([int(n.sum()) for n in row.split(sizes)] for row in (opened[-1], opened.any(0)))
        return {"units": sizes, "units_used": of_task, "units_used_so_far": of_any}

    def predicts(self, task: int) -> bool:
        return task < len(self.heads)

    def forward(self, x: Tensor, task: int | None) -> Tensor:
        assert task is not None, "declared in needs"
        network = Gated(self.trunk, self.heads[task], self.memory["e"][task])
        return widened(network(x, self.s_max), self.head, task)


def gated(c: Candidate) -> Any:
    return c.network


def layer_of(module: nn.Module) -> Any:
    """The layer of a module that has weights."""
    return next((part for part in module.children() if isinstance(part, nn.Linear | nn.Conv2d)), None)


def units(trunk: nn.ModuleList) -> list[int]:
    """The units of each layer; of a convolution, its channels."""
    return [len(layer_of(module).weight) for module in trunk]


def spread(values: Tensor, width: int) -> Tensor:
    """The values of channels, each for all of its features."""
    return values[:, None].expand(-1, width // len(values)).flatten()
