"""The loop of a run: every task of the stream is learned, recorded and tested."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf

from cl_lightning import termination
from cl_lightning.at_end import reference, validated
from cl_lightning.build import build_callbacks, build_learner
from cl_lightning.data.lease import unsaved
from cl_lightning.data.module import StreamDataModule
from cl_lightning.data.streams.stream import Stream
from cl_lightning.data.task import Task
from cl_lightning.engine.boundary import task_record, witnessed
from cl_lightning.engine.devices import device_of
from cl_lightning.engine.logs import tell
from cl_lightning.engine.phases import Phases
from cl_lightning.engine.rounds import Rounds
from cl_lightning.engine.settings import Training
from cl_lightning.evaluation.evaluator import Evaluator
from cl_lightning.learners.base import Learner
from cl_lightning.loggers.base import opened_loggers
from cl_lightning.opening import tell_start
from cl_lightning.protocol import Grants, running
from cl_lightning.ranks import Ranks
from cl_lightning.report.figures import draw
from cl_lightning.report.projection import tests_of
from cl_lightning.report.results import write_results
from cl_lightning.report.schema import Results
from cl_lightning.resume import (
    begin_or_resume,
    check_run,
    restore,
    steps_until,
)
from cl_lightning.selection.sweep import in_a_sweep
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
) -> Results | None:
    """Learn every task that the store does not hold yet. Rank 0 alone says how far it is, and writes the
    results."""
    trainer: Any = OmegaConf.to_container(cfg.trainer, resolve=True)
    settings, grants = Training(**trainer), Grants(**cfg.grants)
    torch.set_num_threads(settings.threads)
    device = device_of(settings, ranks)
    if device.type == "cuda":
        torch.cuda.set_device(device)  # whose generator is seeded
    learner = build_learner(cfg, stream).to(device)
    check_run(cfg, stream, settings, learner, grants)
    constants = unsaved(learner)  # made again at a restart
    tells = ranks.is_writer and not isinstance(cfg.share, int)  # whether it logs, and shows how far it is
    callbacks = build_callbacks(cfg) if tells else []
    store, learned = begin_or_resume(cfg, folder, stream, learner, command, ranks)

    def say(learned: int) -> None:
        if progress is not None:
            progress.say(learned, len(stream))

    say(learned)
    if tells:
        tell_start(cfg, stream, learner, learned)
    moments = restore(learner, store, learned)
    data = StreamDataModule(stream, passes=settings.passes, device=device)
    evaluator = Evaluator(stream, settings, device, grants)

    def notify(hook: str, *arguments: Any) -> None:
        for callback in callbacks:
            with running(callback, hook, arguments):
                getattr(callback, hook, lambda *_: None)(*arguments)

    def probe(copied: Learner, task: Task, step: int) -> list[float | None]:
        row = evaluator.probe(copied, task.index + 1)
        notify("on_probe", copied, task, step, row)
        return row

    where = cfg.logger if tells else OmegaConf.create({})
    with opened_loggers(where, folder, cfg) as loggers:
        rounds = None if cfg.share is None else Rounds(cfg.share)
        phases = Phases(data, store, settings, loggers, callbacks, probe, ranks, rounds)
        phases.moments, phases.step = moments, steps_until(store, learned)

        def measured(learned: int) -> RowRecord:
            termination.exit_if_requested()
            began = perf_counter()
            predictors = phases.predictors(learner, learned, stream.task_without_data(max(learned - 1, 0)))
            rows = evaluator.measure(predictors, learned)
            work, seconds = phases.collect_work(), perf_counter() - began
            record = RowRecord(learned, rows, evaluator.masks, work.phases, work.costs, seconds)
            tell(loggers, "log_metrics", {"learned": learned, **tests_of(record)}, step=phases.step)
            notify("on_evaluated", learner, learned, record.first)
            return record

        def measure(learned: int) -> None:
            if store.load(row_key(learned), RowRecord) is None:
                store.save(row_key(learned), measured(learned))
                say(learned)
                tell(loggers, "boundary")
                if learned < len(stream):  # the last predictors are also tested on validation data
                    store.drop("work")

        notify("on_stream_start", cfg.stream.get("name", stream.name), len(stream), learned)
        try:
            measure(learned)
            for index in range(learned, len(stream)):
                with data.open(index, past=learner.needs.past_data, to=learner) as task:
                    notify("on_task_start", learner, task)
                    phases.learn(learner, task)
                    notify("on_task_end", learner, task)
                    seen = witnessed(learner, task, constants)
                with phases.work.costs.timed("checkpoint"):
                    saved = store.save_tensors(
                        task_key(index), {"learner": learner.state_dict(), "moments": phases.moments}
                    )
                store.save(task_key(index), task_record(learner, phases, index, saved.bytes, seen), saved)
                store.drop("work")
                if ranks.is_writer and (cfg.checkpoints or ("last" if in_a_sweep() else "all")) == "last":
                    keep_newest(store, index)
                if cfg.debug.fresh_learner:
                    learner = build_learner(cfg, stream).to(device)
                    restore(learner, store, index + 1)
                measure(index + 1)
            store.once(
                "validation", ValidationRecord, lambda: (validated(phases, learner, stream, evaluator), None)
            )
            if cfg.reference:
                phases.collect_work()
                phases.step = steps_until(store, len(stream))
                store.once(
                    "reference",
                    ReferenceRecord,
                    lambda: (reference(cfg, stream, phases, data, settings), None),
                )
            store.drop("work")
        finally:
            notify("on_stream_end")
        results = write_results(store) if ranks.is_writer else None
        if results is not None and cfg.figures:
            draw(results, folder)
    return results
