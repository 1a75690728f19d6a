"""Where training curves go, by mini-batches and by tasks. The loggers of a run serve all of its Trainers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal

from omegaconf import DictConfig
from pytorch_lightning.loggers import Logger, WandbLogger

from cl_lightning.config.checking import keyword_parameters, made_by, resolve_target
from cl_lightning.engine.logs import call_loggers
from cl_lightning.errors import Refusal
from cl_lightning.runs.identity import as_used, effective_settings

PROVIDED = ("folder", "run", "save_dir", "default_hp_metric")  # by the program; the last is TensorBoard's
PASSED_ON = "root_dir"  # by Lightning's logger for TensorBoard to its base, which cannot do without
Status = Literal["success", "failed"]


class RunLogger(Logger):
    """A logger of this program: it has the names that Lightning asks for, and hears of a run's boundaries."""

    name, version = "cl_lightning", ""

    def log_hyperparams(self, *_: Any, **__: Any) -> None:
        """The configuration lies in the run's folder."""

    def log_candidates(self, losses: Mapping[str, float], step: int) -> None:
        """The loss of every candidate, by name. Loggers that compare runs have no use for such names."""

    def boundary(self) -> None:
        """Called when a task is learned and tested, and its records are written."""

    def close(self, status: Status) -> None:
        """Called at the end of the run, when its results are written; ``finalize`` comes after every
        phase."""


@contextmanager
def opened_loggers(cfg: DictConfig, folder: Path, run: DictConfig) -> Iterator[list[Logger]]:
    """The loggers of a run, closed at its end."""
    settings = as_used(effective_settings(run))
    loggers: list[Logger] = []
    status: Status = "failed"
    try:
        for make in loggers_of(cfg):
            loggers.append(opened(make, dict(zip(PROVIDED, (folder, settings, folder, False)))))
            call_loggers(loggers[-1:], "log_hyperparams", settings)
        yield loggers
        status = "success"
    finally:
        with ExitStack() as closing:  # one that fails keeps no other from being closed
            for logger in reversed(loggers):
                closing.callback(close_logger, logger, status)


def loggers_of(cfg: DictConfig) -> list[partial]:
    """The loggers that ``conf/logger`` names, each under a key of its own by ``_target_``, waiting for what
    the run gives them. A configuration of one's own may also be one logger itself."""
    alone = cfg.get("_target_") is not None
    named = {"logger": cfg} if alone else {f"logger.{name!s}": node for name, node in cfg.items()}
    return [logger_of(node, path) for path, node in named.items() if node is not None]


def logger_of(node: Any, path: str) -> partial:
    if not isinstance(node, DictConfig):
        raise Refusal(f"{path}={node} is not a logger. Give a mapping with the _target_ of one.")
    given = [name for name in PROVIDED if name == "folder" or name not in node]
    make = resolve_target(node, path, *given, PASSED_ON)
    if not issubclass(made_by(make), Logger):
        raise Refusal(
            f"{path}._target_={node._target_} is not a logger. Give a class derived from "
            "pytorch_lightning.loggers.Logger, or a function whose annotation says that it returns one."
        )
    return make


def opened(make: partial, provided: Mapping[str, Any]) -> Logger:
    """A logger, given those of the run's things that it takes: its folder, which is also where Lightning's
    loggers write when they are told no other place, and its settings."""
    takes, _ = keyword_parameters(make.func)
    given = {name: value for name, value in provided.items() if name in takes and name not in make.keywords}
    try:
        return make(**given)
    except ModuleNotFoundError as reason:
        said = str(reason).splitlines()[0]
        raise Refusal(f"{make.func.__name__} cannot be made: {said}\nInstall what it needs.") from reason


def close_logger(logger: Logger, status: Status) -> None:
    if isinstance(logger, RunLogger):
        call_loggers([logger], "close", status)
        return
    call_loggers([logger], "finalize", status)
    if isinstance(logger, WandbLogger):  # Lightning leaves it open
        logger.experiment.finish(exit_code=0 if status == "success" else 1)
