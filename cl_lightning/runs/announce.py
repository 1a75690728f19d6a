"""What a run says first: its stream and rules, or that it was finished before."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from cl_lightning.config.trees import targets
from cl_lightning.data.streams.stream import Stream
from cl_lightning.errors import plain
from cl_lightning.evaluation.scenario import scenario
from cl_lightning.learners.base import Learner
from cl_lightning.report.tables import headline
from cl_lightning.runs.identity import learner_name
from cl_lightning.selection.grid import taken_out
from cl_lightning.selection.sweep import in_a_sweep, tell_job


def tell_start(cfg: DictConfig, stream: Stream, learner: Learner) -> None:
    """Say what begins, or goes on, before anything is made or read."""
    if cfg.progress and not in_a_sweep():  # which has a line a job
        name, head, told = cfg.stream.get("name", stream.name), stream.head, learner.needs.task_id_at_test
        of_run = scenario(head.mode, head.owned, told) if len(stream) > 1 else None
        say(headline(learner_name(cfg), name, len(stream), head.mode, of_run, cfg.seed))
    if note := taken_out(cfg.selection, cfg.trainer):
        say(note)


def tell_learned(cfg: DictConfig, tasks: int, learned: int) -> None:
    """Say what was learned before."""
    if learned and learned == cfg.from_task:
        taken = f"tasks 0..{learned - 1}" if learned > 1 else "task 0"
        say(f"It takes over {taken} of {cfg.run}.")
    elif learned:
        say(f"It goes on where it was: {learned} of {tasks} tasks are learned.")


def tell_shown(cfg: DictConfig, folder: Path) -> None:
    """Say that the run was finished before, and of each logger that was asked for that it gets nothing. A
    sweep is told, and says so of all its runs at its end."""
    tell_job(shown=True)
    if not in_a_sweep():
        say("Finished before: it is only shown. resume=false starts afresh.")
        for line in unlogged(OmegaConf.to_container(cfg.logger, resolve=True), folder):
            say(line)


def unlogged(loggers: Any, folder: Path) -> list[str]:
    """What loggers do not get of a run that is only shown, and how they can have it."""
    lines = []
    for name in (target.rpartition(".")[2] for target in targets(loggers)):
        if name == "open_wandb":
            said = "Nothing is logged to W&B now. This sends the run there (--project=NAME says where)"
            lines.append(f"{said}:\n  {command_to_send(folder)}")
        elif name == "TensorBoard":
            command = f"python -m cl_lightning.report tensorboard {shlex.quote(str(folder))}"
            lines.append(f"Nothing is logged to TensorBoard now. This writes the run there:\n  {command}")
        elif name != "CSVLogger":
            lines.append(f"{name} logs nothing now: with resume=false the run is made again, and logged.")
        elif not (folder / "logs.csv").is_file():
            lines.append("logs.csv is not written now: with resume=false the run is made again, and logged.")
    return lines


def command_to_send(*folders: Path) -> str:
    """What sends runs to W&B: where their own configuration says, or options that are added."""
    return f"python -m cl_lightning.report wandb {shlex.join(map(str, folders))}"


def say(line: str) -> None:
    print(plain(line), file=sys.stderr)
