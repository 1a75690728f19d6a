"""Progressive networks: a column of modules a task, which also reads what old columns compute (Rusu et al.
2016, as Veniat et al. 2021 run them)."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch.nn as nn
from torch import Tensor

from cl_lightning.data.task import Batch, Task
from cl_lightning.learners.base import Candidate, Learner, Needs
from cl_lightning.learners.parts.growing_list import GrowingList
from cl_lightning.learners.parts.one_task import own_network, widened


class Column(nn.Module):
    """A task's own modules, and for each older column copies of all but the first, which read that column."""

    def __init__(self, own: Sequence[nn.Module], laterals: Sequence[Sequence[nn.Module]]) -> None:
        super().__init__()
        self.own = nn.ModuleList(own)
        self.laterals = nn.ModuleList(nn.ModuleList(copies) for copies in laterals)

    def forward(self, x: Tensor, older: Sequence[Sequence[Tensor]]) -> list[Tensor]:
        """What each module gives, the logits last; ``older`` is the same of each older column."""
        given: list[Tensor] = []
        for depth, module in enumerate(self.own):
            h = module(given[-1] if given else x)
            laterals: Any = zip(self.laterals, older) if depth else ()
            for copies, column in laterals:
                h = h + copies[depth - 1](column[depth - 1])
            given.append(h)
        return given


class Columns(GrowingList):
    """Columns of learned tasks, frozen for ever."""

    def train(self, mode: bool = True) -> Columns:
        return super().train(False)  # running statistics and dropout of frozen columns stay off, whoever asks

    def forward(self, x: Tensor, count: int) -> list[list[Tensor]]:
        """What the first ``count`` columns give."""
        given: list[list[Tensor]] = []
        for column in list(self)[:count]:
            given.append(column(x, given))
        return given


class PNN(Learner):
    """h_l = M_l(h_(l-1)) + sum over older columns s of U_s,l(h_s,(l-1)): M are the task's own modules, each U
    is another network's module of the same place.

    There are no adapters and no factors, as in the code of Veniat et al. In that code the outputs also sum
    the logits of older columns; here they do not. The ReLU that the paper has around
    the sum is that with which each module ends: a sum of what is not negative stays as it is.
    """

    needs = Needs(task_id_at_test=True)
    frozen_predictions = starts_anew = True

    def __init__(self, **base: Any) -> None:
        super().__init__(**base)
        self.network = None
        self.columns = Columns(lambda **how: self.new_column(**how).requires_grad_(False).eval())

    def candidates(self, task: Task) -> list[Candidate]:
        column = self.new_column(**self.how(task))
        return [Candidate(copy.deepcopy(column), point) for point in self.grid]

    def how(self, task: Task) -> dict[str, int]:
        return {"task": task.index, "num_outputs": len(task.head.owned[task.index])}

    def new_column(self, task: int, num_outputs: int) -> Column:
        own, *others = (
            list(own_network(self, key, num_outputs).path_modules().values())
            for key in (task, *((task, source) for source in range(task)))
        )
        return Column(own, [modules[1:] for modules in others])

    def adopt(self, c: Candidate, task: Task) -> None:
        self.columns.add(c.network.requires_grad_(False), **self.how(task))

    def shared(self, batch: Batch, candidates: Sequence[Candidate]) -> list[list[Tensor]]:
        return self.columns(batch.x, len(self.columns))

    def logits(self, c: Candidate, batch: Batch) -> Tensor:
        return widened(c.network(batch.x, batch.shared)[-1], self.head, batch.learning)

    def predicts(self, task: int) -> bool:
        return task < len(self.columns)

    def forward(self, x: Tensor, task: int | None) -> Tensor:
        assert task is not None, "declared in needs"
        return widened(self.columns(x, task + 1)[-1][-1], self.head, task)
