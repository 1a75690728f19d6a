"""What is recorded at the end of a task."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import torch

from cl_lightning.data.copies import copies_in
from cl_lightning.data.task import Task
from cl_lightning.engine.hooks import checked_return
from cl_lightning.engine.optimizer import weights_key
from cl_lightning.engine.phases import Phases
from cl_lightning.engine.restartable import check_kept
from cl_lightning.errors import Refusal
from cl_lightning.learners.base import Learner
from cl_lightning.learners.parts.notes import ModulePaths
from cl_lightning.metrics.costs import Reads, held_bytes, numbers_in
from cl_lightning.protocol import LearnerError, copied, running
from cl_lightning.randomness import seeded
from cl_lightning.store.records import TaskRecord


def card_facts(learner: Learner, task: Task, at_start: dict) -> dict[str, Any]:
    """Facts for the card that can be seen only while the task's data are open."""
    check_kept(learner, at_start)
    return {
        "lent": [each.index for each in (*task.past, task)],
        "copies": copies_in(learner.state_dict(), task),
        "memory_at_test": memory_at_test(learner, task),
    }


@torch.no_grad()
def memory_at_test(learner: Learner, task: Task) -> int | None:
    """Bytes, 4 a number, of what the learner reads of all that it holds to predict an image of the task. None
    where it cannot yet."""
    tested = copied(learner).eval()
    with running(tested, "predicts"):
        if not tested.predicts(task.index):
            return None
    told = task.index if tested.needs.task_id_at_test else None
    x = task.train.x[:1].to(tested.device, copy=True)
    with seeded(tested.seed, task.index, "read"), running(tested, "forward"), Reads() as reads:
        tested(x, told)
    return 4 * numbers_in(reads.of(tested.parameters(), tested.buffers(), tested.memory))


def check_adopted(learner: Learner, before: tuple[int, ...], phases: Phases) -> None:
    """Refuse a learner that still has the weights from ``before`` a task that trained."""
    learned_by = [phase for phase in phases.work.phases if not phase.auxiliary]
    trained = any(phase.chosen.steps_to_best for phase in learned_by)
    own_predictors = type(learner).predictors is not Learner.predictors
    if trained and not own_predictors and weights_key(learner.parameters()) == before:
        raise LearnerError(
            f"{type(learner).__name__} trained in its first task, and predicts with the weights that it had "
            "before.\nEnd learn with self.adopt(best.candidate, task); an adopt of your own takes over "
            "c.network."
        )


def task_record(
    learner: Learner, phases: Phases, index: int, checkpoint: int, seen: dict[str, Any]
) -> TaskRecord:
    work = phases.collect_work()
    return TaskRecord(
        task=index,
        phases=work.phases,
        probes=work.probes,
        costs=work.costs,
        held=held_bytes(learner, phases.moments),
        published_memory=published_memory(learner, index + 1),
        checkpoint=checkpoint,
        notes=plain_notes(learner),
        own=phases.own.taken(),
        frozen=[name for name, p in learner.named_parameters() if not p.requires_grad],
        **seen,
    )


def published_memory(learner: Learner, learned: int) -> int:
    with running(learner, "published_memory"):
        return checked_return(learner, "published_memory", learner.published_memory(learned))


def plain_notes(learner: Learner) -> dict[str, Any]:
    """What the learner says of the task; ``kind`` names those notes that reports know."""
    with running(learner, "account"):
        notes = checked_return(learner, "account", learner.account())
    if isinstance(notes, ModulePaths):
        return {"kind": "module_paths", **asdict(notes)}
    who = f"{type(learner).__name__}.account"
    if "kind" in notes:
        raise Refusal(
            f"{who} gave a note with the name 'kind', which the program uses. Give it another name."
        )
    try:
        return json.loads(json.dumps(notes, allow_nan=False))
    except (TypeError, ValueError) as reason:
        raise Refusal(
            f"{who} gave what results.json cannot hold: {reason}. Give texts, finite numbers, lists and "
            "dicts."
        ) from reason
