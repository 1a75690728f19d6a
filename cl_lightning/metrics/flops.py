"""Floating-point operations, counted by torch's own formulas while the work is done."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

from torch import Tensor
from torch._C import DispatchKey  # private: has_kernel_for_dispatch_key, used below, takes no other

# Private by its name, but where torch documents it.
from torch.utils._python_dispatch import TorchDispatchMode

# The formulas of FlopCounterMode, whose tracking of modules costs ten times as much.
from torch.utils.flop_counter import flop_registry

_open: list[Flops] = []  # the innermost last
_by_shapes: dict[tuple, int] = {}  # what the formulas gave: evaluating one takes longer than small work


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
        formula, composite = kind_of(func)
        if composite:
            with self:  # what is made of other operations counts as these
                return func.decompose(*args, **kwargs)
        out = func(*args, **kwargs)
        if formula is not None:
            shapes = (func, shapes_in(args), shapes_in(kwargs.items()), shapes_in((out,)))
            if shapes not in _by_shapes:
                _by_shapes[shapes] = formula(*args, **kwargs, out_val=out)
            self.total += _by_shapes[shapes]
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
def kind_of(func: Any) -> tuple[Callable[..., int] | None, bool]:
    """The formula of an operation; and whether it has none because it is made of others."""
    formula = flop_registry.get(func._overloadpacket)  # private: the registry's own key
    made_of_others = func.has_kernel_for_dispatch_key(DispatchKey.CompositeImplicitAutograd)
    return formula, formula is None and made_of_others


def shapes_in(values: Iterable[Any]) -> tuple:
    """What torch's formulas go by: shapes in the place of tensors, all else as it is.

    >>> import torch
    >>> shapes_in([torch.zeros(2, 3), [1, 2], "same"])
    (torch.Size([2, 3]), (1, 2), 'same')
    """
    return tuple(
        value.shape
        if isinstance(value, Tensor)
        else shapes_in(value)
        if isinstance(value, list | tuple)
        else value
        for value in values
    )


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
