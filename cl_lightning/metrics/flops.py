"""Floating-point operations, counted once a module and shape on the ``meta`` device, where nothing is computed.

Counts are those of ``torch.utils.flop_counter``: a multiplication and an addition are 2; matrix products, convolutions
and attention count, elementwise work and normalisation do not.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn as nn
from torch.func import functional_call
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

_COUNTED: dict[tuple, int] = {}


class Calls:
    """Notes which modules are called while it is open: the outermost of nested ones, with the shapes they get.

    >>> layer = nn.Linear(3, 2)
    >>> with Calls() as calls, torch.no_grad():
    ...     _ = layer(torch.zeros(5, 3))
    >>> calls.total == 5 * 2 * 3 * 2
    True
    """

    counting = False  # while operations are counted, modules are called once more: on meta, and not by the program

    def __init__(self) -> None:
        self.total = 0
        self._depth = 0
        self._hooks: list[Any] = []

    def __enter__(self) -> Calls:
        self._hooks = [
            register_module_forward_pre_hook(self._before),
            register_module_forward_hook(self._after, with_kwargs=True, always_call=True),
        ]
        return self

    def __exit__(self, *_: object) -> None:
        for hook in self._hooks:
            hook.remove()

    def take(self) -> int:
        """What was counted since the last ``take``."""
        total, self.total = self.total, 0
        return total

    def _before(self, module: nn.Module, arguments: tuple) -> None:
        self._depth += not Calls.counting

    def _after(self, module: nn.Module, arguments: tuple, *rest: Any) -> None:
        """``rest``: named arguments and output, or, where the module raised, None alone."""
        if Calls.counting:
            return
        self._depth -= 1
        if self._depth == 0 and len(rest) == 2:
            named = rest[0]
            self.total += flops_of(module, arguments, torch.is_grad_enabled(), named)


def flops_of(module: nn.Module, arguments: tuple, backward: bool, named: dict[str, Any] | None = None) -> int:
    """Operations of one call of ``module``, and of the backward pass through it to whatever requires a gradient."""
    named = named or {}
    tensors = list(module.named_parameters()) + list(module.named_buffers())
    key = (
        type(module),
        repr(module),
        module.training,
        backward,
        tuple((name, tuple(t.shape), t.requires_grad) for name, t in tensors),
        tuple(map(signature, arguments)),
        tuple((name, signature(value)) for name, value in named.items()),
    )
    if key not in _COUNTED:
        Calls.counting = True
        try:
            with unobserved(module):
                _COUNTED[key] = count(module, dict(tensors), arguments, named, backward)
        finally:
            Calls.counting = False
    return _COUNTED[key]


@contextmanager
def unobserved(module: nn.Module) -> Iterator[None]:
    """Inside, who listens to calls of parts of ``module`` hears nothing."""
    listeners = [(part, part._forward_hooks) for part in module.modules()]
    for part, hooks in listeners:
        part._forward_hooks = type(hooks)()
    try:
        yield
    finally:
        for part, hooks in listeners:
            part._forward_hooks = hooks


def signature(value: Any) -> object:
    return (tuple(value.shape), value.requires_grad) if isinstance(value, torch.Tensor) else repr(value)


def count(module: nn.Module, tensors: dict[str, torch.Tensor], arguments: tuple, named: dict, backward: bool) -> int:
    """On meta; on copies of the real tensors where the module looks at numbers or at constants that are no buffers."""
    try:
        state = {name: torch.empty_like(t, device="meta", requires_grad=t.requires_grad) for name, t in tensors.items()}
        return run_counted(module, state, tuple(map(on_meta, arguments)), {k: on_meta(v) for k, v in named.items()}, backward)
    except Exception:
        state = {name: t.detach().clone().requires_grad_(t.requires_grad) for name, t in tensors.items()}
        return run_counted(module, state, tuple(map(detached, arguments)), {k: detached(v) for k, v in named.items()}, backward)


def run_counted(module: nn.Module, state: dict, arguments: tuple, named: dict, backward: bool) -> int:
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter, torch.set_grad_enabled(backward), torch.random.fork_rng(devices=[]):
        output = functional_call(module, state, arguments, named)
        if backward:
            for tensor in (t for t in flat_tensors(output) if t.requires_grad):
                tensor.sum().backward(retain_graph=True)
    return counter.get_total_flops()


def on_meta(value: Any) -> Any:
    """Floating tensors without their numbers; task ids and the like stay, since modules may branch on them."""
    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return value
    return torch.empty_like(value, device="meta", requires_grad=value.requires_grad)


def detached(value: Any) -> Any:
    return value.detach().requires_grad_(value.requires_grad) if isinstance(value, torch.Tensor) else value


def flat_tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [t for item in value for t in flat_tensors(item)] if isinstance(value, list | tuple) else []
