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
    """Say that the run was finished before, and how the loggers that were asked for can have it. A sweep is
    told, and says so of all its runs at its end."""
    loggers: Any = OmegaConf.to_container(cfg.logger, resolve=True)
    names = [target.rpartition(".")[2] for target in targets(loggers)]
    if in_a_sweep():
        if "open_wandb" in names and not (folder / "wandb.json").is_file():
            tell_job(unsent=True)
        return
    say("Finished before: it is only shown. resume=false starts afresh.")
    if "open_wandb" in names:
        say("Nothing is logged to W&B now. This sends the run there (--project=NAME says where):")
        say(f"  python -m cl_lightning.report wandb {shlex.quote(str(folder))}")
    if "TensorBoard" in names:
        say("Nothing is logged to TensorBoard now. This writes the run there:")
        say(f"  python -m cl_lightning.report tensorboard {shlex.quote(str(folder))}")


def say(line: str) -> None:
    print(plain(line), file=sys.stderr)
