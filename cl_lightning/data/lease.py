"""Leases: tensors are lent while a task is open, and a learner that keeps one is found out."""

from __future__ import annotations

import gc
import random
from collections import deque
from collections.abc import Callable, Iterator
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn import Module

from cl_lightning.protocol import ProtocolError

DEPTH = 6  # attributes and containers within each other that are looked through
UNSEEN = "something outside of the learner, or that cannot be looked into,"
PLAIN = (str, bytes, int, float, complex, type(None), torch.dtype, torch.device, np.generic)
STATE_OF: dict[type, Callable] = {  # of generators: it changes with each draw
    torch.Generator: lambda generator: generator.get_state().numpy().tobytes(),
    random.Random: lambda generator: repr(generator.getstate()),
    np.random.Generator: lambda generator: repr(generator.bit_generator.state),
}


class Lease:
    """Weak references to the storages of lent splits, which lie on the device where the learner is. Storages
    are never resized: that would crash whoever kept one."""

    def __init__(self, device: torch.device | None = None) -> None:
        self.device = device or torch.device("cpu")
        self._lent: list[tuple[StorageWeakRef, range]] = []  # and where in memory each lies

    def lend(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """The tensors, on the device, watched from now on."""
        lent = tuple(tensor.to(self.device) for tensor in tensors)
        for storage in (tensor.untyped_storage() for tensor in lent):
            first = storage.data_ptr()
            self._lent.append((StorageWeakRef(storage), range(first, first + storage.nbytes())))
        return lent

    def end(self, learner: object) -> None:
        """Raise if a tensor lives that shares storage with what was lent, naming the attribute that holds
        it."""
        if self._kept():
            gc.collect()  # an exception's frames or a cycle may hold what nobody wants
        kept = self._kept()
        if not kept:
            return
        found = [(name, each) for name, each in reachable(learner) if isinstance(each, Tensor | np.ndarray)]
        names = {name for name, each in found if any(address_of(each) in place for place in kept)}
        where = f"{', '.join(sorted(names))} of {type(learner).__name__}" if names else UNSEEN
        raise ProtocolError(
            f"the data of a task were closed, but {where} still holds a tensor that shares memory with them.",
            "Store a copy, in self.memory where it is counted: self.memory['x'] = task.train.x[:10].clone()",
        )

    def _kept(self) -> list[range]:
        return [place for reference, place in self._lent if not reference.expired()]


def address_of(tensor: Tensor | np.ndarray) -> int:
    return tensor.data_ptr() if isinstance(tensor, Tensor) else tensor.ctypes.data


def reachable(
    holder: object, name: str = "self", depth: int = DEPTH, seen: set[int] | None = None
) -> Iterator[tuple[str, Any]]:
    """All tensors, arrays and plain values that can be reached through attributes, containers and closures,
    with their names. The tensors of a task, a split or a mini-batch have its name."""
    if isinstance(holder, PLAIN):
        yield name, holder
        return
    seen = set() if seen is None else seen
    if id(holder) in seen or depth < 0:
        return
    seen.add(id(holder))
    if isinstance(holder, Tensor | np.ndarray):
        yield name, holder
        return
    for part, value in parts_of(holder, name):
        yield from reachable(value, part, depth - (not isinstance(holder, Module)), seen)


def parts_of(holder: Any, name: str) -> list[tuple[str, Any]]:
    """What something holds, each with a name."""
    if hasattr(type(holder), "handed_tensors"):
        return [(name, tensor) for tensor in holder.handed_tensors]
    if isinstance(holder, dict):
        return [(f"{name}[{key!r}]", value) for key, value in holder.items()]
    if isinstance(holder, list | tuple | set | frozenset | deque):
        return [(f"{name}[{i}]", value) for i, value in enumerate(holder)]
    if isinstance(holder, Module):
        # Private: here a module keeps what looks like attributes from outside.
        own = {**vars(holder), **holder._parameters, **holder._buffers, **holder._modules}
        for key in ("_parameters", "_buffers", "_modules"):
            del own[key]
        return [(f"{name}.{key}", value) for key, value in own.items()]
    if isinstance(holder, type | ModuleType):
        return []
    if isinstance(holder, FunctionType):
        defaults = (*(holder.__defaults__ or ()), *(holder.__kwdefaults__ or {}).values())
        return [(name, part) for part in (*(holder.__closure__ or ()), *defaults)]
    if state_of := STATE_OF.get(type(holder)):
        return [(name, state_of(holder))]
    if attributes := getattr(holder, "__dict__", None):
        return [(f"{name}.{key}", value) for key, value in attributes.items()]
    # Cells of closures, partials, bound methods, iterators, slots.
    return [(name, part) for part in gc.get_referents(holder)]
