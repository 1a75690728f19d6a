"""Mistakes that an honest author of a learner makes: each is told in a sentence, or cannot be made."""

from __future__ import annotations

import copy
import random
import re
from functools import partial, partialmethod
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn as nn

from cl_lightning.callbacks import StreamCallback
from cl_lightning.data.task import Split
from cl_lightning.errors import Refusal
from cl_lightning.learners import ER, EWC, GEM, Candidate, Finetune, Independent, Needs, NewHead, Phase
from cl_lightning.learners.parts.growing_list import GrowingList
from cl_lightning.protocol import LearnerError, ProtocolError
from cl_lightning.runs.run import run as run_config
from tests import toys
from tests.commands import SMALL, configure, run
from tests.toys import builder, learn, training


def make(cls: type[Finetune], **options: object) -> Finetune:
    s = toys.stream()
    return cls(build=builder(s), head=s.head, **options)


# ---- examples are nobody's to write to ---------------------------------------------------------------------


class AddsNoise(Finetune):
    def loss(self, c, batch):
        batch.x.add_(0.1)
        return super().loss(c, batch)


class AddsNoiseInExtend(Finetune):
    def extend(self, batch):
        batch.x.mul_(0.9)
        return batch


class Relabels(Finetune):
    def loss(self, c, batch):
        batch.y.zero_()
        return super().loss(c, batch)


class Renumbers(Finetune):
    def loss(self, c, batch):
        batch.task.zero_()
        return super().loss(c, batch)


class Replaces(Finetune):
    def loss(self, c, batch):
        batch.x = batch.x + 0.1
        return super().loss(c, batch)


class CentresTheTask(Finetune):
    def on_task_start(self, task):
        task.train.x.sub_(task.train.x.mean())


class CentresThePast(Finetune):
    needs = Needs(past_data=True)

    def on_task_start(self, task):
        for earlier in task.past:
            earlier.train.x.sub_(earlier.train.x.mean())


class CentresValidation(Finetune):
    def learn(self, task):
        def score(c, val):
            val.x.sub_(val.x.mean())
            return 0.5

        best = yield Phase(self.candidates(task), score=score, patience=10)
        self.adopt(best.candidate, task)


@pytest.mark.parametrize(
    ("cls", "hook"),
    [
        (AddsNoise, "loss"),
        (AddsNoiseInExtend, "extend"),
        (Relabels, "loss"),
        (Renumbers, "loss"),
        (Replaces, "loss"),
        (CentresTheTask, "on_task_start"),
        (CentresThePast, "on_task_start"),
        (CentresValidation, "score"),
    ],
)
def test_examples_written_in_place_are_refused_by_name(cls: type[Finetune], hook: str) -> None:
    with pytest.raises(
        ProtocolError, match=rf"{cls.__name__}\.{hook}: .*changed in place.*\n.*batch.x \+ noise"
    ):
        learn(make(cls), toys.stream(tasks=2))


class WritesToTestImages(Finetune):
    def forward(self, x, task):
        return super().forward(x.neg_(), task)


class WritesToTestImagesOfATask(WritesToTestImages):
    needs = Needs(task_id_at_test=True)


class WritesPastTorch(Finetune):
    def forward(self, x, task):
        return super().forward(x.data.neg_(), task)


class WritesByNumpy(Finetune):
    def forward(self, x, task):
        np.negative(x.numpy(), out=x.numpy())
        return super().forward(x, task)


class Inverts(Finetune):
    def forward(self, x, task):
        return super().forward(-x, task)


@pytest.mark.parametrize(
    "cls", [WritesToTestImages, WritesToTestImagesOfATask, WritesPastTorch, WritesByNumpy]
)
def test_test_images_written_in_place_are_a_copy(cls: type[Finetune]) -> None:
    """Inverted again in each row, they would be others from row to row."""
    assert learn(make(cls), toys.stream()).matrix == learn(make(Inverts), toys.stream()).matrix


