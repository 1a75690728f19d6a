"""What sweeps tell their jobs and say at their end: a callback of Hydra's."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig, open_dict, read_write

from cl_lightning.cli.jobs import begun
from cl_lightning.selection.sweep import JOBS, OURS, as_override, read_jobs


class Told(Callback):
    """What a sweep tells its jobs: its folder, since by their own arguments they would name another; and by
    overrides of this callback's keys what Hydra 1.4 lets no job have in ``hydra.sweeper``. And what a sweep
    with another sweeper says at its end, as ours do."""

    def __init__(self, **told: Any) -> None:
        pass  # jobs read the configuration

    def on_multirun_start(self, config: DictConfig, **_: Any) -> None:
        check_direction(config.hydra.sweeper)
        folder = str(Path(config.hydra.sweep.dir).resolve())
        with read_write(config.hydra), open_dict(config.hydra):
            config.hydra.overrides.hydra.append(f"hydra.sweep.dir={as_override(folder)}")
        if is_of_another(config):
            for path in Path(folder, JOBS).glob("*.json"):
                path.unlink()  # what jobs said in an earlier start
            begun.append((config, config.hydra.sweeper.get("n_trials")))

    def on_multirun_end(self, config: DictConfig, **_: Any) -> None:
        if is_of_another(config):
            from cl_lightning.cli.sweeps import show_folders

            if sys.exc_info()[0] is None:  # Hydra 1.4 also calls this where a sweep is broken off
                begun[:] = [(config, None)]  # it has had all of its jobs
            jobs = read_jobs(Path(config.hydra.sweep.dir).resolve())
            show_folders([Path(job["folder"]) for job in jobs if "done" in job])


def is_of_another(config: DictConfig) -> bool:
    """Whether the sweep has a sweeper that is not ours, such as Optuna's."""
    return not str(config.hydra.sweeper._target_).startswith(OURS)


def check_direction(sweeper: DictConfig) -> None:
    """End a sweep, before any job, where Optuna would look for the lowest accuracy, as it does when it is
    told nothing. (Of other exceptions in a callback Hydra makes warnings.)"""
    direction = sweeper.get("direction")
    if "optuna" in str(sweeper._target_) and getattr(direction, "name", direction) != "maximize":
        print(
            "hydra/sweeper=optuna looks for the lowest value, and a run returns its validation accuracy. "
            "Add hydra.sweeper.direction=maximize.",
            file=sys.stderr,
        )
        raise SystemExit(2)
