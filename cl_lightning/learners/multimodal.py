"""One input layer a task."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import torch.nn as nn

from cl_lightning.errors import Refusal
from cl_lightning.learners.base import Learner


class Multimodal(Learner):
    """Every task has a first layer of its own; all other layers are shared and finetuned (Lopez-Paz and
    Ranzato 2017). Needs the task's number at test. The backbone must know ``inputs=per_task``, as MLPs do. In
    the authors' program these networks, and no others, begin with PyTorch's weights and zero biases:
    ``backbone.init=torch_unbiased``."""

    def __init__(self, *, build: Callable[..., nn.Module], **base: Any) -> None:
        if "inputs" not in inspect.signature(build).parameters:
            raise Refusal(
                "Multimodal needs a network with a first layer a task, but this backbone has no key "
                "`inputs`. Use backbone=mlp."
            )
        super().__init__(build=partial(build, inputs="per_task"), **base)
