"""A run in the making: what learns, and what trains, records and tests it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from omegaconf import DictConfig, OmegaConf
from pytorch_lightning.loggers import Logger

from cl_lightning.callbacks.progress import ProgressDisplay
from cl_lightning.config.build import build_callbacks, build_learner
from cl_lightning.config.settings import Training
from cl_lightning.data.module import StreamDataModule
from cl_lightning.data.streams.stream import Stream
from cl_lightning.data.task import Task
from cl_lightning.engine.boundary import task_record
from cl_lightning.engine.devices import device_of
from cl_lightning.engine.logs import call_loggers
from cl_lightning.engine.phases import Phases
from cl_lightning.engine.restartable import kept_of, made_by_init
from cl_lightning.evaluation.evaluator import Evaluator
from cl_lightning.learners.base import Learner
from cl_lightning.loggers.base import opened_loggers
from cl_lightning.parallel.ranks import Ranks
from cl_lightning.parallel.rounds import Rounds
from cl_lightning.protocol import Grants, logged_by
from cl_lightning.report.figures import draw
from cl_lightning.report.projection import tests_of
from cl_lightning.report.results import write_results
from cl_lightning.report.schema import Results
from cl_lightning.runs.announce import say, tell_learned, tell_start
from cl_lightning.runs.final import joint_reference, reference, validated
from cl_lightning.runs.resume import begin_or_resume, check_run, restore, restore_callbacks, steps_until
from cl_lightning.selection.sweep import in_a_sweep
from cl_lightning.store.files import Store
from cl_lightning.store.folder import keep_newest, open_store, row_key, task_key
from cl_lightning.store.records import ReferenceRecord, RowRecord, ValidationRecord
from cl_lightning.store.status import Progress


@dataclass
class Making:
    """What a run works with while it is made. Its methods record what the loop came to, and tell loggers."""

    cfg: DictConfig
    folder: Path
    stream: Stream
    learner: Learner
    learned: int  # tasks that the store held when it began
    at_start: dict[str, list]  # what the learner's __init__ made, and a restart makes again
    store: Store
    data: StreamDataModule
    phases: Phases
    evaluator: Evaluator
    callbacks: list[pl.Callback]
    loggers: list[Logger]
    progress: Progress | None

    def notify(self, hook: str, *arguments: Any) -> None:
        """Call a hook of each callback that has it."""
        for callback in self.callbacks:
            getattr(callback, hook, lambda *_: None)(*arguments)

    def save_task(self, index: int, facts: dict[str, Any]) -> None:
        """Record a task that is learned, with the learner as it is now."""
        phases, store, key = self.phases, self.store, task_key(index)
        with phases.work.costs.timed("checkpoint"):
            content = {"learner": self.learner.state_dict(), "moments": phases.moments}
            saved = store.save_tensors(key, content | kept_of(self.callbacks))
        store.save(key, task_record(self.learner, phases, index, saved.bytes, facts), saved)
        store.drop("work")
        kept = self.cfg.checkpoints or ("last" if in_a_sweep() else "all")
        if phases.ranks.is_writer and kept == "last":
            keep_newest(store, index)
        if self.cfg.debug.fresh_learner:
            self.learner = build_learner(self.cfg, self.stream).to(self.learner.device)
            restore(self.learner, store, index + 1)

    def save_row(self, row: RowRecord, predictions: Mapping[str, Any]) -> None:
        """Record a row of the accuracy matrix, and tell of it. ``predictions`` are those to be kept."""
        key, step = row_key(row.learned), self.phases.step
        metrics = {"learned": row.learned, **tests_of(row)}
        call_loggers(self.loggers, "log_metrics", metrics, step=step)
        self.notify("on_evaluated", self.learner, row.learned, row.first)
        row = replace(row, own=self.phases.own.taken())
        kept = kept_of(self.callbacks) | ({"predictions": predictions} if predictions else {})
        self.store.save(key, row, self.store.save_tensors(key, kept) if kept else None)
        if self.progress is not None:
            self.progress.say(row.learned, len(self.stream))
        call_loggers(self.loggers, "boundary")
        if row.learned < len(self.stream):  # the last predictors are also tested on validation data
            self.store.drop("work")

    def probe(self, copied: Learner, task: Task, step: int) -> list[float | None]:
        """Test a copy of a learner as it was at a step of a task."""
        row = self.evaluator.probe(copied, task.index + 1)
        self.notify("on_probe", copied, task, step, row)
        return row

    def measure_at_end(self) -> None:
        """Validation data of all tasks and, if that is asked for, the last task learned alone."""
        stream, phases, get_or_make = self.stream, self.phases, self.store.get_or_make
        get_or_make(
            "validation",
            ValidationRecord,
            lambda: (validated(phases, self.learner, stream, self.evaluator), None),
        )
        if self.cfg.reference:
            if self.cfg.progress and not in_a_sweep() and phases.ranks.is_writer:
                say("A fresh network learns the reference of transfer.")
            make = joint_reference if self.cfg.reference == "joint" else reference
            phases.collect_work()
            phases.step = steps_until(self.store, len(stream))
            get_or_make(
                "reference",
                ReferenceRecord,
                lambda: (make(self.cfg, stream, phases, self.data), None),
            )

    def write_results(self) -> Results | None:
        """Results and figures, made of the records by rank 0."""
        if not self.phases.ranks.is_writer:
            return None
        results = write_results(self.store)
        if self.cfg.figures:
            draw(results, self.folder)
        return results


@contextmanager
def prepared(
    cfg: DictConfig,
    folder: Path,
    stream: Stream,
    command: Sequence[str],
    ranks: Ranks,
    progress: Progress | None,
    rounds: Rounds | None,
) -> Iterator[Making]:
    """Prepare a run that begins, or that goes on where it was left; in a job of a round, its part of the run.
    Rank 0 alone says how far it is."""
    share = None if rounds is None else rounds.share
    trainer: Any = OmegaConf.to_container(cfg.trainer, resolve=True)
    settings, grants = Training(**trainer), Grants(**cfg.grants)
    torch.set_num_threads(settings.threads)
    device = device_of(settings, ranks)
    if device.type == "cuda":
        torch.cuda.set_device(device)  # whose generator is seeded
    learner = build_learner(cfg, stream).to(device)
    check_run(cfg, stream, settings, learner, grants)
    at_start = made_by_init(learner)
    tells = ranks.is_writer and share is None  # whether it logs, and shows how far it is
    callbacks = build_callbacks(cfg) if tells else []
    if tells:
        tell_start(cfg, stream, learner)
    store, learned = begin_or_resume(cfg, folder, stream, learner, command, ranks, share)
    if progress is not None:
        progress.say(learned, len(stream))
    if tells and cfg.progress and not in_a_sweep():
        tell_learned(cfg, len(stream), learned)
        callbacks.append(ProgressDisplay(sizes=recorded_sizes(folder)))
    moments = restore(learner, store, learned, branches=cfg.run is not None)
    restore_callbacks(callbacks, store, learned)
    data = StreamDataModule(stream, device=device, boundaries=grants.boundaries)
    evaluator = Evaluator(stream, settings, device, grants)
    with opened_loggers(cfg.logger if tells else OmegaConf.create({}), folder, cfg) as loggers:
        phases = Phases(data, store, settings, loggers, callbacks, ranks=ranks, rounds=rounds)
        phases.moments, phases.step = moments, steps_until(store, learned)
        run = Making(
            cfg, folder, stream, learner, learned, at_start, store, data, phases, evaluator, callbacks,
            loggers, progress,
        )  # fmt: skip
        phases.probe = run.probe
        with logged_by(phases.own.log):
            yield run


def recorded_sizes(folder: Path) -> list[int]:
    """The numbers of training examples of all tasks of a run, which it recorded when it began."""
    found = open_store(folder)
    return [task["n_train"] for task in found[1].stream.tasks] if found else []
