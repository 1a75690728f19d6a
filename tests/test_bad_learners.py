"""One table of bad learners: what a hook does that it may not, and the sentence that names class, hook and
remedy."""

from __future__ import annotations

import copy
import random
import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

from cl_lightning.data.task import Batch, Split
from cl_lightning.errors import Refusal
from cl_lightning.learners import ER, Candidate, Finetune, Independent, Needs, Phase
from cl_lightning.learners.parts.growing_list import GrowingList
from cl_lightning.protocol import LearnerError, ProtocolError
from tests import toys
from tests.commands import run
from tests.toys import builder, learn, training


def bad(base: type[Finetune] = Finetune, needs: Needs | None = None, **hooks: Callable) -> type[Finetune]:
    """A learner whose hooks each do something, and then what the base's do; ``__init__`` (``init``) the other
    way round. Hooks whose names end in ``_`` do it instead."""

    def first(name: str, does: Callable) -> Callable:
        def hook(self, *given):
            does(self, *given)
            return getattr(super(cls, self), name)(*given)

        return hook

    def made(self, **options):
        super(cls, self).__init__(**options)
        hooks["init"](self)

    own = {n.rstrip("_"): does if n.endswith("_") else first(n, does) for n, does in hooks.items()}
    own |= {"__init__": made} if own.pop("init", None) else {}
    cls: type[Finetune] = type("Bad", (base,), own if needs is None else {**own, "needs": needs})
    return cls


def sets(name: str, value: Callable[[Any], object]) -> Callable:
    """A hook that sets an attribute to what it makes of what it was given."""
    return lambda self, given: setattr(self, name, value(given))


def phases(of: Callable = lambda *_: {}, **options: Any) -> Callable:
    """A ``learn`` of one phase with these options, and with those that ``of`` makes of learner and task."""

    def learn(self, task):
        best = yield Phase(**{"candidates": self.candidates(task), **options, **of(self, task)})
        self.adopt(best.candidate, task)

    return learn


def with_hparams(**hparams: object) -> type[Finetune]:
    return bad(candidates_=lambda self, task: [Candidate(self.fresh(0), hparams)])


def named(*names: str) -> type[Finetune]:
    return bad(candidates_=lambda self, task: [Candidate(copy.deepcopy(self.network), name=n) for n in names])


def generator(does: Callable) -> Callable:
    """A hook that is a generator, and yields nothing."""

    def hook(self, *given):
        return does(self, *given)
        yield

    return hook


def leak(value: Callable[[Any], object]) -> type[Finetune]:
    return bad(on_task_end=sets("old", value))


def closes(x: torch.Tensor) -> Callable:
    return lambda: x.sum()


class Slots:
    __slots__ = ("x",)

    def __init__(self, x: torch.Tensor) -> None:
        self.x = x


class Remembers(nn.Sequential):
    """A network with state that is neither a parameter nor a buffer that is stored."""

    def __init__(self, network: nn.Module, how: str) -> None:
        super().__init__(network)
        self.how, self.seen, self.mean = how, 0, torch.zeros(1)
        self.register_buffer("unstored", torch.zeros(1), persistent=False)

    def forward(self, x, task):
        if self.training and self.how == "seen":
            self.seen += 1
        elif self.training:
            getattr(self, self.how).add_(x.mean())
        return self[0](x, task)


def has_a_network_that_remembers(how: str) -> type[Finetune]:
    def made(self, *, build, **base):
        Finetune.__init__(self, build=lambda **options: Remembers(build(**options), how), **base)

    return type("Bad", (Finetune,), {"__init__": made})


def two_with(what: Callable[[nn.Module, nn.Module], None]) -> type[Finetune]:
    """Proposes two candidates, of which something is made."""

    def candidates(self, task):
        one, other = copy.deepcopy(self.network), copy.deepcopy(self.network)
        what(one, other)
        return [Candidate(one, name="one"), Candidate(other, name="other")]

    return bad(candidates_=candidates)


