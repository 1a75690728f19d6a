"""Phases, and how a restart finds them in the store."""

from __future__ import annotations

import copy
import gc
import weakref
from collections import UserDict
from pathlib import Path

import pytest
import pytorch_lightning as pl
import torch

from cl_lightning.config.checking import check_arguments
from cl_lightning.config.settings import Training
from cl_lightning.data.module import StreamDataModule
from cl_lightning.data.task import Split
from cl_lightning.engine.phase_run import PhaseRun
from cl_lightning.engine.phases import Phases
from cl_lightning.engine.trainer import new_trainer
from cl_lightning.errors import Refusal
from cl_lightning.learners import Finetune, Phase
from tests import toys
from tests.toys import builder, learn


class TwoPhases(Finetune):
    """Trains on each half of the data in turn."""

    names = ("first", "second")

    def learn(self, task):
        rows = torch.arange(len(task.train))
        for name, part in zip(self.names, (rows[::2], rows[1::2])):
            half = Split(task.train.x[part], task.train.y[part], task.train.task[part])
            best = yield Phase(self.candidates(task), name=name, train=half)
            self.adopt(best.candidate, task)


def make(cls: type = TwoPhases, grid=({"lr": 0.01}, {"lr": 0.02}), **options: object) -> Finetune:
    return cls(build=builder(toys.stream()), head=toys.stream().head, grid=grid, seed=0, **options)


def test_a_task_may_have_several_phases_on_data_of_their_own() -> None:
    learned = learn(make(), toys.stream())
    assert [phase.name for phase in learned.phases] == ["first", "second"] * 3
    assert all(
        candidate.steps == 9 for phase in learned.phases for candidate in phase.candidates
    )  # 30 examples, batch 10, 3 epochs


def test_finished_phases_are_answered_from_the_store_and_not_trained_again(tmp_path: Path) -> None:
    whole = learn(make(), toys.stream(), folder=tmp_path / "whole")

    class Interrupted(TwoPhases):
        def adopt(self, c, task):
            super().adopt(c, task)
            if task.index == 0 and len(trained) == 1:
                raise KeyboardInterrupt

    trained: list[str] = []
    original = Phases.train_group

    def counting(self, learner, phase, numbers, task, place):
        trained.append(f"{place.name}/{phase.name}")
        return original(self, learner, phase, numbers, task, place)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Phases, "train_group", counting)
        with pytest.raises(KeyboardInterrupt):
            learn(make(Interrupted), toys.stream(), folder=tmp_path / "cut")
        resumed = learn(make(), toys.stream(), folder=tmp_path / "cut")
    assert trained == [f"task{i}/{name}" for i in range(3) for name in ("first", "second")]
    assert torch.equal(resumed.weights, whole.weights)
    assert resumed.matrix == whole.matrix
    assert resumed.engine.work.costs.flops == whole.engine.work.costs.flops


def test_other_candidates_after_a_restart_are_refused(tmp_path: Path) -> None:
    learn(make(), toys.stream(tasks=1), folder=tmp_path)
    with pytest.raises(Refusal, match=r"before the restart.*\n.*resume=false"):
        learn(make(grid=[{"lr": 0.5}]), toys.stream(tasks=1), folder=tmp_path)


def test_comparing_candidates_needs_validation_data() -> None:
    watch = []
    with pytest.raises(Refusal, match="no validation data"):
        learn(
            make(),
            toys.stream(n_val=0),
            callbacks=[type("Watch", (pl.Callback,), {"on_train_start": lambda *_: watch.append(1)})()],
        )
    assert not watch, "said only after training"


def test_early_stopping_needs_validation_data() -> None:
    with pytest.raises(Refusal, match=r"Early stopping.*\n?.*trainer\.patience=null"):
        learn(make(grid=[{}]), toys.stream(n_val=0), toys.training(patience=10))


