"""Modular networks with a task-driven prior, whose path is learned beside the weights: MNTDP-S (Veniat et al.
2021)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor

from cl_lightning.config.checking import NotNegative, Positive
from cl_lightning.data.task import Batch, Split, Task
from cl_lightning.learners.base import Candidate, Phase
from cl_lightning.learners.mntdp import MNTDP
from cl_lightning.learners.parts.modules import Prefix
from cl_lightning.learners.parts.one_task import widened
from cl_lightning.learners.parts.paths import Paths, at_once, one_by_one
from cl_lightning.randomness import moved, rng

SURE = math.log(0.99)  # log-probability of a path that ends the search


@dataclass(eq=False)
class Search(Candidate):
    """Paths whose Gamma has a rate of its own, and no weight decay."""

    gamma_lr: float = 0.0

    def groups(self) -> list[dict]:
        (weights,) = super().groups()
        gamma = paths_of(self).gamma
        weights["params"] = [p for p in self.parameters if p is not gamma]
        rate = self.hparams.get("gamma_lr", self.gamma_lr)
        return [weights, {"params": [gamma], "lr": rate, "weight_decay": 0.0}]


def paths_of(c: Candidate) -> Paths:
    network: Any = c.network
    return network


class MNTDPS(MNTDP):
    """MNTDP-S. The paths of MNTDP-D share one copy of each new module, but for those that are entered from
    old ones, and Gamma is a distribution over paths.

    Training data are halved, and their mini-batches come in turn. One of the first half trains the new
    modules of paths that its examples draw from Gamma. One of the second trains Gamma alone: each example
    draws a path, with all modules in evaluation mode; its reward r is minus its cross-entropy, and the loss
    is -mean((r - mean r) log p) - ``entropy`` H, where log p and H are means over the decisions. Where a path
    has more than 0.99 of the probability, or half of the mini-batches are over, the search ends: both halves
    train the new modules of the most probable path.

    Where paper and released code disagree: the first half trains paths that are drawn (paper), among those
    with new modules; ``draw=never``: the most probable one (code). Whether an example or a mini-batch draws
    is not said. By ``batch``, an entry trains once in as many mini-batches as there are paths, and batch
    normalisation in modules that paths share is trained on one path at a time, and tested on all.
    ``gamma=paths`` is one decision among all paths, and starts uniform (paper); ``gamma=decisions`` is one at
    each old module, to go on with it or with a new one, and starts with half of the probability on the path
    that re-uses nothing (code).
    """

    grid_keys = ("gamma_lr",)

    def __init__(
        self,
        *,
        gamma: Literal["paths", "decisions"] = "paths",
        gamma_lr: Positive = 0.01,
        entropy: NotNegative = 1.0,
        draw: Literal["example", "batch", "never"] = "example",
        **base: Any,
    ) -> None:
        super().__init__(**base)
        self.gamma, self.gamma_lr, self.entropy, self.draw = gamma, gamma_lr, entropy, draw

    # ---- a task --------------------------------------------------------------------------------------------

    def phase(self, sources: Sequence[int], task: Task) -> Phase:
        found = self.paths_from(sources, task)
        return Phase(found, train=self.halves(task) if len(paths_of(found[0]).prefixes) > 1 else None)

    def paths_from(self, sources: Sequence[int], task: Task) -> list[Candidate]:
        """All paths, once for each point of the grid."""
        own = task.head.owned[task.index]
        fresh, prefixes = self.new_modules(task.index, own), self.prefixes(sources, len(own))[::-1]
        decisions = {"paths": at_once, "decisions": one_by_one}[self.gamma](prefixes)
        points = list(self.grid)
        if len(prefixes) == 1:  # Gamma's rate is none there
            without = [{key: value for key, value in point.items() if key != "gamma_lr"} for point in points]
            points = [point for i, point in enumerate(without) if point not in without[:i]]
        return [Search(Paths(prefixes, fresh, decisions), point, gamma_lr=self.gamma_lr) for point in points]

    def halves(self, task: Task) -> list[Split]:
        """Of each class one half of the training examples, and the other; the first half gets what is
        over."""
        first, second = [], []
        for label in task.train.y.unique():
            rows = (task.train.y == label).nonzero()[:, 0]
            rows = rows[torch.randperm(len(rows), generator=rng(self.seed, "halves", task.index, int(label)))]
            first.append(rows[: -(-len(rows) // 2)])
            second.append(rows[-(-len(rows) // 2) :])
        halves = (task.train.gather(torch.cat(rows).sort().values) for rows in (first, second))
        return [Split(x, y, of) for x, y, of in halves]

    def adopt(self, c: Candidate, task: Task) -> None:
        prefix, own = paths_of(c).prefix, paths_of(c).own(paths_of(c).best())
        self.library.add(prefix, own, num_outputs=len(task.head.owned[task.index]))

    # ---- a mini-batch --------------------------------------------------------------------------------------

    def ways(self, c: Candidate, batch: Batch) -> Tensor | None:
        """(n,) the path that each example draws; None where one path takes the whole mini-batch."""
        paths = paths_of(c)
        if not paths.training or not searches(c) or (batch.part == 0 and self.draw != "example"):
            return None
        return drawn(paths.log_p() if batch.part == 1 else self.with_new_modules(paths), len(batch), batch)

    def with_new_modules(self, paths: Paths) -> Tensor:
        """Log-probabilities of the paths that have weights to train."""
        return paths.log_p()[: len(paths.entries)]

    def path(self, c: Candidate, batch: Batch) -> int:
        """The path that takes a whole mini-batch."""
        paths = paths_of(c)
        draws = paths.training and searches(c) and self.draw == "batch"
        return int(drawn(self.with_new_modules(paths), 1, batch)) if draws else paths.best()

    def kind(self, c: Candidate, batch: Batch) -> str:
        """All paths are equally long: the operations for Gamma do not depend on which are drawn. What is
        trained does."""
        ways = self.ways(c, batch)
        if ways is None:
            return f"reuse={len(paths_of(c).prefixes[self.path(c, batch)])}"
        return "gamma" if batch.part == 1 else f"paths={ways.bincount().tolist()}"

    def shared(self, batch: Batch, candidates: Sequence[Candidate]) -> dict[Prefix, Tensor]:
        needed = (c for c in candidates if self.ways(c, batch) is None)
        return self.library.features(batch.x, {paths_of(c).prefixes[self.path(c, batch)] for c in needed})

    def logits(self, c: Candidate, batch: Batch) -> Tensor:
        ways, paths = self.ways(c, batch), paths_of(c)
        if ways is None:
            path = self.path(c, batch)
            h = batch.shared[paths.prefixes[path]]
            for module in paths.own(path):
                h = module(h)
        else:
            h = self.on_paths(paths, batch.x, ways)
        return widened(h, self.head, batch.learning)

    def loss(self, c: Candidate, batch: Batch) -> Tensor:
        paths, ways = paths_of(c), self.ways(c, batch)
        if ways is not None and batch.part == 1:
            return loss_of_gamma(paths, ways, self.rewards(c, batch, ways), self.entropy)
        trains = ways is not None or paths.own(self.path(c, batch))
        return super().loss(c, batch) if trains else batch.x.new_zeros(())

    @torch.no_grad()
    def rewards(self, c: Candidate, batch: Batch, ways: Tensor) -> Tensor:
        """(n,) minus the cross-entropy of each example on its own path."""
        c.network.eval()
        logits = widened(self.on_paths(paths_of(c), batch.x, ways), self.head, batch.learning)
        c.network.train()
        return -F.cross_entropy(self.masked(logits, batch), batch.y, reduction="none")

    def on_paths(self, paths: Paths, x: Tensor, ways: Tensor) -> Tensor:
        """What comes out of each example's path. Each module is called once, with all that pass it. Old
        modules see old ones' outputs alone, and so no gradient."""
        old = self.library.modules_by_number
        routes = [[*(old[number] for number in p), *paths.own(i)] for i, p in enumerate(paths.prefixes)]
        rows_of = {way: (ways == way).nonzero()[:, 0] for way in ways.unique().tolist()}
        h = {way: x[moved(rows, x.device)] for way, rows in rows_of.items()}
        for depth in range(len(routes[0])):
            passing: dict[nn.Module, list[int]] = {}
            for way in h:
                passing.setdefault(routes[way][depth], []).append(way)
            for module, together in passing.items():
                made = module(torch.cat([h[way] for way in together]))
                h.update(zip(together, made.split([len(rows_of[way]) for way in together])))
        return torch.cat([*h.values()])[moved(torch.cat([*rows_of.values()]).argsort(), x.device)]

    def after_step(self, c: Candidate, batch: Batch) -> None:
        """The search ends."""
        assert batch.steps is not None, "known in training"
        paths, step = paths_of(c), batch.key[-1]
        over = 2 * (step + 1) >= batch.steps
        paths.searching &= (paths.log_p().amax() <= SURE) & (not over)


def searches(c: Candidate) -> bool:
    return bool(paths_of(c).searching.cpu())


def drawn(log_p: Tensor, count: int, batch: Batch) -> Tensor:
    """(count,) numbers, drawn by weights that need not sum to 1."""
    p = log_p.detach().cpu().exp()
    return torch.multinomial(p, count, replacement=True, generator=batch.rng("path"))


def loss_of_gamma(paths: Paths, ways: Tensor, rewards: Tensor, entropy: float) -> Tensor:
    """REINFORCE with the mini-batch's mean as baseline, less the entropy."""
    log_p = paths.log_p()[moved(ways, rewards.device)] / len(paths.sizes)
    return -((rewards - rewards.mean()) * log_p).mean() - entropy * paths.entropy()