def lends_its_buffer(self, task):
    network = copy.deepcopy(self.network)
    network.register_buffer("mean", self.mean)
    return [Candidate(network)]


def buffered(self) -> None:
    self.register_buffer("mean", torch.zeros(2))
    self.memory["rows"] = torch.zeros(3)


def no_examples(task) -> Split:
    return Split(*task.train.gather(torch.empty(0, dtype=torch.int64)))


def trains_for_tests(self, seen):
    yield Phase(self.candidates(None))
    return {"": self}


def constants(self) -> None:
    self.weights_of_classes, self.array, self.seen = torch.ones(4), np.ones(4), 0


def generators(self) -> None:
    self.drawn = {"torch": torch.Generator(), "python": random.Random(0), "numpy": np.random.default_rng(0)}


def draws(self, *_) -> None:
    torch.rand(1, generator=self.drawn["torch"])
    self.drawn["python"].random()
    self.drawn["numpy"].random()


def written(module: nn.Module, name: str = "bias") -> None:
    with torch.no_grad():
        getattr(module, name).add_(1.0)


def adds_to_its_memory(self, c, batch) -> None:
    self.memory["mean"].add_(1)
    self.memory["losses"][0] += 1


def draws_late(run) -> None:
    if run.step == 3:
        random.random()


def draws_in_its_network(self, task):
    found = Finetune.candidates(self, task)
    found[0].network.register_forward_hook(lambda *_: draws_late(self.phase_run))
    return found


def keeps_a_loser(self, task):
    candidates = self.candidates(task)
    best = yield Phase(candidates)
    assert best.candidate is candidates[0]
    self.adopt(candidates[1], task)


def adopts_the_outcome(self, task):
    best = yield Phase(self.candidates(task))
    self.adopt(best, task)


def writes_to_its_graph(self, c, batch):
    z = self.logits(c, batch).exp()
    loss = z.square().mean()
    z.add_(1)
    return loss


def misfit(self, task) -> None:
    self.network = nn.Sequential(nn.Flatten(), nn.Linear(36, 5), nn.Linear(6, 4))


def fails_between_phases(self, task):
    yield Phase(self.candidates(task))
    raise ValueError("between\nphases")


def uses_a_losers_network(self, task):
    candidates = self.candidates(task)
    network = candidates[1].network
    best = yield Phase(candidates)
    self.adopt(best.candidate, task)
    assert network(task.train.x[:1]).argmax() < 4


class Row(NamedTuple):
    cls: type[Finetune]
    says: str  # a pattern
    error: type[Refusal] = ProtocolError


ELSEWHERE: list[torch.Tensor] = []
BASE_LOSS = Finetune.loss
SEEN = torch.zeros(2)
NETWORK_OF_TWO = [{"lr": 0.1, "weight_decay": 0.0}, {"lr": 1e-9, "weight_decay": 0.0}]
CHANGED = r"Bad\.{}: .*changed in place or replaced.*\n.*batch.x \+ noise"
CLOSED = r"Bad\.{}: .*closed.*\n.*self\.memory"
HOLDS = r"^The data .* closed, but {} of Bad still holds .*\n.*clone\(\)"
MUST = r"Bad\.{} must .*; it gave {}.*\nat .*test_bad_learners"
SHARED = r"Bad proposed one and other .* share the tensor {}.*copy\.deepcopy"
OWN = r"Bad proposed its own self\.network, or a part of it, as the candidate default.*copy\.deepcopy"
FOR_TESTS = r"Bad\.predictors changed the learner itself.*\n.*copy\.deepcopy"
TRAINING = r"^Bad\.training: {} changed: .*\n.*buffer"
UNSEEDED = r"Bad\.{}: it drew from .*of {},"
LOST = r"Bad\.learn: the candidate lr=1e-09,\S+ lost its phase .*\n.*outcome\.candidate"
READ_ONLY = r"Bad\.{}: the hyper-parameters .*\n.*another"
RAISED = r"^Bad\.{} raised {}(.*\n)+at .*test_bad_learners\.py, line \d+: .*{}"
PROPOSED = "Bad proposed "
BUDGET = r"Bad's Phase: {} must be a {} of at least 1"
HPARAMS = "Bad's candidate .*"
NOTHING = r"The loss of Bad does not depend on .* lr=0.1"
LEFT = r"Bad keeps {} from .*__init__.*\n.*self\.memory.*\n.*on_task_end"
OLD = r"self\.old(\[0\])?.*"