def test_one_candidate_needs_none() -> None:
    learned = learn(make(Finetune, grid=[{}]), toys.stream(n_val=0))
    assert learned.winner(2)["val_accuracy"] is None


class Coreset(Finetune):
    """Tests with a copy that saw three stored examples once more."""

    def on_task_end(self, task):
        self.memory["some"] = [part[:3].clone() for part in task.train.parts]

    def predictors(self, seen):
        if not seen:
            return {"": self}
        tuned = copy.deepcopy(self)
        best = yield Phase(
            tuned.candidates(None), name="coreset", train=Split(*self.memory["some"]), epochs=2
        )
        tuned.network = best.candidate.network
        return {"coreset": tuned, "plain": self}


def test_predictors_may_train_phases_and_leave_the_learner_as_it_was() -> None:
    plain, learned = (
        learn(make(Finetune, grid=[{}]), toys.stream()),
        learn(make(Coreset, grid=[{}]), toys.stream()),
    )
    assert torch.equal(plain.weights, learned.weights)
    assert learned.matrix[1:] != plain.matrix[1:]
    order = [phase.place.name for phase in learned.phases]
    assert order == ["task0", "predictors1", "task1", "predictors2", "task2", "predictors3"]


class OwnLossAndScore(Finetune):
    def learn(self, task):
        best = yield Phase(
            self.candidates(task), loss=self.backwards, score=lambda c, val: 0.25, patience=4, epochs=9
        )
        self.adopt(best.candidate, task)

    def backwards(self, c, batch):
        return -super().loss(c, batch)


def test_a_phase_may_bring_its_own_loss_score_and_budget() -> None:
    learned = learn(make(OwnLossAndScore, grid=[{}]), toys.stream(tasks=1))
    standing = learned.standing(0)["default"]
    assert standing == {"val_accuracy": None, "score": 0.25, "steps": 4, "steps_to_best": 0}


def test_of_scores_below_zero_the_highest_wins_in_one_share_or_several() -> None:
    class Negative(Finetune):
        def learn(self, task):
            best = yield Phase(self.candidates(task), score=lambda c, val: -1 / c.hparams["lr"])
            found.append((best.candidate.hparams["lr"], best.score))
            self.adopt(best.candidate, task)

    for at_once in (None, 1):
        found: list[tuple] = []
        learn(
            make(Negative, grid=[{"lr": 0.25}, {"lr": 0.5}, {"lr": 0.125}]),
            toys.stream(tasks=1),
            toys.training(candidates_at_once=at_once),
        )
        assert found == [(0.5, -2.0)]


def test_strategies_of_lightning_that_look_at_one_model_are_refused() -> None:
    with pytest.raises(Refusal, match=r"EarlyStopping.*trainer\.patience"):
        new_trainer(toys.one_epoch(), [], [pl.callbacks.EarlyStopping("loss")])


@pytest.mark.parametrize(
    "key", ["gradient_clip_val", "accumulate_grad_batches", "precision", "max_epochs", "val_check_interval"]
)
def test_arguments_of_lightning_that_work_against_the_engine_are_refused(key: str) -> None:
    with pytest.raises(Refusal, match=rf"trainer\.lightning\.{key}"):
        toys.one_epoch(lightning={key: 1})


@pytest.mark.parametrize(
    "options",
    [{"max_epochs": 0}, {"lr": 0}, {"lr": float("nan")}, {"clip": -1}, {"optimizer": "lion"},
    {"precision": "16-mixed"}, {"threads": 0},
     {"patience": 0}, {"evaluate": "none"}, {"momentum": 1.0}, {"momentum": 0.9}, {"weight_decay": -1},
     {"block": 0}],
)  # fmt: skip
def test_values_outside_their_range_are_refused(options: dict) -> None:
    with pytest.raises(Refusal, match=rf"trainer\.{next(iter(options))}"):
        check_arguments(Training, {**toys.DEFAULT, **options}, "trainer")
        toys.one_epoch(**options)