class LearnsInForward(Finetune):
    def forward(self, x, task):
        with torch.no_grad():
            self.network.head.bias.add_(1.0 + torch.arange(4))
        return super().forward(x, task)


class LearnsInPredicts(Finetune):
    def predicts(self, task):
        with torch.no_grad():
            self.network.head.bias[task].add_(5.0)
        return True


@pytest.mark.parametrize("cls", [LearnsInForward, LearnsInPredicts])
def test_what_testing_does_to_a_learner_is_thrown_away(cls: type[Finetune]) -> None:
    assert torch.equal(learn(make(cls), toys.stream()).weights, learn(make(Finetune), toys.stream()).weights)


# ---- candidates --------------------------------------------------------------------------------------------


class ProposesItself(Finetune):
    def candidates(self, task):
        return [Candidate(self.network)]


class ProposesOneTwice(Finetune):
    def candidates(self, task):
        network = copy.deepcopy(self.network)
        return [Candidate(network, {"lr": 0.1}), Candidate(network, {"lr": 0.2})]


class SharesALayer(Finetune):
    def candidates(self, task):
        one, other = copy.deepcopy(self.network), copy.deepcopy(self.network)
        other.head.bias = one.head.bias
        return [Candidate(one, name="one"), Candidate(other, name="other")]


class SharesABuffer(Finetune):
    def candidates(self, task):
        one, other = copy.deepcopy(self.network), copy.deepcopy(self.network)
        for network in (one, other):
            network.register_buffer("seen", getattr(one, "seen", torch.zeros(2)))
        return [Candidate(one, name="one"), Candidate(other, name="other")]


class HasABuffer(Finetune):
    def __init__(self, **base: object) -> None:
        super().__init__(**base)
        self.register_buffer("mean", torch.zeros(2))
        self.memory["rows"] = torch.zeros(3)


class LendsItsBuffer(HasABuffer):
    def candidates(self, task):
        network = copy.deepcopy(self.network)
        network.register_buffer("mean", self.mean)
        return [Candidate(network)]


@pytest.mark.parametrize(
    ("cls", "words"),
    [
        (SharesABuffer, r"one and other .* share the tensor seen"),
        (LendsItsBuffer, r"its own self\.network, or a part of it, as the candidate default"),
        (ProposesItself, r"its own self\.network, or a part of it, as the candidate default"),
        (ProposesOneTwice, r"lr=0.1 and lr=0.2 .* share the tensor trunk"),
        (SharesALayer, r"one and other .* share the tensor head.bias"),
    ],
)
def test_candidates_that_share_a_tensor_are_refused_before_training(cls: type[Finetune], words: str) -> None:
    with pytest.raises(Refusal, match=rf"{cls.__name__} proposed {words}.*copy.deepcopy"):
        learn(make(cls), toys.stream(tasks=1))


class LowersItsRate(Finetune):
    def after_step(self, c, batch):
        c.hparams["lr"] *= 0.1


class DropsItsDecay(Finetune):
    def adopt(self, c, task):
        c.hparams.pop("weight_decay")


GRID = [{"lr": 0.1, "weight_decay": 0.0}, {"lr": 1e-9, "weight_decay": 0.0}]


@pytest.mark.parametrize(("cls", "hook"), [(LowersItsRate, "after_step"), (DropsItsDecay, "learn")])
def test_hyper_parameters_are_read_only(cls: type[Finetune], hook: str) -> None:
    with pytest.raises(ProtocolError, match=rf"{cls.__name__}\.{hook}: the hyper-parameters .*\n.*another"):
        learn(make(cls, grid=GRID), toys.stream(tasks=2))


class NotesItsPoint(Finetune):
    def adopt(self, c, task):
        super().adopt(c, task)
        self.memory["point"] = c.hparams


