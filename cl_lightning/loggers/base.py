"""Where training curves go, by mini-batches and by tasks. One logger a run, for all of its Trainers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from omegaconf import DictConfig
from pytorch_lightning.loggers import Logger, WandbLogger

from cl_lightning.checking import resolve_target
from cl_lightning.identity import effective_settings
from cl_lightning.store.records import RowRecord


@contextmanager
def opened_loggers(cfg: DictConfig, folder: Path, run: DictConfig) -> Iterator[list[Logger]]:
    """The loggers of a run, closed at its end; Lightning's ``finalize`` comes after every phase."""
    make = logger_of(cfg)
    loggers = [] if make is None else [make(folder=folder, run=effective_settings(run))]
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
    """The logger that ``conf/logger/*.yaml`` names by ``_target_``, waiting for the run's folder and
    configuration."""
    return None if cfg.get("_target_") is None else resolve_target(cfg, "logger", "folder", "run")


class RunLogger(Logger):
    """A logger with the names that Lightning asks for."""

    name, version = "cl_lightning", ""

    def log_hyperparams(self, *_: Any, **__: Any) -> None:
        """The configuration lies in the run's folder."""


def curves_of(record: RowRecord) -> dict[str, float]:
    """What loggers get of a row of the accuracy matrix."""
    of_learned = [accuracy for accuracy in record.first[: record.learned] if accuracy is not None]
    mean = {"test/mean_learned": sum(of_learned) / len(of_learned)} if of_learned else {}
    tasks = {f"test/task{j}": accuracy for j, accuracy in enumerate(record.first) if accuracy is not None}
    return {"learned": record.learned, **mean, **tasks}
