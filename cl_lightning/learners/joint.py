"""All tasks at once: the upper bound that breaks the rules."""

from __future__ import annotations

import copy
from typing import Any, Literal

from cl_lightning.data.task import Split, Task
from cl_lightning.learners.base import Candidate, Learner, Needs, Phase, Phases


class Joint(Learner):
    """Trains on the shuffled pool of the examples of all tasks so far.

    ``at=every_task`` trains after each task, from scratch unless ``restart=False``; ``at=last_task`` once,
    when the pool is complete: the "shuffled data" row of Lopez-Paz and Ranzato 2017.
    """

    needs = Needs(past_data=True)

    def __init__(
        self, *, at: Literal["every_task", "last_task"] = "every_task", restart: bool = True, **base: Any
    ) -> None:
        super().__init__(**base)
        self.at, self.restart = at, restart
        self.starts_anew, self.first_as_finetune = restart, at == "every_task"

    def learn(self, task: Task) -> Phases:
        if self.at == "last_task" and task.index < task.of - 1:
            return
        tasks = (*task.past, task)
        val = [t.val for t in tasks if t.val is not None]
        pool = Split.union([t.train for t in tasks])
        best = yield Phase(self.candidates(task), train=pool, val=Split.union(val) if val else None)
        self.adopt(best.candidate, task)
        self.memory["trained"] = True

    def predicts(self, task: int) -> bool:
        return (
            self.at == "every_task" or "trained" in self.memory
        )  # with at=last_task there is nothing to test before

    def candidates(self, task: Task) -> list[Candidate]:
        start = self.fresh(0) if self.restart else self.network
        return [Candidate(copy.deepcopy(start), point) for point in self.grid]
