"""Predictors: what is tested in a learner's place, made when it is tested."""

from __future__ import annotations

import copy
import gc
import json
import time
import weakref
from functools import partial
from pathlib import Path

import pytest
import torch

from cl_lightning.contract.checks import POINTS, Case, kills
from cl_lightning.learners import Finetune
from cl_lightning.protocol import LearnerError, ProtocolError
from tests import toys
from tests.commands import finished, run
from tests.report.test_tables import fake, shown
from tests.toys import builder, learn

ALPHAS = (0.0, 0.25, 0.5, 0.75, 1.0)
MADE: list[tuple[float, int]] = []  # which, and how many lived then
ALIVE: weakref.WeakSet = weakref.WeakSet()


class Merges(Finetune):
    """Between the first task's weights and the last one's, as moment matching does; each made when asked."""

    def on_task_end(self, task):
        weights = [p.detach().clone() for p in self.network.parameters()]
        self.memory.setdefault("first", weights)

    def merged(self, alpha):
        other = copy.deepcopy(self)
        if self.memory:
            with torch.no_grad():
                for p, first in zip(other.network.parameters(), self.memory["first"]):
                    p.lerp_(first, 1 - alpha)
        gc.collect()
        ALIVE.add(other)
        MADE.append((alpha, len(ALIVE)))
        return other

    def predictors(self, seen):
        return {f"alpha={alpha}": partial(self.merged, alpha) for alpha in ALPHAS}
        yield


class MergesAtOnce(Merges):
    def predictors(self, seen):
        return {f"alpha={alpha}": self.merged(alpha) for alpha in ALPHAS}
        yield


def rows(cls: type[Merges], **settings: object) -> tuple[list, list]:
    """Rows of the last predictor and of all, and what was made."""
    MADE.clear()
    s = toys.stream()
    learned = learn(cls(build=builder(s), head=s.head), s, toys.training(**settings))
    return learned.matrix, list(MADE)


def test_each_is_made_once_when_it_is_tested_and_thrown_away_after() -> None:
    matrix, made = rows(Merges)
    assert [alpha for alpha, _ in made] == [*ALPHAS] * 3
    assert max(alive for _, alive in made) == 1
    at_once, made_at_once = rows(MergesAtOnce)
    assert max(alive for _, alive in made_at_once) == len(ALPHAS)
    assert matrix == at_once


def test_none_is_made_where_nothing_is_tested() -> None:
    _, made = rows(Merges, evaluate="final")
    assert [alpha for alpha, _ in made] == [*ALPHAS]


class ChangesItself(Merges):
    def merged(self, alpha):
        with torch.no_grad():
            next(self.network.parameters()).mul_(alpha)
        return self


class GivesNoLearner(Merges):
    def merged(self, alpha):
        return self.network


def test_what_makes_them_may_not_change_the_learner_and_gives_learners() -> None:
    with pytest.raises(ProtocolError, match=r"ChangesItself\.predictors changed the learner itself"):
        rows(ChangesItself)
    with pytest.raises(LearnerError, match=r"GivesNoLearner\.predictors must return one learner or more"):
        rows(GivesNoLearner)


def test_training_what_is_tested_may_be_interrupted() -> None:
    """The learner is restored then, but has not changed."""
    s = toys.stream()
    case = Case(partial(toys.Coreset, build=builder(s), head=s.head), s, toys.training(block=2))
    kills(case, {"inside a phase": POINTS["inside a phase"]})


class TakesLong(Merges):
    def merged(self, alpha):
        until = time.process_time() + 0.05
        while time.process_time() < until:
            pass
        return super().merged(alpha)


def test_named_predictors_are_in_the_results_the_table_and_the_costs(tmp_path: Path) -> None:
    own = "learner._target_=tests.engine.test_predictors.TakesLong"
    results = run(tmp_path / "own", own, "selection=none", "stream.head=single")
    plain = finished(tmp_path / "plain", "selection=none", "stream.head=single")
    merged = results["predictors"]
    assert list(merged) == [f"alpha={alpha}" for alpha in ALPHAS]
    assert merged["alpha=1.0"]["accuracy_matrix"] == plain["accuracy_matrix"], "the last weights alone"
    assert merged["alpha=0.0"]["accuracy_matrix"] == results["accuracy_matrix"], "the first one counts"
    assert merged["alpha=0.0"]["metrics"] != merged["alpha=1.0"]["metrics"]
    folder = next(tmp_path.glob("own/*/*/*/results.json")).parent
    line = next(line for line in shown(folder).splitlines() if "alpha=0.5" in line)
    assert f"{merged['alpha=0.5']['metrics']['average_accuracy']:.3f}" in line
    for long, short in zip(results["costs"], plain["costs"]):
        assert long["seconds"]["cpu"] > short["seconds"]["cpu"] + 0.03 * len(ALPHAS)


def test_where_there_are_many_a_screen_of_them_is_shown(tmp_path: Path) -> None:
    path = fake(tmp_path, 3) / "results.json"
    results = json.loads(path.read_text())
    results["predictors"] = {f"alpha={i}": {"metrics": results["metrics"]} for i in range(101)}
    path.write_text(json.dumps(results))
    text = shown(tmp_path)
    assert "81 more are in results.json" in text
    assert "alpha=19" in text
    assert "alpha=20" not in text