def test_hyper_parameters_are_a_copy_that_can_be_stored_and_copied(tmp_path: Path) -> None:
    point = {"lr": 0.1, "of_ones_own": [1]}
    c = Candidate(nn.Linear(1, 1), point)
    for copied in (c, copy.deepcopy(c)):
        copied.hparams["of_ones_own"].append(2)
        with pytest.raises(ProtocolError):
            copied.hparams["lr"] = 1.0
        assert copied.hparams == {"lr": 0.1, "of_ones_own": [1, 2]} != point
    run(tmp_path, "learner._target_=tests.test_honest_mistakes.NotesItsPoint", "stream.tasks=2")
    stored = torch.load(next(tmp_path.rglob("tasks/001.pt")), weights_only=True)
    assert set(stored["learner"]["_extra_state"]["memory"]["point"]) == {"lr", "weight_decay"}


class UsesALoser(Finetune):
    def learn(self, task):
        candidates = self.candidates(task)
        best = yield Phase(candidates)
        assert best.candidate is candidates[0]
        self.adopt(candidates[1], task)


class CountsALoser(UsesALoser):
    def adopt(self, c, task):
        print(c, len(c.parameters))


class HoldsALosersNetwork(UsesALoser):
    def learn(self, task):
        candidates = self.candidates(task)
        network = candidates[1].network
        best = yield Phase(candidates)
        super().adopt(best.candidate, task)
        assert network(task.train.x[:1]).argmax() < 4


@pytest.mark.parametrize("cls", [UsesALoser, CountsALoser])
def test_a_loser_has_no_network_after_its_phase(cls: type[Finetune]) -> None:
    words = rf"{cls.__name__}\.learn: the candidate lr=1e-09,\S+ lost its phase .*\n.*outcome\.candidate"
    with pytest.raises(ProtocolError, match=words):
        learn(make(cls, grid=GRID), toys.stream(tasks=1))


def test_a_losers_network_computes_nothing_for_who_still_holds_it() -> None:
    with pytest.raises(LearnerError, match=r"HoldsALosersNetwork\.learn raised .*meta"):
        learn(make(HoldsALosersNetwork, grid=GRID), toys.stream(tasks=1))


class TrainsOnNothing(Finetune):
    def learn(self, task):
        nothing = Split(*task.train.gather(torch.empty(0, dtype=torch.int64)))
        best = yield Phase(self.candidates(task), train=nothing)
        self.adopt(best.candidate, task)


def test_an_empty_split_is_refused_instead_of_training_on_the_whole_task() -> None:
    with pytest.raises(Refusal, match=r"TrainsOnNothing proposed a phase of task 0 whose `train` is empty"):
        learn(make(TrainsOnNothing), toys.stream(tasks=1))


class TrainsOnSome(Finetune):
    def learn(self, task):
        best = yield Phase(self.candidates(task), train=Split(*task.train.gather(torch.arange(20))))
        self.adopt(best.candidate, task)


def test_a_phase_may_train_on_some_of_the_tasks_examples() -> None:
    learned = learn(make(TrainsOnSome), toys.stream(tasks=2), training(max_epochs=2))
    assert learned.costs()["examples"] == 40


class TrainsItselfForTests(Finetune):
    def predictors(self, seen):
        with torch.no_grad():
            self.network.head.bias.zero_()
        return {"": self}
        yield


class WritesItsBufferForTests(HasABuffer):
    def predictors(self, seen):
        self.mean.add_(1)
        return {"": self}
        yield


class WritesItsMemoryForTests(HasABuffer):
    def predictors(self, seen):
        self.memory["rows"].add_(1)
        return {"": self}
        yield


@pytest.mark.parametrize("cls", [TrainsItselfForTests, WritesItsBufferForTests, WritesItsMemoryForTests])
def test_predictors_that_change_the_learner_are_refused(cls: type[Finetune]) -> None:
    with pytest.raises(
        ProtocolError,
        match=rf"{cls.__name__}\.predictors changed the learner itself.*\n.*copy\.deepcopy",
    ):
        learn(make(cls), toys.stream(tasks=1))


# ---- what a learner keeps ----------------------------------------------------------------------------------


