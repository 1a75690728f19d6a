"""Floating-point operations, counted by torch's own counter while the work is done."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch.utils.flop_counter import FlopCounterMode

_open: list[Flops] = []  # the innermost last


class Flops:
    """Counts the operations of everything that runs while it is open: in modules, in functions, in backward passes.

    A multiplication and an addition are 2; matrix products, convolutions and attention count, elementwise work and
    normalisation do not.

    >>> import torch
    >>> with Flops() as counted:
    ...     _ = torch.zeros(5, 3) @ torch.zeros(3, 2)
    >>> counted.total
    60
    """

    def __init__(self) -> None:
        self.mode = FlopCounterMode(display=False)
        self.known: dict[tuple, int] = {}  # by what ``once_a_shape`` was given
        self._before = 0  # counted until the last pause
        self._taken = 0

    @property
    def total(self) -> int:
        return self._before + self.mode.get_total_flops()

    def take(self) -> int:
        """What was counted since the last ``take``."""
        new, self._taken = self.total - self._taken, self.total
        return new

    def pause(self) -> None:
        self._before = self.total
        self.mode.__exit__(None, None, None)
        self.mode.flop_counts.clear()

    def go_on(self, missed: int) -> None:
        self._before += missed
        self.mode.__enter__()

    def __enter__(self) -> Flops:
        self.mode.__enter__()
        _open.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        _open.remove(self)
        self.mode.__exit__(None, None, None)


@contextmanager
def once_a_shape(*key: object) -> Iterator[None]:
    """Around one round of a loop whose rounds with equal ``key`` cost the same: the first is counted, the others add its number.

    Counting makes small operations several times as slow, so that long loops of the package's own are not watched throughout.
    """
    if not _open or key not in _open[-1].known:
        before = _open[-1].total if _open else 0
        yield
        if _open:
            _open[-1].known[key] = _open[-1].total - before
        return
    counters, missed = list(_open), _open[-1].known[key]
    for counter in reversed(counters):
        counter.pause()
    try:
        yield
    finally:
        for counter in counters:
            counter.go_on(missed)
