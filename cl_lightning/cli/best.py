"""The file that makes a search's winner again: ``best/<learner>-s<seed>.yaml`` in the sweep's folder."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.types import RunMode
from omegaconf import OmegaConf

from cl_lightning.cli.choice import start_of
from cl_lightning.cli.jobs import Job, config_dirs, from_here, without_sweeps
from cl_lightning.config.resolvers import WITHOUT_RESULT
from cl_lightning.evaluation.scenario import scenario_in
from cl_lightning.runs.identity import learner_name
from cl_lightning.selection.stream_level import Chosen
from cl_lightning.selection.sweep import as_override
from cl_lightning.store.atomic import write_whole


def write_best(sweeper: Any, job: Job, chosen: Chosen, over_seeds: bool, also: Sequence[str]) -> Path:
    """``best/<learner>-s<seed>.yaml``: a choice for ``+best=`` that makes the winner again. ``also`` are the
    overrides of this choice that not all have; but for the learner's, they are part of the name."""
    loader, folder = sweeper.hydra_context.config_loader, sweeper.launcher.folder
    cfg = loader.load_sweep_config(sweeper.config, job.overrides)
    values_of = [
        re.sub(r"\W+", "_", each.partition("=")[2]) for each in also if not each.startswith("learner=")
    ]
    name = "-".join([learner_name(cfg), *values_of, *([] if over_seeds else [f"s{chosen.seeds[0]}"])])
    overrides = OverridesParser.create(config_loader=loader).parse_overrides(list(job.overrides))
    head = [*head_of(job, chosen), f"# {shlex.join(command_of(sweeper, name, job))}"]
    deleted = {override.key_or_group.replace("/", ".") for override in overrides if override.is_delete()}
    left = OmegaConf.create({key: OmegaConf.select(cfg, key) for key in sorted(deleted)})
    plain: Any = OmegaConf.to_container(left)
    chosen = replace(chosen, deleted=plain)
    body = {**body_of(loader, overrides, over_seeds), "chosen": asdict(chosen)}
    if is_a_sweep(sweeper, overrides):
        body["hydra"] = {"mode": "RUN", "sweeper": {"params": None}}
    path = folder / "best" / f"{name}.yaml"
    with write_whole(path) as building:
        building.write_text("\n".join([*head, yaml.safe_dump(body, sort_keys=False)]))
    return path


def body_of(loader: Any, overrides: Sequence[Override], over_seeds: bool) -> dict[str, Any]:
    """The choices and values that make the winner. Hydra wants those that override others last."""
    added: list[dict[str, Any]] = []
    overriding: list[dict[str, Any]] = []
    values = OmegaConf.create({})
    left_out = (*WITHOUT_RESULT, "hydra", "chosen", *["seed"] * over_seeds)
    for override in overrides:
        key, value = override.key_or_group, override.value()
        if override.is_delete():  # a file cannot: the program does, as ``chosen`` says
            continue
        if loader.repository.group_exists(key):
            key += f"@{override.package}" if override.package else ""
            if override.is_add():
                added.append({f"/{key}": value})
            else:
                overriding.append({f"override /{key}": value})
        elif key.partition(".")[0] not in left_out:
            OmegaConf.update(values, key, value, force_add=True)
    plain: Any = OmegaConf.to_container(values)
    return {"defaults": [*added, "_self_", *overriding], **plain}


def is_a_sweep(sweeper: Any, overrides: Sequence[Override]) -> bool:
    """Whether these settings are a sweep by themselves, as studies in ``conf/experiment`` are."""
    own = [each.input_line for each in overrides if not str(each.input_line).startswith("hydra.")]
    kept = without_sweeps(sweeper.config.hydra)
    loader, name = sweeper.hydra_context.config_loader, sweeper.config.hydra.job.config_name
    return bool(loader.load_configuration(name, [*kept, *own], RunMode.RUN).hydra.mode == RunMode.MULTIRUN)


def head_of(job: Job, chosen: Chosen) -> list[str]:
    """What chose the winner, among what, under which rules and by which program."""
    start = start_of(job)
    program = f"{start.version['package']} ({start.version['source_hash']})"
    return [
        "# @package _global_",
        f"# Chosen by selection=stream_level: the best mean {chosen.by} accuracy over all tasks at the end "
        "of the stream",
        f"# score {chosen.score:.6f}; seeds {', '.join(map(str, chosen.seeds))}; "
        f"{chosen.scored} of {chosen.points} points have a score",
        f"# protocol: head {start.stream.head}; {scenario_in(start.stream.tasks, start.needs) or 'one task'}",
        f"# stream {start.stream.fingerprint}",
        f"# program {program}; commit {start.environment.get('commit', 'unknown')}",
        f"# sweep {chosen.sweep}",
    ]


def command_of(sweeper: Any, name: str, job: Job) -> list[str]:
    """The command that makes the winner again, or finds it: with the folders of the sweep's own command."""
    folder, own = str(from_here(sweeper.launcher.folder)), config_dirs(sweeper.config.hydra)
    places = [str(place) for place in sweeper.config.hydra.searchpath or []]
    places += [folder] * bool(own)  # of several --config-dir only the last would count
    return [
        *("python", "-m", "cl_lightning", "--config-dir", *(map(from_here, own) if own else [folder])),
        *[f"hydra.searchpath={as_override(places)}"] * bool(places),
        f"+best={name}",
        *(override for override in job.overrides if override.startswith("outputs=")),
    ]
