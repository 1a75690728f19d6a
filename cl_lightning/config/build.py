"""Objects made from a configuration: streams, learners, networks, callbacks."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial, wraps
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf

from cl_lightning.config.checking import check, keyword_parameters, made_by, resolve_target
from cl_lightning.errors import Refusal, plain
from cl_lightning.protocol import running
from cl_lightning.randomness import seeded
from cl_lightning.runs.identity import effective_settings

if TYPE_CHECKING:
    import torch.nn as nn

    from cl_lightning.data.sources.registry import Sources
    from cl_lightning.data.streams.stream import Stream
    from cl_lightning.learners.base import Learner


def check_targets(cfg: DictConfig) -> None:
    """Refuse what learner, stream, network and logger cannot be given: before a folder is made, and images
    are decoded."""
    from cl_lightning.loggers.base import loggers_of
    from cl_lightning.loggers.wandb_run import check_curves

    learner_of(cfg)
    stream_of(cfg)
    backbone_of(cfg)
    check_curves(loggers_of(cfg.logger))


def build_stream(cfg: DictConfig) -> Stream:
    """The stream; the images of its sources are decoded now if this machine never did."""
    from cl_lightning.data.streams.stream import Stream

    make, sources = stream_of(cfg), build_sources(cfg)
    given = {"images": sources[str(cfg.stream.source)]} if "source" in cfg.stream else {"sources": sources}
    made = make(**given)
    if not isinstance(made, Stream):
        raise wrong_kind("stream", "cl_lightning.data.streams.stream.Stream")
    return made


def stream_of(cfg: DictConfig) -> partial:
    """The recipe, waiting for images."""
    from cl_lightning.data.streams.show import Show

    keys: Any = OmegaConf.to_container(cfg.stream, resolve=True)
    shown = keys.get("show", {})
    check(Show, shown, "stream.show")
    of_recipe = {key: value for key, value in keys.items() if key not in ("name", "source", "show")}
    provided = ("show", "images" if "source" in keys else "sources")
    make = resolve_target(of_recipe, "stream", *provided)
    check_taken(make, "stream", *provided)
    return partial(make, show=Show(**shown))


def build_sources(cfg: DictConfig) -> Sources:
    """All data sets of the configuration, none of them opened yet."""
    from cl_lightning.data.sources.cache import Images, cache_folder, is_complete, open_images
    from cl_lightning.data.sources.registry import Sources

    def opened(name: str) -> Images:
        source = source_of(cfg, name)()
        if cfg.progress and not is_complete(cache_folder(name, source, cfg.cache)):
            told = f"Making the images of {name}: once, then they are kept in {cfg.cache}."
            print(plain(told), file=sys.stderr, flush=True)
        return open_images(name, source, cfg.cache)

    known = {str(name): classes_of(cfg.data.sources[name]) for name in cfg.data.sources}
    return Sources(known, opened, cfg.data.get("substitute") or {})


def source_of(cfg: DictConfig, name: str) -> partial:
    """What reads or draws a data set, waiting to be made."""
    make = resolve_target(cfg.data.sources[name], f"data.sources.{name}")
    if not hasattr(made_by(make), "decode"):
        raise wrong_kind(f"data.sources.{name}", "cl_lightning.data.sources.cache.Source")
    return make


def classes_of(source: DictConfig) -> tuple[str, ...] | None:
    """Names of a source's classes, where they are known without opening it."""
    from hydra.utils import get_class

    named = source.get("classes")
    if named is None:
        with suppress(Exception):  # said when it is opened
            named = getattr(get_class(source._target_), "classes", None)
    return tuple(map(str, named)) if isinstance(named, Sequence) and not isinstance(named, str) else None


def build_learner(cfg: DictConfig, stream: Stream) -> Learner:
    """The learner, with the networks that it may build and the grid that it may choose from."""
    make = learner_of(cfg)
    with seeded(cfg.seed, "__init__"), running(make, "__init__"):
        learner = make(build=builder(cfg, stream), head=stream.head)
    if not hasattr(learner, "of_base"):
        raise Refusal(
            f"{type(learner).__name__}.__init__ makes no learner: it must call super().__init__(**base)."
        )
    return learner


