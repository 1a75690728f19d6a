"""Averaged gradient episodic memory."""

from __future__ import annotations

from typing import Any

import torch

from cl_lightning.config.checking import Count
from cl_lightning.data.task import Batch, Task
from cl_lightning.learners.base import Candidate, Learner
from cl_lightning.learners.parts.gradients import Heads, gradient, gradient_of, set_gradient
from cl_lightning.learners.parts.memory import last_of_each_task
from cl_lightning.randomness import moved


class AGEM(Learner):
    """GEM with one constraint (Chaudhry et al. 2019, equation 11): where the gradient g and that on a random
    batch of all memories, r, disagree, g - (g'r / r'r) r; else g. Examples of the batch are drawn uniformly
    over all that are stored. ``heads`` as in GEM."""

    def __init__(
        self, *, memories: Count = 256, reference_batch: Count = 256, heads: Heads = "project", **base: Any
    ) -> None:
        super().__init__(**base)
        self.memories, self.reference_batch, self.old_heads = memories, reference_batch, heads

    def after_backward(self, c: Candidate, batch: Batch) -> None:
        if not self.memory:
            return
        parameters = c.parameters
        g = gradient(parameters)
        with torch.enable_grad():
            r = gradient_of(self.loss(c, self.reference(batch)), parameters)
        z = g - (g @ r).clamp(max=0) / (r @ r).clamp(min=1e-12) * r
        set_gradient(parameters, z, self.old_heads)

    def reference(self, batch: Batch) -> Batch:
        counts = torch.tensor(self.memory["counts"])
        ends = counts.cumsum(0)
        drawn = torch.randint(int(ends[-1]), (self.reference_batch,), generator=batch.rng("reference"))
        task = torch.searchsorted(ends, drawn, right=True)
        place = drawn - (ends - counts)[task]
        task, place = moved(torch.stack([task, place]), batch.x.device)
        return Batch(self.memory["x"][task, place], self.memory["y"][task, place], task, batch.key)

    def on_task_end(self, task: Task) -> None:
        last_of_each_task(self.memory, task, self.memories)
