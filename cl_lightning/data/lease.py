"""Leases: tensors are lent while a task is open, and a learner that keeps one is found out."""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Iterator
from types import CellType, FunctionType
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn import Module

from cl_lightning.protocol import ProtocolError

DEPTH = 6  # attributes and containers within each other that are looked through


class Lease:
    """Weak references to the storages of lent splits, which lie on the device where the learner is. Storages
    are never resized: that would crash whoever kept one."""

    def __init__(self, device: torch.device | None = None) -> None:
        self.device = device or torch.device("cpu")
        self._lent: list[tuple[StorageWeakRef, range]] = []  # and where in memory each lies

    def lend(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """The tensors, on the device, watched from now on."""
        lent = tuple(tensor.to(self.device) for tensor in tensors)
        self.watch(*lent)
        return lent

    def watch(self, *tensors: Tensor) -> None:
        for storage in (tensor.untyped_storage() for tensor in tensors):
            self._lent.append(
                (StorageWeakRef(storage), range(storage.data_ptr(), storage.data_ptr() + storage.nbytes()))
            )

    def end(self, learner: object) -> None:
        """Raise if a tensor lives that shares storage with what was lent, naming the attribute that holds
        it."""
        if self._kept():
            gc.collect()  # an exception's frames or a cycle may hold what nobody wants
        kept = self._kept()
        if not kept:
            return
        found = reachable_tensors(learner)
        names = [name for name, tensor in found if any(address_of(tensor) in place for place in kept)]
        where = ", ".join(sorted(set(names))) or "something outside of the learner"
        raise ProtocolError(
            f"the data of a task were closed, but {where} still holds a tensor that shares memory with them.",
            "Store a copy, in self.memory where it is counted: self.memory['x'] = task.train.x[:10].clone()",
        )

    def _kept(self) -> list[range]:
        return [place for reference, place in self._lent if not reference.expired()]


def address_of(tensor: Tensor | np.ndarray) -> int:
    return tensor.data_ptr() if isinstance(tensor, Tensor) else tensor.ctypes.data


def reachable_tensors(
    holder: object, name: str = "self", depth: int = DEPTH, seen: set[int] | None = None
) -> Iterator[tuple[str, Any]]:
    """All tensors and arrays that can be reached through attributes, plain containers and closures, with
    their names."""
    seen = set() if seen is None else seen
    if id(holder) in seen or depth < 0:
        return
    seen.add(id(holder))
    if isinstance(holder, Tensor | np.ndarray):
        yield name, holder
        return
    for part, value in parts_of(holder, name):
        yield from reachable_tensors(value, part, depth - (not isinstance(holder, Module)), seen)


def parts_of(holder: object, name: str) -> list[tuple[str, Any]]:
    if isinstance(holder, dict):
        return [(f"{name}[{key!r}]", value) for key, value in holder.items()]
    if isinstance(holder, FunctionType):
        return [(name, part) for part in (*(holder.__closure__ or ()), *(holder.__defaults__ or ()))]
    if isinstance(holder, CellType):
        return [(name, holder.cell_contents)] if holder != CellType() else []
    if isinstance(holder, Module):
        # Private: here a module keeps what looks like attributes from outside.
        own = {**vars(holder), **holder._parameters, **holder._buffers, **holder._modules}
        return [
            (f"{name}.{key}", value)
            for key, value in own.items()
            if key not in ("_parameters", "_buffers", "_modules")
        ]
    if hasattr(holder, "__dict__") and not isinstance(holder, type):
        return [(f"{name}.{key}", value) for key, value in vars(holder).items()]
    if isinstance(holder, list | tuple | set | frozenset | deque):
        return [(f"{name}[{i}]", value) for i, value in enumerate(holder)]
    return []


def unsaved(learner: Any) -> dict[str, tuple[int, int]]:
    """Tensors and arrays that a learner keeps in attributes of its own, and no checkpoint stores: by name,
    which object it is and how often it was written to."""
    known = reachable_tensors([*learner.parameters(), *learner.buffers(), learner.memory])
    # Private: _cdata tells storages apart on every device; _version is torch's only count of changes in
    # place.
    saved = {tensor.untyped_storage()._cdata for _, tensor in known}
    own = {key: value for key, value in vars(learner).items() if key not in learner.of_base}
    found = {}
    for name, tensor in reachable_tensors(own, ""):
        attribute = "self." + name.removeprefix("['").replace("']", "", 1)
        if isinstance(tensor, np.ndarray):
            if tensor.size:
                found[attribute] = (id(tensor), hash(tensor.tobytes()))
        elif tensor.numel() and tensor.untyped_storage()._cdata not in saved:  # private, as above
            found[attribute] = (id(tensor), tensor._version)  # private, as above
    return found


def check_saved(learner: object, at_start: dict[str, tuple[int, int]]) -> None:
    """Refuse a learner that keeps tensors where a restart would not find them. Called at a task's
    boundary."""
    unsaved_names = sorted(name for name, what in unsaved(learner).items() if at_start.get(name) != what)
    if unsaved_names:
        raise ProtocolError(
            f"{type(learner).__name__} keeps a tensor in {', '.join(unsaved_names)}, which no checkpoint "
            "stores: after a restart it would be gone.",
            "Keep it in self.memory, where it is saved and counted, or set it to None in on_task_end.",
        )
