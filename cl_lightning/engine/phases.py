"""From task boundary to task boundary: drives a learner's generators, trains their phases, answers finished ones from the journal."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytorch_lightning as pl
import torch
import torch.nn as nn
from pytorch_lightning.loggers import Logger

from cl_lightning.data.module import StreamDataModule
from cl_lightning.data.task import Blocks, Task
from cl_lightning.engine.lockstep import LockStep, Standing
from cl_lightning.engine.settings import Training
from cl_lightning.errors import Refusal
from cl_lightning.journal import Journal
from cl_lightning.learners.base import Candidate, Learner, Outcome, Phase, Phases
from cl_lightning.metrics.costs import Costs
from cl_lightning.randomness import seeded


class Engine:
    """Trains phases with Lightning and keeps account of what they cost."""

    def __init__(
        self,
        data: StreamDataModule,
        journal: Journal,
        settings: Training,
        loggers: Sequence[Logger] = (),
        callbacks: Sequence[pl.Callback] = (),
    ) -> None:
        self.data, self.journal, self.settings, self.loggers, self.callbacks = data, journal, settings, list(loggers), list(callbacks)
        self.costs = Costs()  # of the open task
        self.step = sum(row["mini_batches"] for row in journal.all("phase"))  # over all phases: what loggers go by

    # ---- a task ----------------------------------------------------------------------------------------------

    def learn(self, learner: Learner, task: Task) -> None:
        """Boundary to boundary. After a kill the last boundary is loaded and this is called again."""
        with self.hook(learner, task.index, "on_task_start"):
            learner.on_task_start(task)
        self.drive(learner.learn(task), learner, task, f"task{task.index}")
        with self.hook(learner, task.index, "on_task_end"):
            learner.on_task_end(task)

    @contextmanager
    def hook(self, learner: Learner, *key: object) -> Iterator[None]:
        """Around the learner's own code between phases: what it costs is counted, what it draws depends on the key."""
        with self.costs.measured("hooks"), seeded(learner.seed, *key):
            yield

    def drive(self, phases: Phases, learner: Learner, task: Task, where: str) -> Any:
        """Run a generator of phases to its end and return what it returns."""
        outcome: Any = None
        for index in range(1_000_000):
            try:
                with self.hook(learner, where, index):
                    phase = phases.send(outcome)
            except StopIteration as end:
                return end.value
            outcome = self.outcome(learner, phase, task, where, index)

    def outcome(self, learner: Learner, phase: Phase, task: Task, where: str, index: int) -> Outcome:
        names = [c.name for c in phase.candidates]
        if not names or len(set(names)) < len(names):
            raise Refusal(
                f"{type(learner).__name__} proposed the candidates {names} for task {task.index}. "
                "A phase needs at least one, and each a name of its own."
            )
        row = self.journal.find("phase", where=where, index=index)
        if row is None:
            row = self.train(learner, phase, task, where, index)
        elif [row["name"], *row["candidates"]] != [phase.name, *names]:
            raise Refusal(
                f"{type(learner).__name__}.learn proposed {names} in phase {phase.name!r} of task {task.index}; before the restart it was "
                f"{row['candidates']} in {row['name']!r}.\nWhat it does between yields may depend only on the learner at the task's start, "
                "the task, earlier outcomes and rng(key). Start afresh with resume=false."
            )
        else:
            winner = phase.candidates[row["winner"]]
            winner.network.load_state_dict(self.journal.load(row["weights"]))
            self.costs.add(**row["costs"])
        best = row["standings"][row["winner"]]
        return Outcome(phase.candidates[row["winner"]], best["val_accuracy"], best["steps"], best["steps_to_best"])

    # ---- a phase ---------------------------------------------------------------------------------------------

    def train(self, learner: Learner, phase: Phase, task: Task, where: str, index: int) -> dict:
        """Train all candidates, in shares where so many do not fit at once, and record the phase."""
        size = self.settings.candidates_at_once or len(phase.candidates)
        standings: list[Standing] = []
        costs, mini_batches = Costs(), 0
        for first in range(0, len(phase.candidates), size):
            with torch.random.fork_rng(devices=[]):
                engine = self.fit(learner, phase, phase.candidates[first : first + size], task, (learner.seed, where, index))
                standings += engine.finish()
            learner.engine = None
            costs.add(**engine.costs.plain())
            mini_batches += engine.step
            self.step += engine.step
        winner = best_of(standings)
        self.costs.add(**costs.plain())
        return self.journal.append(
            "phase",
            where=where,
            index=index,
            task=task.index,
            name=phase.name,
            candidates=[c.name for c in phase.candidates],
            hparams=[c.hparams for c in phase.candidates],
            standings=[s.plain() for s in standings],
            winner=winner,
            weights=self.journal.save(f"{where}-phase{index}", phase.candidates[winner].network.state_dict()),
            mini_batches=mini_batches,
            costs=costs.plain(),
        )

    def fit(self, learner: Learner, phase: Phase, candidates: list[Candidate], task: Task, key: tuple) -> LockStep:
        """One share of a phase's candidates, through ``Trainer.fit``."""
        s = self.settings
        blocks = Blocks(phase.train or task.train, key, s.batch_size, phase.epochs or s.max_epochs, s.block)
        engine = learner.engine = LockStep(learner, phase, candidates, task, s, blocks.per_epoch)
        engine.first_step = self.step
        if not engine.trains:
            engine.score_untrained()
            return engine
        self.data.blocks = blocks
        learner.trying = nn.ModuleList(c.network for c in candidates)
        new_trainer(s, self.loggers, self.callbacks).fit(learner, datamodule=self.data)
        learner.trying, learner.trainer = nn.ModuleList(), None
        self.data.blocks = None
        return engine

    def settle(self) -> Costs:
        """What was spent since the last call: on one task."""
        spent, self.costs = self.costs, Costs()
        return spent


def best_of(standings: Sequence[Standing]) -> int:
    """The first with the highest validation accuracy; without validation there is only one to choose."""
    if len(standings) > 1 and any(s.accuracy is None for s in standings):
        raise Refusal(
            f"{len(standings)} candidates are to be compared, but the task has no validation data to compare them on. "
            "Set stream.n_val above 0, or selection=none."
        )
    return max(range(len(standings)), key=lambda i: standings[i].accuracy or 0.0)


def new_trainer(settings: Training, loggers: list[Logger], callbacks: list[pl.Callback]) -> pl.Trainer:
    """A Trainer for one phase. What Lightning would do a second time (validation, checkpoints, clipping) is the engine's."""
    quiet_lightning()
    for callback in callbacks:
        if isinstance(callback, pl.callbacks.EarlyStopping | pl.callbacks.ModelCheckpoint | pl.callbacks.GradientAccumulationScheduler):
            raise Refusal(
                f"trainer.callbacks holds {type(callback).__name__}, which looks at one model a step, while the engine trains several. "
                "Use trainer.patience for early stopping; checkpoints are kept by the run itself."
            )
    return pl.Trainer(
        max_epochs=1,
        accelerator=settings.accelerator,
        devices=1,
        logger=loggers or False,
        callbacks=callbacks,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        **settings.lightning,
    )


def quiet_lightning() -> None:
    """A Trainer a phase must not greet each time."""
    for name in ("pytorch_lightning", "lightning_fabric", "lightning.pytorch"):
        logging.getLogger(name).setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="pytorch_lightning|lightning_fabric")
