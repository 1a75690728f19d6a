"""Multi-layer perceptrons."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import torch
import torch.nn as nn

from cl_lightning.data.task import Head
from cl_lightning.errors import Refusal


class Backbone(nn.Module):
    """A network that is called with images and the task they belong to, and gives logits (n, outputs).

    ``task`` is one number for all images, one a row, or None. Only networks with an output layer a task look at it.
    """

    needs_task = False  # whether forward looks at the task, at test too

    def forward(self, x: torch.Tensor, task: torch.Tensor | int | None = None) -> torch.Tensor:
        raise NotImplementedError


class ByTask(nn.Module):
    """One linear layer a task, chosen by the task's number: of all rows, or of each."""

    def __init__(self, layers: Sequence[nn.Linear], key: str) -> None:
        super().__init__()
        self.layers, self.key = nn.ModuleList(layers), key

    def forward(self, h: torch.Tensor, task: torch.Tensor | int | None) -> torch.Tensor:
        if task is None:
            raise Refusal(
                f"A network with backbone.{self.key}=per_task was called without the task's number. Pass it, or choose "
                f"backbone.{self.key}=shared."
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
        self.owned, self.outputs = head.owned, head.outputs

    def one(self, h: torch.Tensor, task: int) -> torch.Tensor:
        own, narrow = self.owned[task], self.layers[task](h)
        if own == tuple(range(self.outputs)):
            return narrow
        wide = narrow.new_full((len(h), self.outputs), -torch.inf)
        return wide.index_copy(1, torch.tensor(own, device=h.device), narrow)


class MLP(Backbone):
    """Linear layers with ReLU between them, and dropout behind each ReLU if asked for."""

    def __init__(
        self,
        input_shape: Sequence[int],
        head: Head,
        sizes: Sequence[int],
        dropout: float = 0.0,
        heads: str = "shared",
        init: str = "torch",
        inputs: str = "shared",
        divide_by: int = 1,
    ) -> None:
        super().__init__()
        if inputs not in ("shared", "per_task") or (inputs == "per_task" and not sizes):
            raise Refusal(f"backbone.inputs={inputs} must be shared, or per_task with at least one of backbone.sizes.")
        if heads not in ("shared", "per_task"):
            raise Refusal(f"backbone.heads={heads} must be shared or per_task.")
        if heads == "per_task" and head.mode in ("single", "multi_test"):
            raise Refusal(
                f"backbone.heads=per_task keeps the outputs of other tasks out of the loss, but stream.head={head.mode} has them in it. "
                "Use stream.head=multi_train_test, or backbone.heads=shared."
            )
        if init not in INITIALISERS:
            raise Refusal(f"backbone.init={init} is not known. Choose one of {', '.join(INITIALISERS)}.")
        if not 0 <= dropout < 1:
            raise Refusal(f"backbone.dropout={dropout} must lie in [0, 1).")
        if any(size // divide_by < 1 for size in sizes):
            raise Refusal(f"backbone.sizes={list(sizes)} divided among {divide_by} tasks leave layers without units. Make them wider.")
        self.needs_task = "per_task" in (heads, inputs)
        width = torch.Size(input_shape).numel()
        layers: OrderedDict[str, nn.Module] = OrderedDict(flatten=nn.Flatten())
        for i, size in enumerate((size // divide_by for size in sizes), start=1):
            layers[f"linear{i}"], layers[f"relu{i}"] = nn.Linear(width, size), nn.ReLU()
            if dropout:
                layers[f"dropout{i}"] = nn.Dropout(dropout)
            width = size
        self.inputs = None
        if inputs == "per_task":
            del layers["flatten"], layers["linear1"]
            self.inputs = TaskInputs(torch.Size(input_shape).numel(), sizes[0] // divide_by, len(head.owned))
        self.trunk = nn.Sequential(layers)
        self.head = nn.Linear(width, head.outputs) if heads == "shared" else TaskHeads(width, head)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                INITIALISERS[init](module)

    def forward(self, x: torch.Tensor, task: torch.Tensor | int | None = None) -> torch.Tensor:
        h = self.trunk(x if self.inputs is None else self.inputs(x.flatten(1), task))
        return self.head(h, task) if isinstance(self.head, TaskHeads) else self.head(h)


def glorot(layer: nn.Linear) -> None:
    """Uniform in +-sqrt(6 / (fan_in + fan_out)), bias 0: as in the code of Lopez-Paz and Ranzato 2017."""
    nn.init.xavier_uniform_(layer.weight)
    nn.init.zeros_(layer.bias)


INITIALISERS = {"torch": lambda layer: None, "glorot": glorot}