def test_loaders_give_the_phase_its_mini_batches_and_nothing_before() -> None:
    with pytest.raises(RuntimeError, match="no phase"):
        StreamDataModule(toys.stream()).train_dataloader()


class LooksAround(Coreset):
    """Notes what its predictors find: the head, and the mode of the network."""

    def __init__(self, **base: object) -> None:
        super().__init__(**base)
        self.found = UserDict()

    def predictors(self, seen):
        self.found.update(head=self.head, training=self.network.training)
        return (yield from super().predictors(seen))


def test_predictors_of_a_restored_learner_find_what_those_of_one_that_went_on_do() -> None:
    s = toys.stream()
    went_on = learn(make(LooksAround, grid=[{}]), s)
    restored = make(LooksAround, grid=[{}])
    restored.load_state_dict(went_on.learner.state_dict())
    restored.train()
    list(went_on.engine.predictors(restored, 3, s.task_without_data(2)))
    assert restored.found == went_on.learner.found == {"head": s.head, "training": False}


# ---- long work between phases ------------------------------------------------------------------------------


class Searches(Finetune):
    """Long work at a task's start, and draws after it."""

    done: list[int] = []

    def on_task_start(self, task):
        self.found = self.once("search", lambda: self.search(task))
        self.drawn = torch.rand(1).item()

    def search(self, task):
        self.done.append(task.index)
        return {"nearest": task.index, "scores": torch.rand(3), "pair": (1, 2.5)}


def test_long_work_is_done_once_and_read_back_after_a_kill(tmp_path: Path) -> None:
    s, ends = toys.stream(tasks=1), []
    Searches.done.clear()
    for _ in range(2):  # the second finds the store of the first, without a boundary: as after a kill
        learner = Searches(build=builder(s), head=s.head, seed=0)
        learn(learner, s, folder=tmp_path)
        ends.append(
            (learner.found["scores"].tolist(), learner.found["nearest"], learner.found["pair"], learner.drawn)
        )
    assert ends[0] == ends[1]
    assert Searches.done == [0]


def test_long_work_is_done_for_every_task_and_its_operations_are_counted_once(tmp_path: Path) -> None:
    class Looks(Searches):
        def search(self, task):
            super().search(task)
            return self.network(task.train.x, None).sum().detach()

    s, spent = toys.stream(tasks=2), []
    Searches.done.clear()
    for _ in range(2):
        spent.append(
            learn(Looks(build=builder(s), head=s.head, seed=0), s, folder=tmp_path).engine.work.costs.flops
        )
    assert Searches.done == [0, 1]
    assert spent[0] == spent[1]


def test_two_pieces_of_work_need_two_names() -> None:
    class Twice(Searches):
        def on_task_end(self, task):
            self.once("search", lambda: 1)

    with pytest.raises(Refusal, match=r"once\('search', ...\) is called twice in task0"):
        learn(Twice(build=builder(toys.stream()), head=toys.stream().head, seed=0), toys.stream())


def test_what_only_training_needs_is_freed_at_the_end_of_a_phase(monkeypatch) -> None:
    """Also without Python's garbage collector, for which the memory of a GPU does not wait."""
    held: list[weakref.ref] = []
    original = PhaseRun.release

    def noted(self: PhaseRun) -> None:
        states = (value for state in self.optimizer.state.values() for value in state.values())
        gradients = (p.grad for p in self.parameters if p.grad is not None)
        held.extend(weakref.ref(tensor) for tensor in (*states, *gradients))
        original(self)
        assert not any(tensor() for tensor in held)

    monkeypatch.setattr(PhaseRun, "release", noted)
    s = toys.stream(tasks=2)
    learner = Finetune(build=toys.builder(s), head=s.head, grid=[{"lr": 0.01}, {"lr": 0.1}])
    gc.collect()
    gc.disable()
    try:
        toys.learn(learner, s, toys.training(max_epochs=1))
    finally:
        gc.enable()
    assert len(held) > 20
