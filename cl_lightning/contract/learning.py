"""A stream learned without files for reports: the loop of ``runs/loop.py``, for checks of a learner."""

from __future__ import annotations

import copy
import shutil
import tempfile
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from cl_lightning.config.settings import Training
from cl_lightning.data.module import StreamDataModule
from cl_lightning.data.streams.stream import Stream
from cl_lightning.engine.phases import Phases
from cl_lightning.engine.restartable import check_kept, made_by_init
from cl_lightning.evaluation.evaluator import Evaluator
from cl_lightning.learners.base import Learner
from cl_lightning.protocol import Grants
from cl_lightning.store.files import Store
from cl_lightning.store.records import PhaseRecord, Row


@dataclass
class Learned:
    learner: Learner
    phases: list[PhaseRecord]
    matrix: list[Row]
    engine: Phases
    store: Store
    lent: list[int]  # the number of past tasks that were lent with each
    after: list[torch.Tensor]  # weights after each task


def weights_of(learner: Learner) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in learner.parameters()])


def learn(
    learner: Learner,
    s: Stream,
    settings: Training,
    folder: Path | None = None,
    callbacks: Sequence = (),
    tasks: int | None = None,
    fresh: Callable[[], Learner] | None = None,
) -> Learned:
    """The loop of a run without configuration, checkpoints and loggers; over the first
    ``tasks`` of the stream. Each task begins in a ``fresh`` learner that has loaded the state of the last."""
    learner.head = s.head
    store, phases = Store(folder or folder_while(learner), "toy"), []
    data = StreamDataModule(s)
    engine = Phases(data, store, settings, callbacks=callbacks)
    evaluator = Evaluator(s, settings, torch.device("cpu"), Grants())
    matrix, lent, after, at_start = [evaluator.row(learner, 0)], [], [], made_by_init(learner)
    for index in range(len(s) if tasks is None else tasks):
        with data.open(index, past=learner.needs.past_data, to=learner) as task:
            lent.append(len(task.past))
            engine.learn(learner, task)
            after.append(weights_of(learner))
            if fresh:
                check_kept(learner, at_start)
        if fresh:
            learner = loaded(fresh(), learner)
        phases += engine.work.phases
        engine.work.phases = []
        predictors = engine.predictors(learner, index + 1, s.task_without_data(index))
        matrix.append(next(iter(evaluator.measure(predictors, index + 1).rows.values())))
        phases += engine.work.phases
        engine.work.phases = []
    return Learned(learner, phases, matrix, engine, store, lent, after)


def loaded(learner: Learner, from_: Learner) -> Learner:
    """The learner with all that another one would have saved."""
    learner.load_state_dict(copy.deepcopy(from_.state_dict()))
    return learner


def folder_while(owner: object) -> Path:
    """A folder that is there as long as its owner."""
    folder = tempfile.mkdtemp()
    weakref.finalize(owner, shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)
