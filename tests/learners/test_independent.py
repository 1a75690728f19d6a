"""A network a task: where each begins, and that none touches another."""

from __future__ import annotations

from functools import partial

import pytest
import torch
import torch.nn as nn

from cl_lightning.backbones import MLP
from cl_lightning.data.task import Head
from cl_lightning.errors import Refusal
from cl_lightning.learners import Independent
from cl_lightning.metrics.accuracy_matrix import backward_transfer
from tests import toys
from tests.learners import by_hand
from tests.toys import builder, learn


def make(**options: object) -> Independent:
    return Independent(build=builder(toys.stream()), seed=0, **options)


def flat(network: nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in network.parameters()])


@pytest.mark.parametrize("start", ["random", "clone"])
@pytest.mark.parametrize("split_width", [False, True])
def test_each_task_has_a_network_of_its_own_trained_as_by_hand(start: str, split_width: bool) -> None:
    """Random and whole as in Veniat et al. 2021; cloned and divided as in Lopez-Paz and Ranzato 2017."""
    s = by_hand.pairs()
    options = {"start": start, "split_width": split_width}
    learner = by_hand.learned(Independent(build=builder(s), seed=by_hand.SEED, **options), s)
    networks: list[by_hand.Net] = []
    for index in range(3):
        net = by_hand.fresh(index, (36, 5, 5, 6) if split_width else (36, 16, 16, 6))
        if start == "clone" and networks:
            net = by_hand.copied(networks[-1])
        by_hand.train(net, s.task(index).train, index, by_hand.OWN[index])
        networks.append(net)
    assert len(learner.networks) == 3
    assert all(by_hand.equal(network, net) for network, net in zip(learner.networks, networks))
    assert by_hand.same_logits(learner, networks, s.test(0).x[:5])


@pytest.mark.parametrize("options", [{}, {"start": "clone"}, {"split_width": True, "start": "clone"}])
def test_independent_networks_forget_exactly_nothing(options: dict) -> None:
    matrix = learn(make(**options), toys.stream()).matrix
    for j in range(3):
        assert all(matrix[i][j] == matrix[j + 1][j] for i in range(j + 1, 4))
        assert all(matrix[i][j] is None for i in range(j + 1))
    R = torch.tensor([[float("nan") if v is None else v for v in row] for row in matrix])
    assert backward_transfer(R) == 0


def test_learning_a_task_leaves_all_other_networks_untouched() -> None:
    short, long = learn(make(), toys.stream(tasks=2)), learn(make(), toys.stream(tasks=3))
    for one, other in zip(short.learner.networks, long.learner.networks):
        assert torch.equal(flat(one), flat(other))


def test_hidden_units_are_divided_among_the_tasks_as_in_gem() -> None:
    head = Head("domain", 10, (tuple(range(10)),) * 20)
    learner = Independent(build=partial(MLP, (1, 28, 28), head, (100, 100)), split_width=True)
    learner.on_task_start(type("", (), {"of": 20}))
    networks = [learner.new_network(i) for i in range(20)]
    assert sum(p.numel() for network in networks for p in network.parameters()) == 80_300


def test_a_clone_starts_from_the_previous_network_and_a_random_start_does_not() -> None:
    learner = make(grid=[{"start": "clone"}, {"start": "random"}])
    learn(learner, toys.stream(tasks=2))
    clone, random = learner.candidates(toys.stream().task(2))
    assert torch.equal(flat(clone.network), flat(learner.networks[1]))
    assert not torch.equal(flat(random.network), flat(learner.networks[1]))


def test_an_unknown_start_is_refused() -> None:
    with pytest.raises(Refusal, match=r"start=warm.*random, clone"):
        make(grid=[{"start": "warm"}])
