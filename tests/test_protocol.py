"""Learners that cheat are found out; learners that do not are left alone."""

from __future__ import annotations

import pytest
import torch

from cl_lightning.data.module import StreamDataModule
from cl_lightning.learners import Finetune, Independent, Needs
from cl_lightning.metrics.costs import held_bytes
from cl_lightning.protocol import LearnerError, ProtocolError
from tests import toys
from tests.toys import builder, learn


def make(cls) -> Finetune:
    return cls(build=builder(toys.stream()), head=toys.stream().head, seed=0)


class KeepsTheTask(Finetune):
    def on_task_start(self, task):
        if task.index == 1:
            self.earlier.train.x.sum()
        self.earlier = task


class PredictsFromTrainingData(Finetune):
    def on_task_end(self, task):
        self.lookup = task

    def forward(self, x, task):
        if hasattr(self, "lookup"):
            return self.lookup.train.x
        return super().forward(x, task)


@pytest.mark.parametrize(
    ("cls", "hook"), [(KeepsTheTask, "on_task_start"), (PredictsFromTrainingData, "forward")]
)
def test_data_of_a_closed_task_raise_and_name_learner_and_hook(cls, hook: str) -> None:
    with pytest.raises(ProtocolError, match=rf"{cls.__name__}\.{hook}: .*closed.*\n.*self\.memory"):
        learn(make(cls), toys.stream())


class KeepsATensor(Finetune):
    def on_task_end(self, task):
        self.kept = {"images": task.train.x}


class KeepsAView(Finetune):
    def on_task_end(self, task):
        self.kept = {"images": task.train.x.flatten(1)[3:5].T}


class KeepsInMemoryWithoutCopy(Finetune):
    def on_task_end(self, task):
        self.memory["images"] = task.val.x[:4]


@pytest.mark.parametrize(
    ("cls", "name"),
    [(KeepsATensor, "kept"), (KeepsAView, "kept"), (KeepsInMemoryWithoutCopy, "memory")],
)
def test_a_tensor_that_shares_memory_with_closed_data_is_found_and_its_holder_named(cls, name: str) -> None:
    with pytest.raises(ProtocolError, match=rf"self\.{name}\['images'\].*still holds.*\n.*clone\(\)"):
        learn(make(cls), toys.stream())


KEPT_ELSEWHERE: list[torch.Tensor] = []


class KeepsInAGlobal(Finetune):
    def on_task_end(self, task):
        KEPT_ELSEWHERE.append(task.train.x)


def test_a_tensor_kept_outside_of_the_learner_is_found_too() -> None:
    with pytest.raises(ProtocolError, match=r"something outside of the learner, or .*, still holds"):
        learn(make(KeepsInAGlobal), toys.stream())
    KEPT_ELSEWHERE.clear()


class CopiesToMemory(Finetune):
    def on_task_end(self, task):
        self.memory["images"] = task.train.x[:4].clone()


def test_copies_in_memory_are_allowed_and_counted() -> None:
    learner = learn(make(CopiesToMemory), toys.stream()).learner
    assert held_bytes(learner)["memory.images"] == 4 * 36 * 4


class FindsTestData(Finetune):
    def loss(self, c, batch):
        self.trainer.datamodule.stream.test(2)
        return super().loss(c, batch)


class FindsTheFuture(Finetune):
    def loss(self, c, batch):
        self.trainer.datamodule.stream.task(2)
        return super().loss(c, batch)


@pytest.mark.parametrize(
    ("cls", "what"), [(FindsTestData, "test data of task 2"), (FindsTheFuture, "training data of task 2")]
)
def test_the_way_through_the_stream_is_closed_while_a_learner_runs(cls, what: str) -> None:
    with pytest.raises(ProtocolError, match=rf"{cls.__name__}\.loss: the {what}"):
        learn(make(cls), toys.stream())


def test_streams_are_open_to_everybody_else() -> None:
    assert len(toys.stream().test(2)) == 200


class UsesTheTaskUndeclared(Independent):
    needs = Needs()


def test_a_learner_that_works_only_with_the_undeclared_task_is_told_to_declare_it() -> None:
    with pytest.raises(
        LearnerError, match=r"UsesTheTaskUndeclared\.forward raised (.*\n)*.*Needs\(task_id_at_test=True\)"
    ):
        learn(make(UsesTheTaskUndeclared), toys.stream())


class FailsAnyway(Finetune):
    def forward(self, x, task):
        raise ZeroDivisionError("its own fault")


def test_other_errors_of_a_learner_are_told_as_its_own_with_their_place() -> None:
    with pytest.raises(
        LearnerError,
        match=r"FailsAnyway.forward raised ZeroDivisionError: its own fault\nat .*test_protocol.py, line \d+",
    ):
        learn(make(FailsAnyway), toys.stream())


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