class KeepsAnAttribute(Finetune):
    def on_task_end(self, task):
        self.old = task.train.x[:20].clone()

    def extend(self, batch):
        return batch.cat(self.old[:1], batch.y[:1], batch.task[:1]) if hasattr(self, "old") else batch


class KeepsInAList(Finetune):
    def on_task_end(self, task):
        self.kept = [*getattr(self, "kept", []), {"x": task.train.x.numpy()[:3].copy()}]


@pytest.mark.parametrize(
    ("cls", "name"), [(KeepsAnAttribute, r"self\.old"), (KeepsInAList, r"self\.kept\[0\]\['x'\]")]
)
def test_a_tensor_that_no_checkpoint_holds_is_named_at_the_boundary(
    cls: type[Finetune], name: str, tmp_path
) -> None:
    with pytest.raises(
        ProtocolError, match=rf"{cls.__name__} keeps {name} .*no checkpoint.*\n.*self\.memory"
    ):
        run(tmp_path, f"learner._target_=tests.test_honest_mistakes.{cls.__name__}", "selection=none")


class Counts(Finetune):
    def __init__(self, **base: object) -> None:
        super().__init__(**base)
        self.seen = 0

    def on_task_end(self, task):
        self.seen += 1


class KeepsInItsClass(Finetune):
    kept: list = []

    def on_task_end(self, task):
        self.kept.append(task.name)


class KeepsTheOpenTask(Finetune):
    def on_task_start(self, task):
        self.task = task


class ChangesAConstant(Finetune):
    def __init__(self, **base: object) -> None:
        super().__init__(**base)
        self.weights_of_classes, self.array = torch.ones(4), np.ones(4)

    def on_task_end(self, task):
        self.weights_of_classes[0] = 2.0


class ChangesAnArray(ChangesAConstant):
    def on_task_end(self, task):
        self.array[0] = 2.0


class DrawsFromItsOwn(Finetune):
    def __init__(self, **base: object) -> None:
        super().__init__(**base)
        self.generators = {
            "torch": torch.Generator(),
            "python": random.Random(0),
            "numpy": np.random.default_rng(0),
        }

    def on_task_end(self, task):
        torch.rand(1, generator=self.generators["torch"])
        self.generators["python"].random()
        self.generators["numpy"].random()


class HasATeacher(Finetune):
    def on_task_end(self, task):
        self.teacher = copy.deepcopy(self.network.head)


class BuffersLate(Finetune):
    def on_task_end(self, task):
        self.register_buffer("mean", torch.zeros(1))


class GrowsAList(Finetune):
    def __init__(self, **base: object) -> None:
        super().__init__(**base)
        self.heads = nn.ModuleList()

    def on_task_end(self, task):
        self.heads.append(nn.Linear(2, 2))


class MakesABuiltLate(Finetune):
    def on_task_end(self, task):
        self.heads = GrowingList(lambda: nn.Linear(2, 2))


class WidensItsHead(Finetune):
    def on_task_end(self, task):
        self.network.head = nn.Linear(16, 9)


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


class Remembering(Finetune):
    def __init__(self, *, build, how: str, **base: object) -> None:
        super().__init__(build=lambda **options: Remembers(build(**options), how), **base)


def of_network(how: str) -> type[Finetune]:
    return type("OfNetwork", (Remembering,), {"__init__": partialmethod(Remembering.__init__, how=how)})


class ChangesAnActivation(Finetune):
    def on_task_end(self, task):
        self.network.trunk[2] = nn.Tanh()


class GrowsDifferently(Finetune):
    """What is added is not what is made again."""

    def __init__(self, **base: object) -> None:
        super().__init__(**base)
        self.heads = GrowingList(lambda: nn.Dropout(0.5))

    def on_task_end(self, task):
        self.heads.add(nn.Dropout(0.5 - 0.1 * task.index))


