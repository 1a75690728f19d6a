"""What a learner stores and proposes: plain values that a checkpoint can hold."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch

from cl_lightning.errors import Refusal
from cl_lightning.protocol import ProtocolError


class Point(dict):
    """Hyper-parameters of a candidate, which nobody writes to: they name it, and results record them."""

    def refuse(self, *_: Any, **__: Any) -> Any:
        raise ProtocolError(
            "the hyper-parameters of a candidate were to be changed, by which it is named and recorded.",
            "Propose another candidate: Candidate(network, {**c.hparams, 'lr': 0.01}).",
        )

    __setitem__ = __delitem__ = __ior__ = update = setdefault = pop = popitem = clear = refuse

    def __deepcopy__(self, memo: dict) -> Point:
        return Point(copy.deepcopy(dict(self), memo))

    def __reduce__(self) -> tuple:
        """A checkpoint loads no classes but torch's own choice."""
        return OrderedDict, (list(self.items()),)


STORABLE = (str, int, float, bool, type(None), bytes, torch.dtype, torch.device, torch.Size)


def check_storable(value: Any, name: str) -> None:
    """Refuse what a checkpoint could not hold: it loads tensors and plain values alone."""
    if isinstance(value, dict):
        for key, part in value.items():
            check_storable(key, f"a key of {name}")
            check_storable(part, f"{name}[{key!r}]")
    elif type(value) in (list, tuple, set):
        for i, part in enumerate(value):
            check_storable(part, f"{name}[{i}]")
    elif isinstance(value, torch.Tensor):
        if not value.is_leaf:
            raise Refusal(
                f"{name} is a tensor with the graph of its computation, which a checkpoint cannot hold. Keep "
                "its values alone: .detach()."
            )
    elif type(value) not in STORABLE:
        raise Refusal(
            f"{name} is of type {type(value).__module__}.{type(value).__name__}, which a checkpoint cannot "
            "hold. "
            "Keep tensors and plain values: torch.as_tensor(array), float(number)."
        )


def mapped(fn: Callable[[torch.Tensor], torch.Tensor], value: Any) -> Any:
    """Nested plain values with every tensor replaced by ``fn`` of it."""
    if isinstance(value, torch.Tensor):
        return fn(value)
    if isinstance(value, dict):
        return {key: mapped(fn, part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(mapped(fn, part) for part in value)
    return value
