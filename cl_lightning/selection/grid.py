"""Grids of hyper-parameters."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cl_lightning.config.checking import check_arguments, check_value
from cl_lightning.config.settings import OF_A_GRID, OPTIMIZER_KEYS, Hyperparameters, Training
from cl_lightning.config.suggestions import nearest
from cl_lightning.config.trees import dotted
from cl_lightning.errors import Refusal

if TYPE_CHECKING:
    from cl_lightning.learners.base import Learner

DEFAULT = "default"  # in the place of a key's values: those of selection.default
TOPOLOGY = "backbone."  # how a key of the networks begins


def searched(selection: Mapping[str, Any], trainer: Mapping[str, Any]) -> dict[str, Any]:
    """The grid that is searched, without the keys of the default grid that the trainer has a value for.

    >>> default = {"lr": [0.01, 0.001], "weight_decay": [0.0, 1e-5]}
    >>> searched({"grid": {"lr": "default", "weight_decay": "default"}, "default": default}, {"lr": 0.1})
    {'weight_decay': [0.0, 1e-05]}
    >>> searched({"grid": {"lr": [0.5], "weight_decay": "default"}, "default": default}, {"lr": None})
    {'lr': [0.5], 'weight_decay': [0.0, 1e-05]}
    """
    grid, default, own = selection["grid"], selection.get("default", {}), of_both(selection, trainer)
    for name, values in values_of(grid).items():
        if values != DEFAULT and name in own:
            raise Refusal(
                f"trainer.{name}={own[name]} and selection.grid.{name}={values} are both given, and only one "
                f"can be trained with. Set trainer.{name}=null to search the grid, or leave "
                f"selection.grid.{name} out."
            )
        if values == DEFAULT and name not in default:
            raise Refusal(
                f"selection.grid.{name}=default means the values of selection.default.{name}, and there are "
                "none. Give a list of values."
            )
    if not isinstance(grid, Mapping):
        return grid
    left = {name: values for name, values in values_of(grid).items() if name not in own}
    return {name: default[name] if values == DEFAULT else values for name, values in left.items()}


def all_searched(selection: Mapping[str, Any], trainer: Mapping[str, Any]) -> dict[str, Any]:
    """What the tasks search: one ``grid``; or ``stages``, of which the last is that of all later tasks."""
    if not selection.get("stages"):
        return {"grid": searched(selection, trainer)}
    return {"stages": [searched({**selection, "grid": each}, trainer) for each in selection["stages"]]}


def by_task(selection: Mapping[str, Any]) -> list[list[dict[str, Any]]]:
    """The points of each task, those of the last for all later ones. A topology is chosen in the first.

    >>> by_task({"grid": {"lr": [0.1, 0.2], "backbone.sizes": [[8]]}})[1]
    [{'lr': 0.1}, {'lr': 0.2}]
    """
    stages = [grid_points(stage) for stage in selection.get("stages") or [selection["grid"]]]
    for number, points in enumerate(stages[1:], start=1):
        if name := next((name for point in points for name in point if name.startswith(TOPOLOGY)), None):
            raise Refusal(
                f"selection.stages[{number}].{name}: a topology is chosen in the first task, and learned on "
                "in all later ones. Name it in the first stage alone."
            )
    if len(stages) == 1 and any(name.startswith(TOPOLOGY) for name in stages[0][0]):
        later = [{k: v for k, v in point.items() if not k.startswith(TOPOLOGY)} for point in stages[0]]
        stages.append([point for i, point in enumerate(later) if point not in later[:i]])
    return stages


def taken_out(selection: Mapping[str, Any], trainer: Mapping[str, Any]) -> str | None:
    """A line that says which values of the trainer take a key out of the default grid.

    >>> taken_out({"grid": {"lr": "default"}, "default": {"lr": [0.01, 0.001]}}, {"lr": 0.1})
    'trainer.lr=0.1 takes lr out of the default grid.'
    """
    own = {} if selection.get("stages") else of_both(selection, trainer)
    values = " and ".join(f"trainer.{name}={value}" for name, value in own.items())
    take = "takes" if len(own) == 1 else "take"
    return f"{values} {take} {' and '.join(own)} out of the default grid." if own else None


def of_both(selection: Mapping[str, Any], trainer: Mapping[str, Any]) -> dict[str, Any]:
    """The trainer's values under names that the grid has, too."""
    both = [name for name in values_of(selection["grid"]) if name in OF_A_GRID]
    return {name: trainer[name] for name in both if trainer.get(name) is not None}


