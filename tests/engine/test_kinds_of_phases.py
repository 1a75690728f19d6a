"""Phases that are not the plain one: auxiliary ones, with settings of their own, that keep all networks."""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn as nn

from cl_lightning.engine.boundary import check_adopted
from cl_lightning.engine.optimizer import weights_key
from cl_lightning.errors import Diverged
from cl_lightning.learners import Candidate, Finetune, Phase
from cl_lightning.metrics.learning_curve import learning_curve_area
from cl_lightning.protocol import LearnerError, ProtocolError
from tests import toys
from tests.commands import run
from tests.dying import killed
from tests.engine.test_rules import (
    SIX_STEPS,
    START,
    Scripted,
    Shrinks,
    adam_by_hand,
    ends,
    momentum_by_hand,
    near,
    trained,
)

# ---- auxiliary phases --------------------------------------------------------------------------------------


class Generator(nn.Module):
    """Has no logits, and could not be compared with a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor(START))


class WithGenerator(Shrinks):
    """Trains a generator, too, before its own network or behind it; and a copy of its own that it throws
    away."""

    def __init__(self, *, when: str, **made: Any) -> None:
        super().__init__()
        self.when, self.made, self.generator = when, {"auxiliary": True, **made}, Generator()

    def learn(self, task):
        if self.when == "before":
            yield from self.generators()
        yield from super().learn(task)
        if self.when == "behind":
            yield from self.generators()

    def generators(self):
        for network in (copy.deepcopy(self.network), copy.deepcopy(self.generator)):
            best = yield Phase([Candidate(network)], "generator", **self.made)
        self.generator = best.candidate.network


@pytest.mark.parametrize("when", ["before", "behind"])
@pytest.mark.parametrize("optimizer", [{"momentum": 0.9}, {"optimizer": "adam"}])
def test_an_auxiliary_phase_trains_to_its_end_and_leaves_the_moments_of_the_task_alone(
    when: str, optimizer: dict
) -> None:
    """Although its accuracy does not get better, and patience is short."""
    options = {"optimizer_state": "carry", "tasks": 3, **optimizer}
    learned, alone = trained(WithGenerator(when=when), **options), trained(Shrinks(), **options)
    assert learned.learner.network.w.tolist() == ends(alone)
    by_hand = (
        (lambda w: momentum_by_hand(w, 0.0, 6)[0])
        if "momentum" in optimizer
        else (lambda w: adam_by_hand((w, 0.0, 0.0), 1, 6)[0])
    )
    expected = [by_hand(by_hand(by_hand(start))) for start in START]
    assert learned.learner.generator.w.tolist() == near(*expected)
    stopping = trained(WithGenerator(when=when), patience=1, score_every=1)
    assert stopping.learner.generator.w.tolist() == near(*[3 * 0.9**6, 4 * 0.9**6])
    chosen = {phase.name: phase.chosen for phase in stopping.phases}
    assert (chosen["generator"].steps, chosen["train"].steps) == (6, 1)
    assert (chosen["generator"].val_accuracy, chosen["generator"].score) == (None, None)


def test_a_network_that_begins_where_an_auxiliary_phase_ended_has_no_moments_yet() -> None:
    class LikelihoodFirst(Shrinks):
        def learn(self, task):
            start = yield Phase(self.candidates(task), "start", auxiliary=True)
            best = yield Phase([Candidate(start.candidate.network)])
            self.adopt(best.candidate, task)

    learned = trained(LikelihoodFirst(), momentum=0.9, optimizer_state="carry")
    expected = [momentum_by_hand(momentum_by_hand(w, 0.0, 6)[0], 0.0, 6)[0] for w in START]
    assert ends(learned) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("own", [{}, {"val": lambda task: task.val}])
def test_an_auxiliary_phase_is_compared_by_what_it_is_given(own: dict) -> None:
    class Compares(Shrinks):
        def learn(self, task):
            found = [Candidate(Generator(), {"lr": lr}) for lr in (0.01, 0.2, 0.1)]
            given = {key: make(task) for key, make in own.items()}
            best = yield Phase(found, auxiliary=True, score=lambda c, val: -c.network.w.norm(), **given)
            chosen.append((best.candidate.hparams["lr"], best.score))
            yield from super().learn(task)

    chosen: list[tuple] = []
    trained(Compares(), patience=100)
    assert chosen == [(0.2, pytest.approx(-5 * 0.8**6, rel=1e-4))]


class Dreams(Finetune):
    """Trains a generator first."""

    def learn(self, task):
        yield Phase(
            [Candidate(Generator())], "dreams", loss=lambda c, _: (c.network.w**2).sum(), auxiliary=True
        )
        yield from super().learn(task)


def test_results_tell_of_what_the_task_was_learned_by_and_probes_look_at_nothing_else(tmp_path: Path) -> None:
    options = ("selection=none", "trainer.probe_at=[0,1,2,3,4,5]", "trainer.batch_size=10")
    target = f"learner._target_={__name__}.Dreams"
    results = run(tmp_path, *options, target, "learner.name=dreams", "trainer.optimizer_state=carry")
    assert [(row["where"], row["phase"]) for row in results["selected"]] == [
        (f"task{i}", "train") for i in range(3)
    ]
    assert {probe["phase"] for probe in results["probes"]} == {1}
    curves = [{p["step"]: p["accuracies"][i] for p in results["probes"] if p["task"] == i} for i in range(3)]
    assert results["metrics"]["learning_curve_area"] == learning_curve_area(curves)


def test_a_phase_for_a_test_is_auxiliary_too() -> None:
    """A coreset has no validation data, and trains beside early stopping."""
    s = toys.stream()
    learner = toys.Coreset(build=toys.builder(s), head=s.head, seed=0)
    learned = toys.learn(learner, s, toys.training(patience=100, optimizer_state="carry"))
    own = [phase for phase in learned.phases if phase.place.part == "predictors"]
    assert [(phase.chosen.steps, phase.chosen.val_accuracy) for phase in own] == [(6, None)] * 3


# ---- settings of a phase's own -----------------------------------------------------------------------------


def test_an_auxiliary_phase_has_another_optimizer_batch_size_and_length_than_the_task() -> None:
    class SawBatches(WithGenerator):
        def loss(self, c, batch):
            sizes.setdefault(batch.key[2], set()).add(len(batch))
            return super().loss(c, batch)

    sizes: dict[int, set] = {}
    own = {"optimizer": "adam", "batch_size": 7, "max_steps": 4, "lr": 0.1}
    options = {"momentum": 0.9, "optimizer_state": "carry", "tasks": 2}
    learned = trained(SawBatches(when="before", settings=own), **options)
    assert learned.learner.network.w.tolist() == ends(trained(Shrinks(), **options))
    twice = [adam_by_hand((adam_by_hand((w, 0.0, 0.0), 1, 4)[0], 0.0, 0.0), 1, 4)[0] for w in START]
    assert learned.learner.generator.w.tolist() == near(*twice)
    assert sizes == {0: {7}, 1: {7}, 2: {10}}


@pytest.mark.parametrize("where", ["trainer", "phase"])
def test_betas_are_adams(where: str) -> None:
    class Own(Shrinks):
        def learn(self, task):
            best = yield Phase(
                self.candidates(task), settings={"betas": [0.5, 0.9]} if where == "phase" else {}
            )
            self.adopt(best.candidate, task)

    learned = trained(Own(), optimizer="adam", betas=[0.5, 0.9] if where == "trainer" else None)
    expected = []
    for w in START:
        m = v = 0.0
        for t in range(1, 7):
            m, v = 0.5 * m + 0.5 * w, 0.9 * v + 0.1 * w * w
            w -= 0.1 * (m / (1 - 0.5**t)) / ((v / (1 - 0.9**t)) ** 0.5 + 1e-8)
        expected.append(w)
    assert ends(learned) == near(*expected)


@pytest.mark.parametrize(
    ("options", "steps", "left", "accuracy"),
    [
        ({"restore": "last", "patience": 2}, 4, 4, 0.3),  # best after two, and two more are not better
        ({"restore": "last", "patience": 100}, 6, 6, 0.2),
        ({"restore": "best", "patience": None}, 6, 2, 0.9),
        ({"restore": "best", "patience": 2}, 4, 2, 0.9),
        ({"restore": "last", "patience": None}, 6, 6, 0.1),  # scored once
    ],
)
def test_a_candidate_ends_with_its_best_weights_or_its_last(options, steps, left, accuracy) -> None:
    learner = Scripted(script={"default": [0.1, 0.5, 0.9, 0.4, 0.3, 0.1, 0.2]})
    learned = trained(learner, score_every=1, score_at=(0,), **options)
    assert ends(learned) == near(3 * 0.9**left, 4 * 0.9**left)
    assert (learned.winner(0)["steps"], learned.winner(0)["score"]) == (steps, accuracy)


class TellsSettings(Shrinks):
    def learn(self, task):
        first = yield Phase(self.candidates(task), "first", settings={"batch_size": 20, "clip": 9.0})
        told.append(first.candidate.settings)
        yield from super().learn(task)

    def loss(self, c, batch):
        told.append(c.settings)
        return super().loss(c, batch)

    def adopt(self, c, task):
        told.append(c.settings)
        super().adopt(c, task)


told: list[dict] = []


def test_a_candidate_knows_what_it_trains_with_and_after_a_kill_too(tmp_path: Path) -> None:
    keys = ("lr", "weight_decay", "batch_size", "clip", "optimizer")

    def learned(folder: Path) -> list[tuple]:
        told.clear()
        learner = TellsSettings(grid=[{"weight_decay": 0.5}])
        settings = toys.training(**{**SIX_STEPS, "lr": 0.02, "patience": 9})
        toys.learn(learner, toys.stream(tasks=1), settings, folder)
        return [tuple(each[key] for key in keys) for each in told]

    first, second = (0.02, 0.5, 20, 9.0, "sgd"), (0.02, 0.5, 10, None, "sgd")
    assert learned(tmp_path / "whole") == [first] * 3 + [first] + [second] * 6 + [second]
    killed("phase done:2", partial(learned, tmp_path / "cut"))
    assert learned(tmp_path / "cut") == [first, second]
    with pytest.raises(ProtocolError):
        told[0]["lr"] = 1.0


class Normalised(nn.Module):
    def __init__(self, head: Any) -> None:
        super().__init__()
        self.norm, self.head = nn.BatchNorm1d(36), nn.Linear(36, head.num_outputs)

    def forward(self, x, task=None):
        return self.head(self.norm(x.flatten(1)))


class NormAsAfterTheFirstTask(Finetune):
    def candidates(self, task):
        found = super().candidates(task)
        for c in found:
            c.network.register_buffer("later", torch.tensor(task.index > 0), persistent=False)
        return found

    def set_mode(self, c, training):
        super().set_mode(c, training)
        if c.network.later:
            c.network.norm.eval()


class NormFrozenInCandidates(Finetune):
    """Written without the hook: the mode is set back when training begins."""

    def candidates(self, task):
        found = super().candidates(task)
        for c in found:
            c.network.norm.train(task.index == 0)
        return found


@pytest.mark.parametrize(("cls", "still"), [(NormAsAfterTheFirstTask, True), (NormFrozenInCandidates, False)])
def test_batch_norm_stays_as_after_the_first_task_where_set_mode_says_so(cls: type, still: bool) -> None:
    s, means = toys.stream(tasks=2), []
    learner = cls(build=Normalised, head=s.head)
    original = learner.on_task_end
    learner.on_task_end = lambda task: (
        means.append(learner.network.norm.running_mean.clone()),
        original(task),
    )
    toys.learn(learner, s, toys.training(patience=100, score_every=2))
    assert not torch.equal(means[0], torch.zeros(36))
    assert torch.equal(*means) == still


# ---- all are kept ------------------------------------------------------------------------------------------


class SideBySide(Shrinks):
    """Three generators in an auxiliary phase, each then trained on in a second one: a chain a point."""

    rates = (0.1, 0.2, 0.3)

    def learn(self, task):
        found = [Candidate(Generator(), {"lr": lr}) for lr in self.rates]
        first = yield Phase(found, "first", auxiliary=True, keep="all")
        assert [c.name for c in first.kept] == [c.name for c in found]
        again = [Candidate(c.network, c.hparams) for c in first.kept]
        second = yield Phase(again, "second", auxiliary=True, keep="all", settings={"max_steps": 2})
        self.ends = torch.stack([c.network.w.detach() for c in second.kept])
        best = yield Phase(self.candidates(task))
        assert best.kept == [best.candidate]
        self.adopt(best.candidate, task)


def side_by_side(folder: Path, **options: Any) -> torch.Tensor:
    learner, settings = SideBySide(), toys.training(**{**SIX_STEPS, **options})
    toys.learn(learner, toys.stream(tasks=1), settings, folder)
    return learner.ends


def test_all_networks_are_kept_after_a_kill_and_in_shares(tmp_path: Path) -> None:
    whole = side_by_side(tmp_path / "whole", optimizer_state="carry")
    by_hand = [[w * (1 - lr) ** 8 for w in START] for lr in (0.1, 0.2, 0.3)]
    assert torch.allclose(whole, torch.tensor(by_hand), rtol=1e-4)
    assert torch.equal(side_by_side(tmp_path / "shares", candidates_at_once=1), whole)
    for at in (1, 2):
        folder = tmp_path / f"killed{at}"
        killed(f"phase done:{at}", partial(side_by_side, folder))
        assert torch.equal(side_by_side(folder), whole)


def test_where_all_networks_are_needed_none_may_be_lost() -> None:
    class OneIsLost(SideBySide):
        rates = (0.1, 1e30, 0.3)

    with pytest.raises(Diverged, match=r"Candidates that are all needed of task 0 .*: lr=1e\+30\."):
        toys.learn(OneIsLost(), toys.stream(tasks=1), toys.training(**SIX_STEPS))


def test_a_generator_that_trains_does_not_ask_that_the_network_of_the_task_changes() -> None:
    class Untrained(WithGenerator):
        def learn(self, task):
            yield from self.generators()

    learned = trained(Untrained(when="before"))
    before = weights_key(learned.learner.parameters())
    work: Any = SimpleNamespace(work=SimpleNamespace(phases=learned.phases))
    check_adopted(learned.learner, before, work)
    work.work.phases = [replace(phase, auxiliary=False) for phase in learned.phases]
    with pytest.raises(LearnerError, match="predicts with the weights that it had"):
        check_adopted(learned.learner, before, work)
