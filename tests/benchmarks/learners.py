"""What learners cost, against bare loops or against finetune in the same engine."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import torch.nn.functional as F

from cl_lightning.backbones import ResNet, ResNet18
from cl_lightning.data.module import StreamDataModule
from cl_lightning.data.task import Head, Split, Task
from cl_lightning.engine.phases import Phases
from cl_lightning.learners import ER, EWC, GEM, PNN, Candidate, Finetune, ICaRL, Learner, Phase
from cl_lightning.learners.parts.fisher import fisher
from cl_lightning.store.files import Store
from cl_lightning.store.records import Place
from tests import toys
from tests.benchmarks import bare
from tests.benchmarks.engine import HEAD, MLP, NO_STREAM, examples

PAST, MEMORIES = 19, 256


def single_pass(learner: Learner, split: Split, past: int = PAST) -> None:
    """Train on a task in batches of 10, as GEM's continuum does."""
    task = Task(past, past + 1, "benchmark", tuple("0123456789"), HEAD, split)
    settings = toys.one_epoch(batch_size=10, optimizer="sgd", lr=0.1)
    c = Candidate(learner.fresh(0))
    with tempfile.TemporaryDirectory() as folder:
        engine = Phases(StreamDataModule(NO_STREAM), Store(Path(folder), "benchmark"), settings)
        engine.fit(learner, Phase([c]), [0], task, Place("task", 0))


def with_memories(cls: type[Learner], **options: Any) -> Learner:
    """After 19 tasks."""
    learner = cls(build=partial(MLP, (1, 28, 28), sizes=(100, 100), init="glorot"), head=HEAD, **options)
    for index in range(PAST):
        old = examples(max(MEMORIES, 300), seed=index + 1)
        learner.on_task_end(Task(index, PAST + 1, "benchmark", tuple("0123456789"), HEAD, old))
    return learner


def finetune() -> Learner:
    return Finetune(build=partial(MLP, (1, 28, 28), sizes=(100, 100), init="glorot"), head=HEAD)


def gem_sides(n: int, **options: Any) -> tuple[Callable[[], None], Callable[[], None]]:
    split, learner = examples(n), with_memories(GEM, memories=MEMORIES, **options)
    memories = [
        (old.x[-MEMORIES:], old.y[-MEMORIES:]) for old in (examples(300, seed=i + 1) for i in range(PAST))
    ]

    def loop() -> None:
        network = bare.mlp()
        opt = torch.optim.SGD(network.parameters(), lr=0.1)
        for rows in torch.arange(n).split(10):
            bare.gem_step(network, opt, split.x[rows], split.y[rows], memories)

    return partial(single_pass, learner, split), loop


def gem_on_images(n: int) -> tuple[Callable[[], None], Callable[[], None]]:
    """GEM's steps on its residual network after five tasks of 64 images."""
    shape, past = (3, 32, 32), 5
    split, olds = examples(n, shape=shape), [examples(64, seed=i + 1, shape=shape) for i in range(past)]
    learner = GEM(build=partial(ResNet18, shape), head=HEAD, memories=64)
    for index, old in enumerate(olds):
        learner.on_task_end(Task(index, past + 1, "benchmark", tuple("0123456789"), HEAD, old))

    def loop() -> None:
        network = ResNet18(shape, HEAD, channels_last=False)
        opt = torch.optim.SGD(network.parameters(), lr=0.1)
        for rows in torch.arange(n).split(10):
            bare.gem_step(network, opt, split.x[rows], split.y[rows], [(old.x, old.y) for old in olds])

    return partial(single_pass, learner, split, past), loop


def nearest_means(n: int) -> tuple[Callable[[], None], Callable[[], None]]:
    """iCaRL's predictions among 100 classes, and those of its network."""
    head, known = Head("domain", 100, (tuple(range(100)),)), examples(200, seed=1, shape=(3, 32, 32))
    known = Split(known.x, torch.arange(200) % 100, known.task)
    learner = ICaRL(build=partial(ResNet18, (3, 32, 32)), head=head, total=200)
    learner.on_task_end(Task(0, 1, "benchmark", tuple(map(str, range(100))), head, known))
    batches = examples(n, shape=(3, 32, 32)).x.split(250)

    @torch.no_grad()
    def predicted(predictor: Callable) -> None:
        learner.eval()
        for x in batches:
            predictor(x, None)

    return partial(predicted, learner), partial(predicted, learner.network)


def against_finetune(
    n: int, cls: type[Learner], **options: Any
) -> tuple[Callable[[], None], Callable[[], None]]:
    split = examples(n)
    return partial(single_pass, with_memories(cls, **options), split), partial(single_pass, finetune(), split)