ROWS: dict[str, Row] = {
    # ---- examples, and what candidates have together
    "adds noise": Row(bad(loss=lambda self, c, b: b.x.add_(0.1)), CHANGED.format("loss")),
    "relabels": Row(bad(loss=lambda self, c, b: b.y.zero_()), CHANGED.format("loss")),
    "renumbers": Row(bad(loss=lambda self, c, b: b.task.zero_()), CHANGED.format("loss")),
    "replaces": Row(bad(loss=lambda self, c, b: setattr(b, "x", b.x + 0.1)), CHANGED.format("loss")),
    "replaces twice, perhaps to the first address": Row(
        bad(loss=lambda self, c, b: [setattr(b, "y", b.y + 0) for _ in range(2)]), CHANGED.format("loss")),
    "scales": Row(bad(extend=lambda self, b: b.x.mul_(0.9)), CHANGED.format("extend")),
    "centres the task": Row(
        bad(on_task_start=lambda self, task: task.train.x.sub_(1)), CHANGED.format("on_task_start")),
    "centres past tasks": Row(
        bad(needs=Needs(past_data=True),
            on_task_start=lambda self, task: [t.train.x.sub_(1) for t in task.past]),
        CHANGED.format("on_task_start")),
    "centres validation": Row(
        bad(learn_=phases(score=lambda c, val: float(val.x.sub_(1).sum()))), CHANGED.format("score")),
    "cools what is shared": Row(
        bad(shared_=lambda self, b, candidates: {"old": [self.network(b.x, b.task)]},
            loss=lambda self, c, b: b.shared["old"][0].div_(2)),
        CHANGED.format("loss")),
    # ---- what is lent
    "reads a closed task": Row(
        bad(on_task_start=lambda self, task: vars(self).setdefault("first", task).train.x.sum()),
        CLOSED.format("on_task_start")),
    "predicts from a closed task": Row(
        bad(on_task_end=sets("first", lambda task: task),
            forward=lambda self, x, task: "first" in vars(self) and self.first.train.x.sum()),
        CLOSED.format("forward")),
    "keeps images": Row(leak(lambda task: {"x": task.train.x}), HOLDS.format(r"self\.old\['x'\]")),
    "keeps a view": Row(leak(lambda task: task.train.x.flatten(1)[3:5].T), HOLDS.format(OLD)),
    "keeps an array": Row(leak(lambda task: task.train.x.numpy()[:5]), HOLDS.format(OLD)),
    "keeps a closure": Row(leak(lambda task: closes(task.train.x)), HOLDS.format(OLD)),
    "keeps a default": Row(leak(lambda task: lambda x=task.train.x: x.sum()), HOLDS.format(OLD)),
    "keeps a partial": Row(leak(lambda task: partial(torch.add, task.train.x)), HOLDS.format(OLD)),
    "keeps a method": Row(leak(lambda task: task.train.x.sum), HOLDS.format(OLD)),
    "keeps an iterator": Row(leak(lambda task: iter(task.train.x)), HOLDS.format(OLD)),
    "keeps in slots": Row(leak(lambda task: Slots(task.train.x[:2])), HOLDS.format(OLD)),
    "keeps in its memory without a copy": Row(
        bad(on_task_end=lambda self, task: self.memory.update(x=task.val.x[:4])),
        HOLDS.format(r"self\.memory\['x'\]")),
    "keeps elsewhere": Row(
        bad(on_task_end=lambda self, task: ELSEWHERE.append(task.train.x)),
        r"something outside of the learner, or .*, still holds"),
    "finds test data": Row(
        bad(loss=lambda self, c, b: self.trainer.datamodule.stream.test(2)),
        r"Bad\.loss: the test data of task 2"),
    "finds the future": Row(
        bad(loss=lambda self, c, b: self.trainer.datamodule.stream.task(2)),
        r"Bad\.loss: the training data of task 2"),
    "finds test data before its generator begins": Row(
        bad(learn=lambda self, task: toys.stream().test(0)), r"Bad\.learn: the test data of task 0"),
    "uses the task undeclared": Row(
        bad(Independent, Needs()),
        r"Bad\.forward raised (.*\n)*.*Needs\(task_id_at_test=True\)", LearnerError),
    # ---- candidates
    "proposes itself": Row(bad(candidates_=lambda self, task: [Candidate(self.network)]), OWN, Refusal),
    "lends its buffer": Row(bad(init=buffered, candidates_=lends_its_buffer), OWN, Refusal),
    "proposes a trunk twice": Row(
        two_with(lambda one, other: setattr(other, "trunk", one.trunk)), SHARED.format("trunk"), Refusal),
    "shares a weight": Row(
        two_with(lambda one, other: setattr(other.head, "bias", one.head.bias)),
        SHARED.format("head.bias"), Refusal),
    "shares a buffer": Row(
        two_with(lambda *both: [network.register_buffer("seen", SEEN) for network in both]),
        SHARED.format("seen"), Refusal),
    "lowers its rate": Row(
        bad(after_step=lambda self, c, b: c.hparams.update(lr=0.1)), READ_ONLY.format("after_step")),
    "drops its decay": Row(
        bad(adopt=lambda self, c, task: c.hparams.pop("weight_decay")), READ_ONLY.format("learn")),
    "adopts a loser": Row(bad(learn_=keeps_a_loser), LOST),
    "counts a loser": Row(
        bad(learn_=keeps_a_loser, adopt=lambda self, c, task: len(c.parameters)), LOST),
    "uses a loser's network": Row(
        bad(learn_=uses_a_losers_network), r"Bad\.learn raised .*meta", LearnerError),
    "fails between phases": Row(
        bad(learn_=fails_between_phases),
        r"^Bad\.learn raised ValueError: between\nphases\nat .*test_bad_learners", LearnerError),
    # ---- phases that cannot be trained or compared
    "trains on nothing": Row(
        bad(learn_=phases(of=lambda self, task: {"train": no_examples(task)})),
        PROPOSED + "a phase of task 0 whose `train` is empty", Refusal),
    "is compared on nothing": Row(
        bad(learn_=phases(of=lambda self, task: {"val": no_examples(task)})),
        PROPOSED + "a phase of task 0 whose `val` is empty", Refusal),
    "trains on a tensor": Row(
        bad(learn_=phases(of=lambda self, task: {"train": task.train.x})),
        r"whose `train` is a Tensor\. Make it a Split", Refusal),
    "trains on uneven parts": Row(
        bad(learn_=phases(of=lambda self, t: {"train": Split(t.train.x[:3], t.train.y, t.train.task)})),
        r"Bad\.learn raised ValueError: a Split has as many y and task as x, not 3, 60 and 60", LearnerError),
    "trains no epoch": Row(bad(learn_=phases(epochs=0)), BUDGET.format("epochs=0", "whole number"), Refusal),
    "trains one epoch and a half": Row(
        bad(learn_=phases(epochs=1.5)), BUDGET.format(r"epochs=1\.5", "whole number"), Refusal),
    "has no patience": Row(
        bad(learn_=phases(patience=-5)), BUDGET.format("patience=-5", "number"), Refusal),
    "proposes nothing": Row(
        bad(learn_=phases(candidates=None)), PROPOSED + "something else than a list of candidates", Refusal),
    "proposes networks": Row(
        bad(learn_=phases(candidates=[nn.Linear(1, 1)])),
        PROPOSED + "something else than a list of candidates", Refusal),
    "proposes none": Row(
        bad(learn_=phases(candidates=[])), PROPOSED + r"the candidates \[\] for task 0", Refusal),
    "names none": Row(named(), "a name of its own", Refusal),
    "names two alike": Row(named("a", "a"), "a name of its own", Refusal),
    "scores what cannot be compared": Row(
        bad(learn_=phases(name="odd", score=lambda c, val: float("nan"))),
        r"score of lr=0\.1,\S+ in phase 'odd' of task 0 is nan.*finite", Refusal),
    "scores infinitely": Row(
        bad(learn_=phases(name="odd", score=lambda c, val: float("inf"))), "task 0 is inf.*finite", Refusal),
    "compares dreams": Row(
        bad(learn_=phases(name="dreams", auxiliary=True)),
        "auxiliary phase 'dreams' of task 0 has no validation data", Refusal),
    "waits for better dreams": Row(
        bad(learn_=phases(name="dreams", auxiliary=True, patience=5, of=lambda self, task: {
            "candidates": self.candidates(task)[:1]})),
        "auxiliary phase 'dreams' of task 0 has no validation data", Refusal),
    "chooses devices": Row(
        bad(learn_=phases(settings={"devices": 2})),
        "settings has 'devices', which is not for one phase alone", Refusal),
    "lists settings": Row(
        bad(learn_=phases(settings=["batch_size"])),
        r"Phase: settings=\['batch_size'\] must be a mapping", Refusal),
    "says no in words": Row(
        bad(learn_=phases(auxiliary="no")), "Phase: auxiliary='no' must be true or false", Refusal),
    "numbers a phase": Row(bad(learn_=phases(name=3)), "Phase: name=3 must be a text", Refusal),
    "takes batches of none": Row(
        bad(learn_=phases(settings={"batch_size": 0})),
        r"settings\.batch_size=0 must be a whole number of at least 1", Refusal),
    "has half a beta": Row(
        bad(learn_=phases(settings={"betas": [0.9]})), r"settings\.betas=.* must be", Refusal),
    "gives Adam momentum": Row(
        bad(learn_=phases(settings={"optimizer": "adam", "momentum": 0.5})),
        r"momentum is for trainer\.optimizer=sgd", Refusal),
    "gives plain steps betas": Row(
        bad(learn_=phases(settings={"optimizer": "sgd", "betas": [0.5, 0.9]})),
        r"betas is for trainer\.optimizer=adam", Refusal),
    "climbs": Row(with_hparams(lr=-0.5), HPARAMS + r"lr=-0\.5: lr=-0\.5 must be a number above 0", Refusal),
    "has a text for a rate": Row(with_hparams(lr="0.5"), HPARAMS + "must be a number above 0", Refusal),
    "has no number for a rate": Row(
        with_hparams(lr=float("nan")), HPARAMS + "must be a finite number", Refusal),
    "has momentum with Adam": Row(
        with_hparams(momentum=0.9), HPARAMS + r"has momentum, which is for trainer\.optimizer=sgd", Refusal),
    "misspells the rate": Row(
        with_hparams(learning_rate=0.5), HPARAMS + r"has 'learning_rate', .*Did you mean 'lr'\?", Refusal),
    "misspells the decay": Row(
        with_hparams(**{"weight-decay": 0.5}), HPARAMS + r"Did you mean 'weight_decay'\?", Refusal),
    "trains for tests on what is closed": Row(
        bad(predictors_=trains_for_tests), r"Bad\.predictors proposed a phase without `train`", Refusal),
    # ---- what it raises, while operations are counted, before a hook begins, in the backward pass
    "has layers that do not fit": Row(
        bad(on_task_start=misfit, forward_=lambda self, x, task: x.flatten(1)[:, :4],
            logits_=lambda self, c, b: c.network(b.x)),
        RAISED.format("logits", "RuntimeError: mat1 and mat2", r"logits_=.*c\.network"), LearnerError),
    "adopts the outcome": Row(
        bad(learn_=adopts_the_outcome),
        RAISED.format("learn", "AttributeError: 'Outcome'", r"self\.adopt\(best, task\)"), LearnerError),
    "has an old signature": Row(
        bad(loss=lambda self, c, b: b.shared,
            shared_=lambda self, batch: None),
        RAISED.format("shared", "TypeError", "shared_=lambda self, batch"), LearnerError),
    "writes to its graph": Row(
        bad(loss_=writes_to_its_graph),
        RAISED.format("loss", "RuntimeError: one of the variables", "def writes_to_its"), LearnerError),
    "fails without a phase": Row(
        bad(learn_=lambda self, task: {}["no phase"]),
        RAISED.format("learn", "KeyError", "no phase"), LearnerError),
    "fails in predictors": Row(
        bad(predictors_=lambda self, seen: [][seen]),
        RAISED.format("predictors", "IndexError", r"\[\]\[seen\]"), LearnerError),
    # ---- predictors
    "trains for tests": Row(
        bad(predictors=lambda self, seen: written(self.network.head)), FOR_TESTS),
    "writes its buffer for tests": Row(
        bad(init=buffered, predictors=lambda self, seen: self.mean.add_(1)), FOR_TESTS),
    "writes its memory for tests": Row(
        bad(init=buffered, predictors=lambda self, seen: self.memory["rows"].add_(1)), FOR_TESTS),
    # ---- what hooks give
    "gives no loss": Row(bad(loss_=lambda *_: None), MUST.format("loss", "None"), LearnerError),
    "gives a number": Row(
        bad(loss_=lambda *given: BASE_LOSS(*given).item()), MUST.format("loss", "a float, "), LearnerError),
    "gives a loss an example": Row(
        bad(loss_=lambda self, c, b: F.cross_entropy(self.logits(c, b), b.y, reduction="none")),
        MUST.format("loss", r"a tensor of shape \(10,\)"), LearnerError),
    "gives no batch": Row(bad(extend_=lambda *_: None), MUST.format("extend", "None"), LearnerError),
    "gives a batch without its key, so that each step would draw the same": Row(
        bad(extend_=lambda self, b: Batch(b.x, b.y, b.task)), MUST.format("extend", "a Batch"), LearnerError),
    "gives few logits": Row(
        bad(logits_=lambda *given: Finetune.logits(*given)[:, :2],
            loss_=lambda self, c, b: F.cross_entropy(Finetune.logits(self, c, b), b.y)),
        MUST.format("logits", r"a tensor of shape \(40, 2\)"), LearnerError),
    "scores nothing": Row(
        bad(learn_=phases(score=lambda c, val: None)), MUST.format("score", "None"), LearnerError),
    "scores each image": Row(
        bad(learn_=phases(score=lambda c, val: torch.ones(len(val)))),
        MUST.format("score", r"a tensor of shape \(40,\)"), LearnerError),
    "yields nothing": Row(
        bad(learn_=lambda self, task: self.adopt(self.candidates(task)[0], task)),
        MUST.format("learn", "None"), LearnerError),
    "yields candidates": Row(
        bad(learn_=lambda self, task: (self.candidates(task) for _ in range(1))),
        MUST.format("learn", "a list"), LearnerError),
    "has no predictors": Row(
        bad(predictors_=generator(lambda *_: {})), MUST.format("predictors", "a dict, {}"), LearnerError),
    "predicts by itself": Row(
        bad(predictors_=generator(lambda self, seen: self)),
        MUST.format("predictors", "a Bad"), LearnerError),
    # ---- what candidates learn from
    "takes the loss of another network": Row(
        bad(loss_=lambda self, c, b: F.cross_entropy(self.network(b.x, b.task), b.y)), NOTHING, LearnerError),
    "takes no gradient": Row(bad(loss_=torch.no_grad()(BASE_LOSS)), NOTHING, LearnerError),
    # ---- what it draws, and writes while it trains
    "draws by numpy": Row(
        bad(extend=lambda self, b: np.random.rand()), UNSEEDED.format("extend", "numpy.random")),  # noqa: NPY002
    "draws by Python": Row(bad(loss=lambda self, c, b: random.random()), UNSEEDED.format("loss", "random")),
    "draws later": Row(
        bad(extend=lambda self, b: b.epoch > 0 and np.random.rand()),  # noqa: NPY002
        TRAINING.format("the global generator of numpy.random")),
    "draws in its network": Row(
        bad(candidates_=draws_in_its_network), TRAINING.format("the global generator of random")),
    "draws from its own": Row(
        bad(init=generators, after_step=draws),
        TRAINING.format(r"self\.drawn\['numpy'\], self\.drawn\['python'\], self\.drawn\['torch'\]")),
    "writes its memory": Row(
        bad(on_task_start=lambda self, task: self.memory.update(losses=[0.0], mean=torch.zeros(2)),
            after_step=adds_to_its_memory),
        TRAINING.format(r"self\.memory\['losses'\]\[0\], self\.memory\['mean'\]")),
    "replaces what it remembers, perhaps to the address before the last": Row(
        bad(on_task_start=lambda self, task: self.memory.update(mean=torch.zeros(2)),
            after_step=lambda self, c, b: self.memory.update(mean=self.memory["mean"] + 1)),
        TRAINING.format(r"self\.memory\['mean'\]")),
    "writes its buffer": Row(
        bad(init=buffered, loss=lambda self, c, b: self.mean.add_(1)), TRAINING.format(r"self\.mean")),
    "trains what it learned": Row(
        bad(after_step=lambda self, c, b: written(self.network.head)),
        TRAINING.format(r"self\.network\.head\.bias")),
    "counts its steps": Row(
        bad(init=constants, after_step=lambda self, c, b: setattr(self, "seen", self.seen + 1)),
        TRAINING.format(r"self\.seen")),
}  # fmt: skip


