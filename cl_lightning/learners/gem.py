"""Gradient episodic memory."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, Literal

import numpy as np
import torch

from cl_lightning.config.checking import Count, NotNegative
from cl_lightning.data.task import Batch, Task
from cl_lightning.errors import Refusal
from cl_lightning.learners.base import Candidate, Learner
from cl_lightning.learners.parts.gradients import Heads, gradient, gradient_of, set_gradient
from cl_lightning.learners.parts.memory import equal_shares, last_of_each_task, ring_of_batches
from cl_lightning.learners.parts.quadratic import dual

PRECISIONS = {"32": torch.float32, "bf16": torch.bfloat16}


class GEM(Learner):
    """A step that, to first order, raises the loss on no past task's memory (Lopez-Paz and Ranzato 2017,
    equations 8 to 11).

    With rows g_k of G the gradients on the memories, the step is z = g + G'v, where v minimises v'GG'v/2 +
    (Gg)'v subject to v >= margin, if any <g, g_k> is negative; else g. The paper defines G with the opposite
    sign, which would force past losses up, and says that the margin is added to v; here both are as in the
    authors' program.

    Momentum and weight decay act after the projection and are not bound by it. Memories are the last examples
    of a task in the stream's order: ``memories`` a task or, if given, ``total`` over all. Where the number of
    tasks is not known (``tasks_known=False``), ``total`` is shared equally by the tasks so far, and memories
    shrink as tasks come (section 3 of the paper). The authors' program writes each mini-batch into a ring
    and, where the ring ends, keeps only what fits: with mini-batches of 10, 4 of its 256 memories are older
    examples than the last 256. ``ring`` is the size of such mini-batches.

    The equations are over all weights: z moves heads of past tasks, which the mini-batch does not use.
    ``heads: still`` leaves out what z gives to parameters without a gradient, as Avalanche does; the rest of
    the step then may raise a past task's loss.
    """

    grid_keys = ("margin",)
    ridge = 1e-3  # added to the diagonal of GG'

    def __init__(
        self,
        *,
        memories: Count = 256,
        total: Count | None = None,
        tasks_known: bool = True,
        ring: Count | None = None,
        margin: NotNegative = 0.5,
        memory_precision: Literal[32, "32", "bf16"] = 32,
        heads: Heads = "project",
        **base: Any,
    ) -> None:
        super().__init__(**base)
        self.memories, self.total, self.margin = memories, total, margin
        self.old_heads, self.tasks_known, self.ring = heads, tasks_known, ring
        if not tasks_known and (total is None or ring is not None):
            raise Refusal(
                "learner.tasks_known=false shares learner.total among the tasks so far, and has no ring. Set "
                "learner.total to the number of memories in all, and learner.ring=null."
            )
        self.precision = PRECISIONS[str(memory_precision)]
        self.rows = torch.empty(0)  # gradients of the current step; not stored

    def after_backward(self, c: Candidate, batch: Batch) -> None:
        if not self.memory:
            return
        G, g = self.memory_gradients(c, batch), self.rows[-1]
        # Products of all rows, g's the last: GG' and Gg in one pass over them.
        gram = (self.rows @ self.rows.T).cpu().double().numpy()  # MPS has no float64
        P, q = gram[:-1, :-1] + self.ridge * np.eye(len(G)), gram[:-1, -1]
        if (q >= 0).all():
            return
        v = dual(P, q, c.hparams.get("margin", self.margin))
        set_gradient(c.parameters, torch.addmv(g, G.T, torch.from_numpy(v).to(g)), self.old_heads)

    def memory_gradients(self, c: Candidate, batch: Batch) -> torch.Tensor:
        """(past tasks, parameters), and behind them the gradient at hand: in one place for all steps."""
        counts, device = self.memory["counts"], c.parameters[0].device
        size = sum(p.numel() for p in c.parameters)
        if self.rows.shape != (len(counts) + 1, size) or self.rows.device != device:
            self.rows = torch.empty(len(counts) + 1, size, device=device)
        gradient(c.parameters, out=self.rows[-1])
        lowered = (
            torch.autocast(device.type, torch.bfloat16) if self.precision == torch.bfloat16 else nullcontext()
        )
        with torch.enable_grad(), lowered:
            for k, count in enumerate(counts):
                task = torch.full((count,), k, device=device)
                old = Batch(self.memory["x"][k, :count], self.memory["y"][k, :count], task, batch.key)
                gradient_of(self.loss(c, old), c.parameters, out=self.rows[k])
        return self.rows[:-1]

    def on_task_end(self, task: Task) -> None:
        self.rows = torch.empty(0)
        tasks = task.of if self.tasks_known else task.index + 1
        size = self.memories if self.total is None else self.total // tasks
        if size < 1:
            raise Refusal(
                f"learner.memories={self.memories} and learner.total={self.total} leave no memory for each "
                f"of {tasks} tasks. Raise them."
            )
        if self.tasks_known:
            rows = ring_of_batches(len(task.train), size, self.ring) if self.ring else None
            last_of_each_task(self.memory, task, size, self.precision, rows)
        else:
            equal_shares(self.memory, task, size * tasks, self.precision)
