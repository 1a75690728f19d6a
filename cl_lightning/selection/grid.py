"""Grids of hyper-parameters."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cl_lightning.checking import check_value
from cl_lightning.engine.settings import OPTIMIZER_KEYS, Training
from cl_lightning.errors import Refusal

if TYPE_CHECKING:
    from cl_lightning.learners.base import Learner


def grid_points(grid: Mapping[str, Any]) -> list[dict[str, Any]]:
    """All combinations, the last name varying fastest. Values are a list or a sweep in Hydra's grammar.

    >>> grid_points({"lr": [0.01, 0.001], "weight_decay": "0,1e-4"})[1]
    {'lr': 0.01, 'weight_decay': 0.0001}
    >>> grid_points({})
    [{}]
    """
    values = [dimension(name, given) for name, given in grid.items()]
    return [dict(zip(grid, point)) for point in itertools.product(*values)]


def dimension(name: str, given: Any) -> list[Any]:
    if isinstance(given, str):
        from hydra.core.override_parser.overrides_parser import OverridesParser
        from hydra.core.override_parser.types import Transformer
        from hydra.errors import HydraException

        try:
            override = OverridesParser.create().parse_override(f"{name}={given}")
        except HydraException as reason:
            raise Refusal(f"selection.grid.{name}={given!r} is not a list and not a sweep in Hydra's grammar: {reason}") from reason
        given = list(override.sweep_iterator(Transformer.identity)) if override.is_sweep_override() else [override.value()] * bool(given)
    elif not isinstance(given, Sequence):
        given = [given]
    if not given:
        raise Refusal(f"selection.grid.{name} is empty: there is nothing to choose from. Give at least one value.")
    return list(given)


def check_grid(grid: Mapping[str, Any], learner: type[Learner]) -> None:
    """Refuse names that nothing would read, and values that the trainer's or learner's key of that name cannot have."""
    known = (*OPTIMIZER_KEYS, *learner.tunes)
    for name, given in grid.items():
        if name not in known:
            raise Refusal(f"selection.grid.{name}: {learner.__name__} tunes no {name!r}. It knows {', '.join(known)}.")
        for value in dimension(name, given):
            check_value(Training if name in OPTIMIZER_KEYS else learner, name, value, f"selection.grid.{name}")
