"""Elastic weight consolidation."""

from __future__ import annotations

from typing import Any, Literal

import torch

from cl_lightning.config.checking import Count, NotNegative, Share
from cl_lightning.data.task import Batch, Task
from cl_lightning.learners.base import Candidate
from cl_lightning.learners.parts.batch_norm import Sharing
from cl_lightning.learners.parts.fisher import Labels, information
from cl_lightning.learners.parts.gradients import trained, used
from cl_lightning.metrics.costs import numbers_in


class EWC(Sharing):
    """loss + strength/2 sum_k F_k (w - w_k)^2: weights that mattered to past tasks k are pulled back to
    where they were.

    ``separate`` (Kirkpatrick et al. 2017) has one centre a task; ``huszar`` (2018) the latest alone, with the
    sum of all F; ``online`` (Schwarz et al. 2018) the latest with F decayed by ``gamma`` at each task;
    ``veniat`` (2021) the same, but for the last task's F, which is whole: 1 / ``gamma`` times the penalty.
    Each is A/2 (w - c)^2 plus a constant, so that it does not cost more with tasks: A is the sum of F and,
    for ``separate``, c the mean of the centres weighted by F, because sum F_k (w - w_k) = A (w - sum F_k w_k
    / A). Lopez-Paz and Ranzato 2017 write the penalty without 1/2: their strength is half of this. With
    ``merging=mean`` the penalty is divided by the number of past tasks.

    F is of the first ``examples`` of the task in the stream's order (null: all), or of so many ``drawn``, in
    evaluation mode, of the data's loss alone. With ``free_heads`` what is behind the trunk is not held.
    """

    grid_keys, without_strength = ("strength",), {"strength": 0}

    def __init__(
        self,
        *,
        strength: NotNegative = 100.0,
        penalty: Literal["separate", "huszar", "online", "veniat"] = "separate",
        merging: Literal["sum", "mean"] = "sum",
        fisher: Labels = "empirical",
        examples: Count | None = None,
        drawn: bool = False,
        gamma: Share = 1.0,
        free_heads: bool = False,
        **base: Any,
    ) -> None:
        super().__init__(**base)
        self.strength, self.penalty, self.labels, self.examples = strength, penalty, fisher, examples
        self.merging, self.drawn, self.free_heads = merging, drawn, free_heads
        self.gamma = gamma if penalty == "online" else 1.0
        self.gamma_of_past = gamma if penalty == "veniat" else 1.0

    @torch.no_grad()
    def after_backward(self, c: Candidate, batch: Batch) -> None:
        """The penalty's gradient: strength A (w - c). Parameters behind those that A is of are free."""
        if not self.memory:
            return
        g, w, centre, A = used(c.parameters, self.memory["c"], self.memory["A"])
        strength = float(c.hparams.get("strength", self.strength))
        strength /= batch.learning if self.merging == "mean" else 1
        # Private: one call for all parameters in place of a loop over them.
        torch._foreach_addcmul_(g, A, torch._foreach_sub(w, centre), strength)

    def on_task_end(self, task: Task) -> None:
        held = (
            len(trained(self.network.trunk)) if self.free_heads else None
        )  # a trunk's are a network's first
        w, F = (
            [p.detach().clone() for p in trained(self.network)[:held]],
            self.information(task)[:held],
        )
        A, c = self.memory.get("A", F), self.memory.get("c", w)
        if self.memory:
            A = [self.gamma_of_past * a + f for a, f in zip(A, F)]
            if self.penalty == "separate":
                c = [old + torch.where(a > 0, f / a, 0.0) * (new - old) for old, new, f, a in zip(c, w, F, A)]
            else:
                c = w
        self.memory = {"A": [self.gamma * a for a in A], "c": c}

    def published_memory(self, learned: int) -> int:
        """A centre and an F a task for ``separate``, else one of each, without running statistics: as Veniat
        et al. 2021 count. The sums that are held here do not grow."""
        pairs = learned if self.penalty == "separate" else 1
        return 4 * (numbers_in(self.parameters()) + 2 * pairs * numbers_in(self.memory.get("A", [])))

    def information(self, task: Task) -> list[torch.Tensor]:
        return information(self, task, self.labels, self.examples, self.drawn)