@pytest.mark.parametrize(
    ("cls", "names"),
    [
        *((of_network(how), f"self.network.{how}") for how in ("seen", "mean", "unstored")),
        (ChangesAnActivation, "self.network.trunk.relu1"),
        (GrowsDifferently, "self.heads.1.p"),
        (Counts, "self.seen"),
        (KeepsInItsClass, "self.kept[0]"),
        (KeepsTheOpenTask, "self.task"),
        (ChangesAConstant, "self.weights_of_classes"),
        (ChangesAnArray, "self.array"),
        (
            DrawsFromItsOwn,
            "self.generators['numpy'], self.generators['python'], self.generators['torch']",
        ),
        (HasATeacher, "self.teacher"),
        (BuffersLate, "self.mean"),
        (GrowsAList, "self.heads.0"),
        (MakesABuiltLate, "self.heads"),
        (WidensItsHead, "self.network.head.bias, self.network.head.out_features, self.network.head.weight"),
    ],
)
def test_what_a_restart_would_not_find_is_named_at_the_boundary(cls: type[Finetune], names: str) -> None:
    told = rf"{cls.__name__} keeps {re.escape(names)} from .*__init__.*\n.*self\.memory.*\n.*on_task_end"
    with pytest.raises(ProtocolError, match=told):
        learn(make(cls), toys.stream(), fresh=lambda: make(cls))


class CountsInItsState(nn.Module):
    count = 0

    def get_extra_state(self):
        return self.count

    def set_extra_state(self, state):
        self.count = state


class HasAConstant(Finetune):
    def __init__(self, **base: object) -> None:
        super().__init__(**base)
        self.weights_of_classes, self.empty, self.best = torch.ones(10), torch.empty(0), float("nan")
        self.teacher, self.heads = copy.deepcopy(self.network), GrowingList(lambda: nn.Linear(2, 2))
        self.aliases, self.count = [self.heads, self], CountsInItsState()


class Keeps(HasAConstant):
    """All that may change over the tasks."""

    def on_task_start(self, task):
        self.current = task

    def on_task_end(self, task):
        self.current, self.empty = None, torch.empty(0)
        self.teacher = copy.deepcopy(self.network)
        self.heads.add(nn.Linear(2, 2))
        self.count.count += 1
        self.memory[task.index] = [self.network.head.bias.detach().clone(), task.name]
        self.notes = {"name": task.name}


@pytest.mark.parametrize("cls", [HasAConstant, Keeps])
def test_what_init_makes_and_what_a_checkpoint_stores_may_be_kept(cls: type[Finetune]) -> None:
    learn(make(cls), toys.stream(), fresh=lambda: make(cls))


class KeepsAView(Finetune):
    def on_task_end(self, task):
        self.old = task.train.x.numpy()[:5]


class KeepsAClosure(Finetune):
    def on_task_end(self, task):
        x = task.train.x
        self.old = lambda: x.sum()


class KeepsADefault(Finetune):
    def on_task_end(self, task):
        self.old = lambda x=task.train.x: x.sum()


class KeepsAPartial(Finetune):
    def on_task_end(self, task):
        self.old = partial(torch.add, task.train.x)


class KeepsAMethod(Finetune):
    def on_task_end(self, task):
        self.old = task.train.x.sum


class KeepsAnIterator(Finetune):
    def on_task_end(self, task):
        self.old = iter(task.train.x)


class Slots:
    __slots__ = ("x",)


class KeepsInSlots(Finetune):
    def on_task_end(self, task):
        self.old = Slots()
        self.old.x = task.train.x[:2]


@pytest.mark.parametrize(
    "cls",
    [KeepsAView, KeepsAClosure, KeepsADefault, KeepsAPartial, KeepsAMethod, KeepsAnIterator, KeepsInSlots],
)
def test_a_leak_is_named_wherever_it_is(cls: type[Finetune]) -> None:
    leak = rf"^The data .* closed, but self\.old.* of {cls.__name__} still holds a tensor.*\n.*clone"
    with pytest.raises(ProtocolError, match=leak):
        learn(make(cls), toys.stream(tasks=1))


