"""Batch normalisation of modules that tasks share."""

from __future__ import annotations

from typing import Any, Literal

import torch.nn as nn

from cl_lightning.learners.base import Candidate, Learner
from cl_lightning.learners.parts.under_lightning import in_training

BatchNorm = Literal["train", "first_task"]


class Sharing(Learner):
    """A learner of modules that all tasks share. With ``batch_norm=first_task`` their running statistics stay
    those of the first task, and are used in training, too, while weights go on learning: as in the code of
    Veniat et al. 2021."""

    def __init__(self, *, batch_norm: BatchNorm = "train", **base: Any) -> None:
        super().__init__(**base)
        self.batch_norm = batch_norm

    def set_mode(self, c: Candidate, training: bool) -> None:
        super().set_mode(c, training)
        if self.batch_norm == "first_task" and in_training(self).task.index:
            for module in self.shared_modules(c).modules():
                # Private: the one base class of batch normalisation in one, two and three dimensions.
                if isinstance(module, nn.modules.batchnorm._BatchNorm):
                    module.eval()

    def shared_modules(self, c: Candidate) -> nn.Module:
        return c.network
