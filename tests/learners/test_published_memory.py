"""Memory as Veniat et al. 2021 print it: megabytes by the formulas of their code, to three decimals, of
learners that were not trained."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch

from cl_lightning.backbones import MLP, AlexNet, ResNet
from cl_lightning.data.task import Head, Split, Task
from cl_lightning.engine.boundary import memory_at_test
from cl_lightning.learners import ER, EWC, HAT, MNTDP, PNN, Finetune, Independent, Learner, NewHead, NewLeg
from cl_lightning.metrics.costs import numbers_in
from tests import toys
from tests.learners import by_hand

Build = Any
RESNET: Build = partial(ResNet, input_shape=(3, 32, 32), width=64)
ALEXNET: Build = partial(AlexNet, input_shape=(3, 32, 32))
PERCEPTRON: Build = partial(MLP, input_shape=(1, 28, 28), sizes=(1000, 1000))
APART: Build = partial(RESNET, heads="per_task")
STREAMS = (
    (6, 10),
    (5, 10),
    (10, 10),
    (100, 5),
)  # tasks and classes: S- and others, S_pl, split CIFAR-100, S_long


def learned(cls: Any, build: Build, tasks: int, classes: int, **options: Any) -> Any:
    """After so many tasks, without training; weights are nowhere, what is stored is zeros."""
    head = Head("domain", classes, (tuple(range(classes)),) * tasks)
    names, shape = tuple(map(str, range(classes))), build.keywords["input_shape"]
    replays = options.get("size", 0)
    y = torch.arange(classes).repeat_interleave(replays)
    with torch.device("meta"):
        learner = cls(build=build, head=head, **options)
    for index in range(tasks):
        train = Split(torch.zeros(len(y), *shape), y, torch.full_like(y, index))
        task = Task(index, tasks, "", names, head, train)
        if cls in (Finetune, ER) or (cls is EWC and index == 0):  # what EWC stores does not grow
            learner.on_task_end(task)
        elif cls is EWC:
            continue
        else:
            with torch.device("meta"):
                (c,) = learner.paths_from([], task) if cls is MNTDP else learner.candidates(task)
                learner.adopt(c, task)
    return learner


def megabytes(learner: Learner, tasks: int) -> float:
    return round(learner.published_memory(tasks) / 1e6, 3)


@pytest.fixture
def nothing_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fisher information and the gates of HAT in their shapes alone."""
    monkeypatch.setattr(
        EWC, "information", lambda self, _: [*map(torch.zeros_like, self.network.parameters())]
    )
    randn = torch.randn
    monkeypatch.setattr(torch, "randn", lambda n, generator: randn(n))


CONVOLUTIONAL: list[tuple[Any, Build, dict, tuple]] = [
    (Independent, RESNET, {}, (14.631, 12.193, 24.385, 243.722)),
    (Finetune, RESNET, {}, (2.439, 2.439, 2.439, 2.437)),
    (NewHead, RESNET, {}, (2.452, 2.449, 2.462, 2.566)),
    (NewHead, RESNET, {"trunk": "finetune"}, (2.452, 2.449, None, None)),
    (NewLeg, RESNET, {}, (2.478, 2.470, 2.510, None)),
    (EWC, APART, {"free_heads": True}, (31.548, 26.695, 50.964, None)),
    (EWC, APART, {"free_heads": True, "penalty": "veniat", "gamma": 0.9}, (7.292, 7.290, 7.303, 7.407)),
    (ER, APART, {"policy": "ring", "size": 15}, (13.508, 11.661, 20.896, None)),
    (ER, APART, {"policy": "reservoir", "size": 15, "per_class": True}, (13.508, 11.661, 20.896, None)),
    (PNN, RESNET, {}, (51.090, 36.498, 133.761, None)),
    (MNTDP, RESNET, {}, (14.631, 12.193, None, None)),  # nothing re-used
    (HAT, ALEXNET, {}, (26.616, 26.516, 27.017, 31.931)),
    (HAT, partial(ALEXNET, widen=2.5), {}, (163.984, 163.734, None, None)),
    (HAT, partial(ALEXNET, widen=3.2), {}, (None, None, 269.301, 285.022)),
]


