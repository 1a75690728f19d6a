"""What a learner keeps from one task to the next must be in what a checkpoint stores."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from cl_lightning.data.lease import DEPTH, reachable
from cl_lightning.engine.proposals import storage_of
from cl_lightning.learners.base import Learner
from cl_lightning.learners.parts.built import Built
from cl_lightning.protocol import ProtocolError

NAMED = 3  # in a message


def made(learner: Learner) -> dict[str, list]:
    """What ``__init__`` makes, and a restart makes again, by name: the values of attributes that no
    checkpoint stores, and the shapes of the tensors that one stores. What lies in a ``Built`` may grow."""
    state = learner.state_dict(keep_vars=True)
    stored = {storage_of(part) for _, part in reachable(state) if isinstance(part, torch.Tensor)}
    found: dict[str, list] = {}
    seen: set[int] = set()
    for key, value in own_attributes(learner).items():
        for name, part in reachable(value, f"self.{key}", DEPTH - 1, seen):
            if part is not None and not (isinstance(part, torch.Tensor) and storage_of(part) in stored):
                found.setdefault(name, []).append(value_of(part))
    grown = tuple(f"{name}." for name, module in learner.named_modules() if isinstance(module, Built))
    for name, value in state.items():
        if not any(name.startswith(built) and name != f"{built}_extra_state" for built in grown):
            found[f"self.{name}"] = [value.shape if isinstance(value, torch.Tensor) else None]
    return found


def own_attributes(learner: Learner) -> dict[str, Any]:
    """Those that its classes and ``__init__`` have beyond the base."""
    classes = [cls for cls in reversed(type(learner).__mro__) if cls not in Learner.__mro__]
    of_classes = {
        key: value
        for cls in classes
        for key, value in vars(cls).items()
        if not key.startswith("__") and not hasattr(value, "__get__")  # methods and properties
    }
    return of_classes | {key: value for key, value in vars(learner).items() if key not in learner.of_base}


def value_of(part: Any) -> str | int:
    """A plain value's text; of tensors and arrays, what tells their contents."""
    if isinstance(part, torch.Tensor):
        part = part.detach().cpu().reshape(-1).view(torch.uint8).numpy()
    return hash(part.tobytes()) if isinstance(part, np.ndarray) else repr(part)  # nan is not nan


def check_kept(learner: Learner, at_start: dict[str, list]) -> None:
    """Refuse a learner that at a task's end has something else than ``made`` found at the start, where a
    restart would not find it."""
    if changed := different(at_start, made(learner)):
        raise ProtocolError(
            f"{type(learner).__name__} keeps {changed} from one task to the next, "
            "and no checkpoint brings it back: a restart would go on with what __init__ makes.",
            "Keep tensors and plain values in self.memory. Make modules in __init__, those that grow in a "
            "Built(make).\nWhat is for one task alone: set it back in on_task_end.",
        )


def different(before: dict[str, Any], now: dict[str, Any]) -> str:
    """The names of what differs, as a sentence has them."""
    names = sorted(name for name in {*now, *before} if now.get(name) != before.get(name))
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more
