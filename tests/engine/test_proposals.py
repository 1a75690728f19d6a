"""Phases that cannot be trained or compared are refused before training."""

from __future__ import annotations

import math

import pytest
import torch

from cl_lightning.data.task import Split
from cl_lightning.errors import Refusal
from cl_lightning.learners import Candidate, Finetune, Phase
from tests import toys
from tests.toys import builder, learn, training


def proposing(**options: object) -> Finetune:
    """A learner that proposes one phase with these options, or what they make of the task."""

    class Proposes(Finetune):
        def learn(self, task):
            made = {key: value(task) if callable(value) else value for key, value in options.items()}
            best = yield Phase(**{"candidates": self.candidates(task), **made})
            self.adopt(best.candidate, task)

    s = toys.stream()
    return Proposes(build=builder(s), head=s.head)


def one_task(learner: Finetune, **settings: object) -> toys.Learned:
    return learn(learner, toys.stream(tasks=1), training(**settings))


def none_of(task) -> Split:
    return Split(*task.val.gather(torch.empty(0, dtype=torch.int64)))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"epochs": 0}, r"Proposes's Phase: epochs=0 must be a whole number of at least 1"),
        ({"epochs": 1.5}, r"Proposes's Phase: epochs=1\.5 must be a whole number"),
        ({"patience": -5}, r"Proposes's Phase: patience=-5 must be a number of at least 1"),
        ({"val": none_of}, r"Proposes proposed a phase of task 0 whose `val` is empty"),
        ({"train": none_of}, r"Proposes proposed a phase of task 0 whose `train` is empty"),
        ({"train": lambda task: task.train.x}, r"whose `train` is a Tensor\. Make it a Split"),
        ({"candidates": None}, r"Proposes proposed something else than a list of candidates"),
        ({"candidates": [torch.nn.Linear(1, 1)]}, r"something else than a list of candidates"),
        ({"candidates": []}, r"Proposes proposed the candidates \[\] for task 0"),
        (
            {"train": lambda task: Split(task.train.x[:3], task.train.y, task.train.task)},
            r"Proposes\.learn raised ValueError: a Split has as many y and task as x, not 3, 60 and 60",
        ),
    ],
)
def test_phases_that_cannot_be_trained_are_refused(options: dict, words: str) -> None:
    with pytest.raises(Refusal, match=words):
        one_task(proposing(**options))


def with_hparams(**hparams: object) -> Finetune:
    s = toys.stream()
    learner = Finetune(build=builder(s), head=s.head)
    learner.candidates = lambda task: [Candidate(learner.fresh(0), hparams)]  # type: ignore[method-assign]
    return learner


@pytest.mark.parametrize(
    ("hparams", "words"),
    [
        ({"lr": -0.5}, r"lr=-0\.5: lr=-0\.5 must be a number above 0"),
        ({"lr": "0.5"}, r"must be a number above 0"),
        ({"lr": math.nan}, r"must be a finite number"),
        ({"momentum": 0.9}, r"has momentum, which is for trainer\.optimizer=sgd"),
        ({"learning_rate": 0.5}, r"has 'learning_rate', .*Did you mean 'lr'\?"),
        ({"weight-decay": 0.5}, r"Did you mean 'weight_decay'\?"),
    ],
)
def test_hyperparameters_of_the_optimizer_are_held_to_what_the_configuration_is(
    hparams: dict, words: str
) -> None:
    with pytest.raises(Refusal, match=rf"Finetune's candidate .*{words}"):
        one_task(with_hparams(**hparams), optimizer="adam")


def test_hyperparameters_of_a_learners_own_are_its_own_business() -> None:
    own: dict[str, object] = {"strength": -3, "momentum": 0.0, "lr": 1e-3}
    for hparams, optimizer in ((own, "adam"), ({"momentum": 0.9}, "sgd")):
        chosen = one_task(with_hparams(**hparams), optimizer=optimizer).phase().chosen
        assert chosen.hparams == hparams
        assert chosen.steps > 0


def test_a_learner_that_trains_for_tests_needs_examples_of_its_own() -> None:
    class TrainsOnWhatIsClosed(Finetune):
        def predictors(self, seen):
            yield Phase(self.candidates(None))
            return {"": self}

    s = toys.stream()
    with pytest.raises(Refusal, match=r"TrainsOnWhatIsClosed\.predictors proposed a phase without `train`"):
        one_task(TrainsOnWhatIsClosed(build=builder(s), head=s.head), patience=None)