def learner_of(cfg: DictConfig) -> partial:
    """The learner with its grid and seed, waiting for networks and outputs."""
    from cl_lightning.learners.base import Learner
    from cl_lightning.selection.grid import by_task, check_grid

    keys: Any = OmegaConf.to_container(cfg.learner, resolve=True)
    keys.pop("name", None)
    make = resolve_target(keys, "learner", "build", "head", "grid", "seed")
    if not (isinstance(make.func, type) and issubclass(make.func, Learner)):
        raise Refusal(
            f"learner._target_={cfg.learner._target_} is not a learner. Derive a class from "
            "cl_lightning.learners.Learner."
        )
    check_taken(make, "learner", "build", "head", "grid", "seed")
    selection = effective_settings(cfg)["selection"]
    for number, grid in enumerate(selection.get("stages") or [selection["grid"]]):
        path = f"selection.stages[{number}]" if "stages" in selection else "selection.grid"
        check_grid(grid, make.func, backbone_of(cfg), path)
    stages = by_task(selection)
    if cfg.trainer.optimizer == "adam" and any("momentum" in point for points in stages for point in points):
        raise Refusal("selection.grid.momentum is for trainer.optimizer=sgd; Adam has moments of its own.")
    return partial(make, grid=stages if len(stages) > 1 else stages[0], seed=cfg.seed)


def backbone_of(cfg: DictConfig) -> partial:
    """The network, waiting for the images' shape and the outputs."""
    make = resolve_target(cfg.backbone, "backbone", "input_shape", "head")
    if "head" not in keyword_parameters(make.func)[0]:  # by name: **kwargs may go to any network
        raise Refusal(
            f"backbone._target_: {make.func.__name__} takes no head, which says how many outputs there are.\n"
            "Write def __init__(self, head, ...) and end in nn.Linear(..., head.num_outputs). The images' "
            "shape is given, too, where it is named: input_shape, (channels, height, width)."
        )
    return make


def wrong_kind(path: str, kind: str) -> Refusal:
    return Refusal(
        f"{path}._target_ must make a {kind}.\nName a class of that kind, or a function whose annotation "
        "says that it returns one."
    )


def check_taken(make: partial, group: str, *provided: str) -> None:
    """Refuse a class or function that does not take what the program gives it."""
    parameters, takes_any = keyword_parameters(make.func)
    left = [name for name in provided if name not in parameters]
    if left and not takes_any:
        raise Refusal(
            f"{group}._target_: {make.func.__name__} takes no {', '.join(left)}, which the program "
            "gives it.\n"
            "Write `def __init__(self, ..., **base)` and `super().__init__(**base)`, or take them by name."
        )


def builder(cfg: DictConfig, stream: Stream) -> Callable[..., nn.Module]:
    """Makes networks for the stream's images and outputs."""
    from cl_lightning.backbones.own import as_backbone

    make = backbone_of(cfg)
    known, _ = keyword_parameters(make.func)
    given = {"input_shape": stream.shape} if "input_shape" in known else {}

    @wraps(make)
    def made(**keys: Any) -> nn.Module:
        return as_backbone(make(**given, **keys), stream.shape, keys["head"].num_outputs)

    return made


def build_callbacks(cfg: DictConfig) -> list:
    """The user's callbacks."""
    from pytorch_lightning import Callback

    from cl_lightning.callbacks.base import guarded

    own = []
    for i, callback in enumerate(cfg.trainer.callbacks):
        make = resolve_target(callback, f"trainer.callbacks[{i}]")
        if not issubclass(made_by(make), Callback):
            raise wrong_kind(f"trainer.callbacks[{i}]", "pytorch_lightning.Callback")
        with running(make, "__init__"):
            own.append(guarded(make()))
    return own
