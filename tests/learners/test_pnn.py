"""Progressive networks: columns, what they read from older ones, and that nothing old moves."""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import partial

import pytest
import torch

from cl_lightning.backbones import ResNet
from cl_lightning.data.task import Head
from cl_lightning.learners import PNN
from cl_lightning.learners.pnn import Column
from cl_lightning.randomness import seeded
from tests import toys
from tests.learners import by_hand
from tests.toys import builder

NARROW = (36, 16, 16, 2)


def pnn(s: toys.Stream, **network: object) -> PNN:
    build = partial(ResNet, input_shape=s.shape, head=s.head, **network) if network else builder(s)
    return PNN(build=build, head=s.head, seed=by_hand.SEED)


def column_by_hand(x: torch.Tensor, own: by_hand.Net, laterals: list[by_hand.Net], older: list) -> list:
    """Three layers: what they give, the head without a ReLU."""
    h1 = (x.flatten(1) @ own[0].T + own[1]).clamp(min=0)
    h2 = (h1 @ own[2].T + own[3]).clamp(min=0)
    for u, old in zip(laterals, older):
        h2 = h2 + (old[0] @ u[0].T + u[1]).clamp(min=0)
    z = h2 @ own[4].T + own[5]
    for u, old in zip(laterals, older):
        z = z + old[1] @ u[2].T + u[3]
    return [h1, h2, z]


def test_three_tasks_are_learned_as_by_hand() -> None:
    s = by_hand.pairs()
    learner = by_hand.learned(pnn(s), s)
    columns: list[tuple[by_hand.Net, list[by_hand.Net]]] = []

    def outputs(x: torch.Tensor, count: int) -> list:
        made: list = []
        for own, laterals in columns[:count]:
            made.append(column_by_hand(x, own, laterals, made))
        return made

    for index in range(3):
        laterals = [by_hand.fresh((index, source), NARROW)[2:] for source in range(index)]
        columns.append((by_hand.fresh(index, NARROW), laterals))
        new = [w for net in (columns[-1][0], *laterals) for w in net]
        for _, x, y in by_hand.mini_batches(s.task(index).train, index):
            z = outputs(x, index + 1)[-1][-1]
            loss = -z.log_softmax(1)[range(len(y)), y - 2 * index].mean()
            by_hand.move(new, by_hand.gradient(loss, new))
    for index, (own, laterals) in enumerate(columns):
        expected = [*own, *(w for net in laterals for w in net)]
        assert (
            by_hand.row(list(learner.columns[index].parameters())) - by_hand.row(expected)
        ).abs().max() < 1e-5
        x = s.test(index).x[:20]
        said = learner(x, index)[:, by_hand.OWN[index]]
        assert torch.allclose(said, outputs(x, index + 1)[-1][-1], atol=1e-5)


