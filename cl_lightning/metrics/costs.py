"""What learning costs: operations and seconds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter, process_time
from typing import Any

import torch
import torch.nn as nn

# Private by its name, but where torch documents it.
from torch.utils._python_dispatch import TorchDispatchMode

from cl_lightning.metrics.flops import Flops


def numbers_in(*values: Any) -> int:
    """Numbers in the distinct tensors of nested plain values.

    >>> x = torch.zeros(2, 3)
    >>> numbers_in([x, {"again": x}, 1], nn.BatchNorm2d(64).buffers())
    135
    """
    return sum(tensor.numel() for tensor in {id(tensor): tensor for tensor in tensors_in(values)}.values())


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Iterable) and not isinstance(value, str | bytes):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from tensors_in(part)


class Reads(TorchDispatchMode):
    """Notes what memory is read while it is open.

    >>> one, other = nn.Linear(3, 2), nn.Linear(3, 2)
    >>> with Reads() as reads:
    ...     _ = one(torch.zeros(1, 3))
    >>> numbers_in(reads.of(one.parameters(), other.parameters()))
    8
    """

    def __init__(self) -> None:
        super().__init__()
        self.storages: set[int] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        self.storages.update(map(storage_key, tensors_in((args, kwargs))))
        return func(*args, **(kwargs or {}))

    def of(self, *values: Any) -> list[torch.Tensor]:
        """Tensors among nested plain values that were read."""
        return [tensor for tensor in tensors_in(values) if storage_key(tensor) in self.storages]


def storage_key(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata  # private: data_ptr is 0 on meta, and does not tell them apart


def held_bytes(learner: nn.Module, moments: Any = ()) -> dict[str, int]:
    """Bytes of everything that the learner's checkpoint needs, by name: measured, whatever it declares.

    >>> held_bytes(nn.BatchNorm1d(2))
    {'parameters': 16, 'buffers': 24}
    """
    memory = {f"memory.{name}": part for name, part in getattr(learner, "memory", {}).items()}
    structure = [state for name, state in learner.state_dict().items() if name.endswith("._extra_state")]
    tensors = {
        "parameters": list(learner.parameters()),
        "buffers": list(learner.buffers()),
        "optimizer": moments,
    }
    parts = {**tensors, "structure": structure, **memory}
    sizes = {name: size_of(part, {}) for name, part in parts.items()}
    return {name: size for name, size in sizes.items() if size or name in ("parameters", "buffers")}


def size_of(value: Any, storages: dict[int, int]) -> int:
    """Bytes of nested plain values: of the memory behind tensors, each once; of texts and bytes; 8 of a
    number.

    >>> size_of({"x": torch.zeros(2, 3), "names": ["ab", b"c"], "n": 1}, {})
    42
    """
    if isinstance(value, torch.Tensor):
        storage, key = value.untyped_storage(), storage_key(value)
        new = key not in storages
        storages[key] = storage.nbytes()
        return storage.nbytes() if new else 0
    if isinstance(value, dict):
        return sum(size_of(part, storages) for item in value.items() for part in item)
    if isinstance(value, list | tuple | set):
        return sum(size_of(part, storages) for part in value)
    if isinstance(value, str | bytes):
        return len(value.encode() if isinstance(value, str) else value)
    return 0 if value is None else 8


@dataclass
class Costs:
    """``flops``: as if every candidate had been trained alone; ``flops_executed``: what candidates share
    counts once; seconds by part.

    ``published_flops`` is what the paper seems to count, see ``published_flops`` in engine/phases.py.
    ``examples`` is how many lent examples went into mini-batches, ``replayed`` how many the learner added to
    them. Mini-batches alone, without scoring and hooks, took ``step_flops`` for ``candidate_examples``: lent
    examples, once a candidate. Seconds are those of a clock, but for ``cpu``: those of the processor in
    training, scoring and hooks.
    """

    flops: int = 0
    flops_executed: int = 0
    published_flops: int = 0
    examples: int = 0
    replayed: int = 0
    step_flops: int = 0
    candidate_examples: int = 0
    seconds: dict[str, float] = field(default_factory=dict)

    def count(self, alone: int, executed: int) -> None:
        self.flops += alone
        self.flops_executed += executed

    def spend(self, part: str, seconds: float) -> None:
        self.seconds[part] = self.seconds.get(part, 0.0) + seconds

    def add(self, seconds: Mapping[str, float], **counts: int) -> None:
        for name, count in counts.items():
            setattr(self, name, getattr(self, name) + count)
        for part, value in seconds.items():
            self.spend(part, value)

    @contextmanager
    def timed(self, part: str) -> Iterator[None]:
        began = perf_counter()
        yield
        self.spend(part, perf_counter() - began)

    @contextmanager
    def measured(self, part: str) -> Iterator[None]:
        """Seconds and operations of what runs inside."""
        began = process_time()
        with self.timed(part), Flops() as counted:
            yield
            self.count(counted.total, counted.total)
        self.spend("cpu", process_time() - began)