# ---- asked once a run, at its first boundary ---------------------------------------------------------------


class ForgetsToAdopt(Finetune):
    def learn(self, task):
        yield Phase(self.candidates(task))


class AdoptsIntoNothing(ER):
    def adopt(self, c, task):
        self.network.state_dict().update(c.network.state_dict())


class AdoptsForTests(ForgetsToAdopt):
    def predictors(self, seen):
        return {"": copy.deepcopy(self)}
        yield


def with_class(cls: type) -> tuple[str, ...]:
    return f"learner._target_={__name__}.{cls.__name__}", "selection=none"


@pytest.mark.parametrize("cls", [ForgetsToAdopt, AdoptsIntoNothing])
def test_a_learner_that_adopts_nothing_is_told_so(cls: type[Finetune], tmp_path: Path) -> None:
    told = rf"{cls.__name__} trained in its first task, and predicts with the weights that it had before"
    with pytest.raises(LearnerError, match=told):
        run(tmp_path, *with_class(cls))


class BestUntrained(Finetune):
    def learn(self, task):
        yield Phase(self.candidates(task), score=lambda c, val: 0.0)


@pytest.mark.parametrize("cls", [AdoptsForTests, BestUntrained])
def test_weights_may_stay_where_nothing_was_to_change_them(cls: type[Finetune], tmp_path: Path) -> None:
    run(tmp_path, *with_class(cls), "stream.tasks=2")


class ListOfLayers(nn.Module):
    def __init__(self, input_shape, head, frozen: bool = False) -> None:
        super().__init__()
        self.flatten, self.layers = nn.Flatten(), [nn.Linear(int(np.prod(input_shape)), 8)]
        self.layers[0].requires_grad_(not frozen)
        self.head = nn.Linear(8, head.num_outputs)

    def forward(self, x, task):
        return self.head(self.layers[0](self.flatten(x)))


@pytest.mark.parametrize("frozen", [False, True])
def test_layers_in_a_plain_list_are_named_unless_they_are_not_to_learn(frozen: bool, tmp_path: Path) -> None:
    cfg = configure(f"outputs={tmp_path}", *SMALL, "selection=none")
    cfg.backbone = {"_target_": f"{__name__}.ListOfLayers", "frozen": frozen}
    if frozen:
        run_config(cfg)
        return
    layers = (
        r"Finetune keeps self\.network\.layers\[0\]\.weight, .*neither trained nor stored.*\n.*ModuleList"
    )
    with pytest.raises(Refusal, match=layers):
        run_config(cfg)


class TrainsOnValidation(Finetune):
    """Trains on ten validation images, and compares on the validation split or ``on`` something else."""

    def __init__(self, *, on: str = "all", **base: object) -> None:
        super().__init__(**base)
        self.on = on

    def learn(self, task):
        ten, others = Split(*task.val.gather(torch.arange(10))), Split(*task.val.gather(torch.arange(10, 40)))
        val = {"all": None, "others": others, "own": Split(*task.train.gather(torch.arange(10)))}[self.on]
        best = yield Phase(self.candidates(task), train=Split.union([task.train, ten]), val=val)
        self.adopt(best.candidate, task)


def test_validation_images_in_training_data_are_counted_unless_they_are_not_what_decides() -> None:
    told = r"TrainsOnValidation would train on 10 of the validation images .*\n.*`train`.*`val`"
    with pytest.raises(ProtocolError, match=told):
        learn(make(TrainsOnValidation), toys.stream(tasks=2))
    for on in ("others", "own"):
        learn(make(TrainsOnValidation, on=on), toys.stream(tasks=2))


class InBatches(Finetune):
    """Takes off the mean of the batch, as batch normalisation in training mode does."""

    def forward(self, x, task):
        logits = super().forward(x, task)
        return logits - logits.mean(0)