def make(cls: type[Finetune], grid: bool = True) -> Finetune:
    s = toys.stream()
    return cls(build=builder(s), head=s.head, **({"grid": NETWORK_OF_TWO} if grid else {}))


@pytest.mark.parametrize("row", ROWS)
def test_a_bad_learner_is_told_what_it_did_and_what_to_do(row: str) -> None:
    cls, says, error = ROWS[row]
    state = random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002
    with pytest.raises(error, match=says) as told:
        learn(make(cls, grid="default" not in says), toys.stream(), training(patience=10))
    assert len(str(told.value).splitlines()) <= 5
    if "training" in says:  # what it drew is taken back
        assert (random.getstate(), np.random.get_state()[1].tolist()) == state  # noqa: NPY002
    ELSEWHERE.clear()


# ---- what a restart would not find -------------------------------------------------------------------------

KEPT: dict[str, tuple[type[Finetune], str]] = {
    **{
        how: (has_a_network_that_remembers(how), f"self.network.{how}")
        for how in ("seen", "mean", "unstored")
    },
    "counts": (
        bad(init=constants, on_task_end=lambda self, task: setattr(self, "seen", self.seen + 1)),
        "self.seen"),
    "keeps in its class": (
        type("Bad", (bad(on_task_end=lambda self, task: self.kept.append(task.name)),), {"kept": []}),
        "self.kept[0]"),
    "keeps the open task": (bad(on_task_start=sets("task", lambda task: task)), "self.task"),
    "changes a constant": (
        bad(init=constants, on_task_end=lambda self, task: self.weights_of_classes.add_(1)),
        "self.weights_of_classes"),
    "changes an array": (
        bad(init=constants, on_task_end=lambda self, task: self.array.fill(2.0)), "self.array"),
    "draws from its own": (
        bad(init=generators, on_task_end=draws),
        "self.drawn['numpy'], self.drawn['python'], self.drawn['torch']"),
    "has a teacher": (
        bad(on_task_end=lambda self, task: setattr(self, "teacher", copy.deepcopy(self.network.head))),
        "self.teacher"),
    "buffers late": (bad(on_task_end=lambda self, task: buffered(self)), "self.mean"),
    "grows a list": (
        bad(init=lambda self: setattr(self, "heads", nn.ModuleList()),
            on_task_end=lambda self, task: self.heads.append(nn.Linear(2, 2))),
        "self.heads.0"),
    "makes a growing list late": (
        bad(on_task_end=sets("heads", lambda _: GrowingList(lambda: nn.Linear(2, 2)))), "self.heads"),
    "adds to a list what is not made again": (
        bad(init=lambda self: setattr(self, "heads", GrowingList(lambda: nn.Dropout(0.5))),
            on_task_end=lambda self, task: self.heads.add(nn.Dropout(0.5 - 0.1 * task.index))),
        "self.heads.1.p"),
    "widens its head": (
        bad(on_task_end=lambda self, task: setattr(self.network, "head", nn.Linear(16, 9))),
        "self.network.head.bias, self.network.head.out_features, self.network.head.weight"),
    "changes an activation": (
        bad(on_task_end=lambda self, task: self.network.trunk.__setitem__(2, nn.Tanh())),
        "self.network.trunk.relu1"),
}  # fmt: skip


