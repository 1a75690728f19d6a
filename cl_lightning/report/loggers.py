"""Where training curves go, by mini-batches and by tasks. One logger a run, for all of its Trainers."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal

from omegaconf import DictConfig
from pytorch_lightning.loggers import Logger, WandbLogger

from cl_lightning.checking import Positive, Text, resolve_target
from cl_lightning.runs import settled
from cl_lightning.store.files import write_whole


@contextmanager
def opened_loggers(cfg: DictConfig, folder: Path, run: DictConfig) -> Iterator[list[Logger]]:
    """The loggers of a run, closed at its end; Lightning's ``finalize`` comes after every phase."""
    make = logger_of(cfg)
    loggers = [] if make is None else [make(folder=folder, run=settled(run))]
    status = "failed"
    try:
        yield loggers
        status = "success"
    finally:
        for logger in loggers:
            logger.finalize(status)
            if isinstance(logger, WandbLogger):
                logger.experiment.finish(exit_code=0 if status == "success" else 1)


def logger_of(cfg: DictConfig) -> partial | None:
    """The logger that ``conf/logger/*.yaml`` names by ``_target_``, waiting for the run's folder and configuration."""
    return None if cfg.get("_target_") is None else resolve_target(cfg, "logger", "folder", "run")


class RunLogger(Logger):
    """A logger with the names that Lightning asks for."""

    name, version = "cl_lightning", ""

    def log_hyperparams(self, *_: Any, **__: Any) -> None:
        """The configuration lies in the run's folder."""


class CSVLogger(RunLogger):
    """``logs.csv``: one line a value, written at once, so that a kill loses none. What a resumed run logs again, because it trains it
    again, stands there once: it is the same. (Lightning's own logger starts a new file each time.)"""

    def __init__(self, folder: Path, run: dict) -> None:
        path = folder / "logs.csv"
        text = path.read_text() if path.is_file() else ""
        whole, _, torn = text.rpartition("\n")
        if torn or not text:  # a kill may have cut the last line
            with write_whole(path) as building:
                building.write_text(f"{whole or 'step,name,value'}\n")
        self.known = set(whole.splitlines())
        self.file = path.open("a")

    def log_metrics(self, metrics: dict[str, Any], step: int | None = None) -> None:
        for line in (csv_line(step, name, value) for name, value in metrics.items()):
            if line not in self.known:
                self.known.add(line)
                self.file.write(f"{line}\n")
        self.file.flush()

    def save(self) -> None:
        """Nothing waits to be written."""


def csv_line(*values: object) -> str:
    """
    >>> csv_line(3, "loss/lr=0.1,momentum=0.9", 0.5)
    '3,"loss/lr=0.1,momentum=0.9",0.5'
    """
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(values)
    return text.getvalue()


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
