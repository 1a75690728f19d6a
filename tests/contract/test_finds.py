"""Each kind of mistake that the contract's checks are for, and the check that finds it."""

from __future__ import annotations

import copy
import random
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

from cl_lightning.contract import checks, command
from cl_lightning.contract.checks import CHECKS, Broken, Case
from cl_lightning.contract.command import main
from cl_lightning.learners import Candidate, Finetune, Phase
from cl_lightning.learners.parts.held import hold, note
from cl_lightning.randomness import seeded
from tests import toys
from tests.commands import command as run_command
from tests.ranks import started
from tests.toys import builder, training

SEEN: list[float] = []  # of the module: no checkpoint knows it
NAMES: set[str] = set()
UNSEEDED = random.Random()


class DrawsUnseeded(Finetune):
    def after_step(self, c, batch):
        with torch.no_grad():
            next(c.network.parameters()).add_(UNSEEDED.random() * 1e-3)


class LearnsFromTestImages(Finetune):
    """By way of its module."""

    def __init__(self, **base):
        super().__init__(**base)
        SEEN.clear()

    def forward(self, x, task):
        SEEN.append(x.mean().item())
        return super().forward(x, task)

    def loss(self, c, batch):
        return super().loss(c, batch) * (1 + (SEEN[-1] if SEEN else 0))


class NeverWithoutPenalty(Finetune):
    without_strength = {"strength": 0}

    def __init__(self, *, strength=1.0, **base):
        super().__init__(**base)
        self.strength = strength

    def loss(self, c, batch):
        norm = sum(p.square().sum() for p in c.network.parameters())
        return super().loss(c, batch) + (self.strength + 1e-3) * norm


class DoesMoreFromTheStart(Finetune):
    def loss(self, c, batch):
        return 2 * super().loss(c, batch) - 0.5


class HidesImages(Finetune):
    """Copies images into an attribute, and trains on them."""

    def extend(self, batch):
        return batch.cat(*self.hidden) if hasattr(self, "hidden") else batch

    def on_task_end(self, task):
        self.hidden = [part[:20].clone() for part in task.train.parts]


class PredictsByAnAttribute(Finetune):
    def on_task_end(self, task):
        self.scale = -1.0

    def forward(self, x, task):
        return super().forward(x, task) * getattr(self, "scale", 1.0)


class LooksAround(Finetune):
    """Its loss depends on how many candidates train beside it."""

    def __init__(self, **base):
        super().__init__(**base)
        NAMES.clear()

    def loss(self, c, batch):
        NAMES.add(c.name)
        return super().loss(c, batch) * (1 + len(NAMES) / 10)


class AsksALoser(Finetune):
    def learn(self, task):
        candidates = self.candidates(task)
        best = yield Phase(candidates)
        means = [next(c.network.parameters()).mean() for c in candidates]
        self.memory["means"] = torch.stack(means)
        self.adopt(best.candidate, task)


class WritesWhileItTrains(Finetune):
    def loss(self, c, batch):
        self.memory["batches"] = self.memory.get("batches", 0) + 1
        return super().loss(c, batch)


class BuffersInItsLoss(Finetune):
    """A replay whose buffer fills while it trains: by whoever comes first, in an attribute."""

    def __init__(self, **base):
        super().__init__(**base)
        self.buffer = []

    def loss(self, c, batch):
        loss = super().loss(c, batch)
        for x, y in self.buffer:
            loss = loss + F.cross_entropy(c.network(x, None), y)
        if len(self.buffer) < 5:
            self.buffer.append((batch.x.clone(), batch.y.clone()))
        return loss

    def on_task_end(self, task):
        self.buffer = []


class KeepsTheLastLoss(Finetune):
    """In a plain attribute, which nobody sets where the phase is read from the store."""

    def loss(self, c, batch):
        loss = super().loss(c, batch)
        self.last = loss.detach()
        return loss

    def adopt(self, c, task):
        super().adopt(c, task)
        self.memory["last"] = vars(self).pop("last", torch.zeros(()))


class ForgetsWhatItDidBetweenPhases(Finetune):
    """What it came to by itself before a kill, it comes to otherwise after."""

    def learn(self, task):
        starts = [p.detach().clone() for p in self.network.parameters()]
        best = yield Phase(self.candidates(task), "first", epochs=1)
        SEEN.append(len(SEEN))
        self.network = copy.deepcopy(best.candidate.network)
        with torch.no_grad():
            for p, start in zip(self.network.parameters(), starts):
                p.lerp_(start, len(SEEN) / 1000)
        yield from super().learn(task)


class CountsInEveryPhase(Finetune):
    """Steps of an auxiliary phase count as its own."""

    def __init__(self, **base):
        super().__init__(**base)
        self.steps = torch.zeros(())

    def after_step(self, c, batch):
        self.steps = self.steps + 1

    def loss(self, c, batch):
        return super().loss(c, batch) * (1 + self.steps / 1000)


