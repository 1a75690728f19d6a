"""Sketches of the learners that need most of the contract: each is killed behind every record, and trained by
two ranks."""

from __future__ import annotations

import copy
import signal
from pathlib import Path

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

from cl_lightning.data.task import Split
from cl_lightning.learners import Candidate, Finetune, GrowingList, Phase
from cl_lightning.randomness import rng
from tests import toys
from tests.commands import but_what_may_differ, run
from tests.dying import dying, in_a_child
from tests.ranks import on_ranks
from tests.test_devices import results_in

# ---- two splits in turn, and a parameter group of its own --------------------------------------------------


class Scaled(nn.Module):
    """A network, and how much of it is used: the skeleton of a search among modules."""

    def __init__(self, theta: nn.Module) -> None:
        super().__init__()
        self.theta, self.gamma = theta, nn.Parameter(torch.tensor([0.5, 0.0]))

    def forward(self, x, task=None):
        return self.theta(x) * self.gamma.softmax(0)[0]


class Searched(Candidate):
    """Its weights go by the trainer and the grid, its choice by a rate of its own."""

    def groups(self):
        own = {key: self.hparams[key] for key in ("lr",) if key in self.hparams}
        theta = list(self.network.theta.parameters())
        return [{"params": theta, **own}, {"params": [self.network.gamma], "lr": 1.0, "weight_decay": 0.0}]


class SearchesInTurn(Finetune):
    """One half of a task teaches the weights, the other the choice, which becomes sure towards the end."""

    def learn(self, task):
        rows = torch.arange(len(task.train))
        halves = [Split(*task.train.gather(rows[k::2])) for k in range(2)]
        found = [Searched(Scaled(copy.deepcopy(self.network)), point) for point in self.grid]
        best = yield Phase(found, "search", train=halves)
        self.memory["gamma"] = best.candidate.network.gamma.detach()
        self.network = best.candidate.network.theta

    def extend(self, batch):
        return batch if batch.part else batch.cat(batch.x.flip(3), batch.y, batch.task)

    def loss(self, c, batch):
        assert batch.phase == "search"
        of_part = (c.network.theta, c.network.gamma)[1 - batch.part]
        for p in of_part.parameters() if isinstance(of_part, nn.Module) else [of_part]:
            p.requires_grad_(False)
        loss = super().loss(c, batch)
        for p in c.network.parameters():
            p.requires_grad_(True)
        p = c.network.gamma.softmax(0)
        return loss - batch.part * batch.key[-1] / batch.steps * (p * p.log()).sum()


def test_two_splits_in_turn_are_a_loop_by_hand_that_takes_a_mini_batch_of_each() -> None:
    s = toys.stream(tasks=1)
    learner = SearchesInTurn(build=toys.builder(s), head=s.head, seed=3)
    learned = toys.learn(learner, s, toys.training(optimizer="sgd", weight_decay=0.01, max_epochs=2))
    network = Scaled(learner.fresh(0))
    theta = list(network.theta.parameters())
    groups = [{"params": theta, "weight_decay": 0.01}, {"params": [network.gamma], "lr": 1.0}]
    optimizer, rows = torch.optim.SGD(groups, lr=0.01), torch.arange(60)
    for epoch in range(2):
        orders = [
            rows[k::2][torch.randperm(30, generator=rng(3, "task0", 0, "order", epoch, *[k] * k))]
            for k in range(2)
        ]
        for i in range(6):
            part, taken = i % 2, orders[i % 2][i // 2 * 10 : i // 2 * 10 + 10]
            x, y = s.task(0).train.x[taken], s.task(0).train.y[taken]
            if part == 0:
                x, y = torch.cat([x, x.flip(3)]), torch.cat([y, y])
            loss = F.cross_entropy(network(x), y)
            if part:
                p = network.gamma.softmax(0)
                loss = loss - (6 * epoch + i) / 12 * (p * p.log()).sum()
            learns = [network.gamma] if part else theta
            optimizer.zero_grad()
            for p, g in zip(learns, torch.autograd.grad(loss, learns)):
                p.grad = g
            optimizer.step()
    assert torch.allclose(learned.weights, torch.cat([p.flatten() for p in theta]), atol=1e-6)
    assert torch.allclose(learner.memory["gamma"], network.gamma, atol=1e-6)
    assert not torch.allclose(network.gamma, torch.tensor([0.5, 0.0]), atol=1e-2)
    costs = learned.phase(0).costs
    assert (costs.examples, costs.replayed) == (120, 60)


# ---- GANs side by side, in an auxiliary phase of other settings --------------------------------------------


class GAN(nn.Module):
    def __init__(self, pixels: int) -> None:
        super().__init__()
        self.g = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, pixels), nn.Sigmoid())
        self.d = nn.Sequential(nn.Linear(pixels, 32), nn.ReLU(), nn.Linear(32, 1))


