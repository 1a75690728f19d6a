"""Floating-point operations, counted by torch's own formulas while the work is done."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode  # where torch documents it
from torch.utils.flop_counter import flop_registry  # the formulas of FlopCounterMode, whose tracking of modules costs ten times as much

_open: list[Flops] = []  # the innermost last


class Flops(TorchDispatchMode):
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
        super().__init__()
        self.total = 0
        self.known: dict[tuple, int] = {}  # by what ``once_a_shape`` was given
        self._taken = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        kwargs = kwargs or {}
        formula = flop_registry.get(func._overloadpacket)
        if formula is None:
            with self:  # what is made of other operations counts as these
                out = func.decompose(*args, **kwargs)
            return func(*args, **kwargs) if out is NotImplemented else out
        out = func(*args, **kwargs)
        self.total += formula(*args, **kwargs, out_val=out)
        return out

    def take(self) -> int:
        """What was counted since the last ``take``."""
        new, self._taken = self.total - self._taken, self.total
        return new

    def __enter__(self) -> Flops:
        _open.append(self)
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        _open.pop()
        super().__exit__(*error)


@contextmanager
def uncounted(instead: int = 0) -> Iterator[None]:
    """Inside, nobody counts; all who do are told a number instead."""
    counters = list(_open)
    for counter in reversed(counters):
        counter.__exit__(None, None, None)
        counter.total += instead
    try:
        yield
    finally:
        for counter in counters:
            counter.__enter__()


@contextmanager
def once_a_shape(*key: object) -> Iterator[None]:
    """Around one round of a loop whose rounds with equal ``key`` cost the same: the first is counted, the others add its number.

    Counting makes small operations several times as slow, so that long loops of the package's own are not watched throughout.
    """
    if not _open:
        yield
    elif key in _open[-1].known:
        with uncounted(instead=_open[-1].known[key]):
            yield
    else:
        counter, before = _open[-1], _open[-1].total
        yield
        counter.known[key] = counter.total - before
