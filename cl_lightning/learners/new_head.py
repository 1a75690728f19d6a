"""A trunk for all tasks, and a head a task."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, Literal

import torch
import torch.nn as nn

from cl_lightning.data.task import Batch, Task
from cl_lightning.learners.base import Candidate, Needs
from cl_lightning.learners.parts.batch_norm import BatchNorm, Sharing
from cl_lightning.learners.parts.growing_list import GrowingList
from cl_lightning.learners.parts.one_task import own_network, widened


class TrunkAndHead(nn.Module):
    """A trunk and one head."""

    def __init__(self, trunk: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.trunk, self.head = trunk, head

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.trunk(x))


class NewHead(Sharing):
    """New-head of Veniat et al. 2021: the network of the first task gives its trunk to all others, which get
    a head each.

    ``trunk=freeze``: nothing of it changes after the first task. ``trunk=finetune``: its weights go on
    learning.
    """

    needs = Needs(task_id_at_test=True)
    starts_anew = True

    def __init__(
        self,
        *,
        trunk: Literal["freeze", "finetune"] = "freeze",
        batch_norm: BatchNorm = "first_task",
        **base: Any,
    ) -> None:
        super().__init__(batch_norm=batch_norm, **base)
        self.freezes = trunk == "freeze"
        self.frozen_predictions = self.freezes
        self.trunk, _ = self.parts(0, 1)
        self.network, self.heads = None, GrowingList(lambda num_outputs: self.parts(0, num_outputs)[1])

    def parts(self, task: int, num_outputs: int) -> tuple[nn.Module, nn.Module]:
        *trunk, head = own_network(self, task, num_outputs).path_modules().values()
        return nn.Sequential(*trunk), head

    def candidates(self, task: Task) -> list[Candidate]:
        first = task.index == 0
        trunk, head = self.parts(task.index, len(task.head.owned[task.index]))
        if not first:
            trunk = nn.Sequential() if self.freezes else self.trunk  # a frozen trunk is nobody's to train
        network = TrunkAndHead(trunk, head)
        return [Candidate(copy.deepcopy(network), point) for point in self.grid]

    def shared_modules(self, c: Candidate) -> nn.Module:
        new: Any = c.network
        return new.trunk

    def adopt(self, c: Candidate, task: Task) -> None:
        new: Any = c.network
        if task.index == 0 or not self.freezes:
            self.trunk = new.trunk.eval()
        if self.freezes:
            self.trunk.requires_grad_(False)
        self.heads.add(new.head, num_outputs=len(task.head.owned[task.index]))

    def shared(self, batch: Batch, candidates: Sequence[Candidate]) -> torch.Tensor:
        """Features of the frozen trunk, once for all candidates."""
        return self.trunk(batch.x) if self.freezes and len(self.heads) else batch.x

    def logits(self, c: Candidate, batch: Batch) -> torch.Tensor:
        return widened(c.network(batch.shared), self.head, batch.learning)

    def predicts(self, task: int) -> bool:
        return task < len(self.heads)

    def forward(self, x: torch.Tensor, task: int | None) -> torch.Tensor:
        assert task is not None, "declared in needs"
        return widened(self.heads[task](self.trunk(x)), self.head, task)
