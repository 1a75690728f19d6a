"""Frozen modules in a prefix tree, and new ones behind them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
import torch.nn as nn

from cl_lightning.data.task import Head
from cl_lightning.learners.base import Learner
from cl_lightning.learners.parts.built import Built
from cl_lightning.metrics.flops import once_a_shape

Prefix = tuple[int, ...]  # modules from the input on, by number


class NewModules(nn.Module):
    """What a candidate trains: the modules behind a prefix of frozen ones."""

    def __init__(self, prefix: Prefix, own: Sequence[nn.Module]) -> None:
        super().__init__()
        self.prefix, self.own = prefix, nn.ModuleList(own)

    def forward(self, h: torch.Tensor) -> torch.Tensor:
        for module in self.own:
            h = module(h)
        return h


class Trie(nn.Module):
    """Modules of all tasks, frozen for ever. Each has one predecessor: a task's path leads from the input to
    its head."""

    def __init__(self, make: Callable[[int, int], nn.Module]) -> None:
        """``make`` gives a module of a depth, with a number of outputs where it is or holds a head."""
        super().__init__()
        self.modules_by_number = Built(
            lambda depth, num_outputs: make(depth, num_outputs).requires_grad_(False).eval()
        )
        self.paths: list[list[int]] = []  # by task

    def add(self, prefix: Prefix, modules: Iterable[nn.Module], num_outputs: int) -> None:
        """A task's path: old modules, then new ones, which are frozen now."""
        path = list(prefix)
        for module in modules:
            depth = len(path)
            path.append(len(self.modules_by_number))
            self.modules_by_number.add(
                module.requires_grad_(False).eval(), depth=depth, num_outputs=num_outputs
            )
        self.paths.append(path)

    def train(self, mode: bool = True) -> Trie:
        return super().train(False)  # running statistics and dropout of frozen modules stay off, whoever asks

    def num_outputs(self, path: Sequence[int]) -> int:
        return self.modules_by_number.how[path[-1]]["num_outputs"]

    def forward(self, x: torch.Tensor, path: Iterable[int]) -> torch.Tensor:
        for number in path:
            x = self.modules_by_number[number](x)
        return x

    def features(self, x: torch.Tensor, prefixes: Iterable[Prefix]) -> dict[Prefix, torch.Tensor]:
        """What comes out behind each prefix. Each module is called once, however many prefixes it is in; the
        cost is that of the distinct modules."""
        wanted = set(prefixes)
        made: dict[Prefix, torch.Tensor] = {(): x} if () in wanted else {}
        self.descend(x, (), wanted, made)
        return made

    def descend(
        self, h: torch.Tensor, at: Prefix, wanted: set[Prefix], made: dict[Prefix, torch.Tensor]
    ) -> None:
        """Compute features depth first, so that little memory is used at once."""
        for number in sorted(
            {prefix[len(at)] for prefix in wanted if len(prefix) > len(at) and prefix[: len(at)] == at}
        ):
            behind = (*at, number)
            with once_a_shape("module", *self.modules_by_number.how[number].values(), h.shape):
                out = self.modules_by_number[number](h)
            if behind in wanted:
                made[behind] = out
            self.descend(out, behind, wanted, made)

    def get_extra_state(self) -> list[list[int]]:
        return self.paths

    def set_extra_state(self, state: list[list[int]]) -> None:
        self.paths = state


def own_network(learner: Learner, task: int, num_outputs: int) -> Any:
    """A new network with outputs for one task alone, whatever the stream's head and ``backbone.heads``
    are."""
    shared = {"heads": "shared"} if "heads" in inspect.signature(learner.build).parameters else {}
    return learner.fresh(task, head=Head("domain", num_outputs, (tuple(range(num_outputs)),)), **shared)


def widened(narrow: torch.Tensor, head: Head, task: int) -> torch.Tensor:
    """A task's own logits among those of the whole stream: -inf for all others."""
    if (own := head.owned[task]) == tuple(range(head.num_outputs)):
        return narrow
    return narrow.new_full((len(narrow), head.num_outputs), -torch.inf).index_copy(
        1, torch.tensor(own, device=narrow.device), narrow
    )
