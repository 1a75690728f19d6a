"""The configuration that a command line makes, and the keys in it that are the program's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig, OmegaConf, open_dict
from pydantic import Field

from cl_lightning.config.checking import Count, FolderName, Size, Text, check_arguments, target_of
from cl_lightning.config.resolvers import RULES, conf_dir
from cl_lightning.config.settings import Training
from cl_lightning.errors import Refusal
from cl_lightning.protocol import Grants

Group = Annotated[Mapping[str, Any], Field(description="one of the choices that --help lists, or a mapping")]


@dataclass(frozen=True)
class Data:
    sources: Mapping[str, Mapping[str, Any]]
    root: Text | None = None
    substitute: Mapping[str, Text] | None = None


@dataclass(frozen=True)
class Selection:
    grid: Mapping[str, Any] | Sequence[Mapping[str, Any]]
    stages: Sequence[Mapping[str, Any] | Sequence[Mapping[str, Any]]] | None = None
    stream: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None  # a sweep's alone, as the next two
    over_seeds: bool = False
    by: Literal["validation", "test"] = "validation"
    default: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Debug:
    fresh_learner: bool
    traceback: bool


@dataclass(frozen=True)
class Settings:
    """``conf/config.yaml`` says what each key is for."""

    learner: Group
    stream: Group
    backbone: Group
    logger: Group
    data: Data
    selection: Selection
    trainer: Training
    name: FolderName
    seed: Size
    outputs: Text
    resume: bool | Literal["anyway", "retry"]
    cache: Text
    checkpoints: Literal["all", "last"] | None
    run: Text | None
    from_task: Count | None
    tuned: Mapping[str, Any]
    chosen: Mapping[str, Any] | None
    reference: bool | Literal["joint"]
    figures: bool
    progress: bool
    grants: Grants
    debug: Debug


def without_deleted(cfg: DictConfig) -> DictConfig:
    """A copy of the configuration without the keys that a search over whole streams took out (``~key``): its
    winner's file names them, since a file cannot take out what another has."""
    cfg = cfg.copy()
    for key, instead in (cfg.get("chosen") or {}).get("deleted", {}).items():
        parent, _, last = key.rpartition(".")
        node = OmegaConf.select(cfg, parent) if parent else cfg
        with open_dict(node):
            del node[last]
            if instead is not None:
                node[last] = instead
    return cfg


def check_config(cfg: DictConfig) -> None:
    """Refuse keys that nothing reads and values that they cannot have, before anything is imported that takes
    long.

    What a learner, stream, backbone, data set or logger is given is checked when it is imported.
    """
    settings: Any = OmegaConf.to_container(cfg, resolve=True)
    if "best" in settings:
        raise Refusal(
            f"best={settings['best']} is no choice here. It lies in the folder of the sweep that chose it: "
            f"--config-dir <folder of the sweep> +best={settings['best']}."
        )
    if "stream" in settings["selection"]:
        raise Refusal(
            "selection.stream, the outer grid of selection=stream_level, goes through whole streams: that is "
            "a sweep, and this is a single run.\n"
            "Start it from the command line with selection=stream_level, without another sweeper and without "
            "selection as a swept key; or use selection=task_level and leave selection.stream out."
        )
    check_arguments(Settings, settings)
    Training(**settings["trainer"])  # refuses keys that do not go together
    for group in ("learner", "stream", "backbone"):
        check_arguments(target_of, settings[group], group)


def compose_config(*overrides: str, with_hydra: bool = False) -> DictConfig:
    """The configuration that a command with these arguments has."""
    GlobalHydra.instance().clear()
    with initialize_config_dir(conf_dir(), **RULES):
        return compose("config", list(overrides), return_hydra_config=with_hydra)