class InBatchesOfATask(InBatches):
    needs = Needs(task_id_at_test=True)


class Draws(Finetune):
    def forward(self, x, task):
        return super().forward(x, task) + torch.randn(len(x), 4)


@pytest.mark.parametrize("cls", [InBatches, InBatchesOfATask])
def test_predictions_that_depend_on_the_batch_are_told_once(cls: type[Finetune]) -> None:
    with pytest.warns(UserWarning, match="other company") as caught:
        learn(make(cls), toys.stream())
    (told,) = (str(warning.message) for warning in caught)
    found = re.match(rf"{cls.__name__} predicts (\d+) of 200 test images otherwise in other company", told)
    assert found is not None
    assert int(found[1]) > 100, "each part is of few classes"


@pytest.mark.parametrize(
    "cls", [Finetune, Draws, Independent, type("Untested", (Finetune,), {"predicts": lambda *_: False})]
)
def test_predictions_that_do_not_depend_on_the_batch_are_not_told_of(cls, recwarn) -> None:
    learn(make(cls), toys.stream(tasks=2))
    assert not [warning for warning in recwarn if "other company" in str(warning.message)]


# ---- errors ------------------------------------------------------------------------------------------------


class Fails(Finetune):
    def after_step(self, c, batch):
        return {}["no such key"]


class FailsInLearn(Finetune):
    def learn(self, task):
        yield Phase(self.candidates(task))
        raise ValueError("between\nphases")


@pytest.mark.parametrize(
    ("cls", "words"),
    [
        (Fails, "Fails.after_step raised KeyError: 'no such key'"),
        (FailsInLearn, "FailsInLearn.learn raised ValueError: between\nphases"),
    ],
)
def test_an_exception_in_a_learners_code_is_told_as_the_learners_with_its_line(
    cls: type[Finetune], words: str
) -> None:
    with pytest.raises(LearnerError) as told:
        learn(make(cls), toys.stream(tasks=1))
    assert str(told.value).startswith(words + "\nat ")
    assert "test_honest_mistakes.py, line" in str(told.value)
    assert len(str(told.value).splitlines()) <= 5


class Mixin:
    def training_step(self, batch, index):
        return None


def test_final_hooks_are_not_overridden_through_a_mixin_either() -> None:
    with pytest.raises(Refusal, match="Mixed overrides training_step"):
        type("Mixed", (Mixin, Finetune), {})


@pytest.mark.parametrize(
    "hook", ["on_after_backward", "optimizer_step", "validation_step", "test_dataloader"]
)
def test_hooks_of_lightning_that_never_run_are_refused(hook: str) -> None:
    with pytest.raises(Refusal, match=f"Mine overrides {hook}.*\n.*after_backward"):
        type("Mine", (Finetune,), {hook: lambda self, *_: None})


@pytest.mark.parametrize("hook", ["on_fit_start", "on_train_start", "on_train_batch_end"])
def test_hooks_of_lightning_that_run_may_be_overridden(hook: str) -> None:
    ran = []
    learn(make(type("Mine", (Finetune,), {hook: lambda self, *_: ran.append(hook)})), toys.stream(tasks=1))
    assert ran


@pytest.mark.parametrize(
    ("name", "meant"),
    [("after_backwards", "after_backward"), ("on_task_ended", "on_task_end"), ("candidate", "candidates")],
)
def test_a_misspelt_hook_is_refused(name: str, meant: str) -> None:
    with pytest.raises(Refusal, match=rf"Mine\.{name} would never run.*Did you mean {meant}\?"):
        type("Mine", (Finetune,), {name: lambda self, *_: None})


def test_a_misspelt_hook_of_a_callback_is_refused() -> None:
    with pytest.raises(Refusal, match=r"Mine\.on_task_ended would never run.* Did you mean on_task_end"):
        type("Mine", (StreamCallback,), {"on_task_ended": lambda self: None})


class CallsItsOwn(Finetune):
    def losses(self, c, batch):
        return super().loss(c, batch)

    def loss(self, c, batch):
        return sum(self.losses(c, batch) for _ in range(1))


