"""Networks whose outputs are those of one task alone."""

from __future__ import annotations

import inspect
from functools import cache
from typing import Any

import torch

from cl_lightning.data.task import Head
from cl_lightning.learners.base import Learner
from cl_lightning.randomness import moved


def own_network(learner: Learner, key: object, num_outputs: int) -> Any:
    """A new network with outputs for one task alone, whatever the stream's head and ``backbone.heads`` are.
    The key of its weights is the task, unless a task has several."""
    shared = {"heads": "shared"} if "heads" in inspect.signature(learner.build).parameters else {}
    return learner.fresh(key, head=Head("domain", num_outputs, (tuple(range(num_outputs)),)), **shared)


def widened(narrow: torch.Tensor, head: Head, task: int) -> torch.Tensor:
    """A task's own logits among those of the whole stream: -inf for all others."""
    if (own := head.owned[task]) == tuple(range(head.num_outputs)):
        return narrow
    return narrow.new_full((len(narrow), head.num_outputs), -torch.inf).index_copy(
        1, numbers_on(narrow.device, own), narrow
    )


@cache
def numbers_on(device: torch.device, own: tuple[int, ...]) -> torch.Tensor:
    """Numbers of outputs on a device: copied there once."""
    return moved(torch.tensor(own), device)
