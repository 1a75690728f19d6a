"""The file that makes a search's winner again: ``best/<learner>-s<seed>.yaml`` in the sweep's folder."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf

from cl_lightning.cli.choice import folder_of
from cl_lightning.cli.jobs import Job
from cl_lightning.conf_dir import LOOKS
from cl_lightning.identity import learner_name
from cl_lightning.selection.stream_level import Choice
from cl_lightning.store.records import ChosenRecord
from cl_lightning.store.whole import write_whole


def from_here(folder: Path) -> Path:
    """A folder as one would type it: without the path to where the command was given."""
    return folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder


def write_best(
    folder: Path,
    chosen: Sequence[Job],
    choice: Choice,
    record: ChosenRecord,
    over_seeds: bool,
    loader: Any,
    master: DictConfig,
    also: Sequence[str] = (),
) -> Path:
    """``best/<learner>-s<seed>.yaml``: a choice for ``+best=`` that makes the winner again. ``also`` are the
    overrides of this choice that not all have; but for the learner's, they are part of the name."""
    job = chosen[0]
    cfg = loader.load_sweep_config(master, job.overrides)
    run = json.loads((folder_of(job) / "results.json").read_text())
    values_of = [
        re.sub(r"\W+", "_", each.partition("=")[2]) for each in also if not each.startswith("learner=")
    ]
    name = "-".join([learner_name(cfg), *values_of, *([] if over_seeds else [f"s{choice.seeds[0]}"])])
    choices, values, rest = [], OmegaConf.create({}), []
    left_out = (*LOOKS, "hydra", "chosen", *["seed"] * over_seeds)
    for override in OverridesParser.create(config_loader=loader).parse_overrides(list(job.overrides)):
        key, value = override.key_or_group, override.value()
        if override.is_delete():
            rest.append(f"~{key}")
        elif loader.repository.group_exists(key):
            choices.append({f"/{key}" if override.is_add() else f"override /{key}": value})
        elif key.partition(".")[0] not in left_out:
            OmegaConf.update(values, key, value, force_add=True)
    head = [
        "# @package _global_",
        "# Chosen by selection=stream_level: the best mean validation accuracy over all tasks at the end of "
        "the stream",
        f"# score {choice.score:.6f}; seeds {', '.join(map(str, choice.seeds))}; stream "
        f"{run['stream']['fingerprint']}; "
        f"program {run['version']['package']} ({run['version']['source_hash']}); sweep {folder.name}",
        f"# python -m cl_lightning --config-dir {shlex.quote(str(from_here(folder)))} "
        f"+best={name}{''.join(f' {each!r}' for each in rest)}",
    ]
    plain: Any = OmegaConf.to_container(values)
    by = {"fingerprint": run["fingerprint"], **asdict(record)}
    body = yaml.safe_dump({"defaults": [*choices, "_self_"], **dict(plain), "chosen": by}, sort_keys=False)
    path = folder / "best" / f"{name}.yaml"
    with write_whole(path) as building:
        building.write_text("\n".join([*head, body]))
    return path
