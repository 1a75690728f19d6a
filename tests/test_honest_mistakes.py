"""Mistakes that an honest author of a learner makes: each is told in a sentence, or cannot be made."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn as nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from cl_lightning.backbones import Backbone
from cl_lightning.backbones.own import as_backbone
from cl_lightning.callbacks import StreamCallback
from cl_lightning.data.task import Split
from cl_lightning.errors import Refusal
from cl_lightning.learners import ER, EWC, GEM, Candidate, Finetune, Independent, Needs, NewHead, Phase
from cl_lightning.learners.parts.growing_list import GrowingList
from cl_lightning.protocol import ProtocolError
from cl_lightning.runs.run import run as run_config
from tests import toys
from tests.commands import SMALL, configure, run
from tests.toys import builder, learn, training


def make(cls: type[Finetune], **options: object) -> Finetune:
    s = toys.stream()
    return cls(build=builder(s), head=s.head, **options)


# ---- examples are nobody's to write to ---------------------------------------------------------------------


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


class TrainsOnSome(Finetune):
    def learn(self, task):
        best = yield Phase(self.candidates(task), train=Split(*task.train.gather(torch.arange(20))))
        self.adopt(best.candidate, task)


def test_a_phase_may_train_on_some_of_the_tasks_examples() -> None:
    learned = learn(make(TrainsOnSome), toys.stream(tasks=2), training(max_epochs=2))
    assert learned.costs()["examples"] == 40


# ---- what a learner keeps ----------------------------------------------------------------------------------


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


# ---- asked once a run, at its first boundary ---------------------------------------------------------------


class ForgetsToAdopt(Finetune):
    def learn(self, task):
        yield Phase(self.candidates(task))


class AdoptsForTests(ForgetsToAdopt):
    def predictors(self, seen):
        return {"": copy.deepcopy(self)}
        yield


def with_class(cls: type) -> tuple[str, ...]:
    return f"learner._target_={__name__}.{cls.__name__}", "selection=none"


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
    layers = r"Finetune keeps self\.network\.network\.layers\[0\]\.weight, .*neither.*\n.*ModuleList"
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


# ---- networks and callbacks --------------------------------------------------------------------------------


class OwnNetwork(nn.Module):
    def __init__(self, input_shape, head) -> None:
        super().__init__()
        self.flatten, self.first = nn.Flatten(), nn.Linear(int(np.prod(input_shape)), 8)
        self.last = nn.Linear(8, head.num_outputs)

    def forward(self, x, task):
        return self.last(self.first(self.flatten(x)).relu())


class ReturnsFeaturesToo(OwnNetwork):
    def forward(self, x, task):
        return super().forward(x, task), self.first(self.flatten(x))


class HasOwnOutputs(OwnNetwork):
    def __init__(self, input_shape, head) -> None:
        super().__init__(input_shape, head)
        self.last = nn.Linear(8, 3)


class KeepsActivations(OwnNetwork):
    def __init__(self, input_shape, head) -> None:
        super().__init__(input_shape, head)
        self.seen: list = []

    def forward(self, x, task):
        self.seen.append(super().forward(x, task).detach())
        return super().forward(x, task)


class WorksInPlace(OwnNetwork):
    def forward(self, x, task):
        return super().forward(x.sub_(0.5), task)


class LayerOfTheClass(OwnNetwork):
    between = nn.Linear(8, 8)

    def forward(self, x, task):
        return self.last(self.between(self.first(self.flatten(x))).relu())


class DrawsWeightsByNumpy(OwnNetwork):
    def __init__(self, input_shape, head) -> None:
        super().__init__(input_shape, head)
        drawn = np.random.default_rng().standard_normal(self.first.weight.shape)
        self.first.weight = nn.Parameter(torch.from_numpy(drawn).float())


class MakesALayerInForward(OwnNetwork):
    def forward(self, x, task):
        self.between = nn.Linear(8, 8)
        return self.last(self.between(self.first(self.flatten(x))).relu())


class UsesALayerOnce(OwnNetwork):
    def forward(self, x, task):
        return nn.Linear(10, 10)(super().forward(x, task))


class MakesALayerToTrain(OwnNetwork):
    def forward(self, x, task):
        if self.training and not hasattr(self, "scale"):
            self.scale = nn.Parameter(torch.ones(1))
        return super().forward(x, task) * (self.scale if self.training else 1)


class MakesALayerAtItsFirstCall(Backbone):
    """First called when it is scored before the first mini-batch: a backbone is not tried."""

    def __init__(self, input_shape, head) -> None:
        first = {"flatten": nn.Flatten(), "linear": nn.Linear(int(np.prod(input_shape)), 8)}
        super().__init__(first, nn.Linear(8, head.num_outputs), ("flatten", "head"))

    def forward(self, x, task=None):
        if not hasattr(self, "scale"):
            self.scale = nn.Parameter(torch.ones(1))
        return super().forward(x, task) * self.scale


class Detaches(OwnNetwork):
    def forward(self, x, task):
        return super().forward(x, task).detach()


class DrawsByNumpy(OwnNetwork):
    def forward(self, x, task):
        return super().forward(x, task) + float(np.random.randn())  # noqa: NPY002


@pytest.mark.parametrize(
    ("network", "told"),
    [
        (ReturnsFeaturesToo, r"this stream wants \(1, 10\): logits"),
        (HasOwnOutputs, r"gives the shape \(1, 3\)"),
        (KeepsActivations, r"keeps self\.network\.network\.seen\[1\]"),
        (WorksInPlace, "was changed in place"),
        (LayerOfTheClass, r"keeps self\.network\.network\.between\.weight.*where torch does not see it"),
        (DrawsWeightsByNumpy, "begins with other weights each time"),
        (
            MakesALayerInForward,
            r"made network\.between\.weight while it was trained\. No optimizer",
        ),
        (UsesALayerOnce, r"UsesALayerOnce\.forward makes Linear anew each time"),
        (MakesALayerToTrain, r"made network\.scale while it was trained"),
        (MakesALayerAtItsFirstCall, r"made scale while it was trained"),
        (Detaches, "would learn nothing"),
        (DrawsByNumpy, r"global generator of numpy\.random"),
    ],
)
def test_mistakes_in_a_network_are_told(network: type, told: str, tmp_path: Path) -> None:
    cfg = configure(f"outputs={tmp_path}", *SMALL, "selection=none", "stream.tasks=2", "logger=none")
    cfg.backbone = {"_target_": f"{__name__}.{network.__name__}"}
    with pytest.raises(Refusal, match=told):
        run_config(cfg)


class MakesItsLayersAtItsFirstCall(OwnNetwork):
    def forward(self, x, task):
        if not hasattr(self, "scale"):
            self.scale = nn.Parameter(torch.ones(1))
        return super().forward(x, task) * self.scale


class FusesItsLayersWhereItDoesNotTrain(nn.Module):
    """A network that puts layers together for testing, as those whose branches become one convolution."""

    def __init__(self, input_shape, head) -> None:
        super().__init__()
        self.conv, self.bn = nn.Conv2d(input_shape[0], 4, 3), nn.BatchNorm2d(4)
        self.end = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, head.num_outputs))

    def forward(self, x):
        whole = self.bn(self.conv(x)) if self.training else fuse_conv_bn_eval(self.conv, self.bn)(x)
        return self.end(whole)


def test_layers_that_are_made_for_testing_alone_are_no_mistake() -> None:
    made = FusesItsLayersWhereItDoesNotTrain((1, 28, 28), SimpleNamespace(num_outputs=10))
    assert as_backbone(made, (1, 28, 28), 10).training


def test_layers_of_the_first_call_are_trained_for_it_comes_before_there_is_a_learner(tmp_path: Path) -> None:
    cfg = configure(f"outputs={tmp_path}", *SMALL, "selection=none", "stream.tasks=1", "logger=none")
    cfg.backbone = {"_target_": f"{__name__}.MakesItsLayersAtItsFirstCall"}
    run_config(cfg)
    stored = torch.load(next(tmp_path.rglob("tasks/000.pt")), weights_only=True)["learner"]
    (scale,) = (value for name, value in stored.items() if name.endswith("scale"))
    assert scale.item() != 1.0


class Stops(StreamCallback):
    def on_train_batch_end(self, trainer, *_):
        trainer.should_stop = True


class LowersRates(StreamCallback):
    def on_train_batch_end(self, trainer, *_):
        trainer.optimizers[0].param_groups[0]["lr"] = 0.0


class Decays(StreamCallback):
    def on_train_batch_end(self, trainer, learner, *_):
        for c in learner.phase_run.candidates:
            with torch.no_grad():
                c.network.head.bias.mul_(0.9)


class Resets(StreamCallback):
    def on_task_end(self, learner, task):
        nn.init.zeros_(learner.network.head.bias)


@pytest.mark.parametrize("callback", [Stops, LowersRates, Decays, Resets])
def test_a_callback_that_does_more_than_look_on_is_named(callback: type, tmp_path: Path) -> None:
    target = f"trainer.callbacks=[{{_target_: {__name__}.{callback.__name__}}}]"
    with pytest.raises(
        Refusal, match=rf"{callback.__name__}\.on_\w+ changed weights, learning rates or where"
    ):
        run(tmp_path, target, "selection=none", "stream.tasks=1")


@pytest.mark.parametrize("hook", ["on_validation_epoch_end", "on_test_end", "on_predict_start"])
def test_hooks_of_lightning_that_no_callback_hears_are_refused(hook: str) -> None:
    with pytest.raises(Refusal, match=rf"Mine\.{hook} would never run.* Use on_evaluated"):
        type("Mine", (StreamCallback,), {hook: lambda self, *_: None})


# ---- errors ------------------------------------------------------------------------------------------------


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
        ((EWC, ER), {"on_task_end": both, "published_memory": EWC.published_memory}),  # it decides itself
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
