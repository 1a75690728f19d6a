"""What variational learners and their generators cost, against loops that are written by hand."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from torch.optim import Adam

from cl_lightning.backbones import Bayesian
from cl_lightning.data.module import StreamDataModule
from cl_lightning.data.task import Split, Task
from cl_lightning.engine.phases import Phases
from cl_lightning.learners import VCL, VGR, Candidate, Learner, Phase
from cl_lightning.learners.parts.gan import GAN, adversarial_loss
from cl_lightning.store.files import Store
from cl_lightning.store.records import Place
from tests import toys
from tests.benchmarks.engine import HEAD, NO_STREAM, examples

STEPS = 10


def fitted(learner: Learner, phase: Phase, split: Split, epochs: int, batch_size: int) -> None:
    task = Task(1, 2, "benchmark", tuple("0123456789"), HEAD, split)
    settings = toys.one_epoch(max_epochs=epochs, batch_size=batch_size, optimizer="adam")
    with tempfile.TemporaryDirectory() as folder:
        engine = Phases(StreamDataModule(NO_STREAM), Store(Path(folder), "benchmark"), settings)
        engine.fit(learner, phase, [*range(len(phase.candidates))], task, Place("task", 1))


def vcl_sides(n: int) -> tuple[Callable[[], None], Callable[[], None]]:
    """Steps of the second task on all examples at once."""
    split = examples(n)
    learner = VCL(build=partial(Bayesian, input_shape=(1, 28, 28), sizes=(100, 100)), head=HEAD)

    def ours() -> None:
        c = Candidate(learner.fresh(1))
        fitted(learner, Phase([c], loss=learner.objective(1, 1, n)), split, STEPS, n)

    def loop() -> None:
        old = [(m.detach(), v.detach()) for m, v in normals(learner.network)]
        new = [(m.clone().requires_grad_(), v.clone().requires_grad_()) for m, v in normals(learner.fresh(1))]
        opt = Adam([p for pair in new for p in pair], lr=1e-3, fused=True)
        for _ in range(STEPS):
            rows = torch.randperm(n)
            h, y = split.x[rows].flatten(1), split.y[rows]
            for i in range(0, 6, 2):
                (w, v), (b, vb) = new[i : i + 2]
                mean = F.linear(h, w, b)
                a = mean + F.linear(h * h, v.exp(), vb.exp()).sqrt() * torch.randn_like(mean)
                h = a.relu() if i < 4 else a
            kl = torch.zeros(())
            for (m, v), (m0, v0) in zip(new, old):
                kl = kl + ((v - v0).exp() + (m - m0) ** 2 / v0.exp() - (v - v0) - 1).sum() / 2
            opt.zero_grad()
            (F.cross_entropy(h, y) + kl / n).backward()
            opt.step()

    return ours, loop


def normals(network: torch.nn.Module) -> list[tuple[torch.Tensor, torch.Tensor]]:
    layers = [network.trunk.linear1, network.trunk.linear2, network.head]  # type: ignore[union-attr]
    return [(m.detach().clone(), v.detach().clone()) for each in layers for m, v in each.normals]


def gan_sides(n: int, classes: int = 2) -> tuple[Callable[[], None], Callable[[], None]]:
    """A GAN a class of a task, side by side, against a loop for each on the examples of its class."""
    split = examples(n)
    split = Split(split.x, split.y % classes, split.task)
    build = partial(Bayesian, input_shape=(1, 28, 28), sizes=(100, 100))
    learner = VGR(build=build, head=HEAD, generator_epochs=1)

    def ours() -> None:
        task = Task(0, 1, "benchmark", tuple("0123456789"), HEAD, split)
        fitted(learner, next(learner.learn_to_generate(task)), split, 1, classes * 128)

    def loops() -> None:
        for y in range(classes):
            own, gan = split.x[split.y == y], GAN("mlp", (1, 28, 28))
            opt = Adam(gan.parameters(), lr=2e-4, betas=(0.5, 0.999), fused=True)
            for rows in torch.randperm(len(own)).split(128):
                opt.zero_grad()
                adversarial_loss(gan, own[rows], len(rows)).backward()
                opt.step()

    return ours, loops
