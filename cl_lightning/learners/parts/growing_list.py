"""Networks that grow: a list of modules that a checkpoint can make again."""

from __future__ import annotations

from collections.abc import Callable
from sys import intern
from typing import Any

import torch.nn as nn


class GrowingList(nn.ModuleList):
    """Modules that remember how each was made, in plain values: an empty list that is loaded from a
    checkpoint makes them again.

    >>> heads = GrowingList(lambda units: nn.Linear(4, units))
    >>> heads.add(nn.Linear(4, 2), units=2)
    >>> again = GrowingList(heads.make)
    >>> again.load_state_dict(heads.state_dict())
    <All keys matched successfully>
    >>> again[0].out_features
    2
    """

    def __init__(self, make: Callable[..., nn.Module]) -> None:
        super().__init__()
        self.make = make
        self.how: list[dict[str, Any]] = []

    def __getitem__(self, index: int | slice) -> Any:
        """A module, or a plain list of some."""
        return list(self)[index] if isinstance(index, slice) else super().__getitem__(index)

    def add(self, module: nn.Module, **how: Any) -> None:
        """Append a module; ``make(**how)`` makes one of its shape."""
        self.append(module)
        self.how.append(how)

    def get_extra_state(self) -> list[dict[str, Any]]:
        return list(self.how)

    def set_extra_state(self, state: list[dict[str, Any]]) -> None:
        del self[len(state) :]
        self.how = [
            {intern(key): value for key, value in how.items()} for how in state
        ]  # or files of equal content differ in size
        for how in self.how[len(self) :]:
            self.append(self.make(**how))
