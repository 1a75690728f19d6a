"""The one door into a learner's code: what a hook raises, returns, writes or draws is told as its own, with
its place."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from cl_lightning.contract.learning import weights_of
from cl_lightning.engine.hooks import GIVES
from cl_lightning.errors import Refusal
from cl_lightning.learners import Finetune, Learner
from cl_lightning.protocol import LearnerError, copied
from tests import toys
from tests.commands import run
from tests.toys import builder, learn, training


def make(cls: type[Finetune], **options: object) -> Finetune:
    s = toys.stream()
    return cls(build=builder(s, **options), head=s.head)


def one_task(cls: type[Finetune], **settings: object) -> toys.Learned:
    return learn(make(cls), toys.stream(tasks=1), training(patience=10, **settings))


def own_run(tmp_path: Path, cls: type, *overrides: str) -> None:
    run(tmp_path, f"learner._target_={__name__}.{cls.__name__}", "selection=none", *overrides)


# ---- what it raises ----------------------------------------------------------------------------------------


def test_an_error_of_a_learner_that_ships_is_placed_in_its_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(F, "cross_entropy", torch.bmm)
    with pytest.raises(LearnerError, match=r"(?s)Finetune\.loss raised .*\nat .*learners/base\.py, line"):
        one_task(Finetune)


class FailsInInit(Finetune):
    def __init__(self, **base):
        super().__init__(**base)
        self.n = 1 // 0


class TakesNoBase(Finetune):
    def __init__(self, batch_norm="per_task"):
        super().__init__()


class CallsNoSuper(Finetune):
    def __init__(self, strength=1.0, **base):
        self.strength = strength


class FailsInAccount(Finetune):
    def account(self):
        return {"n": 1 // 0}


class CountsInMegabytes(Finetune):
    def published_memory(self, learned):
        return super().published_memory(learned) / 1e6


class NeedsADict(Finetune):
    needs = {"task_id_at_test": True}


class KeepsAGraph(Finetune):
    def on_task_end(self, task):
        self.memory["anchor"] = [torch.cat([p.reshape(-1) for p in self.network.parameters()])]


@pytest.mark.parametrize(
    ("cls", "words"),
    [
        (FailsInInit, r"\.__init__ raised ZeroDivisionError.*\nat .*test_hooks\.py, line \d+: self\.n"),
        (TakesNoBase, r" takes no build, head, grid, seed.*\nWrite .*\*\*base"),
        (CallsNoSuper, r"\.__init__ makes no learner: it must call super\(\)\.__init__"),
        (FailsInAccount, r"\.account raised ZeroDivisionError.*\nat .*test_hooks\.py, line"),
        (CountsInMegabytes, r"\.published_memory must return a whole number of bytes; it gave a float"),
        (NeedsADict, r"\.needs is a dict\. Write needs = Needs"),
        (KeepsAGraph, r"'s self\.memory\['anchor'\]\[0\] is a tensor with the graph.*\.detach\(\)"),
    ],
)
def test_mistakes_outside_of_hooks_name_the_class_too(cls: type, words: str, tmp_path: Path) -> None:
    with pytest.raises(Refusal, match=cls.__name__ + words):
        own_run(tmp_path, cls)


def test_what_cannot_be_copied_for_a_test_is_named() -> None:
    learner = make(Finetune)
    learner.rows = (i for i in range(3))
    with pytest.raises(LearnerError, match=r"Finetune keeps in self\.rows what cannot be copied: .*gen"):
        copied(learner)


# ---- what it returns ---------------------------------------------------------------------------------------


def test_hooks_that_must_give_something_are_those_of_the_contract() -> None:
    assert {name for name in GIVES if " " not in name} - {"yields", "score"} <= set(vars(Learner))


class LearnsAsFinetune(Finetune):
    """``learn`` need not be a generator itself: what it does first is guarded and seeded all the same."""

    def learn(self, task):
        self.drawn = torch.rand(3).tolist()
        return super().learn(task)

    def predictors(self, seen):
        return super().predictors(seen)


class DrawsInAGenerator(Finetune):
    def learn(self, task):
        self.drawn = torch.rand(3).tolist()
        yield from super().learn(task)


def test_a_hook_that_returns_another_generator_is_seeded_as_if_it_were_one() -> None:
    one, other = one_task(LearnsAsFinetune), one_task(DrawsInAGenerator)
    assert torch.equal(one.weights, one_task(Finetune).weights)
    assert one.learner.drawn == other.learner.drawn


# ---- what it learns from -----------------------------------------------------------------------------------


class MakesItsGradients(Finetune):
    @torch.no_grad()
    def loss(self, c, batch):
        return super().loss(c, batch)

    def after_backward(self, c, batch):
        for p in c.parameters:
            p.grad = torch.ones_like(p)


def test_gradients_may_be_made_by_hand() -> None:
    learned = learn(make(MakesItsGradients), toys.stream(tasks=1), training())
    assert not torch.equal(learned.weights, weights_of(make(Finetune)))


class Warms(Finetune):
    def masked(self, logits, batch):
        return logits * (1.0 if batch.epoch == 0 else 5.0)


def test_a_mask_of_ones_own_is_no_matter_of_company_or_of_stacks() -> None:
    """A stack would go by the first mini-batch, in which the mask does nothing yet."""
    ends = []
    for stack in (True, False):
        learner, s = make(Warms, sizes=(64,)), toys.stream(tasks=1)
        ends.append(learn(learner, s, training(optimizer="sgd", stack=stack)).weights)
    assert torch.equal(*ends)


# ---- what it draws -----------------------------------------------------------------------------------------


class Records(Finetune):
    """What training records is a buffer of the candidate's network; what is made and used within a mini-batch
    may lie in an attribute."""

    def candidates(self, task):
        found = super().candidates(task)
        for c in found:
            c.network.register_buffer("seen", torch.zeros(4))
        return found

    def loss(self, c, batch):
        c.network.seen += batch.y.bincount(minlength=4)
        self.scratch = self.logits(c, batch).detach()
        return super().loss(c, batch)


def test_what_training_records_is_the_candidates() -> None:
    learned = learn(make(Records), toys.stream(tasks=1), training(max_epochs=2))
    assert learned.learner.network.seen.sum() == 2 * 60


class DrawsWithASeed(Finetune):
    def on_task_end(self, task):
        np.random.default_rng(self.seed).permutation(5)
        random.Random(self.seed).random()
        torch.randperm(5)


def test_generators_of_ones_own_may_be_drawn_from() -> None:
    one_task(DrawsWithASeed)
