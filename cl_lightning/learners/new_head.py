"""A trunk for all tasks, and a head a task."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, Literal

import torch
import torch.nn as nn

from cl_lightning.data.task import Batch, Task
from cl_lightning.learners.base import Candidate, Learner, Needs
from cl_lightning.learners.parts.growing_list import GrowingList
from cl_lightning.learners.parts.one_task import own_network, widened


class TrunkAndHead(nn.Module):
    """A trunk and one head. With ``freeze_batch_norm`` the running statistics of the trunk stay as they are,
    while its weights learn."""

    def __init__(self, trunk: nn.Module, head: nn.Module, freeze_batch_norm: bool) -> None:
        super().__init__()
        self.trunk, self.head, self.freeze_batch_norm = trunk, head, freeze_batch_norm

    def train(self, mode: bool = True) -> TrunkAndHead:
        super().train(mode)
        for module in self.trunk.modules() if self.freeze_batch_norm else ():
            # Private: the one base class of batch normalisation in one, two and three dimensions.
            if isinstance(module, nn.modules.batchnorm._BatchNorm):
                module.eval()
        return self

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.trunk(x))


class NewHead(Learner):
    """New-head of Veniat et al. 2021: the network of the first task gives its trunk to all others, which get
    a head each.

    ``trunk=freeze``: nothing of it changes after the first task. ``trunk=finetune``: its weights go on
    learning; as in the authors' code its batch normalisation keeps the running statistics of the first task
    and uses them in training, too.
    """

    needs = Needs(task_id_at_test=True)
    starts_anew = True

    def __init__(self, *, trunk: Literal["freeze", "finetune"] = "freeze", **base: Any) -> None:
        super().__init__(**base)
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
        network = TrunkAndHead(trunk, head, freeze_batch_norm=not first)
        return [Candidate(copy.deepcopy(network), point) for point in self.grid]

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