def ewc_sides(n: int) -> tuple[Callable[[], None], Callable[[], None]]:
    return against_finetune(n, EWC, strength=1.0, examples=10)


def er_sides(n: int) -> tuple[Callable[[], None], Callable[[], None]]:
    return against_finetune(n, ER)


OLD = 5  # tasks that were learned before
PERCEPTRON, RESNET = (
    partial(MLP, (1, 28, 28), sizes=(100, 100)),
    partial(ResNet, (3, 32, 32), width=16),
)


def task_of(index: int, split: Split) -> Task:
    head = Head("domain", 10, HEAD.owned * (OLD + 1))
    return Task(index, OLD + 1, "benchmark", tuple("0123456789"), head, split)


def after_five(cls: type[Learner], build: Callable, **options: Any) -> Learner:
    """After five tasks, of which it kept what it keeps without being trained."""
    shape = build.args[0]
    learner = cls(build=build, head=task_of(0, examples(1)).head, **options)
    for index in range(OLD):
        task = task_of(index, examples(20, seed=index + 1, shape=shape))
        learner.on_task_start(task)
        learner.adopt(learner.candidates(task)[0], task)
        learner.on_task_end(task)
    return learner


def sixth(learner: Learner, split: Split, stack: bool = True) -> None:
    """Train on another task with the trainer's defaults."""
    task, settings = task_of(OLD, split), toys.one_epoch(stack=stack)
    with tempfile.TemporaryDirectory() as folder:
        engine = Phases(StreamDataModule(NO_STREAM), Store(Path(folder), "benchmark"), settings)
        engine.fit(learner, Phase(learner.candidates(task)), [0], task, Place("task", OLD))


def in_default_batches(
    n: int, cls: type[Learner], build: Callable = PERCEPTRON, stack: bool = True, **options: Any
) -> tuple[Callable[[], None], Callable[[], None]]:
    split = examples(n, shape=build.args[0])
    ours, plain = after_five(cls, build, **options), after_five(Finetune, build)
    return partial(sixth, ours, split), partial(sixth, plain, split, stack)


def columns_sides(n: int) -> tuple[Callable[[], None], Callable[[], None]]:
    """A sixth column beside five old ones, and a loop with the same 21 columns and copies."""
    split, learner = examples(n), after_five(PNN, PERCEPTRON)
    columns = [[PERCEPTRON(head=HEAD).path_modules() for _ in range(k + 1)] for k in range(OLD + 1)]
    parts = [[list(modules.values()) for modules in of_one] for of_one in columns]

    def given(k: int, x: torch.Tensor, older: list) -> list[torch.Tensor]:
        own, *laterals = parts[k]
        out = [own[0](x)]
        for depth in range(1, len(own)):
            read = [copies[depth](below[depth - 1]) for copies, below in zip(laterals, older)]
            out.append(sum(read, own[depth](out[-1])))
        return out

    def loop() -> None:
        trained = [p for modules in columns[-1] for module in modules.values() for p in module.parameters()]
        opt = torch.optim.Adam(trained, lr=1e-3, fused=True)
        for rows in torch.randperm(n).split(64):
            x, older = split.x[rows], []
            with torch.no_grad():
                for k in range(OLD):
                    older.append(given(k, x, older))
            opt.zero_grad()
            F.cross_entropy(given(OLD, x, older)[-1], split.y[rows]).backward()
            opt.step()

    return partial(sixth, learner, split), loop


def fisher_sides(n: int) -> tuple[Callable[[], object], Callable[[], object]]:
    split, network = examples(n), bare.mlp()
    return (
        lambda: fisher(network, lambda part: network(split.x[part]).log_softmax(1), split.y, "empirical"),
        lambda: bare.fisher(network, split.x, split.y),
    )


def projection_share(n: int) -> float:
    """The share of GEM's time in the engine that is neither the mini-batch's own gradient nor those of the
    memories."""
    ours, _ = gem_sides(n)
    spent = {"after_backward": 0.0, "memory_gradients": 0.0}

    def clocked(name: str) -> Callable:
        original = getattr(GEM, name)

        def inside(*arguments: Any) -> Any:
            began = time.process_time()
            value = original(*arguments)
            spent[name] += time.process_time() - began
            return value

        return inside

    with patch.multiple(GEM, **{name: clocked(name) for name in spent}):
        ours()
        spent.update(dict.fromkeys(spent, 0.0))
        began = time.process_time()
        ours()
        whole = time.process_time() - began
    return (spent["after_backward"] - spent["memory_gradients"]) / whole
