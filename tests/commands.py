"""Running the program: in this process, or as a user would."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from cl_lightning.config.compose import compose_config
from cl_lightning.runs.identity import fingerprint, run_folder

PLAIN = (
    "learner=finetune",
    "stream=split",
)  # what tests build on, whatever the program runs when told nothing
SMALL = (
    *PLAIN, "progress=false", "figures=false", "data.sources.mnist.train=2000", "data.sources.mnist.test=300",
    "stream.tasks=3", "trainer.max_epochs=2",
    "backbone.sizes=[16]", "stream.n_train=100", "stream.n_val=30",
)  # fmt: skip


# Keys without a dot that are no groups of choices.
VALUES = (
    "name", "seed", "resume", "cache", "checkpoints", "run", "from_task", "reference", "figures", "progress",
)  # fmt: skip


def configure(*overrides: str) -> DictConfig:
    """The configuration of a command. Choices are composed once; values are put in as by Hydra."""
    plain = () if any(override.startswith("+experiment") for override in overrides) else PLAIN
    outputs = [override for override in overrides if override.startswith("outputs=")]
    rest = [override for override in (*plain, *overrides) if override not in outputs]
    values = [override for override in rest if is_value(override)]
    if any(re.match(r"~|\+\+|\+\w+\.", override) for override in rest):  # the order may matter
        values = []
    cfg = deepcopy(composed(*(override for override in rest if override not in values)))
    try:
        for override in map(parsed, values):
            OmegaConf.update(cfg, override.key_or_group, deepcopy(override.value()))
    except OmegaConfBaseException:
        composed(*rest)  # tells of it in Hydra's words
        raise
    for override in outputs:
        cfg.outputs = override.partition("=")[2]
    return cfg


def is_value(override: str) -> bool:
    key = override.partition("=")[0]
    return key in VALUES or (re.fullmatch(r"\w+(\.\w+)+", key) is not None and not key.startswith("hydra."))


@cache
def parsed(override: str) -> Override:
    return OverridesParser.create().parse_override(override)


@cache
def composed(*overrides: str) -> DictConfig:
    return compose_config(*overrides)


def with_values(cfg: DictConfig, **values: Any) -> DictConfig:
    """A copy with other values of keys, which have ``__`` for each dot: as if it were composed with them."""
    cfg = deepcopy(cfg)
    for key, value in values.items():
        OmegaConf.update(cfg, key.replace("__", "."), value)
    return cfg


def run(outputs: Path, *overrides: str, small: bool = True) -> dict[str, Any]:
    """The results of a run in this process."""
    return returned_and_results(outputs, *overrides, small=small)[1]


def returned_and_results(
    outputs: Path, *overrides: str, small: bool = True
) -> tuple[float | None, dict[str, Any]]:
    """What a run in this process gives to sweepers, and its results."""
    from cl_lightning.runs.run import run as run_config

    cfg = configure(f"outputs={outputs}", *(SMALL if small else ()), *overrides)
    returned = run_config(cfg, list(overrides))
    return returned, json.loads((folder_of(cfg) / "results.json").read_text())


def results_in(outputs: Path) -> dict[str, Any]:
    """The results of the only run below a folder."""
    (path,) = outputs.rglob("results.json")
    return json.loads(path.read_text())


def finished(outputs: Path, *overrides: str, small: bool = True) -> dict[str, Any]:
    """As ``run``, but the run is made once, and copied to where it is asked for."""
    folder, results = made(*overrides, small=small)
    shutil.copytree(folder, outputs, dirs_exist_ok=True)
    return deepcopy(results)


@cache
def made(*overrides: str, small: bool = True) -> tuple[Path, dict[str, Any]]:
    folder = Path(tempfile.mkdtemp())  # goes with the tests' temporary folder
    return folder, run(folder, *overrides, small=small)


def folder_of(cfg: DictConfig) -> Path:
    """Where the run of a configuration lies."""
    from cl_lightning.runs import run as experiment

    return run_folder(cfg, experiment.build_stream(cfg))


def fingerprint_of(*overrides: str) -> str:
    from cl_lightning.config.build import build_stream

    cfg = configure(*overrides)
    return fingerprint(cfg, build_stream(cfg))


# ---- command lines -----------------------------------------------------------------------------------------


def command(
    *arguments: str, cwd: Path | None = None, check: bool = True, **options: Any
) -> subprocess.CompletedProcess:
    """A command line in this process, as in one of its own; with an environment or a timeout in one of its
    own."""
    if options:
        return process(*arguments, cwd=cwd, check=check, **options)
    from cl_lightning.cli.command import main

    out, err = io.StringIO(), io.StringIO()
    with as_started(arguments, cwd), redirect_stdout(out), redirect_stderr(err):
        code = main()
    result = subprocess.CompletedProcess(list(arguments), code, out.getvalue(), err.getvalue())
    assert not check or result.returncode == 0, result.stdout + result.stderr
    return result


@contextmanager
def as_started(arguments: tuple[str, ...], cwd: Path | None) -> Iterator[None]:
    """Arguments, folder, modules and warnings as ``python -m cl_lightning`` has them."""
    before, argv, path, modules = Path.cwd(), sys.argv, list(sys.path), set(sys.modules)
    folder = Path(cwd or before).resolve()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            os.chdir(folder)
            sys.argv, sys.path[:0] = ["cl_lightning", *arguments], [str(folder)] * (cwd is not None)
            yield
        finally:
            os.chdir(before)
            sys.argv, sys.path[:] = argv, path
            for name in set(sys.modules) - modules:  # another folder may have others of these names
                if cwd and str(getattr(sys.modules[name], "__file__", None) or "").startswith(str(folder)):
                    del sys.modules[name]


def process(
    *arguments: str, cwd: Path | None = None, check: bool = True, **options: Any
) -> subprocess.CompletedProcess:
    """A command line in a process of its own."""
    result = subprocess.run(
        [sys.executable, "-m", "cl_lightning", *arguments], capture_output=True, text=True, cwd=cwd, **options
    )
    assert not check or result.returncode == 0, result.stdout + result.stderr
    return result


# ---- what tests compare and choose -------------------------------------------------------------------------


def but_what_may_differ(results: dict) -> dict:
    """Results without the things in which identical runs may differ."""
    kept = {key: value for key, value in results.items() if key not in ("command", "environment", "crc")}
    return {
        **kept,
        "costs": [{key: value for key, value in cost.items() if key != "seconds"} for cost in kept["costs"]],
    }


def thinned(ones: Iterable[Any], others: Sequence[Any], each: int = 2) -> list[Any]:
    """All pairs, of which ``pytest`` tries one in so many: each value in several; the rest is for
    ``pytest -m all``."""
    return [
        pytest.param(one, other, marks=[] if (i + j) % each == 0 else pytest.mark.all)
        for i, one in enumerate(ones)
        for j, other in enumerate(others)
    ]
