"""Early stopping by a few kept images of past tasks."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from cl_lightning.config.checking import Count
from cl_lightning.data.task import Split, Task
from cl_lightning.learners.base import Candidate, Phase, Phases
from cl_lightning.learners.parts.batch_norm import Sharing
from cl_lightning.selection.rules import on_both

PARTS = ("x", "y", "task")  # of examples


class StopByKept(Sharing):
    """Finetuning whose weights are those that know all tasks so far best: the open task by its validation
    data, each past one by its first ``images`` training images, which nothing is trained on. Pfuelb and
    Gepperth 2019 mention it as a workaround. Each task weighs as its training examples are many.
    """

    def __init__(self, *, images: Count = 100, **base: Any) -> None:
        super().__init__(**base)
        self.images = images

    def learn(self, task: Task) -> Phases:
        def score(c: Candidate, val: Split) -> float:
            past, tasks = self.known(c, *(self.memory[name] for name in PARTS)), self.memory["task"]
            known = [*(past[tasks == k] for k in range(task.index)), self.known(c, *val.parts)]
            return on_both([each.float().mean().item() for each in known], sizes)

        sizes = [*self.memory.get("sizes", []), len(task.train)]
        best = yield Phase(
            self.candidates(task), score=score if task.index and task.val is not None else None
        )
        self.adopt(best.candidate, task)

    @torch.no_grad()
    def known(self, c: Candidate, x: Tensor, y: Tensor, task: Tensor) -> Tensor:
        """A mark for each image: True where its class is found, over the outputs that count at test."""
        logits = c.network(x, task)
        logits = self.head.mask(logits, task) if self.head.masks_test else logits
        return logits.argmax(1) == y

    def on_task_end(self, task: Task) -> None:
        for name, part in zip(PARTS, task.train.parts):
            self.memory[name] = torch.cat([self.memory.get(name, part[:0]), part[: self.images]])
        self.memory["sizes"] = [*self.memory.get("sizes", []), len(task.train)]