class MasksGradientsAlone(Finetune):
    """Weights of the first task are to stay, but moments and decay move them."""

    frozen_predictions = True

    def after_backward(self, c, batch):
        if batch.learning:
            for p in c.network.parameters():
                p.grad.zero_()


class StaysOnTheCpu(Finetune):
    def loss(self, c, batch):
        return super().loss(c, batch) + torch.ones(4).sum() * torch.zeros(1)


class StaysOnTheCpuInItsSecondPhase(StaysOnTheCpu):
    def learn(self, task):
        best = yield Phase(self.candidates(task), "start", loss=super().loss, auxiliary=True)
        self.network = best.candidate.network
        yield from super().learn(task)


class LooksAtValues(Finetune):
    def after_backward(self, c, batch):
        if next(c.network.parameters()).grad.norm().item() > 1:
            c.network.zero_grad()


class GuardsAndReplays(Finetune):
    """Does nothing wrong: an autoencoder learns first, the network replays, its greatest weights stay."""

    first_as_finetune = False

    def __init__(self, **base):
        super().__init__(**base)
        with seeded(self.seed, "autoencoder"):  # as a run makes every learner
            self.autoencoder = nn.Sequential(nn.Flatten(), nn.Linear(36, 4), nn.ReLU(), nn.Linear(4, 36))
        self.rows = None

    def on_task_start(self, task):
        self.rows = task.train.x[:5].clone()  # scratch of the task

    def learn(self, task):
        copied = Candidate(copy.deepcopy(self.autoencoder))
        done = yield Phase([copied], "autoencoder", loss=self.differs, auxiliary=True)
        self.autoencoder = done.candidate.network
        yield from super().learn(task)

    def differs(self, c, batch):
        return F.mse_loss(c.network(batch.x), batch.x.flatten(1))

    def loss(self, c, batch):
        return super().loss(c, batch) + c.network(self.rows, None).mean() / 100

    def extend(self, batch):
        if batch.phase == "autoencoder" or not self.memory:
            return batch
        rows = torch.randint(60, (10,), generator=batch.rng("replay"))
        return batch.cat(*(part[rows] for part in self.memory["old"]))

    def after_backward(self, c, batch):
        if batch.phase != "autoencoder":
            note(c, c.network.parameters())

    def after_step(self, c, batch):
        if batch.phase != "autoencoder":
            hold(c, self.memory.get("held", [w.new_zeros(()) for w in c.network.parameters()]))

    def on_task_end(self, task):
        self.rows = None
        self.memory["old"] = [part.clone() for part in task.train.parts]
        self.memory["held"] = [(w.abs() > 0.1).float() for w in self.network.parameters()]


FOUND = [
    (
        BuffersInItsLoss,
        "learns",
        r"self\.buffer changed: what a candidate learns would depend on",
    ),
    (KeepsTheLastLoss, "kills", "Killed after a phase and started again, it ends with another memory"),
    (StaysOnTheCpuInItsSecondPhase, "other_device", "StaysOnTheCpuInItsSecondPhase.loss raised RuntimeError"),
    (DrawsUnseeded, "same_bits", "Learning twice from the same seed, it has other weights after task 0"),
    (LearnsFromTestImages, "same_bits", "With noise for test images, it has other weights after task 0"),
    (NeverWithoutPenalty, "without_strength", "With strength=0 .* it is not finetune"),
    (DoesMoreFromTheStart, "first_task", "first_as_finetune is True, but .* otherwise than finetune"),
    (HidesImages, "nothing_hidden", r"HidesImages keeps self\.hidden\[0\]"),
    (PredictsByAnAttribute, "checkpoint", "loaded its checkpoint predicts otherwise"),
    (LooksAround, "company", "one after the other, and not side by side, it has other weights"),
    (AsksALoser, "company", "lost its phase and has no network"),
    (WritesWhileItTrains, "same_bits", r"self\.memory\['batches'\] changed"),
    (ForgetsWhatItDidBetweenPhases, "kills", "Killed inside a phase and started again, it has other"),
    (CountsInEveryPhase, "auxiliary", "With an auxiliary phase behind each task's, it has other weights"),
    (
        MasksGradientsAlone,
        "auxiliary",
        "frozen_predictions=True, but its predictions for task 0 have changed",
    ),
    (StaysOnTheCpu, "other_device", "StaysOnTheCpu.loss raised RuntimeError"),
    (LooksAtValues, "other_device", "LooksAtValues.after_backward raised RuntimeError"),
]
BY_NAME = {check.__name__: check for check in CHECKS.values()}


def case(cls: type[Finetune]) -> Case:
    s = toys.stream()
    SEEN.clear()
    return Case(partial(cls, build=builder(s), head=s.head, grid=[{}]), s, training(patience=10))


