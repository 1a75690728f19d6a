"""What all networks have in common: a trunk and a head, made of named modules that can be taken apart."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from itertools import islice, pairwise
from typing import Literal

import torch
import torch.nn as nn

from cl_lightning.backbones.initialisers import INITIALISERS, Layer, initialise
from cl_lightning.data.task import Head
from cl_lightning.errors import Refusal

Layers = Literal["shared", "per_task"]


class Backbone(nn.Module):
    """A network that is called with images and the task they belong to, and gives logits (n, outputs).

    ``task`` is one number for all images, one a row, or None. Only networks with a layer a task look at it.
    ``starts`` names the parts with which a module begins; parts before the first of them belong to the first
    module.
    """

    needs_task = False  # whether forward looks at the task, at test too

    def __init__(
        self,
        trunk: Mapping[str, nn.Module],
        head: nn.Module,
        starts: Sequence[str],
        initialiser: Callable[[Layer], None] = INITIALISERS["torch"],
        channels_last: bool = False,
    ) -> None:
        super().__init__()
        self.trunk, self.head, self.starts = PathModule(OrderedDict(trunk)), head, tuple(starts)
        self.needs_task = any(isinstance(module, ByTask) for module in self.modules())
        initialise(self, initialiser)
        # Drawn before: layouts begin alike.
        for kernel in (p for p in self.parameters() if channels_last and p.dim() == 4):
            kernel.data = kernel.data.contiguous(memory_format=torch.channels_last)

    def forward(self, x: torch.Tensor, task: torch.Tensor | int | None = None) -> torch.Tensor:
        return called(self.head, self.features(x, task), task)

    def features(self, x: torch.Tensor, task: torch.Tensor | int | None = None) -> torch.Tensor:
        """What the head gets: (n, features)."""
        return self.trunk(x, task)

    def path_modules(self) -> OrderedDict[str, PathModule]:
        """The network's own modules (no copies) in their order, the head last. One called after the other,
        they are ``forward``.

        Each accepts what the module before it gives in any other such network, so that paths may be built
        from the modules of several networks (as in Veniat et al. 2021).
        """
        parts = OrderedDict([*self.trunk.named_children(), ("head", self.head)])
        names = list(parts)
        bounds = [0, *(names.index(start) for start in self.starts[1:]), len(names)]
        slices = (islice(parts.items(), first, last) for first, last in pairwise(bounds))
        return OrderedDict(
            (name, PathModule(OrderedDict(of_one))) for name, of_one in zip(self.starts, slices)
        )


class PathModule(nn.Sequential):
    """Modules one after the other. Those with a layer a task get the task's number, too."""

    def forward(self, h: torch.Tensor, task: torch.Tensor | int | None = None) -> torch.Tensor:
        for module in self:
            h = called(module, h, task)
        return h


class ByTask(nn.Module):
    """One linear layer a task, chosen by the task's number: of all rows, or of each."""

    def __init__(self, layers: Sequence[nn.Linear], key: str) -> None:
        super().__init__()
        self.layers, self.key = nn.ModuleList(layers), key

    def forward(self, h: torch.Tensor, task: torch.Tensor | int | None) -> torch.Tensor:
        if task is None:
            raise Refusal(
                f"A network with backbone.{self.key}=per_task was called without the task's number. Pass it, "
                f"or choose backbone.{self.key}=shared."
            )
        if isinstance(task, int):
            return self.one(h, task)
        present = task.cpu().unique().tolist()
        if len(present) == 1:
            return self.one(h, present[0])
        rows = [(task == t).nonzero()[:, 0].to(h.device) for t in present]
        parts = torch.cat([self.one(h.index_select(0, r), t) for r, t in zip(rows, present)])
        return torch.empty_like(parts).index_copy(0, torch.cat(rows), parts)

    def one(self, h: torch.Tensor, task: int) -> torch.Tensor:
        return self.layers[task](h)


class TaskInputs(ByTask):
    """A first layer a task."""

    def __init__(self, features: int, units: int, tasks: int) -> None:
        super().__init__([nn.Linear(features, units) for _ in range(tasks)], "inputs")


class TaskHeads(ByTask):
    """An output layer a task. Logits (n, outputs) of all classes: those of other tasks are -inf."""

    def __init__(self, features: int, head: Head) -> None:
        super().__init__([nn.Linear(features, len(own)) for own in head.owned], "heads")
        self.owned, self.num_outputs = head.owned, head.num_outputs

    def one(self, h: torch.Tensor, task: int) -> torch.Tensor:
        own, narrow = self.owned[task], self.layers[task](h)
        if own == tuple(range(self.num_outputs)):
            return narrow
        wide = narrow.new_full((len(h), self.num_outputs), -torch.inf)
        return wide.index_copy(1, torch.tensor(own, device=h.device), narrow)


def called(module: nn.Module, h: torch.Tensor, task: torch.Tensor | int | None) -> torch.Tensor:
    return module(h, task) if isinstance(module, ByTask) else module(h)


def output_layer(features: int, head: Head, heads: Layers) -> nn.Module:
    """The head of a network: one layer for all outputs, or one a task for its own."""
    if heads == "per_task" and head.mode in ("single", "multi_test"):
        raise Refusal(
            "backbone.heads=per_task keeps the outputs of other tasks out of the loss, but "
            f"stream.head={head.mode} has them in it. "
            "Use stream.head=multi_train_test, or backbone.heads=shared."
        )
    return nn.Linear(features, head.num_outputs) if heads == "shared" else TaskHeads(features, head)


def divided(sizes: Sequence[int], tasks: int, key: str = "") -> list[int]:
    """The sizes of one of ``tasks`` networks that share the units of one."""
    narrow = [size // tasks for size in sizes]
    if any(size < 1 for size in narrow):
        wider = f"Make them wider with backbone.{key}, or use fewer tasks."
        advice = wider if key else "Take fewer tasks, or another backbone."
        raise Refusal(
            f"Layers of {', '.join(map(str, sizes))} units divided among {tasks} tasks are left without "
            f"units. {advice}"
        )
    return narrow
