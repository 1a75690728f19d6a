"""Running the program: in this process, or as a user would."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from cl_lightning.config import compose_config
from cl_lightning.identity import fingerprint, run_folder

PLAIN = (
    "learner=finetune",
    "stream=split",
)  # what tests build on, whatever the program runs when told nothing
SMALL = (
    *PLAIN, "progress=false", "figures=false", "data.sources.mnist.train=2000", "data.sources.mnist.test=300",
    "stream.tasks=3", "trainer.max_epochs=2",
    "backbone.sizes=[16]", "stream.n_train=100", "stream.n_val=30",
)  # fmt: skip


def configure(*overrides: str) -> DictConfig:
    plain = () if any(override.startswith("+experiment") for override in overrides) else PLAIN
    return compose_config(*plain, *overrides)


def run(outputs: Path, *overrides: str, small: bool = True) -> dict[str, Any]:
    """The results of a run in this process."""
    return returned_and_results(outputs, *overrides, small=small)[1]


def returned_and_results(
    outputs: Path, *overrides: str, small: bool = True
) -> tuple[float | None, dict[str, Any]]:
    """What a run in this process gives to sweepers, and its results."""
    from cl_lightning.experiment import run as run_config

    cfg = configure(f"outputs={outputs}", *(SMALL if small else ()), *overrides)
    returned = run_config(cfg, list(overrides))
    return returned, json.loads((folder_of(cfg) / "results.json").read_text())


def folder_of(cfg: DictConfig) -> Path:
    """Where the run of a configuration lies."""
    from cl_lightning import experiment

    return run_folder(cfg, experiment.build_stream(cfg))


def fingerprint_of(*overrides: str) -> str:
    from cl_lightning.build import build_stream

    cfg = configure(*overrides)
    return fingerprint(cfg, build_stream(cfg))


def command(
    *arguments: str, cwd: Path | None = None, check: bool = True, **options: Any
) -> subprocess.CompletedProcess:
    result = subprocess.run(
        [sys.executable, "-m", "cl_lightning", *arguments], capture_output=True, text=True, cwd=cwd, **options
    )
    assert not check or result.returncode == 0, result.stdout + result.stderr
    return result


def but_what_may_differ(results: dict) -> dict:
    """Results without the three things in which identical runs may differ."""
    kept = {key: value for key, value in results.items() if key not in ("command", "environment")}
    return {
        **kept,
        "costs": [{key: value for key, value in cost.items() if key != "seconds"} for cost in kept["costs"]],
    }
