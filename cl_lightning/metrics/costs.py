"""What learning costs: operations and seconds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from time import perf_counter, process_time

import torch.nn as nn

from cl_lightning.metrics.flops import Calls


def published_memory(learner: nn.Module) -> int:
    """Bytes as Veniat et al. 2021 count them for learners without stored examples: 4 for each number in parameters and buffers.

    >>> published_memory(nn.Linear(3, 2)), published_memory(nn.BatchNorm2d(64))
    (32, 1028)
    """
    tensors = {id(tensor): tensor.numel() for tensor in (*learner.parameters(), *learner.buffers())}
    return 4 * sum(tensors.values())


@dataclass
class Costs:
    """``flops``: as if every candidate had been trained alone; ``flops_executed``: what candidates share counts once; seconds by part.

    ``examples`` is how many lent examples went into mini-batches, ``replayed`` how many the learner added to them. Mini-batches
    alone, without scoring and hooks, took ``step_flops`` for ``candidate_examples``: lent examples, once a candidate. Seconds are
    those of a clock, but for ``cpu``: those of the processor in training, scoring and hooks.
    """

    flops: int = 0
    flops_executed: int = 0
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

    def plain(self) -> dict:
        return asdict(self)

    @contextmanager
    def timed(self, part: str) -> Iterator[None]:
        began = perf_counter()
        yield
        self.spend(part, perf_counter() - began)

    @contextmanager
    def measured(self, part: str) -> Iterator[None]:
        """Seconds and operations of code that calls modules."""
        began = process_time()
        with self.timed(part), Calls() as calls:
            yield
            self.count(calls.total, calls.total)
        self.spend("cpu", process_time() - began)