@pytest.mark.parametrize("row", KEPT)
def test_what_a_restart_would_not_find_is_named_at_the_boundary(row: str) -> None:
    cls, names = KEPT[row]
    with pytest.raises(ProtocolError, match=LEFT.format(re.escape(names))):
        learn(make(cls, grid=False), toys.stream(), fresh=lambda: make(cls, grid=False))


# ---- in a run ----------------------------------------------------------------------------------------------

CHECKPOINT = r"Bad keeps {} .*no checkpoint.*\n.*self\.memory"
ADOPTED = r"Bad trained in its first task, and predicts with the weights that it had before"
IN_A_RUN: dict[str, Row] = {
    "keeps a copy in an attribute": Row(
        bad(on_task_end=sets("old", lambda task: task.train.x[:20].clone()),
            extend_=lambda self, b: b.cat(self.old[:1], b.y[:1], b.task[:1]) if "old" in vars(self) else b),
        CHECKPOINT.format(r"self\.old")),
    "keeps copies in a list": Row(
        leak(lambda task: [{"x": task.train.x.numpy()[:3].copy()}]),
        CHECKPOINT.format(r"self\.old\[0\]\['x'\]")),
    "does not adopt": Row(
        bad(learn_=lambda self, task: (Phase(self.candidates(task)) for _ in range(1))),
        ADOPTED, LearnerError),
    "adopts into nothing": Row(
        bad(ER, adopt_=lambda self, c, task: self.network.state_dict().update(c.network.state_dict())),
        ADOPTED, LearnerError),
}  # fmt: skip


@pytest.mark.parametrize("row", IN_A_RUN)
def test_a_bad_learner_is_told_so_in_a_run(row: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cls, says, error = IN_A_RUN[row]
    monkeypatch.setattr(sys.modules[__name__], "InARun", cls, raising=False)
    with pytest.raises(error, match=says):
        run(tmp_path, f"learner._target_={__name__}.InARun", "selection=none")


# ---- what is a learner's own business ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("optimizer", "hparams"),
    [("adam", {"strength": -3, "momentum": 0.0, "lr": 1e-3}), ("sgd", {"momentum": 0.9})],
)
def test_hyperparameters_of_a_learners_own_may_be_anything(optimizer: str, hparams: dict) -> None:
    learned = learn(make(with_hparams(**hparams)), toys.stream(tasks=1), training(optimizer=optimizer))
    chosen = learned.phase().chosen
    assert chosen.hparams == hparams
    assert chosen.steps > 0
