"""Floating-point operations, counted by torch's own formulas while the work is done."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

from torch._C import DispatchKey  # private: has_kernel_for_dispatch_key, used below, takes no other
from torch.utils._python_dispatch import (
    TorchDispatchMode,  # private by its name, but where torch documents it
)
from torch.utils.flop_counter import (
    flop_registry,
)  # the formulas of FlopCounterMode, whose tracking of modules costs ten times as much

_open: list[Flops] = []  # the innermost last


class Flops(TorchDispatchMode):
    """Counts the operations of everything that runs while it is open: in modules, in functions, in backward
    passes.

    A multiplication and an addition are 2; matrix products, convolutions and attention count, elementwise
    work and normalisation do not.

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
        self._read = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        formula = flop_registry.get(func._overloadpacket)  # private: the registry's own key
        if formula is None and is_composite(func):
            with self:  # what is made of other operations counts as these
                return func.decompose(*args, **kwargs)
        out = func(*args, **kwargs)
        if formula is not None:
            self.total += formula(*args, **kwargs, out_val=out)
        return out

    def since_last(self) -> int:
        """Operations counted since the last call of this function."""
        new, self._read = self.total - self._read, self.total
        return new

    def __enter__(self) -> Flops:
        _open.append(self)
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        _open.pop()
        super().__exit__(*error)


@cache
def is_composite(func: Any) -> bool:
    """Whether an operation is made of others."""
    return func.has_kernel_for_dispatch_key(DispatchKey.CompositeImplicitAutograd)


@contextmanager
def uncounted(instead: int = 0) -> Iterator[None]:
    """Stop all counters inside, and add ``instead`` to each of them."""
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
def once_a_shape(*key: object, known: dict[tuple, int] | None = None) -> Iterator[None]:
    """A guard around one round of a loop whose rounds with equal ``key`` cost the same: the first is counted,
    the others add its number.

    Counting makes small operations several times as slow, so that long loops of the package's own are not
    watched throughout. ``known`` is for keys that say all that a round's cost depends on: its numbers hold
    for other loops, too.
    """
    if not _open:
        yield
        return
    counter = _open[-1]
    known, before = counter.known if known is None else known, counter.total
    if key in known:
        with uncounted(instead=known[key]):
            yield
    else:
        yield
        known[key] = counter.total - before


def counted() -> int:
    """What the innermost counter has counted until now."""
    return _open[-1].total if _open else 0
