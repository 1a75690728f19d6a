"""What learning costs: operations and seconds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from time import perf_counter

from cl_lightning.metrics.flops import Calls


@dataclass
class Costs:
    """``flops``: as if every candidate had been trained alone; ``flops_executed``: what candidates share counts once; seconds by part."""

    flops: int = 0
    flops_executed: int = 0
    seconds: dict[str, float] = field(default_factory=dict)

    def count(self, alone: int, executed: int) -> None:
        self.flops += alone
        self.flops_executed += executed

    def spend(self, part: str, seconds: float) -> None:
        self.seconds[part] = self.seconds.get(part, 0.0) + seconds

    def add(self, flops: int, flops_executed: int, seconds: Mapping[str, float]) -> None:
        self.count(flops, flops_executed)
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
        with self.timed(part), Calls() as calls:
            yield
            self.count(calls.total, calls.total)
