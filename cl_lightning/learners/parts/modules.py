"""Frozen modules in a prefix tree, and new ones behind them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch.nn as nn
from torch import Tensor

from cl_lightning.learners.parts.growing_list import GrowingList
from cl_lightning.metrics.flops import once_a_shape

Prefix = tuple[int, ...]  # modules from the input on, by number


class NewModules(nn.Module):
    """What a candidate trains: the modules behind a prefix of frozen ones."""

    def __init__(self, prefix: Prefix, own: Sequence[nn.Module]) -> None:
        super().__init__()
        self.prefix, self.own = prefix, nn.ModuleList(own)

    def forward(self, h: Tensor) -> Tensor:
        for module in self.own:
            h = module(h)
        return h


class Trie(nn.Module):
    """Modules of all tasks, frozen for ever. Each has one predecessor: a task's path leads from the input to
    its head."""

    def __init__(self, make: Callable[..., nn.Module]) -> None:
        """``make(depth, num_outputs)`` gives a module: the number of outputs counts where it is or holds a
        head."""
        super().__init__()
        self.modules_by_number = GrowingList(lambda **how: make(**how).requires_grad_(False).eval())
        self.paths: list[list[int]] = []  # by task

    def add(self, prefix: Prefix, modules: Iterable[nn.Module], num_outputs: int) -> None:
        """A task's path: old modules, then new ones, which are frozen now."""
        path = list(prefix)
        for module in modules:
            depth = len(path)
            path.append(len(self.modules_by_number))
            module.requires_grad_(False).eval()
            self.modules_by_number.add(module, depth=depth, num_outputs=num_outputs)
        self.paths.append(path)

    def train(self, mode: bool = True) -> Trie:
        return super().train(False)  # running statistics and dropout of frozen modules stay off, whoever asks

    def num_outputs(self, path: Sequence[int]) -> int:
        return self.modules_by_number.how[path[-1]]["num_outputs"]

    def forward(self, x: Tensor, path: Iterable[int]) -> Tensor:
        for number in path:
            x = self.modules_by_number[number](x)
        return x

    def features(self, x: Tensor, prefixes: Iterable[Prefix]) -> dict[Prefix, Tensor]:
        """What comes out behind each prefix. Each module is called once, however many prefixes it is in; the
        cost is that of the distinct modules."""
        wanted = set(prefixes)
        made: dict[Prefix, Tensor] = {(): x} if () in wanted else {}
        self.descend(x, (), wanted, made)
        return made

    def descend(self, h: Tensor, at: Prefix, wanted: set[Prefix], made: dict[Prefix, Tensor]) -> None:
        """Compute features depth first, so that little memory is used at once."""
        below = (prefix for prefix in wanted if len(prefix) > len(at) and prefix[: len(at)] == at)
        for number in sorted({prefix[len(at)] for prefix in below}):
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
