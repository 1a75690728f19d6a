"""Where training curves go, by mini-batches and by tasks. One logger a run, for all of its Trainers."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

from omegaconf import DictConfig
from pytorch_lightning.loggers import Logger, WandbLogger

from cl_lightning.checking import Positive, Text, resolve_target
from cl_lightning.runs import settled


def open_loggers(cfg: DictConfig, folder: Path, run: DictConfig) -> list[Logger]:
    make = logger_of(cfg)
    return [] if make is None else [make(folder=folder, run=settled(run))]


def logger_of(cfg: DictConfig) -> partial | None:
    """The logger that ``conf/logger/*.yaml`` names by ``_target_``, waiting for the run's folder and configuration."""
    return None if cfg.get("_target_") is None else resolve_target(cfg, "logger", "folder", "run")


def close_loggers(loggers: Sequence[Logger], status: str) -> None:
    """At the end of the run; Lightning's ``finalize`` comes after every phase."""
    for logger in loggers:
        logger.finalize(status)
        if isinstance(logger, WandbLogger):
            logger.experiment.finish(exit_code=0 if status == "success" else 1)


class RunLogger(Logger):
    """A logger with the names that Lightning asks for."""

    name, version = "cl_lightning", ""

    def log_hyperparams(self, *_: Any, **__: Any) -> None:
        """The configuration lies in the run's folder."""


class CSVLogger(RunLogger):
    """``logs.csv``: one line a value, appended, so that a resumed run keeps what it had. The mini-batches between the last
    checkpoint and a kill are logged twice: of equal steps and names, the last counts. (Lightning's own starts a new file each time.)
    """

    def __init__(self, folder: Path, run: dict) -> None:
        self.file = (folder / "logs.csv").open("a", newline="")
        self.writer = csv.writer(self.file)
        if self.file.tell() == 0:
            self.writer.writerow(("step", "name", "value"))

    def log_metrics(self, metrics: dict[str, Any], step: int | None = None) -> None:
        self.writer.writerows((step, name, value) for name, value in metrics.items())

    def save(self) -> None:
        self.file.flush()

    def finalize(self, status: str) -> None:
        self.file.flush()


def open_wandb(
    folder: Path,
    run: dict,
    project: Text,
    entity: Text | None,
    mode: Literal["online", "offline"],
    tags: list[Text],
    timeout: Positive,
    say: Callable[[str], None] = print,
) -> Logger:
    """A W&B run: online with credentials and network, else offline with one line that says so. Never asks, never waits long."""
    import wandb

    settings = wandb.Settings(silent=True, init_timeout=timeout)
    options: dict[str, Any] = {
        "project": project,
        "entity": entity,
        "dir": folder,
        "id": f"{folder.parent.name}-{folder.name}",
        "resume": "allow",
        "name": f"{run['name']}/{folder.parent.name}/s{run['seed']}",
        "group": f"{run['name']}/{folder.name.rpartition('-')[0]}",
        "tags": tags,
        "config": run,
        "settings": settings,
    }
    if mode == "online":
        reason = "no credentials"
        try:
            if wandb.login(prompt=False, timeout=int(timeout)):
                return WandbLogger(experiment=wandb.init(mode="online", **options))
        except wandb.errors.Error as error:
            reason = type(error).__name__
        say(f"W&B: {reason}, so this run is logged offline. Send it later with: wandb sync {folder / 'wandb'}/offline-run-*")
        mode = "offline"
    return WandbLogger(experiment=wandb.init(mode=mode, **options), offline=mode == "offline")