def test_a_residual_network_with_batch_norm_is_trained_as_by_hand() -> None:
    """Two tasks: the old column in evaluation mode, the new one and its laterals in training mode. The rate
    is low: at a greater one a difference of 1e-7 grows to 0.1 in three epochs."""
    s, size, rate = by_hand.pairs(), {"width": 4}, 0.001
    learner = pnn(s, **size)
    learned = toys.learn(learner, s, replace(by_hand.SETTINGS, lr=rate), tasks=2)
    assert learned.matrix[2][0] == learned.matrix[1][0]

    def modules(key: object) -> list[torch.nn.Module]:
        with seeded(by_hand.SEED, "init", key):
            network = ResNet(s.shape, Head("domain", 2, ((0, 1),)), **size)
        return list(network.path_modules().values())

    def train(index: int, new: list[torch.nn.Module], forward) -> None:
        weights = [p for module in new for p in module.parameters()]
        for _, x, y in by_hand.mini_batches(s.task(index).train, index):
            loss = -forward(x).log_softmax(1)[range(len(y)), y - 2 * index].mean()
            by_hand.move(weights, by_hand.gradient(loss, weights), rate)
        for module in new:
            module.requires_grad_(False).eval()

    first, second, laterals = modules(0), modules(1), modules((1, 0))[1:]

    def one(x: torch.Tensor) -> torch.Tensor:
        for module in first:
            x = module(x)
        return x

    def two(x: torch.Tensor) -> torch.Tensor:
        old, h = first[0](x), second[0](x)
        for under, own, lateral in zip(first[1:], second[1:], laterals):
            old, h = under(old), own(h) + lateral(old)
        return h

    train(0, first, one)
    train(1, [*second, *laterals], two)
    x = s.test(1).x[:20]
    for index, forward in enumerate((one, two)):
        said = learner(x, index)[:, by_hand.OWN[index]]
        assert torch.allclose(said, forward(x), atol=1e-3)  # batch norm makes rounding grow
    by_program = [*learner.columns[0].own, *learner.columns[1].own, *learner.columns[1].laterals[0]]
    for module, expected in zip(by_program, [*first, *second, *laterals], strict=True):
        for one_of, other in zip(module.state_dict().values(), expected.state_dict().values(), strict=True):
            assert torch.allclose(one_of, other, atol=1e-3)  # running statistics and their counters, too


def tensors(learner: PNN) -> list[torch.Tensor]:
    """All that the columns hold, the oldest first."""
    return [value.clone() for column in learner.columns for value in column.state_dict().values()]


@pytest.fixture(scope="module")
def three() -> tuple[PNN, list[torch.Tensor]]:
    """A learner of three tasks, and all that its columns held after each."""
    s, learner, held = by_hand.pairs(), None, []

    class Notes(PNN):
        def on_task_end(self, task):
            held.append(tensors(self))

    learner = Notes(build=partial(ResNet, input_shape=s.shape, head=s.head, width=4), head=s.head)
    learned = toys.learn(learner, s, by_hand.SETTINGS)
    matrix = learned.matrix
    assert [matrix[3][task] for task in range(3)] == [matrix[task + 1][task] for task in range(3)]
    return learner, held


def test_nothing_old_moves_not_even_a_running_statistic(three: tuple) -> None:
    learner, held = three
    assert not any(p.requires_grad for p in learner.parameters())
    assert not any(module.training for module in learner.train().columns.modules())
    for values in held:
        assert all(map(torch.equal, values, tensors(learner)))


def test_without_its_laterals_a_column_says_another_thing_and_no_other_column_does(three: tuple) -> None:
    learner, _ = three
    x = by_hand.pairs().test(0).x[:20]
    before = [learner(x, task)[:, by_hand.OWN[task]] for task in range(3)]
    for changed in (1, 2):
        without = copy.deepcopy(learner)
        for p in without.columns[changed].laterals.parameters():
            p.zero_()
        moved = [(without(x, task)[:, by_hand.OWN[task]] - before[task]).abs().max() for task in range(3)]
        assert moved[changed] > 1e-4
        # A later column reads this one. An earlier one does not.
        assert not any(moved[:changed])
    for source in (0, 1):  # each of the older columns is read
        without = copy.deepcopy(learner)
        for p in without.columns[2].laterals[source].parameters():
            p.zero_()
        assert (without(x, 2)[:, [4, 5]] - before[2]).abs().max() > 1e-4
        assert all(torch.equal(without(x, task)[:, by_hand.OWN[task]], before[task]) for task in (0, 1))


def test_a_candidate_has_its_own_modules_and_no_old_column() -> None:
    s = by_hand.pairs()
    learner = toys.learn(pnn(s), s, toys.training(max_epochs=1), tasks=2).learner
    (c,) = learner.candidates(s.task(2))
    assert isinstance(c.network, Column)
    n, first = sum(p.numel() for p in learner.columns[0].parameters()), 36 * 16 + 16
    assert sum(p.numel() for p in c.parameters) == n + 2 * (n - first)
