"""The loop of a run: every task of the stream is learned, recorded and tested."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import pytorch_lightning as pl
import torch
from omegaconf import DictConfig, OmegaConf
from pytorch_lightning.loggers import Logger

from cl_lightning import termination
from cl_lightning.config.build import build_callbacks, build_learner
from cl_lightning.config.settings import Training
from cl_lightning.data.module import StreamDataModule
from cl_lightning.data.streams.stream import Stream
from cl_lightning.data.task import Task
from cl_lightning.engine.boundary import card_facts, check_adopted, task_record
from cl_lightning.engine.devices import device_of
from cl_lightning.engine.logs import call_loggers
from cl_lightning.engine.optimizer import weights_key
from cl_lightning.engine.phases import Phases
from cl_lightning.engine.restartable import kept_of, made_by_init
from cl_lightning.evaluation.evaluator import Evaluator
from cl_lightning.learners.base import Learner
from cl_lightning.loggers.base import opened_loggers
from cl_lightning.parallel.ranks import Ranks
from cl_lightning.parallel.rounds import NEXT, Rounds
from cl_lightning.protocol import Grants
from cl_lightning.report.figures import draw
from cl_lightning.report.projection import tests_of
from cl_lightning.report.results import write_results
from cl_lightning.report.schema import Results
from cl_lightning.runs.announce import tell_start
from cl_lightning.runs.final import reference, validated
from cl_lightning.runs.resume import (
    begin_or_resume,
    check_run,
    restore,
    restore_callbacks,
    steps_until,
)
from cl_lightning.selection.sweep import in_a_sweep
from cl_lightning.store.files import Store
from cl_lightning.store.folder import keep_newest, row_key, task_key
from cl_lightning.store.records import ReferenceRecord, RowRecord, ValidationRecord
from cl_lightning.store.status import Progress


def train(
    cfg: DictConfig,
    folder: Path,
    stream: Stream,
    command: Sequence[str],
    ranks: Ranks,
    progress: Progress | None,
    share: str | None,
) -> Results | None:
    """Learn every task that the store does not hold yet; in a job of a round, its ``share`` of that. Rank 0
    alone says how far it is, and writes the results."""
    trainer: Any = OmegaConf.to_container(cfg.trainer, resolve=True)
    settings, grants = Training(**trainer), Grants(**cfg.grants)
    torch.set_num_threads(settings.threads)
    device = device_of(settings, ranks)
    if device.type == "cuda":
        torch.cuda.set_device(device)  # whose generator is seeded
    learner = build_learner(cfg, stream).to(device)
    check_run(cfg, stream, settings, learner, grants)
    at_start = made_by_init(learner)
    tells = ranks.is_writer and share in (None, NEXT)  # whether it logs, and shows how far it is
    callbacks = build_callbacks(cfg) if tells else []
    store, learned = begin_or_resume(cfg, folder, stream, learner, command, ranks, share)
    if progress is not None:
        progress.say(learned, len(stream))
    if tells:
        tell_start(cfg, stream, learner, learned)
    moments = restore(learner, store, learned, branches=cfg.run is not None)
    restore_callbacks(callbacks, store, learned)
    data = StreamDataModule(stream, device=device)
    evaluator = Evaluator(stream, settings, device, grants)
    rounds = None if share is None else Rounds(share)
    with opened_loggers(cfg.logger if tells else OmegaConf.create({}), folder, cfg) as loggers:
        probe = partial(probed, evaluator, callbacks)
        phases = Phases(data, store, settings, loggers, callbacks, probe, ranks, rounds)
        phases.moments, phases.step = moments, steps_until(store, learned)
        loop = Loop(
            cfg, stream, learner, at_start, store, data, phases, evaluator, callbacks, loggers, progress
        )
        notify(callbacks, "on_stream_start", cfg.stream.get("name", stream.name), len(stream), learned)
        try:
            loop.run(learned)
        finally:
            notify(callbacks, "on_stream_end")
        results = write_results(store) if ranks.is_writer else None
        if results is not None and cfg.figures:
            draw(results, folder)
    return results


@dataclass
class Loop:
    """A run in the making: what learns, and what trains, records and tests it."""

    cfg: DictConfig
    stream: Stream
    learner: Learner
    at_start: dict[str, list]  # what the learner's __init__ made, and a restart makes again
    store: Store
    data: StreamDataModule
    phases: Phases
    evaluator: Evaluator
    callbacks: list[pl.Callback]
    loggers: list[Logger]
    progress: Progress | None

    def run(self, learned: int) -> None:
        """Learn and test the tasks behind the first ``learned``."""
        self.measure(learned)
        for index in range(learned, len(self.stream)):
            self.learn(index)
            self.measure(index + 1)
        self.measure_at_end()
        self.store.drop("work")

    def learn(self, index: int) -> None:
        """Learn one task, and record it."""
        phases, store = self.phases, self.store
        with self.data.open(index, past=self.learner.needs.past_data, to=self.learner) as task:
            notify(self.callbacks, "on_task_start", self.learner, task)
            before = None if index else weights_key(self.learner.parameters())
            phases.learn(self.learner, task)
            if before is not None:
                check_adopted(self.learner, before, phases)
            notify(self.callbacks, "on_task_end", self.learner, task)
            seen = card_facts(self.learner, task, self.at_start)
        with phases.work.costs.timed("checkpoint"):
            content = {"learner": self.learner.state_dict(), "moments": phases.moments}
            saved = store.save_tensors(task_key(index), content | kept_of(self.callbacks))
        store.save(task_key(index), task_record(self.learner, phases, index, saved.bytes, seen), saved)
        store.drop("work")
        kept = self.cfg.checkpoints or ("last" if in_a_sweep() else "all")
        if phases.ranks.is_writer and kept == "last":
            keep_newest(store, index)
        if self.cfg.debug.fresh_learner:
            self.learner = build_learner(self.cfg, self.stream).to(self.learner.device)
            restore(self.learner, store, index + 1)

    def measure(self, learned: int) -> None:
        """Test the learner after so many tasks, unless that is recorded."""
        if self.store.load(row_key(learned), RowRecord) is not None:
            return
        measured, kept = self.measured(learned), kept_of(self.callbacks)
        saved = self.store.save_tensors(row_key(learned), kept) if kept else None
        self.store.save(row_key(learned), measured, saved)
        if self.progress is not None:
            self.progress.say(learned, len(self.stream))
        call_loggers(self.loggers, "boundary")
        if learned < len(self.stream):  # the last predictors are also tested on validation data
            self.store.drop("work")

    def measured(self, learned: int) -> RowRecord:
        termination.exit_if_requested()
        began, last = perf_counter(), self.stream.task_without_data(max(learned - 1, 0))
        rows = self.evaluator.measure(self.phases.predictors(self.learner, learned, last), learned)
        work, seconds = self.phases.collect_work(), perf_counter() - began
        record = RowRecord(learned, rows, self.evaluator.masks, work.phases, work.costs, seconds)
        call_loggers(
            self.loggers, "log_metrics", {"learned": learned, **tests_of(record)}, step=self.phases.step
        )
        notify(self.callbacks, "on_evaluated", self.learner, learned, record.first)
        return record

    def measure_at_end(self) -> None:
        """Validation data of all tasks and, if that is asked for, the last task learned alone."""
        stream, phases, get_or_make = self.stream, self.phases, self.store.get_or_make
        get_or_make(
            "validation",
            ValidationRecord,
            lambda: (validated(phases, self.learner, stream, self.evaluator), None),
        )
        if self.cfg.reference:
            phases.collect_work()
            phases.step = steps_until(self.store, len(stream))
            get_or_make(
                "reference", ReferenceRecord, lambda: (reference(self.cfg, stream, phases, self.data), None)
            )


def notify(callbacks: Sequence[pl.Callback], hook: str, *arguments: Any) -> None:
    """Call a hook of each callback that has it."""
    for callback in callbacks:
        getattr(callback, hook, lambda *_: None)(*arguments)


def probed(
    evaluator: Evaluator, callbacks: Sequence[pl.Callback], copied: Learner, task: Task, step: int
) -> list[float | None]:
    """Test a copy of a learner as it was at a step of a task."""
    row = evaluator.probe(copied, task.index + 1)
    notify(callbacks, "on_probe", copied, task, step, row)
    return row
