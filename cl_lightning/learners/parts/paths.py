"""All paths of a task in one network, and how likely each is."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
import torch.nn as nn
from torch import Tensor

from cl_lightning.learners.parts.modules import Prefix

Decision = list[set[int]]  # of each option, the numbers of the paths that take it


class Paths(nn.Module):
    """What the paths of a task train, and Gamma, a distribution over these paths.

    A path is a prefix of frozen modules, an entry of its own behind it, and from there on modules that all
    paths share. Equally likely paths: the first counts.
    """

    taken: Tensor
    searching: Tensor

    def __init__(
        self, prefixes: Sequence[Prefix], fresh: Sequence[nn.Module], decisions: Sequence[Decision]
    ) -> None:
        """``prefixes`` are those of the paths, the shortest first; ``fresh`` is a whole new path."""
        super().__init__()
        self.prefixes = list(prefixes)
        self.entries = nn.ModuleList(copy.deepcopy(fresh[len(p)]) for p in prefixes if len(p) < len(fresh))
        self.shared = nn.ModuleList(copy.deepcopy(module) for module in fresh[1:])
        self.sizes = [len(options) for options in decisions]
        self.gamma = nn.Parameter(torch.zeros(sum(self.sizes)))
        by_path = [
            [float(path in option) for options in decisions for option in options]
            for path in range(len(prefixes))
        ]
        self.register_buffer("taken", torch.tensor(by_path), persistent=False)  # (paths, options)
        self.register_buffer("searching", torch.tensor(len(prefixes) > 1))

    def own(self, path: int) -> list[nn.Module]:
        """The new modules of a path; none where it is an old one."""
        return [*self.entries[path : path + 1], *self.shared[len(self.prefixes[path]) :]]

    def log_p(self) -> Tensor:
        """(paths,) log-probabilities."""
        return self.taken @ torch.cat([part.log_softmax(0) for part in self.gamma.split(self.sizes)])

    def entropy(self) -> Tensor:
        """The mean entropy of the decisions."""
        parts = [part.log_softmax(0) for part in self.gamma.split(self.sizes)]
        return -torch.stack([(log_p.exp() * log_p).sum() for log_p in parts]).mean()

    def best(self) -> int:
        """The most probable path."""
        return int(self.log_p().detach().cpu().argmax())

    @property
    def prefix(self) -> Prefix:
        return self.prefixes[self.best()]


def at_once(prefixes: Sequence[Prefix]) -> list[Decision]:
    """One decision among all paths."""
    return [[{path} for path in range(len(prefixes))]]


def one_by_one(prefixes: Sequence[Prefix]) -> list[Decision]:
    """At the input and at each old module, a decision: to go on with a new module, or with which old one."""
    found = []
    for path, node in enumerate(prefixes):
        behind = {i: p[len(node)] for i, p in enumerate(prefixes) if p[: len(node)] == node != p}
        olds = [{i for i in behind if behind[i] == old} for old in sorted(set(behind.values()))]
        found += [[{path}, *olds]] if olds else []
    return found or at_once(prefixes)