@pytest.mark.usefixtures("nothing_is_computed")
@pytest.mark.parametrize(("cls", "build", "options", "printed"), CONVOLUTIONAL)
def test_memory_on_four_kinds_of_streams_is_published(
    cls: Any, build: Build, options: dict, printed: tuple
) -> None:
    for (tasks, classes), value in zip(STREAMS, printed):
        if value is not None:
            assert megabytes(learned(cls, build, tasks, classes, **options), tasks) == value


@pytest.mark.usefixtures("nothing_is_computed")
@pytest.mark.parametrize(
    ("cls", "options", "printed"),
    [
        (Independent, {}, 71.840),
        (NewHead, {}, 7.544),
        (NewLeg, {}, 35.444),
        (EWC, {}, 150.865),  # the paper prints 143.7, which is 20 and not 21 networks
        (EWC, {"penalty": "online", "gamma": 0.9}, 21.552),
        (ER, {"policy": "ring", "size": 25}, 15.044),  # not the 15 a class of the other streams
        (PNN, {}, 253.822),
        (HAT, {}, 7.624),
    ],
)
def test_memory_on_permuted_mnist_is_published(cls: Any, options: dict, printed: float) -> None:
    assert megabytes(learned(cls, PERCEPTRON, 10, 10, **options), 10) == printed


@pytest.mark.usefixtures("nothing_is_computed")
def test_memory_of_a_perceptron_four_times_as_wide_is_published() -> None:
    wide = partial(PERCEPTRON, sizes=(4000, 4000))
    assert megabytes(learned(HAT, wide, 10, 10), 10) == 78.496


def test_a_learner_without_a_formula_counts_what_it_stores() -> None:
    learner = learned(Finetune, PERCEPTRON, 1, 10)
    before = learner.published_memory(1)
    learner.memory = {"x": torch.zeros(5, 3, dtype=torch.bfloat16), "of": [{"y": torch.zeros(7)}], "n": 3}
    assert learner.published_memory(1) - before == 4 * (15 + 7)


N, FIRST = (
    36 * 16 + 16 + 16 * 16 + 16 + 16 * 2 + 2,
    36 * 16 + 16,
)  # a network for one task, and its first layer
TABLE_10: list[tuple[Any, dict, dict, int]] = [
    (Finetune, {"heads": "per_task"}, {}, N),
    (Independent, {"heads": "per_task"}, {}, N),
    (NewHead, {}, {}, N),
    (NewLeg, {}, {}, N),
    (EWC, {"heads": "per_task"}, {"free_heads": True}, N),
    (ER, {"heads": "per_task"}, {"size": 20}, N),
    (MNTDP, {}, {"allow_head_reuse": False}, N),
    (HAT, {}, {}, N + 32),  # gates
    (PNN, {}, {}, 3 * N + 3 * (N - FIRST)),  # not in the paper's table: it reads all older columns
]


@pytest.mark.parametrize(("cls", "network", "options", "numbers"), TABLE_10)
def test_what_a_prediction_reads_is_published(cls: Any, network: dict, options: dict, numbers: int) -> None:
    s = by_hand.pairs()
    learner = cls(build=toys.builder(s, **network), head=s.head, **options)
    learner = toys.learn(learner, s, toys.training(max_epochs=1)).learner
    assert memory_at_test(learner, s.task(2)) == 4 * numbers
    assert numbers_in(learner.state_dict(), learner.memory) > numbers or cls is PNN


def test_of_a_task_that_it_cannot_predict_nothing_is_read() -> None:
    s = by_hand.pairs()
    assert memory_at_test(NewHead(build=toys.builder(s), head=s.head), s.task(2)) is None
