"""One network a task."""

from __future__ import annotations

import copy
from typing import Any, Literal

import torch
import torch.nn as nn

from cl_lightning.data.task import Task
from cl_lightning.learners.base import Candidate, Learner, Needs
from cl_lightning.learners.parts.growing_list import GrowingList


class Independent(Learner):
    """Nothing is shared but, if asked for, the start; nothing interferes.

    ``split_width=False, start=random`` is the baseline of Veniat et al. 2021: full-size networks, initialised
    anew. ``split_width=True, start=clone`` is that of Lopez-Paz and Ranzato 2017: hidden layers of size /
    tasks, each network starting from the previous task's weights. ``start`` may also be a dimension of the
    grid, as in that paper.
    """

    needs = Needs(task_id_at_test=True)
    frozen_predictions = True
    grid_keys = ("start",)

    def __init__(
        self, *, start: Literal["random", "clone"] = "random", split_width: bool = False, **base: Any
    ) -> None:
        super().__init__(**base)
        self.start, self.split_width = start, split_width
        self.starts_anew, self.first_as_finetune = start == "random", not split_width
        self.network = None
        self.networks = GrowingList(self.new_network)

    def candidates(self, task: Task) -> list[Candidate]:
        return [
            Candidate(self.first_weights(point.get("start", self.start), task), point) for point in self.grid
        ]

    def first_weights(self, start: str, task: Task) -> nn.Module:
        if start == "clone" and len(self.networks):
            return copy.deepcopy(self.networks[-1])
        return self.new_network(**self.how(task))

    def how(self, task: Task) -> dict[str, int]:
        return {"index": task.index, **({"divide_by": task.of} if self.split_width else {})}

    def new_network(self, index: int, **options: int) -> nn.Module:
        return self.fresh(index, **options)

    def adopt(self, c: Candidate, task: Task) -> None:
        self.networks.add(c.network, **self.how(task))

    def predicts(self, task: int) -> bool:
        return task < len(self.networks)

    def forward(self, x: torch.Tensor, task: int | None) -> torch.Tensor:
        assert task is not None, "declared in needs"
        return self.networks[task](x, task)
