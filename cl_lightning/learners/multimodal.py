"""One input layer a task."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch.nn as nn

from cl_lightning.learners.base import Learner


class Multimodal(Learner):
    """Every task has a first layer of its own; all other layers are shared and finetuned (Lopez-Paz and Ranzato 2017). Needs the task's
    number at test. The backbone must know ``inputs=per_task``, as MLPs do."""

    def __init__(self, *, build: Callable[..., nn.Module], **base: Any) -> None:
        super().__init__(build=partial(build, inputs="per_task"), **base)
