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


class TaskHeads(nn.Module):
    """One linear layer a task. Logits (n, outputs) of all classes: those of other tasks are -inf."""

    def __init__(self, features: int, head: Head) -> None:
        super().__init__()
        self.owned, self.outputs = head.owned, head.outputs
        self.layers = nn.ModuleList(nn.Linear(features, len(own)) for own in head.owned)

    def forward(self, h: torch.Tensor, task: torch.Tensor | int | None) -> torch.Tensor:
        if task is None:
            raise Refusal(
                "A network with backbone.heads=per_task was called without the task's number. Pass it, or choose backbone.heads=shared."
            )
        if isinstance(task, int):
            return self.one(h, task)
        present = task.unique().tolist()
        if len(present) == 1:
            return self.one(h, present[0])
        logits = h.new_full((len(h), self.outputs), -torch.inf)
        for t in present:
            rows = (task == t).nonzero()[:, 0].to(h.device)
            logits = logits.index_copy(0, rows, self.one(h.index_select(0, rows), t).to(logits.dtype))
        return logits

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
        divide_by: int = 1,
    ) -> None:
        super().__init__()
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
        self.needs_task = heads == "per_task"
        width = torch.Size(input_shape).numel()
        layers: OrderedDict[str, nn.Module] = OrderedDict(flatten=nn.Flatten())
        for i, size in enumerate((size // divide_by for size in sizes), start=1):
            layers[f"linear{i}"], layers[f"relu{i}"] = nn.Linear(width, size), nn.ReLU()
            if dropout:
                layers[f"dropout{i}"] = nn.Dropout(dropout)
            width = size
        self.trunk = nn.Sequential(layers)
        self.head = nn.Linear(width, head.outputs) if heads == "shared" else TaskHeads(width, head)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                INITIALISERS[init](module)

    def forward(self, x: torch.Tensor, task: torch.Tensor | int | None = None) -> torch.Tensor:
        h = self.trunk(x)
        return self.head(h, task) if self.needs_task else self.head(h)


def glorot(layer: nn.Linear) -> None:
    """Uniform in +-sqrt(6 / (fan_in + fan_out)), bias 0: as in the code of Lopez-Paz and Ranzato 2017."""
    nn.init.xavier_uniform_(layer.weight)
    nn.init.zeros_(layer.bias)


INITIALISERS = {"torch": lambda layer: None, "glorot": glorot}
