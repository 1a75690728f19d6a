"""Incremental classifier and representation learning."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor

from cl_lightning.config.checking import NotNegative, Size
from cl_lightning.data.task import Batch, Split, Task
from cl_lightning.learners.base import Candidate, Learner, Phase, Phases
from cl_lightning.learners.parts.one_task import numbers_on
from cl_lightning.randomness import moved

AT_ONCE = 1000  # images whose features are computed at once


class ICaRL(Learner):
    """The class is that of the nearest mean of exemplars, in features that new examples and exemplars train
    together (Rebuffi et al. 2017).

    The loss is the binary cross-entropy of all outputs: targets of past classes are what the last network
    said of the image, those of new classes 0 and 1. ``total`` exemplars in all are shared equally by the
    classes so far: each list is in the order of herding, and a shorter one is its beginning. Means are of
    features of length 1, and have length 1. A class of the open task has the mean of its training examples,
    until it has exemplars. Where tasks have the same outputs, a class has one mean over all of them.
    """

    first_as_finetune = False

    def __init__(self, *, total: Size = 2000, **base: Any) -> None:
        super().__init__(**base)
        self.total = total

    # ---- training ------------------------------------------------------------------------------------------

    def learn(self, task: Task) -> Phases:
        score = self.scored(task) if task.val is not None and self.total else None
        best = yield Phase(self.candidates(task), train=self.trained_on(task), score=score)
        self.adopt(best.candidate, task)

    def trained_on(self, task: Task) -> Split:
        return Split.union([task.train, *self.exemplars])

    def shared(self, batch: Batch, candidates: Sequence[Candidate]) -> Tensor:
        """What the last network says of the images."""
        return self.network(batch.x, batch.task).sigmoid()

    def loss(self, c: Candidate, batch: Batch) -> Tensor:
        logits = self.logits(c, batch)
        targets = F.one_hot(batch.y, self.head.num_outputs).to(logits.dtype)
        if batch.learning:
            past = numbers_on(logits.device, outputs_of(self.head.owned[: batch.learning]))
            targets[:, past] = batch.shared[:, past].to(logits.dtype)
        return F.binary_cross_entropy_with_logits(logits, targets)

    def scored(self, task: Task) -> Callable[[Candidate, Any], float]:
        """The accuracy of a candidate on validation data, by the means that it would predict with."""

        def score(c: Candidate, val: Split) -> float:
            logits = self.by_means(
                self.features(c.network, *val.parts[::2]), self.means(c.network, task.train)
            )
            logits = self.head.mask(logits, val.task) if self.head.masks_test else logits
            return (logits.argmax(1) == val.y).float().mean().item()

        return score

    # ---- exemplars -----------------------------------------------------------------------------------------

    def adopt(self, c: Candidate, task: Task) -> None:
        super().adopt(c, task)
        self.memory["means"] = self.means(self.network, task.train)

    def on_task_end(self, task: Task) -> None:
        so_far = outputs_of(self.head.owned[: task.index + 1])
        size, rows = self.total // len(so_far), []
        x, y, of_task = Split.union([task.train, *self.exemplars]).parts
        for output in so_far:
            of_class = (y == output).nonzero()[:, 0]
            if output in task.head.owned[task.index]:
                described = self.herded_by(x[of_class], of_task[of_class], task.head.owned[task.index])
                of_class = of_class[herding(described, min(size, len(of_class)))]
            rows.append(of_class[:size])
        kept = torch.cat(rows)
        self.memory |= {"x": x[kept], "y": y[kept], "task": of_task[kept], "counts": list(map(len, rows))}
        self.memory["means"] = self.means(self.network)

    @property
    def exemplars(self) -> list[Split]:
        """All of them, class after class; nothing before there are any."""
        return [Split(*(self.memory[name] for name in ("x", "y", "task")))] if "y" in self.memory else []

    @torch.no_grad()
    def features(self, network: nn.Module, x: Tensor, task: Tensor) -> Tensor:
        """(n, features), each of length 1, in evaluation mode."""
        was, _ = network.training, network.eval()
        rows = [self.described(network, *part) for part in zip(x.split(AT_ONCE), task.split(AT_ONCE))]
        network.train(was)
        return torch.cat(rows)

    def described(self, network: Any, x: Tensor, task: Tensor) -> Tensor:
        return F.normalize(network.features(x, task))

    def herded_by(self, x: Tensor, task: Tensor, own: tuple[int, ...]) -> Tensor:
        return self.features(self.network, x, task)

    def means(self, network: nn.Module, new: Split | None = None) -> dict[int, Tensor]:
        """The mean of each class: of its exemplars, or of the examples of the open task."""
        x, y, task = Split.union([*self.exemplars, *([] if new is None else [new])]).parts
        features = self.features(network, x, task)
        return {output: self.mean_of(features[y == output]) for output in y.unique().tolist()}

    def mean_of(self, features: Tensor) -> Tensor:
        return F.normalize(features.mean(0), dim=0)

    # ---- prediction ----------------------------------------------------------------------------------------

    def by_means(self, features: Tensor, means: dict[int, Tensor]) -> Tensor:
        """(n, outputs): minus the distance to each mean; -inf where a class has none."""
        logits = features.new_full((len(features), self.head.num_outputs), -torch.inf)
        for output, mean in means.items():
            logits[:, output] = -(features - mean).norm(dim=1)
        return logits

    def forward(self, x: Tensor, task: int | None) -> Tensor:
        if not self.memory.get("means"):  # before the first task, or without memories
            return self.network(x, task)
        return self.by_means(self.described(self.network, x, task), self.memory["means"])  # type: ignore[arg-type]


class ICaRLOfGEM(ICaRL):
    """iCaRL for a single pass, as Lopez-Paz and Ranzato (2017) compare it with GEM.

    The loss is that of finetuning and, for each past task, ``strength`` KL(old, now) of one exemplar a class,
    drawn for each mini-batch. "Old" is what the network said of an exemplar after the last task. Features are
    the logits as they are; herding goes by a task's own. Their program never shortens lists, and holds more
    than ``total``; here they are shortened.
    """

    grid_keys, without_strength = ("strength",), {"total": 0}

    def __init__(self, *, total: Size = 1280, strength: NotNegative = 1.0, **base: Any) -> None:
        super().__init__(total=total, **base)
        self.strength = strength

    def trained_on(self, task: Task) -> Split:
        return task.train

    def loss(self, c: Candidate, batch: Batch) -> Tensor:
        loss = Learner.loss(self, c, batch)
        strength = c.hparams.get("strength", self.strength)
        if strength and batch.learning and all(self.memory["counts"]):
            rows = one_of_each(self.memory["counts"], batch.rng("exemplars"))
            x, _, task = self.exemplars[0].gather(rows)
            now, old = c.network(x, task), self.memory["said"].index_select(0, moved(rows, x.device))
            outputs = outputs_of(self.head.owned[: batch.learning])  # of the rows
            for own in self.head.owned[: batch.learning]:
                of_task = numbers_on(now.device, tuple(map(outputs.index, own)))
                before, after = (said[of_task][:, numbers_on(now.device, own)] for said in (old, now))
                loss = loss + strength * F.kl_div(
                    after.log_softmax(1), before.softmax(1), reduction="batchmean"
                )
        return loss

    def on_task_end(self, task: Task) -> None:
        super().on_task_end(task)
        x, _, of_task = self.exemplars[0].parts
        self.memory["said"] = self.features(self.network, x, of_task)

    def described(self, network: Any, x: Tensor, task: Tensor) -> Tensor:
        return network(x, task)

    def herded_by(self, x: Tensor, task: Tensor, own: tuple[int, ...]) -> Tensor:
        return self.features(self.network, x, task)[:, numbers_on(x.device, own)]

    def mean_of(self, features: Tensor) -> Tensor:
        return features.mean(0)


def herding(features: Tensor, count: int) -> Tensor:
    """(count,) rows in turn, each the one that brings the mean of those so far nearest to the mean of all (n,
    features)."""
    mean, total = features.mean(0), torch.zeros_like(features[0])
    free, rows = torch.ones(len(features), dtype=torch.bool, device=features.device), []
    for k in range(1, count + 1):
        away = (mean - (features + total) / k).norm(dim=1)
        row = int(torch.where(free, away, torch.inf).argmin())
        free[row], total = False, total + features[row]
        rows.append(row)
    return torch.tensor(rows, dtype=torch.int64, device=features.device)


def outputs_of(owned: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(sorted({output for own in owned for output in own}))


def one_of_each(lengths: Sequence[int], generator: torch.Generator) -> Tensor:
    """The row of one drawn example of each class, where so many of each lie one after the other."""
    counts = torch.tensor(lengths)
    drawn = (torch.rand(len(counts), generator=generator) * counts).long()
    return counts.cumsum(0) - counts + drawn
