"""Reinforced continual learning: a controller learns how many units each new task adds (Xu and Zhu 2018)."""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.nn as nn
from torch import Tensor

from cl_lightning.config.checking import Count, NotNegative
from cl_lightning.data.task import Batch, Task
from cl_lightning.errors import Refusal
from cl_lightning.learners.base import Candidate, Phase, Phases, name_of
from cl_lightning.learners.parts.widths import Widens, first_network, put_back, widened_by
from cl_lightning.randomness import rng, seeded


class Controller(nn.Module):
    """Says layer after layer how likely each number of new units is: an LSTM that first reads a fixed state,
    and then what it said last. A linear baseline says what reward the state is worth."""

    def __init__(self, layers: int, actions: int, units: int = 100) -> None:
        super().__init__()
        self.layers, self.state = layers, torch.randn(actions)
        self.lstm, self.out = nn.LSTM(actions, units, num_layers=2), nn.Linear(units, actions)
        self.value = nn.Linear(actions, 1)
        policy = [*self.lstm.parameters(), *self.out.parameters()]
        rates = {0.001: policy, 0.005: list(self.value.parameters())}
        self.optimizer = torch.optim.Adam([{"params": part, "lr": lr} for lr, part in rates.items()])

    def probabilities(self) -> Tensor:
        """(layers, actions)"""
        said, memory, found = self.state, None, []
        for _ in range(self.layers):
            h, memory = self.lstm(said[None], memory)
            said = self.out(h[0]).softmax(0)
            found.append(said)
        return torch.stack(found)

    def draw(self, generator: torch.Generator) -> list[int]:
        p = self.probabilities().detach()
        return torch.multinomial(p, 1, generator=generator)[:, 0].tolist()

    def loss(self, added: list[int], reward: float) -> Tensor:
        """REINFORCE with the baseline, which learns by squared error."""
        p = self.probabilities()[range(self.layers), added]
        advantage = reward - self.value(self.state)[0]
        return -p.log().sum() * advantage.detach() + advantage**2

    def learn(self, added: list[int], reward: float) -> None:
        self.optimizer.zero_grad()
        self.loss(added, reward).backward()
        self.optimizer.step()


class RCL(Widens):
    """Each task but the first has ``trials``: a controller draws how many units to add to each layer, fewer
    than ``actions``; this child learns the task, a phase each; the controller learns from R = validation
    accuracy - ``cost`` units. The child with the greatest R stays.

    Weights between old units never move, whatever the optimizer does. New units read all units below, and old
    ones read new units below, too. Every task has a new controller.
    """

    frozen_predictions = True
    contract = ("learner.trials=2",)  # not fifty networks a task

    def __init__(
        self, *, trials: Count = 50, actions: Count = 30, cost: NotNegative = 1e-4, **base: Any
    ) -> None:
        super().__init__(**base)
        self.trials, self.actions, self.cost = trials, actions, cost

    def learn(self, task: Task) -> Phases:
        if task.val is None and task.of > 1:
            raise Refusal(
                "RCL compares children by their validation accuracy. Set n_val of the stream or its tasks "
                "above 0."
            )
        if not task.index:
            best = yield Phase(self.candidates(task))
            self.adopt(best.candidate, task)
            return
        with seeded(self.seed, "controller", task.index):
            controller = Controller(len(self.memory["hidden"]), self.actions)
        tried: list[tuple[float, list[int], Candidate]] = []
        for trial in range(self.trials):
            added = controller.draw(rng(self.seed, "trial", task.index, trial))
            found = yield Phase(self.trial(task, trial, added), name=f"trial{trial}")
            assert found.score is not None, "learn has looked"
            tried.append((found.score - self.cost * sum(added), added, found.candidate))
            controller.learn(added, tried[-1][0])
        reward, added, child = max(tried, key=lambda one: one[0])  # of equals the first
        self.adopt(child, task)
        self.notes = {"added": added, "reward": reward, "rewards": [one[0] for one in tried]}

    def candidates(self, task: Task) -> list[Candidate]:
        first = first_network(self, task.index, len(task.head.owned[task.index]))
        return [Candidate(copy.deepcopy(first), point) for point in self.grid]

    def trial(self, task: Task, number: int, added: list[int]) -> list[Candidate]:
        outputs, key = len(task.head.owned[task.index]), (self.seed, "init", task.index, number)
        child = widened_by(self.memory["hidden"], added, outputs, self.dropout, *key)
        name = "+".join(map(str, added))
        return [
            Candidate(copy.deepcopy(child), point, f"added={name},{name_of(point)}") for point in self.grid
        ]

    def after_step(self, c: Candidate, batch: Batch) -> None:
        child: Any = c.network
        put_back(child, self.memory["hidden"])

    def published_memory(self, learned: int) -> int:
        """Besides weights, a whole number for each layer of each task: inputs, hidden layers and outputs."""
        return super().published_memory(learned) + 4 * learned * (len(self.memory["hidden"]) + 2)