def test_methods_that_a_class_calls_itself_may_have_names_near_to_hooks() -> None:
    type("Derived", (CallsItsOwn,), {"losses": CallsItsOwn.losses, "_adopts": CallsItsOwn.losses})


class HasAHead(Finetune):
    def __init__(self, **base: object) -> None:
        super().__init__(**base)
        self.head = nn.Linear(2, 2)


class HasAListForMemory(Finetune):
    def __init__(self, **base: object) -> None:
        super().__init__(**base)
        self.memory = []


@pytest.mark.parametrize(("cls", "name"), [(HasAHead, "head"), (HasAListForMemory, "memory")])
def test_attributes_of_the_base_keep_their_type(cls: type[Finetune], name: str) -> None:
    with pytest.raises(
        Refusal, match=rf"{cls.__name__} sets self\.{name} to a (Linear|list)\..*\n.*another name"
    ):
        make(cls)


def test_a_text_for_the_keys_of_a_grid_is_refused() -> None:
    with pytest.raises(Refusal, match=r"Mine\.grid_keys='strength' .* tuple .*\('strength',\)"):
        type("Mine", (Finetune,), {"grid_keys": ("strength")})


class Prints:
    """A mixin that is no learner: it has hooks of its own, and calls the learner's."""

    def extend(self, batch):
        return super().extend(batch)

    def on_task_end(self, task):
        super().on_task_end(task)


class OwnLoss(Finetune):
    def loss(self, c, batch):
        return super().loss(c, batch)


class LossOfOwnLoss(OwnLoss):
    def loss(self, c, batch):
        return super().loss(c, batch)


class InheritsTheLoss(OwnLoss):
    pass


def both(self, task):
    EWC.on_task_end(self, task)


@pytest.mark.parametrize(
    ("one", "other", "hook"),
    [(EWC, ER, "on_task_end"), (NewHead, Independent, "candidates"), (GEM, EWC, "after_backward")],
)
def test_two_learners_in_one_are_refused_with_the_hook_that_would_be_left_out(one, other, hook: str) -> None:
    joins = f"Both joins {one.__name__} and {other.__name__}, which both override {hook}: only"
    with pytest.raises(Refusal, match=joins):
        type("Both", (one, other), {})


@pytest.mark.parametrize(
    ("bases", "own"),
    [
        ((EWC, ER), {"on_task_end": both}),  # it decides itself
        ((OwnLoss, EWC), {}),  # they override different hooks
        ((LossOfOwnLoss, EWC), {}),
        ((LossOfOwnLoss, OwnLoss), {}),  # one is the other's subclass
        ((InheritsTheLoss, LossOfOwnLoss), {}),  # Python runs that of the subclass, which calls the other
        ((Prints, EWC), {}),  # a mixin that is no learner
        ((ER, Prints), {}),
    ],
)
def test_learners_that_lose_no_hook_may_be_joined(bases, own: dict) -> None:
    joined = type("Joined", bases, own)
    assert issubclass(type("Derived", (joined,), {}), joined)


@pytest.mark.parametrize(
    "override",
    [
        "trainer.threads=100000",
        "+trainer.lightning.strategy=ddp",
        "+trainer.lightning.benchmark=abc",
        "+trainer.lightning.deterministic=5",
        "+trainer.lightning.profiler=nope",
    ],
)
def test_settings_that_would_crash_or_riddle_are_refused(override: str, tmp_path) -> None:
    with pytest.raises(Refusal, match=override.split("=")[0].strip("+")):
        run(tmp_path, override)


def test_a_learner_with_a_key_called_examples_is_handed_to_callbacks_like_any_other(tmp_path: Path) -> None:
    run(
        tmp_path,
        "learner=ewc",
        "learner.examples=20",
        "progress=true",
        "selection=none",
        "trainer.lr=0.01",
        "stream.tasks=2",
    )
