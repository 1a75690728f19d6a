"""Experience replay."""

from __future__ import annotations

from typing import Any, Literal

import torch

from cl_lightning.config.checking import Size
from cl_lightning.data.task import Batch, Split, Task
from cl_lightning.errors import Refusal
from cl_lightning.learners.base import Candidate
from cl_lightning.learners.parts.batch_norm import Sharing
from cl_lightning.learners.parts.memory import make_room, reservoir, ring_of_each_class, slots_in_turn
from cl_lightning.metrics.costs import numbers_in
from cl_lightning.randomness import moved, rng


class ER(Sharing):
    """Each mini-batch is joined by as many stored examples, drawn with replacement (Chaudhry et al. 2019, On
    tiny episodic memories); every example counts for its own task's outputs.

    ``reservoir`` stores ``size`` examples in all, ``ring`` the last ``size`` of each class of each task. The
    open task's examples enter them at its end, and only those of past tasks are replayed. ``single_pass`` is
    the paper's reservoir: a mini-batch enters after its step, and the open task is replayed, too. That is for
    ``trainer.single_pass``: it takes a task's examples to come in their order, and after the first epoch all
    to be known. With ``per_class`` a reservoir has ``size`` slots for each class of each task so far.
    """

    without_strength = {"size": 0}

    def __init__(
        self,
        *,
        policy: Literal["reservoir", "ring", "single_pass"] = "reservoir",
        size: Size = 1000,
        per_class: bool = False,
        **base: Any,
    ) -> None:
        super().__init__(**base)
        self.policy, self.size, self.per_class = policy, size, per_class
        self.first_as_finetune = policy != "single_pass"
        # Of single_pass: examples of the open task, and the slot that each enters.
        self.train_split: Split | None = None
        self.slots = torch.empty(0, dtype=torch.int64)

    def on_task_start(self, task: Task) -> None:
        if self.policy == "single_pass":
            make_room(self.memory, task, self.room(task))
            slots = slots_in_turn(self.memory, len(task.train), self.room(task), self.draws(task))
            self.train_split, self.slots = task.train, torch.tensor(slots)

    def set_mode(self, c: Candidate, training: bool) -> None:
        super().set_mode(c, training)
        if self.policy == "single_pass" and not c.settings["single_pass"]:
            raise Refusal(
                "learner.policy=single_pass takes a task's examples to come in their order, but they are "
                "shuffled here. Set trainer.single_pass=true, or use learner.policy=reservoir."
            )

    def extend(self, batch: Batch) -> Batch:
        taken = self.slots[: examples_before(batch, len(self.slots))]
        filled = min(self.memory["filled"] + len(taken), len(self.memory["y"])) if self.memory else 0
        if not filled:
            return batch
        rows = torch.randint(filled, (len(batch),), generator=batch.rng("replay"))
        on_device = moved(rows, batch.x.device)
        replayed = [self.memory[name][on_device] for name in ("x", "y", "task")]
        if self.train_split is not None:
            last = torch.full((len(self.memory["y"]) + 1,), -1)  # of each slot: who entered last
            last = last.scatter_reduce(0, taken, torch.arange(len(taken)), "amax")[rows]
            of_open = moved((last >= 0).nonzero()[:, 0], batch.x.device)
            parts = self.train_split.gather(last[last >= 0])
            replayed = [old.index_copy(0, of_open, new) for old, new in zip(replayed, parts)]
        return batch.cat(*replayed)

    def on_task_end(self, task: Task) -> None:
        self.train_split, self.slots = None, torch.empty(0, dtype=torch.int64)
        if self.policy == "ring":
            ring_of_each_class(self.memory, task, self.size)
        else:
            reservoir(self.memory, task, self.room(task), self.draws(task))

    def published_memory(self, learned: int) -> int:
        """Without running statistics, as in Veniat et al. 2021."""
        return 4 * numbers_in(self.parameters(), self.memory)

    def room(self, task: Task) -> int:
        """The slots of a reservoir."""
        so_far = sum(len(own) for own in task.head.owned[: task.index + 1])
        return self.size * so_far if self.per_class else self.size

    def draws(self, task: Task) -> torch.Generator:
        return rng(self.seed, task.index, "memory")


def examples_before(batch: Batch, n: int) -> int:
    """How many of a task's ``n`` examples came before a mini-batch."""
    if batch.epoch:
        return n
    is_last = batch.index_in_epoch == batch.batches_per_epoch - 1
    return n - len(batch) if is_last else batch.index_in_epoch * len(batch)
