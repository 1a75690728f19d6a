"""Modular networks with a task-driven prior: a path of modules a task, old ones frozen and re-used (Veniat et
al. 2021)."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, Literal

import torch
import torch.nn as nn

from cl_lightning.config.checking import Count
from cl_lightning.data.task import Batch, Split, Task
from cl_lightning.errors import Refusal
from cl_lightning.learners.base import Candidate, Learner, Needs, Phase, Phases, name_of
from cl_lightning.learners.parts.modules import NewModules, Prefix, Trie
from cl_lightning.learners.parts.neighbours import some_of_each_class, vote_accuracy
from cl_lightning.learners.parts.notes import ModulePaths
from cl_lightning.learners.parts.one_task import own_network, widened
from cl_lightning.randomness import rng

AT_ONCE = 125  # images whose features are computed together in the search: few enough for a processor's cache


def prefix_of(c: Candidate) -> Prefix:
    """Numbers of the modules that a candidate re-uses, from the input on."""
    new: Any = c.network
    return new.prefix


class MNTDP(Learner):
    """MNTDP-D. A task's candidates re-use the first r modules of the nearest past task's path, for r = L ..
    0, and train the rest.

    Where paper and released code disagree: L + 1 candidates (the code; the paper counts L), branches to the
    right only (paper), five neighbours (paper) searched with un-augmented training images against validation
    images, of each about ``searched`` from all classes (the code augments, and stops after 1024 images in
    class order), selection by validation accuracy (code and appendix B). Equal accuracies: more re-use.
    """

    needs = Needs(task_id_at_test=True)
    frozen_predictions = starts_anew = True

    def __init__(
        self,
        *,
        k: Count | Literal["all"] = 1,
        prior: Literal["nearest", "random"] = "nearest",
        allow_head_reuse: bool = True,
        neighbours: Count = 5,
        searched: Count = 1000,
        **base: Any,
    ) -> None:
        super().__init__(**base)
        self.k, self.prior, self.allow_head_reuse = k, prior, allow_head_reuse
        self.neighbours, self.searched = neighbours, searched
        self.network = None
        self.library = Trie(self.new_module)

    # ---- a task --------------------------------------------------------------------------------------------

    def learn(self, task: Task) -> Phases:
        if task.val is None and task.of > 1:
            raise Refusal(
                "MNTDP compares paths, and searches the nearest task, with validation data. Set n_val of "
                "the stream or its tasks above 0; "
                "trainer.single_pass, which has none, is not for it."
            )
        scores = self.once("search", lambda: self.scores(task)) if self.searches(task) else []
        sources = self.sources(task, scores)
        phase = self.phase(sources, task)
        prefixes = {c.name: list(prefix_of(c)) for c in phase.candidates}
        best = yield phase
        self.adopt(best.candidate, task)
        prefixes[best.candidate.name] = reused = list(prefix_of(best.candidate))
        self.notes = ModulePaths(self.library.paths[-1], len(reused), sources, scores, prefixes)

    def phase(self, sources: Sequence[int], task: Task) -> Phase:
        return Phase(self.paths_from(sources, task))

    def searches(self, task: Task) -> bool:
        return self.prior == "nearest" and self.k != "all" and task.index > 0

    def sources(self, task: Task, scores: Sequence[float]) -> list[int]:
        """The past tasks whose paths may be re-used, the best first; of equals the most recent."""
        count = task.index if self.k == "all" else min(self.k, task.index)
        if scores:
            return sorted(range(task.index), key=lambda j: (-scores[j], -j))[:count]
        order = torch.randperm(task.index, generator=rng(self.seed, "prior", task.index)).tolist()
        return order[:count] if self.prior == "random" else list(range(task.index))[::-1]

    def paths_from(self, sources: Sequence[int], task: Task) -> list[Candidate]:
        """Every distinct prefix of the sources' paths with new modules behind it, the longest first."""
        own = task.head.owned[task.index]
        fresh, prefixes, found = self.new_modules(task.index, own), self.prefixes(sources, len(own)), []
        for prefix in prefixes:
            alone = sum(len(other) == len(prefix) for other in prefixes) == 1
            name = f"reuse={len(prefix)}" + ("" if alone else f" behind {prefix[-1]}")
            if new := fresh[len(prefix) :]:
                found += [
                    Candidate(NewModules(prefix, copy.deepcopy(new)), point, f"{name},{name_of(point)}")
                    for point in self.grid
                ]
            else:
                found.append(Candidate(NewModules(prefix, []), {}, name))
        return found

    def prefixes(self, sources: Sequence[int], num_outputs: int) -> list[Prefix]:
        """All beginnings of the sources' paths, the longest first. A whole path is one where its head may be
        re-used."""
        whole = [tuple(self.library.paths[j]) for j in sources]
        found = {(), *(path[:r] for path in whole for r in range(len(path)))}
        if self.allow_head_reuse:
            found.update(path for path in whole if self.library.num_outputs(path) == num_outputs)
        return sorted(found, key=lambda prefix: (-len(prefix), prefix))

    def new_modules(self, task: int, own: Sequence[int]) -> list[nn.Module]:
        return list(own_network(self, task, len(own)).path_modules().values())

    def new_module(self, depth: int, num_outputs: int) -> nn.Module:
        return self.new_modules(0, range(num_outputs))[depth]

    def adopt(self, c: Candidate, task: Task) -> None:
        new: Any = c.network
        self.library.add(prefix_of(c), new.own, num_outputs=len(task.head.owned[task.index]))

    # ---- candidates in training: what they re-use is computed once -----------------------------------------

    def shared(self, batch: Batch, candidates: Sequence[Candidate]) -> dict[Prefix, torch.Tensor]:
        return self.library.features(batch.x, {prefix_of(c) for c in candidates})

    def logits(self, c: Candidate, batch: Batch) -> torch.Tensor:
        return widened(c.network(batch.shared[prefix_of(c)]), self.head, batch.learning)

    def forward(self, x: torch.Tensor, task: int | None) -> torch.Tensor:
        assert task is not None, "declared in needs"
        return widened(self.library(x, self.library.paths[task]), self.head, task)

    def predicts(self, task: int) -> bool:
        return task < len(self.library.paths)

    # ---- the task-driven prior -----------------------------------------------------------------------------

    def scores(self, task: Task) -> list[float]:
        """The accuracy, for each past task, of k nearest neighbours in the features before its head, among
        the new task's training images, on its validation images."""
        assert task.val is not None, "learn has looked"
        trunks = {tuple(path[:-1]) for path in self.library.paths}
        train, val = (
            some_of_each_class(split, self.searched, rng(self.seed, "search", task.index))
            for split in (task.train, task.val)
        )
        known, queries = (self.search_features(split, trunks) for split in (train, val))
        by_trunk = {
            trunk: vote_accuracy(known[trunk], train.y, queries[trunk], val.y, self.neighbours)
            for trunk in trunks
        }
        return [by_trunk[tuple(path[:-1])] for path in self.library.paths]

    @torch.no_grad()
    def search_features(self, split: Split, trunks: set[Prefix]) -> dict[Prefix, torch.Tensor]:
        parts = [self.library.features(x, trunks) for x in split.x.split(AT_ONCE)]
        return {trunk: torch.cat([part[trunk].flatten(1) for part in parts]) for trunk in trunks}
