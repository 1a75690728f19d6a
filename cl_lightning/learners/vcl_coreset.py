"""Variational continual learning with coresets."""

from __future__ import annotations

import copy
from collections.abc import Generator
from typing import Any, Literal

import torch
import torch.nn as nn

from cl_lightning.config.checking import Count
from cl_lightning.data.task import Split, Task
from cl_lightning.errors import Refusal
from cl_lightning.learners.base import Candidate, Learner, Outcome, Phase
from cl_lightning.learners.parts.averaging import drawn
from cl_lightning.learners.parts.memory import named
from cl_lightning.learners.vcl import VCL
from cl_lightning.randomness import rng


class VCLCoreset(VCL):
    """VCL that puts ``size`` examples of each task aside before it trains, and trains a copy on them before
    each test (Nguyen et al. 2018). The copy begins with the posterior, which is its prior, too, and is thrown
    away: what goes on to the next task never saw a coreset.

    One copy is trained on all coresets, in mini-batches of ``size``; with an output layer a task, one for
    each task's test on that task's coreset alone. The divergence is divided by the last task's number of
    examples there, too. The authors' program divides by the coreset's, which holds the copy faster.

    With ``prior=standard`` it is the coreset-only baseline of Farquhar and Gal 2018, all the same but for the
    priors, of the copies too. Their paper counts this as training again on old tasks.
    """

    def __init__(
        self,
        *,
        size: Count = 40,
        choice: Literal["k_center", "random"] = "k_center",
        coreset_epochs: Count | None = None,
        **base: Any,
    ) -> None:
        super().__init__(**base)
        self.size, self.choice, self.coreset_epochs = size, choice, coreset_epochs
        self.tuned = nn.ModuleList()  # networks of a copy for testing: one, or one a task

    def on_task_start(self, task: Task) -> None:
        super().on_task_start(task)
        n = len(task.train)
        if self.size >= n:
            raise Refusal(
                f"A coreset of {self.size} examples leaves nothing of the {n} of task {task.index} to train "
                "on. Lower learner.size, or raise stream.n_train."
            )
        if self.choice == "k_center":
            rows = k_center(task.train.x, self.size)
        else:
            rows = torch.randperm(n, generator=rng(self.seed, task.index, "coreset"))[: self.size]
        for name, part in named(taken(task.train, rows)).items():
            self.memory[name] = torch.cat([self.memory[name], part]) if name in self.memory else part
        self.memory["rows"], self.memory["examples"] = rows, n - self.size  # of the open task

    def examples(self, task: Task) -> Split:
        """All but the coreset."""
        rest = torch.ones(len(task.train), dtype=torch.bool)
        rest[self.memory["rows"].cpu()] = False
        return taken(task.train, rest.nonzero()[:, 0])

    def predictors(self, seen: int) -> Generator[Phase, Outcome, dict[str, Learner]]:
        tested = copy.deepcopy(self)
        for coreset in self.coresets() if seen else []:
            best = yield Phase(
                [Candidate(copy.deepcopy(self.network))],
                f"coreset {len(tested.tuned)}",
                train=coreset,
                loss=self.objective(seen - 1, seen, self.memory["examples"]),
                epochs=self.coreset_epochs,
                settings={"batch_size": self.size},
            )
            tested.tuned.append(best.candidate.network)
        return {"": tested}

    def coresets(self) -> list[Split]:
        """Those that a copy is trained on, each."""
        whole = Split(self.memory["x"], self.memory["y"], self.memory["task"])
        if not self.network.needs_task:
            return [whole]
        tasks = whole.task.unique().cpu().tolist()
        return [taken(whole, (whole.task == task).nonzero()[:, 0]) for task in tasks]

    def samples(self, x: torch.Tensor, task: int | None) -> torch.Tensor:
        number = 0 if task is None else task
        network = self.tuned[number] if number < len(self.tuned) else self.network
        return drawn(network, x, task, self.draws)


def taken(split: Split, rows: torch.Tensor) -> Split:
    x, y, task = split.gather(rows)
    return Split(x, y, task)


def k_center(x: torch.Tensor, size: int) -> torch.Tensor:
    """Rows of examples: the first, then always the one farthest from those chosen (Gonzalez 1985), by
    Euclidean distance of pixels. No example is farther from them than twice what is possible.

    >>> k_center(torch.tensor([[0.0], [1.0], [5.0], [9.0]]), 3)
    tensor([0, 3, 2])
    """
    points, rows = x.flatten(1), [0]
    distance = torch.full((len(points),), torch.inf, device=x.device)
    while len(rows) < size:
        distance = torch.minimum(distance, (points - points[rows[-1]]).square().sum(1))
        distance[rows[-1]] = -1.0
        rows.append(int(distance.argmax().cpu()))
    return torch.tensor(rows, device=x.device)