class DreamsByClass(Finetune):
    """A GAN learns each class; those of past tasks dream what is replayed."""

    def __init__(self, **base):
        super().__init__(**base)
        self.generators = GrowingList(lambda pixels: GAN(pixels).g)

    def learn(self, task):
        owned, pixels = task.head.owned[task.index], task.train.x[0].numel()
        found = [Candidate(GAN(pixels), {"output": output}) for output in owned]
        settings = {"optimizer": "adam", "betas": [0.5, 0.999], "batch_size": 25, "max_steps": 12, "lr": 1e-3}
        dreams = yield Phase(
            found, "dreams", loss=self.adversarial, auxiliary=True, settings=settings, keep="all"
        )
        yield from super().learn(task)
        for c in dreams.kept:
            self.generators.add(c.network.g, pixels=pixels)

    def adversarial(self, c, batch):
        x = batch.x[batch.y == c.hparams["output"]].flatten(1)
        dreamt = c.network.g(torch.randn(len(batch), 8))
        if batch.key[-1] % 2:
            return F.softplus(-c.network.d(dreamt)).mean()  # its critic gets a gradient, too: it is a sketch
        real = F.softplus(-c.network.d(x)).sum() / max(len(x), 1)
        return real + F.softplus(c.network.d(dreamt.detach())).mean()

    def extend(self, batch):
        if batch.phase == "dreams" or not len(self.generators):
            return batch
        z = torch.randn(4, 8, generator=batch.rng("dreams"))
        with torch.no_grad():
            x = torch.cat([g(z).view(-1, *batch.x.shape[1:]) for g in self.generators])
        per_task = len(self.generators) // batch.learning
        y = torch.arange(len(self.generators)).repeat_interleave(4)
        return batch.cat(x, y, y // per_task)


# ---- a chain of two phases for each grid point -------------------------------------------------------------


class ChainAPoint(Finetune):
    """Each point warms up with a rate of its own, and goes on from there; the best chain wins."""

    def learn(self, task):
        warm = yield Phase(self.candidates(task), "warm-up", settings={"max_steps": 5}, keep="all")
        best = yield Phase([Candidate(c.network, c.hparams) for c in warm.kept])
        self.adopt(best.candidate, task)


SKETCHES = {
    "SearchesInTurn": ("selection.grid.weight_decay=[0.0]", "trainer.patience=null"),
    "DreamsByClass": ("selection=none", "trainer.optimizer=sgd", "trainer.lr=0.1", "trainer.patience=null"),
    "ChainAPoint": ("trainer.optimizer_state=carry", "trainer.schedule={after:0.5,by:3,until:1e-4}"),
}


def options_of(sketch: str) -> tuple[str, ...]:
    small = ("stream.tasks=2", "trainer.batch_size=20", "trainer.block=2", "trainer.evaluate=final")
    return f"learner._target_={__name__}.{sketch}", f"learner.name={sketch}", *small, *SKETCHES[sketch]


@pytest.mark.parametrize(
    "sketch", ["SearchesInTurn", "DreamsByClass", pytest.param("ChainAPoint", marks=pytest.mark.all)]
)
def test_a_sketch_ends_the_same_killed_behind_every_record_and_on_two_ranks(
    sketch: str, tmp_path: Path
) -> None:
    options, kills = options_of(sketch), 0
    whole = but_what_may_differ(run(tmp_path / "whole", *options))
    cut = tmp_path / "cut"
    while in_a_child(lambda: dying("record written:1", lambda: run(cut, *options))) == -signal.SIGKILL:
        kills += 1
    assert kills >= 4
    assert but_what_may_differ(run(cut, *options)) == whole
    assert on_ranks(2, tmp_path / "ranks", *options) == [0, 0]
    assert but_what_may_differ(results_in(tmp_path / "ranks")) == whole
