"""Grids of hyper-parameters."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from cl_lightning.errors import Refusal
from cl_lightning.ranges import check_value

OPTIMIZER_KEYS = ("lr", "weight_decay", "momentum")


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
    for value in given:
        check_value(f"trainer.{name}", value, f"selection.grid.{name}")
    return list(given)


def check_grid(grid: Mapping[str, Any], tunes: Sequence[str], learner: str) -> None:
    """Refuse names that nothing would read."""
    known = (*OPTIMIZER_KEYS, *tunes)
    for name in grid:
        if name not in known:
            raise Refusal(f"selection.grid.{name}: {learner} tunes no {name!r}. It knows {', '.join(known)}.")
