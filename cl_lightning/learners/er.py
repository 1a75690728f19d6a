"""Experience replay."""

from __future__ import annotations

from typing import Any, Literal

import torch

from cl_lightning.checking import Size
from cl_lightning.data.task import Batch, Task
from cl_lightning.learners.base import Learner
from cl_lightning.learners.parts.memory import reservoir, ring_of_each_class
from cl_lightning.randomness import moved, rng


class ER(Learner):
    """Each mini-batch is joined by as many stored examples of past tasks, drawn with replacement (Chaudhry et
    al. 2019, On tiny episodic memories); every example counts for its own task's outputs. The open task's
    examples enter the memory at its end.

    ``reservoir`` stores ``size`` examples in all, ``ring`` the last ``size`` of each class of each task.
    """

    without_strength = {"size": 0}

    def __init__(
        self, *, policy: Literal["reservoir", "ring"] = "reservoir", size: Size = 1000, **base: Any
    ) -> None:
        super().__init__(**base)
        self.policy, self.size = policy, size

    def extend(self, batch: Batch) -> Batch:
        if not self.memory.get("filled"):
            return batch
        rows = torch.randint(self.memory["filled"], (len(batch),), generator=batch.rng("replay"))
        rows = moved(rows, batch.x.device)
        return batch.cat(*(self.memory[name][rows] for name in ("x", "y", "task")))

    def on_task_end(self, task: Task) -> None:
        if self.policy == "ring":
            ring_of_each_class(self.memory, task, self.size)
        else:
            reservoir(self.memory, task, self.size, rng(self.seed, task.index, "memory"))
