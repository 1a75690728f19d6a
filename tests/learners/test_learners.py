"""What each learner's definition promises."""

from __future__ import annotations

from functools import partial

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

from cl_lightning.backbones import MLP
from cl_lightning.data.streams import split
from cl_lightning.data.task import Blocks, Head
from cl_lightning.learners import Finetune, Independent, Joint, Learner
from cl_lightning.metrics.accuracy_matrix import backward_transfer
from tests import toys
from tests.toys import builder, learn, training


def make(cls, s=None, grid=({},), **options: object) -> Learner:
    return cls(build=builder(s or toys.stream()), grid=grid, seed=0, **options)


def flat(network: nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in network.parameters()])


# ---- finetune ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
@pytest.mark.parametrize("dropout", [0.0, 0.4])
@pytest.mark.parametrize("head", ["single", "multi_train_test"])
@pytest.mark.parametrize("state", ["reset", "carry"])
def test_finetune_is_a_hand_written_loop_to_the_bit(optimizer: str, dropout: float, head: str, state: str) -> None:
    s = split(toys.images(), seed=0, tasks=2, classes_per_task=2, n_train=60, n_val=0, n_test=None, head=head)
    build = builder(s, dropout=dropout)
    momentum = 0.0 if optimizer == "adam" else 0.9
    learned = learn(Finetune(build=build, seed=3), s, training(optimizer=optimizer, momentum=momentum, optimizer_state=state))

    from cl_lightning.randomness import seed_of, seeded

    with seeded(3, "init", 0):
        network = build()
    with torch.random.fork_rng():
        for index in range(2):
            if index == 0 or state == "reset":
                parameters = network.parameters()
                adam = optimizer == "adam"
                opt = torch.optim.Adam(parameters, 0.01, fused=True) if adam else torch.optim.SGD(parameters, 0.01, momentum, fused=True)
            network.train()
            for block in Blocks(s.task(index).train, (3, f"task{index}", 0), 10, 3, 1):
                for batch in block.batches:
                    opt.zero_grad()
                    torch.manual_seed(seed_of(*batch.key, "loss"))
                    logits = network(batch.x)
                    if head == "multi_train_test":
                        others = [o for o in range(4) if o not in s.head.owned[index]]
                        logits[:, others] = -torch.inf
                    F.cross_entropy(logits, batch.y).backward()
                    opt.step()
    assert torch.equal(learned.weights, flat(network))


# ---- independent -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"start": "clone"}, {"split_width": True, "start": "clone"}])
def test_independent_networks_forget_exactly_nothing(options: dict) -> None:
    matrix = learn(make(Independent, **options), toys.stream()).matrix
    for j in range(3):
        assert all(matrix[i][j] == matrix[j + 1][j] for i in range(j + 1, 4))
        assert all(matrix[i][j] is None for i in range(j + 1))
    R = torch.tensor([[float("nan") if v is None else v for v in row] for row in matrix])
    assert backward_transfer(R) == 0


def test_learning_a_task_leaves_all_other_networks_untouched() -> None:
    short, long = learn(make(Independent), toys.stream(tasks=2)), learn(make(Independent), toys.stream(tasks=3))
    for one, other in zip(short.learner.networks, long.learner.networks):
        assert torch.equal(flat(one), flat(other))


def test_hidden_units_are_divided_among_the_tasks_as_in_gem() -> None:
    head = Head("domain", 10, (tuple(range(10)),) * 20)
    learner = Independent(build=partial(MLP, (1, 28, 28), head, (100, 100)), split_width=True)
    learner.on_task_start(type("", (), {"of": 20}))
    networks = [learner.new_network(i) for i in range(20)]
    assert sum(p.numel() for network in networks for p in network.parameters()) == 80_300


def test_a_clone_starts_from_the_previous_network_and_a_random_start_does_not() -> None:
    learner = make(Independent, grid=[{"start": "clone"}, {"start": "random"}])
    learn(learner, toys.stream(tasks=2))
    clone, random = learner.candidates(toys.stream().task(2))
    assert torch.equal(flat(clone.network), flat(learner.networks[1]))
    assert not torch.equal(flat(random.network), flat(learner.networks[1]))


# ---- joint -------------------------------------------------------------------------------------------------------


class Noting(Joint):
    """Notes every example it is trained on, by task and place in its task."""

    def __init__(self, **base: object) -> None:
        super().__init__(**base)
        self.seen = []

    def loss(self, c, batch):
        self.seen += list(zip(batch.task.tolist(), batch.x.flatten(1).sum(1).tolist()))
        return super().loss(c, batch)


@pytest.mark.parametrize(("at", "trainings"), [("last_task", [3]), ("every_task", [1, 2, 3])])
def test_joint_training_sees_every_example_of_the_pool_once_an_epoch(at: str, trainings: list[int]) -> None:
    learner, s = make(Noting, at=at), toys.stream()
    learn(learner, s, training(max_epochs=2))
    expected = []
    for tasks in trainings:
        pool = [(i, x.sum().item()) for i in range(tasks) for x in s.task(i).train.x.flatten(1)]
        expected += pool * 2
    assert sorted(t for t, _ in learner.seen) == sorted(t for t, _ in expected)
    assert sorted(round(x, 2) for _, x in learner.seen) == pytest.approx(sorted(round(x, 2) for _, x in expected), abs=0.02)


def test_joint_from_scratch_does_not_depend_on_what_it_learned_before() -> None:
    every, last = learn(make(Joint), toys.stream()), learn(make(Joint, at="last_task"), toys.stream())
    assert torch.equal(every.weights, last.weights)
    assert last.matrix[:3] == [[None] * 3] * 3
    assert last.matrix[3] == every.matrix[3]


def test_joint_beats_finetune_on_the_average_of_all_tasks() -> None:
    joint, finetune = (learn(make(cls), toys.stream(tasks=5), training(max_epochs=20)).matrix[-1] for cls in (Joint, Finetune))
    assert sum(joint) > sum(finetune)