def of_task(stages: Sequence[list], task: int) -> list[dict[str, Any]]:
    """The points of a task, where the last stage is that of all later ones."""
    return stages[min(task, len(stages) - 1)]


def values_of(grid: Any, path: str = "selection.grid") -> dict[str, Any]:
    """The values of each name of a grid. A grid is a mapping, of which all combinations are tried, or a list
    of points, whose values belong together.

    >>> values_of({"backbone": {"sizes": [[8], [16]]}}), values_of([{"lr": 0.1}, {"lr": 0.2}])
    ({'backbone.sizes': [[8], [16]]}, {'lr': [0.1, 0.2]})
    """
    if isinstance(grid, Mapping):
        return dict(dotted(grid))
    listed = grid if isinstance(grid, Sequence) else []
    points = [dict(dotted(point)) if isinstance(point, Mapping) else {} for point in listed]
    if not points or not all(points) or any(point.keys() != points[0].keys() for point in points):
        lr, momentum = ("lr", "momentum") if path == "selection.grid" else ("trainer.lr", "trainer.momentum")
        raise Refusal(
            f"{path}={grid} is neither values by name, as in {{{lr}: [0.1, 0.01]}}, nor a list of points. "
            "Each point is a mapping, and all have the same names: "
            f"[{{{lr}: 0.1, {momentum}: 0.9}}, {{{lr}: 0.01, {momentum}: 0.0}}]."
        )
    return {name: [point[name] for point in points] for name in points[0]}


def grid_points(grid: Any, path: str = "selection.grid") -> list[dict[str, Any]]:
    """The points of a grid: of a mapping all combinations, the last name varying fastest. Values are a list
    or a sweep in Hydra's grammar.

    >>> grid_points({"lr": [0.01, 0.001], "weight_decay": "0,1e-4"})[1]
    {'lr': 0.01, 'weight_decay': 0.0001}
    >>> grid_points({}), grid_points([{"lr": 0.1, "momentum": 0.9}])
    ([{}], [{'lr': 0.1, 'momentum': 0.9}])
    """
    named = values_of(grid, path)
    if not isinstance(grid, Mapping):
        return [dict(zip(named, point)) for point in zip(*named.values())]
    values = [dimension(name, given, path) for name, given in named.items()]
    return [dict(zip(named, point)) for point in itertools.product(*values)]


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
        swept = override.is_sweep_override()
        given = (
            list(override.sweep_iterator(Transformer.identity)) if swept else [override.value()] * bool(given)
        )
    elif not isinstance(given, Sequence):
        given = [given]
    if not given:
        raise Refusal(f"{grid}.{name} is empty: there is nothing to choose from. Give at least one value.")
    return list(given)


def check_grid(grid: Any, learner: type[Learner], backbone: Any = None, path: str = "selection.grid") -> None:
    """Refuse names that nothing would read, and values that the key of that name of the trainer, of the
    learner or of the network cannot have."""
    known = (*OF_A_GRID, *learner.grid_keys)
    for name, given in values_of(grid).items():
        of_network = name.startswith(TOPOLOGY)
        if name not in known and not of_network:
            raise Refusal(
                f"{path}.{name}: {learner.__name__} has no {name!r} in its grid.{nearest(name, known)}"
            )
        values = dimension(name, given, path) if isinstance(grid, Mapping) else given
        if isinstance(grid, Mapping) and (twice := twice_in(values)):
            raise Refusal(f"{path}.{name}={values} has {twice[0]} twice: the candidates would be the same.")
        for value in values:
            if of_network:
                keys = {**backbone.keywords, name.removeprefix(TOPOLOGY): value}
                check_arguments(backbone.func, keys, "backbone", ("input_shape", "head"))
                continue
            owner = Hyperparameters if name in OPTIMIZER_KEYS else Training if name in OF_A_GRID else learner
            check_value(owner, name, value, f"{path}.{name}")
    if not isinstance(grid, Mapping) and (same := twice_in(grid_points(grid))):
        raise Refusal(f"{path} has {same[0]} twice: the candidates would be the same.")


def twice_in(values: Sequence[Any]) -> list[Any]:
    return [value for i, value in enumerate(values) if value in values[:i]]
