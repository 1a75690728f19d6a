"""Grids of hyper-parameters."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cl_lightning.config.checking import check_value
from cl_lightning.config.settings import OPTIMIZER_KEYS, Hyperparameters
from cl_lightning.config.suggestions import nearest
from cl_lightning.errors import Refusal

if TYPE_CHECKING:
    from cl_lightning.learners.base import Learner

DEFAULT = "default"  # in the place of a key's values: those of selection.default


def searched(selection: Mapping[str, Any], trainer: Mapping[str, Any]) -> dict[str, Any]:
    """The grid that is searched, without the keys of the default grid that the trainer has a value for.

    >>> default = {"lr": [0.01, 0.001], "weight_decay": [0.0, 1e-5]}
    >>> searched({"grid": {"lr": "default", "weight_decay": "default"}, "default": default}, {"lr": 0.1})
    {'weight_decay': [0.0, 1e-05]}
    >>> searched({"grid": {"lr": [0.5], "weight_decay": "default"}, "default": default}, {"lr": None})
    {'lr': [0.5], 'weight_decay': [0.0, 1e-05]}
    """
    grid, default, own = selection["grid"], selection.get("default", {}), of_both(selection, trainer)
    for name, values in grid.items():
        if values != DEFAULT and name in own:
            raise Refusal(
                f"trainer.{name}={own[name]} and selection.grid.{name}={values} are both given, and only "
                "one can be "
                f"trained with. Set trainer.{name}=null to search the grid, or leave selection.grid.{name} "
                "out."
            )
        if values == DEFAULT and name not in default:
            raise Refusal(
                f"selection.grid.{name}=default means the values of selection.default.{name}, and there are "
                "none. Give a list of values."
            )
    return {
        name: default[name] if values == DEFAULT else values
        for name, values in grid.items()
        if name not in own
    }


def taken_out(selection: Mapping[str, Any], trainer: Mapping[str, Any]) -> str | None:
    """A line that says which values of the trainer take a key out of the default grid.

    >>> taken_out({"grid": {"lr": "default"}, "default": {"lr": [0.01, 0.001]}}, {"lr": 0.1})
    'trainer.lr=0.1 takes lr out of the default grid.'
    """
    own = of_both(selection, trainer)
    values = " and ".join(f"trainer.{name}={value}" for name, value in own.items())
    take = "takes" if len(own) == 1 else "take"
    return f"{values} {take} {' and '.join(own)} out of the default grid." if own else None


def of_both(selection: Mapping[str, Any], trainer: Mapping[str, Any]) -> dict[str, Any]:
    """The trainer's values under names that the grid has, too."""
    both = [name for name in selection["grid"] if name in OPTIMIZER_KEYS]
    return {name: trainer[name] for name in both if trainer.get(name) is not None}


def grid_points(grid: Mapping[str, Any]) -> list[dict[str, Any]]:
    """All combinations, the last name varying fastest. Values are a list or a sweep in Hydra's grammar.

    >>> grid_points({"lr": [0.01, 0.001], "weight_decay": "0,1e-4"})[1]
    {'lr': 0.01, 'weight_decay': 0.0001}
    >>> grid_points({})
    [{}]
    """
    values = [dimension(name, given) for name, given in grid.items()]
    return [dict(zip(grid, point)) for point in itertools.product(*values)]


def dimension(name: str, given: Any, grid: str = "selection.grid") -> list[Any]:
    """The values of a key of a grid: of a list, of a sweep in Hydra's grammar, or the only one."""
    if isinstance(given, str):
        from hydra.core.override_parser.overrides_parser import OverridesParser
        from hydra.core.override_parser.types import Transformer
        from hydra.errors import HydraException

        try:
            override = OverridesParser.create().parse_override(f"{name}={given}")
        except HydraException as reason:
            raise Refusal(
                f"{grid}.{name}={given!r} is not a list and not a sweep in Hydra's grammar: {reason}"
            ) from reason
        given = (
            list(override.sweep_iterator(Transformer.identity))
            if override.is_sweep_override()
            else [override.value()] * bool(given)
        )
    elif not isinstance(given, Sequence):
        given = [given]
    if not given:
        raise Refusal(f"{grid}.{name} is empty: there is nothing to choose from. Give at least one value.")
    return list(given)


def check_grid(grid: Mapping[str, Any], learner: type[Learner]) -> None:
    """Refuse names that nothing would read, and values that the trainer's or learner's key of that name
    cannot have."""
    known = (*OPTIMIZER_KEYS, *learner.grid_keys)
    for name, given in grid.items():
        if name not in known:
            raise Refusal(
                f"selection.grid.{name}: {learner.__name__} has no {name!r} in its grid."
                f"{nearest(name, known)}"
            )
        values = dimension(name, given)
        if twice := [value for i, value in enumerate(values) if value in values[:i]]:
            raise Refusal(
                f"selection.grid.{name}={values} has {twice[0]} twice: the candidates would be the same."
            )
        for value in values:
            check_value(
                Hyperparameters if name in OPTIMIZER_KEYS else learner, name, value, f"selection.grid.{name}"
            )
