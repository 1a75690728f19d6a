"""Tensors that are lent for the time a task is open, and are found out when they are kept."""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from cl_lightning.protocol import ProtocolError


class Lease:
    """Weak references to storages that were lent. Storages are never resized: that would crash whoever kept one."""

    def __init__(self) -> None:
        self._lent: list[StorageWeakRef] = []
        self._tidy_at = 64

    def watch(self, *tensors: Tensor) -> None:
        self._lent += [StorageWeakRef(tensor.untyped_storage()) for tensor in tensors]
        if len(self._lent) > self._tidy_at:
            self._lent = [reference for reference in self._lent if not reference.expired()]
            self._tidy_at = 2 * len(self._lent) + 64

    def end(self, learner: object) -> None:
        """Raise if a tensor lives that shares storage with what was lent, naming the attribute that holds it."""
        if self._kept():
            gc.collect()  # an exception's frames or a cycle may hold what nobody wants
        kept = self._kept()
        if not kept:
            return
        names = sorted({name for name, tensor in tensors_of(learner) if StorageWeakRef(tensor.untyped_storage()).cdata in kept})
        where = ", ".join(names) or "something outside of the learner"
        raise ProtocolError(
            f"the data of a task were closed, but {where} still holds a tensor that shares memory with them.",
            "Store a copy, in self.memory where it is counted: self.memory['x'] = task.train.x[:10].clone()",
        )

    def _kept(self) -> set[int]:
        return {reference.cdata for reference in self._lent if not reference.expired()}


def tensors_of(holder: object, name: str = "self", depth: int = 6, seen: set[int] | None = None) -> Iterator[tuple[str, Tensor]]:
    """All tensors and arrays that can be reached through attributes and plain containers, with their names; in modules, at any depth."""
    seen = set() if seen is None else seen
    if id(holder) in seen or depth < 0:
        return
    seen.add(id(holder))
    if isinstance(holder, Tensor):
        yield name, holder
        return
    if isinstance(holder, np.ndarray):
        if holder.dtype.kind in "iuf" and holder.dtype != np.uint16:
            yield name, torch.from_numpy(np.ascontiguousarray(holder))
        return
    parts: list[tuple[str, Any]] = []
    if isinstance(holder, torch.nn.Module):
        for key, module in holder._modules.items():
            yield from tensors_of(module, f"{name}.{key}", depth, seen)
    if isinstance(holder, dict):
        parts = [(f"{name}[{key!r}]", value) for key, value in holder.items()]
    elif isinstance(holder, list | tuple | set | frozenset | deque):
        parts = [(f"{name}[{i}]", value) for i, value in enumerate(holder)]
    elif hasattr(holder, "__dict__") and not isinstance(holder, type):
        parts = [(f"{name}.{key}", value) for key, value in vars(holder).items()]
        if isinstance(holder, torch.nn.Module):
            parts = [(f"{name}.{key}", value) for key, value in (*holder._parameters.items(), *holder._buffers.items())] + parts
    for part, value in parts:
        yield from tensors_of(value, part, depth - 1, seen)
