"""What is measured when the whole stream is learned: validation data, and the last task learned alone."""

from __future__ import annotations

from omegaconf import DictConfig

from cl_lightning.config.build import build_learner, builder
from cl_lightning.config.settings import OPTIMIZER_KEYS
from cl_lightning.data.module import StreamDataModule
from cl_lightning.data.streams.stream import Stream
from cl_lightning.engine.devices import device_of
from cl_lightning.engine.phases import Phases
from cl_lightning.evaluation.evaluator import Evaluator
from cl_lightning.learners import Finetune, Joint
from cl_lightning.learners.base import Learner
from cl_lightning.protocol import Grants
from cl_lightning.selection.grid import of_task
from cl_lightning.selection.rules import on_both
from cl_lightning.store.folder import task_key
from cl_lightning.store.records import ReferenceRecord, Row, TaskRecord, ValidationRecord


def reference(cfg: DictConfig, stream: Stream, phases: Phases, data: StreamDataModule) -> ReferenceRecord:
    """A fresh network that learns the last task by itself, as Independent would: what T(S) of Veniat et al.
    2021 compares with."""
    last = len(stream) - 1
    points = [
        {key: value for key, value in point.items() if key in OPTIMIZER_KEYS}
        for point in of_task(build_learner(cfg, stream).stages, last)
    ]
    grid = [p for i, p in enumerate(points) if p not in points[:i]]
    alone = Finetune(build=builder(cfg, stream), head=stream.head, grid=grid, seed=cfg.seed)
    alone.network = alone.fresh(last)
    accuracy = learned_and_tested(alone, last, stream, phases, data)[last]
    assert accuracy is not None
    return ReferenceRecord(last, accuracy, phases.collect_work().phases)


def joint_reference(
    cfg: DictConfig, stream: Stream, phases: Phases, data: StreamDataModule
) -> ReferenceRecord:
    """A fresh network that learns both of two tasks together, with the topology and the rate that were chosen
    for the first one: the baseline of Pfuelb and Gepperth 2019. Both weigh as their test examples are
    many."""
    first = phases.store.load(task_key(0), TaskRecord)
    assert first is not None, "it was recorded when it was learned"
    chosen = [phase for phase in first.phases if not phase.auxiliary][-1].chosen.hparams
    grid = [{key: value for key, value in chosen.items() if key in OPTIMIZER_KEYS}]
    both = Joint(
        at="last_task", restart=False, build=builder(cfg, stream), head=stream.head, grid=grid, seed=cfg.seed
    )
    both.network = both.starting_network(chosen)
    row = learned_and_tested(both, 1, stream, phases, data)
    accuracy = on_both(row, [len(stream.recipe(i).test) for i in range(2)])
    return ReferenceRecord(1, accuracy, phases.collect_work().phases, joint=True)


def learned_and_tested(
    learner: Learner, index: int, stream: Stream, phases: Phases, data: StreamDataModule
) -> Row:
    """Test accuracies, on all tasks that it can predict, of a learner that learned this task; together with
    those before it where it needs them."""
    with data.open(index, past=learner.needs.past_data, to=learner) as task:
        phases.learn(learner, task, reference=True)
    settings = phases.settings
    evaluator = Evaluator(stream, settings, device_of(settings, phases.ranks), Grants())
    return evaluator.row(learner, len(stream), range(len(stream)))


def validated(phases: Phases, learner: Learner, stream: Stream, evaluator: Evaluator) -> ValidationRecord:
    """Accuracies of the finished learner on validation data: what a search over whole streams may choose
    by."""
    predictors = phases.predictors(learner, len(stream), stream.task_without_data(len(stream) - 1))
    _, predictor = next(predictors)
    return ValidationRecord(evaluator.validate(predictor))