RIGHT = case(GuardsAndReplays)


@pytest.mark.parametrize(("cls", "check", "words"), FOUND, ids=lambda each: getattr(each, "__name__", None))
def test_a_mistake_is_found_by_the_check_for_it(cls: type[Finetune], check: str, words: str) -> None:
    with pytest.raises(Exception, match=words):
        BY_NAME[check](case(cls))


@pytest.mark.parametrize("check", BY_NAME.values(), ids=lambda check: check.__name__)
def test_what_is_not_wrong_is_not_found(check) -> None:
    check(RIGHT)


def test_every_check_finds_some_mistake() -> None:
    assert {check for _, check, _ in FOUND} == {*BY_NAME}


def in_forks(program: list[str], **_: object) -> SimpleNamespace:
    """A command line on as many ranks as it has devices, which need import nothing."""
    words = [word for word in program[3:] if not word.startswith("trainer.devices=")]
    with started(int("trainer.devices=2" in program) + 1, lambda _: run_command(*words)) as ranks:
        for rank in ranks:
            rank.join(600)
        return SimpleNamespace(
            returncode=max(abs(rank.exitcode or 0) for rank in ranks), stderr="a rank failed"
        )


@pytest.mark.parametrize("processes", ["forks", pytest.param("programs", marks=pytest.mark.all)])
def test_the_command_says_a_line_a_check_and_ends_with_2_where_one_fails(
    processes: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """A learner of one's own, on the network that it names; on two devices fewer are beside it."""
    if processes == "forks":
        monkeypatch.setattr(command, "subprocess", SimpleNamespace(run=in_forks))
    (tmp_path / "mine.py").write_text(
        "from cl_lightning.learners import Finetune\n\nNAMES = set()\n\n\n"
        "class Mine(Finetune):\n"
        '    contract = ("backbone.sizes=[8]", "backbone=mlp")\n\n'
        "    def __init__(self, **base):\n"
        "        super().__init__(**base)\n"
        "        NAMES.clear()\n\n"
        "    def loss(self, c, batch):\n"
        "        NAMES.add(c.name)\n"
        "        return super().loss(c, batch) * (1 + len(NAMES) / 10)\n"
    )
    (tmp_path / "conf" / "learner").mkdir(parents=True)
    (tmp_path / "conf" / "learner" / "mine.yaml").write_text("_target_: mine.Mine\nname: mine\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    assert main(["learner=mine", "--config-dir", "conf"]) == 2
    lines = capsys.readouterr().out.splitlines()
    told = {line[6:].partition(":")[0]: line[:4].strip() for line in lines if line[:4] in ("ok  ", "FAIL")}
    failed = {name for name, verdict in told.items() if verdict == "FAIL"}
    assert "two devices give what one gives: Trained on two devices, it ends otherwise" in "\n".join(lines)
    assert len(told) == len(CHECKS)  # without strength there was nothing to try
    assert "candidates end alone as side by side" in failed
    assert "two devices give what one gives" in failed
    assert "kills change nothing" not in failed


def test_where_it_does_not_learn_at_all_that_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    (tmp_path / "learner").mkdir()
    (tmp_path / "learner" / "own.yaml").write_text(f"_target_: {__name__}.BuffersInItsLoss\nname: own\n")
    assert main(["learner=own", f"--config-dir={tmp_path}"]) == 2
    out = capsys.readouterr().out
    assert out.startswith("FAIL  it learns a small stream: BuffersInItsLoss.training: self.buffer changed")
    assert out.count("FAIL") == 1
    assert "wait for this one" in out


def test_the_same_reason_is_given_once_and_what_was_not_tried_is_no_ok(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    def fails(_: object) -> None:
        raise Broken("It forgets.\nLet it remember.")

    monkeypatch.setattr(checks, "CHECKS", {"one": fails, "other": fails, "third": lambda _: "nothing there"})
    monkeypatch.setattr(command, "two_ranks", lambda *_: None)
    assert main(["learner=finetune"]) == 2
    assert capsys.readouterr().out.splitlines() == [
        "FAIL  one: It forgets.", "Let it remember.", "FAIL  other: as under 'one'",
        "-     third: nothing there", "ok    two devices give what one gives",
    ]  # fmt: skip
    monkeypatch.setattr(checks, "CHECKS", {"third": lambda _: "nothing there"})
    assert main(["learner=finetune"]) == 0


def test_without_a_learner_the_command_says_how_it_is_used(capsys: pytest.CaptureFixture) -> None:
    assert main([]) == 2
    assert "learner=NAME" in capsys.readouterr().out
    assert main(["learner=nothing_of_this_name"]) == 2
    assert "nothing_of_this_name" in capsys.readouterr().err
