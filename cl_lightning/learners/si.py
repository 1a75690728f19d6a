"""Synaptic intelligence."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn as nn

from cl_lightning.config.checking import NotNegative, Positive
from cl_lightning.data.task import Batch, Task
from cl_lightning.learners.base import Candidate, Learner
from cl_lightning.learners.parts.gradients import trained, used


class SI(Learner):
    """loss + strength sum Omega (w - w_last)^2: weights are held where the last task left them, by how much
    the loss fell along their paths (Zenke, Poole and Ganguli 2017).

    A path is the sum over a task's steps of g (w_before - w_after), where g is the gradient of the loss alone
    (with ``penalty_in_path`` of loss and penalty). At the task's end Omega grows by path / ((w - w_last)^2 +
    damping); with ``clamp`` by nothing where that is negative. With early stopping a path leads to the
    weights that are kept.
    """

    grid_keys, without_strength = ("strength",), {"strength": 0}

    def __init__(
        self,
        *,
        strength: NotNegative = 0.1,
        damping: Positive = 0.1,
        clamp: bool = True,
        penalty_in_path: bool = False,
        **base: Any,
    ) -> None:
        super().__init__(**base)
        self.strength, self.damping, self.clamp = strength, damping, clamp
        self.penalty_in_path = penalty_in_path
        self.before: dict[str, tuple] = {}  # by candidate, while a step is taken: what its path needs

    def candidates(self, task: Task) -> list[Candidate]:
        """Networks that carry their paths, so that checkpoints and best weights have them, too."""
        found = super().candidates(task)
        for c in found:
            c.network.path = nn.Module()
            for i, p in enumerate(trained(c.network)):
                c.network.path.register_buffer(str(i), torch.zeros_like(p))
        return found

    @torch.no_grad()
    def after_backward(self, c: Candidate, batch: Batch) -> None:
        """The penalty's gradient: 2 strength Omega (w - w_last)."""
        path: Any = c.network.path
        if not hasattr(path, "last"):
            path.last = trained(self.network)  # found once, and not at each step
        past = [path.last, self.memory["importance"]] if self.memory else []
        g, w, paths, *last_and_importance = used(c.parameters, [*path.buffers()], *past)
        before = torch._foreach_clone(w)  # private, as below: one call for all parameters
        whole: Any = g
        if last_and_importance:
            last, importance = last_and_importance
            strength = 2 * float(c.hparams.get("strength", self.strength))
            whole = torch._foreach_addcmul(g, importance, torch._foreach_sub(w, last), strength)
        kept = whole if self.penalty_in_path else g
        # Clipping shortens gradients in their place, and must not shorten what is kept.
        for p, total in zip(w, torch._foreach_clone(whole) if kept is whole else whole):
            p.grad = total
        self.before[c.name] = before, w, kept, paths

    def after_step(self, c: Candidate, batch: Batch) -> None:
        before, w, g, paths = self.before.pop(c.name)
        torch._foreach_sub_(before, w)
        torch._foreach_addcmul_(paths, g, before)

    @torch.no_grad()
    def adopt(self, c: Candidate, task: Task) -> None:
        network: Any = c.network
        rows = zip(network.path.buffers(), c.parameters, trained(self.starting_network(c.hparams)))
        grown = [path / ((w - last) ** 2 + self.damping) for path, w, last in rows]
        grown = [more.clamp(min=0) if self.clamp else more for more in grown]
        importance = self.memory.get("importance", [0.0] * len(grown))
        self.memory["importance"] = [old + more for old, more in zip(importance, grown)]
        del network.path
        super().adopt(c, task)
