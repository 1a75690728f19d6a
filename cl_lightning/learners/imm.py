"""Incremental moment matching."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

import torch
import torch.nn as nn
import torch.nn.functional as F

from cl_lightning.backbones.base import ByTask
from cl_lightning.config.checking import Count, NotNegative, Rate, Share
from cl_lightning.data.task import Batch, Task
from cl_lightning.learners.base import Candidate, Learner, Phases
from cl_lightning.learners.parts.fisher import Labels, information
from cl_lightning.learners.parts.gradients import trained

SMALL = 1e-8  # added to each Fisher information, as in the authors' program


class IMM(Learner):
    """Networks trained one after the other, and tested as one with matched moments (Lee et al. 2017).

    ``mean``: w = sum_k alpha_k w_k. ``mode``: w = sum_k alpha_k F_k w_k / sum_k alpha_k F_k, where F_k is the
    diagonal Fisher information of ``examples`` of task k. The last task's alpha is ``alpha`` (null: 1 /
    tasks), the past ones share the rest equally, so that two sums are all that is held of them. ``alphas``
    are tested besides, each as a predictor of its own. Learning goes on from the last network, not from the
    merged one.

    Each task begins with the last one's weights (weight transfer). ``strength`` adds strength |w - w_last|^2
    to the loss (L2 transfer); ``drop`` makes layers compute dropout(x (W - W_last)) + x W_last (drop
    transfer). Output layers of one task each are not merged.
    """

    grid_keys = ("strength",)
    without_strength = {"strength": 0}

    def __init__(
        self,
        *,
        merging: Literal["mean", "mode"] = "mode",
        alpha: Share | None = None,
        alphas: Sequence[Share] = (),
        strength: NotNegative = 0.0,
        drop: Rate = 0.0,
        fisher: Labels = "sample",
        examples: Count | None = None,
        **base: Any,
    ) -> None:
        super().__init__(**base)
        self.merging, self.alpha, self.alphas = merging, alpha, tuple(alphas)
        self.strength, self.drop, self.labels, self.examples = strength, drop, fisher, examples

    # ---- how one network is trained from the last ----------------------------------------------------------

    def candidates(self, task: Task) -> list[Candidate]:
        found = super().candidates(task)
        if self.drop and task.index:
            for c in found:
                replace_linear(c.network, lambda layer: DropTransfer(layer, self.drop))
        return found

    @torch.no_grad()
    def after_backward(self, c: Candidate, batch: Batch) -> None:
        """The gradient of strength |w - w_last|^2."""
        strength = float(c.hparams.get("strength", self.strength))
        if strength and batch.learning:
            for p, last in zip(c.parameters, trained(self.network)):
                if p.grad is not None:
                    p.grad += 2 * strength * (p - last)

    def adopt(self, c: Candidate, task: Task) -> None:
        replace_linear(c.network, lambda layer: layer.layer if isinstance(layer, DropTransfer) else layer)
        super().adopt(c, task)

    # ---- what is kept for merging --------------------------------------------------------------------------

    def on_task_start(self, task: Task) -> None:
        if not task.index:
            return
        w_last = [w.detach() for w in merged_in(self.network)]
        F_last = self.memory.get("F", [1.0] * len(w_last))
        past = self.memory.get("past", [[0.0] * len(w_last)] * 2)
        self.memory["past"] = [
            [old + f for old, f in zip(past[0], F_last)],
            [old + f * w for old, f, w in zip(past[1], F_last, w_last)],
        ]

    def on_task_end(self, task: Task) -> None:
        if self.merging == "mode":
            rows = zip(trained(self.network), information(self, task, self.labels, self.examples))
            found = {id(w): f + SMALL for w, f in rows}
            self.memory["F"] = [found.get(id(w), 1.0) for w in merged_in(self.network)]

    # ---- what is tested ------------------------------------------------------------------------------------

    def predictors(self, seen: int) -> Phases:
        if seen < 2:
            return {"": self}
        alphas = {"": 1 / seen if self.alpha is None else self.alpha}
        alphas |= {f"alpha={alpha:g}": alpha for alpha in self.alphas}
        return {name: partial(self.merged, alpha, seen) for name, alpha in alphas.items()}
        yield

    @torch.no_grad()
    def merged(self, alpha: float, seen: int) -> IMM:
        """A copy with merged weights: those of the last network, moved towards the mean of past ones by the
        past share of the information."""
        copied = copy.deepcopy(self)
        weights, rest = merged_in(copied.network), (1 - alpha) / (seen - 1)
        now = self.memory.get("F", [1.0] * len(weights))
        for w, f, f_past, fw_past in zip(weights, now, *self.memory["past"]):
            w.lerp_(fw_past / f_past, rest * f_past / (alpha * f + rest * f_past))
        return copied


class DropTransfer(nn.Module):
    """A linear layer that trains its difference from the last task's: dropout is around what it was, not
    around 0."""

    def __init__(self, layer: nn.Linear, rate: float) -> None:
        super().__init__()
        self.layer, self.rate = layer, rate
        self.register_buffer("weight", layer.weight.detach().clone(), persistent=True)
        self.register_buffer("bias", layer.bias.detach().clone(), persistent=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight, bias = self.get_buffer("weight"), self.get_buffer("bias")
        change = F.linear(x, self.layer.weight - weight, self.layer.bias - bias)
        return F.dropout(change, self.rate, self.training) + F.linear(x, weight, bias)


def replace_linear(network: nn.Module, new: Callable[[Any], nn.Module]) -> None:
    """Put something else in the place of each linear layer that is not one task's own."""
    for name, module in list(network.named_children()):
        if isinstance(module, nn.Linear | DropTransfer):
            setattr(network, name, new(module))
        elif not isinstance(module, ByTask):
            replace_linear(module, new)


def merged_in(network: nn.Module) -> list[torch.Tensor]:
    """What is merged: all weights and running statistics but those of layers of one task each."""
    own = {id(t) for module in network.modules() if isinstance(module, ByTask) for t in module.parameters()}
    tensors = [*trained(network), *(b for b in network.buffers() if b.is_floating_point())]
    return [t for t in tensors if id(t) not in own]
