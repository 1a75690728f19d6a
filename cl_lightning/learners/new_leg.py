"""A first module a task, and all others shared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn as nn

from cl_lightning.data.task import Batch
from cl_lightning.errors import Refusal
from cl_lightning.learners.base import Candidate
from cl_lightning.learners.new_head import NewHead
from cl_lightning.learners.parts.one_task import own_network, widened


class NewLeg(NewHead):
    """New-leg of Veniat et al. 2021, New-head the other way round: the first module is each task's own, and
    all behind it, with the output layer, are the first task's. So they are what ``trunk`` is about here, and
    ``heads`` holds the legs. All tasks need the same number of classes."""

    first_as_finetune = False  # the same weights in another order: the legs are behind the trunk

    def __init__(self, **base: Any) -> None:
        super().__init__(**base)
        if len(counts := sorted({len(own) for own in self.head.owned})) > 1:
            raise Refusal(
                f"New-leg has one output layer for all tasks, but they have {counts} classes. Use a stream "
                "whose tasks have equally many, or learner=new_head."
            )
        self.trunk, _ = self.parts(0, counts[0])
        self.trunk.requires_grad_(not self.freezes)  # here, too: no checkpoint says what is frozen

    def parts(self, task: int, num_outputs: int) -> tuple[nn.Module, nn.Module]:
        leg, *trunk = own_network(self, task, num_outputs).path_modules().values()
        return nn.Sequential(*trunk), leg

    def shared(self, batch: Batch, candidates: Sequence[Candidate]) -> torch.Tensor:
        return batch.x

    def logits(self, c: Candidate, batch: Batch) -> torch.Tensor:
        new: Any = c.network
        trunk = self.trunk if self.freezes and len(self.heads) else new.trunk
        return widened(trunk(new.head(batch.x)), self.head, batch.learning)

    def forward(self, x: torch.Tensor, task: int | None) -> torch.Tensor:
        assert task is not None, "declared in needs"
        return widened(self.trunk(self.heads[task](x)), self.head, task)
