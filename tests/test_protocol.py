"""Learners that cheat are found out; learners that do not are left alone."""

from __future__ import annotations

import pytest

from cl_lightning.data.module import StreamDataModule
from cl_lightning.learners import Finetune
from cl_lightning.metrics.costs import held_bytes
from cl_lightning.protocol import ProtocolError
from tests import toys
from tests.toys import builder, learn


def make(cls) -> Finetune:
    return cls(build=builder(toys.stream()), head=toys.stream().head, seed=0)


class CopiesToMemory(Finetune):
    def on_task_end(self, task):
        self.memory["images"] = task.train.x[:4].clone()


def test_copies_in_memory_are_allowed_and_counted() -> None:
    learner = learn(make(CopiesToMemory), toys.stream()).learner
    assert held_bytes(learner)["memory.images"] == 4 * 36 * 4


def test_streams_are_open_to_everybody_else() -> None:
    assert len(toys.stream().test(2)) == 200


def test_an_error_inside_a_task_is_not_hidden_by_the_end_of_the_lease() -> None:
    data, kept = StreamDataModule(toys.stream()), []
    with pytest.raises(ZeroDivisionError), data.open(0) as task:
        kept.append(task.train.x)
        raise ZeroDivisionError
    assert data.task is None


def test_a_kept_storage_is_not_resized() -> None:
    data, kept = StreamDataModule(toys.stream()), []
    with pytest.raises(ProtocolError), data.open(0) as task:
        kept.append(task.train.x)
    assert kept[0].sum() > 0
