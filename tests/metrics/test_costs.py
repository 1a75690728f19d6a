"""Operations, against counts by hand."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict
from time import sleep
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn as nn

from cl_lightning.engine.costs import alone, executed
from cl_lightning.engine.phases import published_flops
from cl_lightning.learners import MNTDP, Finetune
from cl_lightning.metrics.costs import Costs, held_bytes
from cl_lightning.metrics.flops import Flops, once_a_shape
from cl_lightning.protocol import LearnerError
from cl_lightning.store.records import CandidateRecord
from tests import toys
from tests.toys import builder, learn, training


def counted(work: Callable[[], object]) -> int:
    with Flops() as flops:
        work()
    return flops.total


def test_a_linear_layer_forward_and_backward() -> None:
    layer, x = nn.Linear(7, 3), torch.zeros(5, 7)
    product = 2 * 5 * 7 * 3
    assert counted(lambda: layer(x)) == product
    assert counted(lambda: layer(x).sum().backward()) == 2 * product, "the input wants no gradient"
    assert counted(lambda: layer(x.requires_grad_()).sum().backward()) == 3 * product


def test_a_frozen_layer_in_front_costs_no_backward_pass() -> None:
    network, x = nn.Sequential(nn.Linear(7, 3).requires_grad_(False), nn.Linear(3, 2)), torch.zeros(5, 7)
    assert counted(lambda: network(x).sum().backward()) == 2 * 5 * (7 * 3 + 2 * 3 * 2)


def test_a_convolution() -> None:
    conv = nn.Conv2d(3, 8, 3, padding=1)
    assert counted(lambda: conv(torch.zeros(2, 3, 6, 6))) == 2 * 2 * 8 * 36 * 27


def test_functions_count_as_modules_do() -> None:
    w, x = torch.ones(7, 3), torch.ones(5, 7)
    assert counted(lambda: x @ w) == counted(lambda: torch.addmm(torch.ones(3), x, w)) == 2 * 5 * 7 * 3


def test_without_any_gradients_graph_it_is_the_same_number() -> None:
    layer, x = nn.Linear(7, 3), torch.zeros(5, 7)
    with torch.inference_mode():
        assert counted(lambda: layer(x)) == 2 * 5 * 7 * 3, "a linear layer is made of other operations there"


def test_counting_changes_no_bit() -> None:
    network = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Dropout(0.5), nn.Linear(64, 3)
    )
    x = torch.rand(5, 1, 6, 6)

    def learned(counts: bool) -> list[torch.Tensor]:
        own = copy.deepcopy(network)
        torch.manual_seed(0)
        with Flops() if counts else nullcontext():
            own(x).square().sum().backward()
        return [*(p.grad for p in own.parameters()), *own.buffers(), torch.rand(2)]

    assert all(torch.equal(one, other) for one, other in zip(learned(True), learned(False)))


def test_nothing_is_counted_after_the_end_or_of_what_raised() -> None:
    layer = nn.Linear(4, 2)
    with Flops() as flops:
        with pytest.raises(RuntimeError):
            layer(torch.zeros(3, 5))
        layer(torch.zeros(3, 4))
    layer(torch.zeros(3, 4))
    assert flops.total == 2 * 3 * 4 * 2


def test_a_counter_inside_another_counts_for_both() -> None:
    layer = nn.Linear(4, 2)
    with Flops() as outer:
        inner = counted(lambda: layer(torch.zeros(3, 4)))
    assert inner == outer.total == 48


@pytest.mark.parametrize("nested", [False, True])
def test_rounds_of_one_shape_are_counted_once_and_all_of_them_added(nested: bool) -> None:
    layer, watched = nn.Linear(4, 2), []

    def rounds() -> None:
        for rows in (3, 3, 5, 3, 5):
            with once_a_shape("round", rows):
                layer(torch.zeros(rows, 4))
                watched.append(torch._C._len_torch_dispatch_stack() > 0)

    def nest() -> None:
        assert counted(rounds) == 19 * 4 * 2 * 2

    assert counted(nest if nested else rounds) == 19 * 4 * 2 * 2
    assert watched == [True, False, True, False, False]
    rounds()
    assert not any(watched[5:])


@pytest.mark.parametrize("stack", [True, False])
def test_a_phase_counts_every_mini_batch_and_scoring(stack: bool) -> None:
    s = toys.stream(tasks=1, n_train=25, n_val=40)
    learner = Finetune(build=builder(s), head=s.head, grid=[{"lr": 0.01}, {"lr": 0.02}], seed=0)
    costs = learn(learner, s, training(max_epochs=3, stack=stack, patience=1000)).costs()
    first, rest = 2 * 36 * 16, 2 * (16 * 16 + 16 * 4)
    scorings = len({0, 1, 2, 3, 4, 5, 6, 9})  # epochs end after 3, 6 and 9 mini-batches
    training_pass, forward = 2 * first + 3 * rest, first + rest
    assert costs["flops"] == costs["flops_executed"] == 2 * (3 * 25 * training_pass + scorings * 40 * forward)


def test_candidates_that_left_cost_nothing_more() -> None:
    s = toys.stream(tasks=1)
    grid = [{"lr": 0.02}, {"lr": 1e-9}]
    learned = learn(
        Finetune(build=builder(s), head=s.head, grid=grid, seed=0), s, training(patience=8, max_epochs=30)
    )
    steps = [standing["steps"] for standing in learned.standing(0).values()]
    assert steps[0] > steps[1] == 10  # the second never improves
    forward = 2 * (36 * 16 + 16 * 16 + 16 * 4)
    training_pass = 3 * forward - 2 * 36 * 16
    scorings = [sum(step in (0, 1, 2, 3, 4, 5, 10) or step % 6 == 0 for step in range(n + 1)) for n in steps]
    expected = sum(10 * n * training_pass + 40 * k * forward for n, k in zip(steps, scorings))
    assert learned.costs()["flops"] == expected


def test_published_operations_are_three_passes_of_the_chosen_point_up_to_the_best_of_each_path() -> None:
    s = toys.stream(tasks=2)
    learner = MNTDP(build=builder(s), head=s.head, grid=[{"lr": 1e-9}, {"lr": 0.02}], seed=0)
    learned = learn(learner, s, training(patience=1000, max_epochs=20))
    for task, paths in ((0, 1), (1, 3)):
        assert learned.phase(task).chosen.hparams == {"lr": 0.02}
        of_point = [row for name, row in learned.standing(task).items() if name.endswith("lr=0.02")]
        images = 10 * sum(row["steps_to_best"] for row in of_point)
        assert len(of_point) == paths
        assert 0 < images < 10 * sum(row["steps"] for row in of_point)
        assert learned.costs(task)["published_flops"] == 3 * (36 * 16 + 16 * 16 + 16 * 4) * images


def test_a_winner_that_trains_nothing_was_compared_at_the_first_point() -> None:
    reused = CandidateRecord("all", {}, 0.9, None, steps=0, steps_to_best=0)
    others = [CandidateRecord(str(lr), {"lr": lr}, 0.5, None, steps=8, steps_to_best=2) for lr in (0.1, 0.2)]
    counts = [{"score": [1, 7, 7, 0]}, {"batch": [8, 100, 6, 34]}, {"batch": [8, 100, 6, 54]}]
    group: Any = SimpleNamespace(candidates=[reused, *others], counts=counts)
    assert published_flops([group], reused) == 3 * (6 + 34) * 2 // 2
    assert published_flops([group], others[1]) == 3 * (6 + 54) * 2 // 2


class Looking(Finetune):
    """Runs its network over the training data at the end of a task, as for a Fisher matrix."""

    def on_task_end(self, task):
        self.network(task.train.x)


def test_the_learners_own_passes_are_counted() -> None:
    s = toys.stream(tasks=1, n_val=0)
    once, looking = (
        learn(cls(build=builder(s), head=s.head, seed=0), s).engine.collect_work().costs
        for cls in (Finetune, Looking)
    )
    forward = 2 * (36 * 16 + 16 * 16 + 16 * 4)
    assert looking.flops - once.flops == 60 * forward


def test_costs_add_up_by_part() -> None:
    costs = Costs()
    costs.add(flops=5, flops_executed=3, seconds={"train": 1.0})
    costs.add(flops=1, flops_executed=1, examples=10, seconds={"train": 0.5, "score": 2.0})
    assert costs == Costs(flops=6, flops_executed=4, examples=10, seconds={"train": 1.5, "score": 2.0})
    again = Costs()
    again.add(**asdict(costs))
    assert again == costs


class Repeats(Finetune):
    def extend(self, batch):
        return batch.cat(batch.x[:2], batch.y[:2], batch.task[:2])


def test_lent_and_added_examples_are_counted_once_a_mini_batch_whatever_the_number_of_candidates() -> None:
    learner = Repeats(build=builder(toys.stream()), head=toys.stream().head, grid=[{"lr": 0.1}, {"lr": 0.01}])
    costs = learn(learner, toys.stream(tasks=1), training(max_epochs=3, batch_size=25)).costs()
    assert (costs["examples"], costs["replayed"]) == (3 * 60, 3 * 3 * 2)
    assert costs["candidate_examples"] == 2 * 3 * 60


def test_what_mini_batches_cost_is_told_apart_from_scoring() -> None:
    learner = Finetune(build=builder(toys.stream()), head=toys.stream().head)
    costs = learn(learner, toys.stream(tasks=1), training(max_epochs=3, batch_size=20)).costs()
    assert costs["step_flops"] == 9 * 20 * 2 * (2 * 36 * 16 + 3 * (16 * 16 + 16 * 4))
    assert costs["step_flops"] < costs["flops"]


class Added(Finetune):
    """Work in every hook that a mini-batch passes through, in functions, not in modules."""

    def extend(self, batch):
        return self.product(batch)

    def after_backward(self, c, batch):
        self.product(batch)

    def after_step(self, c, batch):
        self.product(batch)

    def product(self, batch):
        torch.ones(5, 7) @ torch.ones(7, 3)
        return batch


@pytest.mark.parametrize("options", [{}, {"candidates_at_once": 1}])
def test_functional_work_in_any_hook_is_counted_alone_and_in_shares(options: dict) -> None:
    grid, s = [{"lr": 0.1}, {"lr": 0.01}], toys.stream(tasks=1)
    costs = [
        learn(cls(build=builder(s), head=s.head, grid=grid), s, training(max_epochs=2, **options)).costs()
        for cls in (Finetune, Added)
    ]
    product, mini_batches = 2 * 5 * 7 * 3, 12
    assert costs[1]["flops"] - costs[0]["flops"] == mini_batches * 2 * 3 * product, (
        "each of two would need all three alone"
    )
    assert costs[1]["flops_executed"] - costs[0]["flops_executed"] == mini_batches * (1 + 2 * 2) * product, (
        "extended once for both"
    )


class Doubles(Finetune):
    """Its loss is computed twice from the second epoch on."""

    def loss(self, c, batch):
        loss = super().loss(c, batch)
        return loss if self.once(batch) else (loss + super().loss(c, batch)) / 2

    def once(self, batch):
        return batch.epoch == 0


class DoublesAndSays(Doubles):
    """Every third loss is computed once, and the learner says which."""

    def once(self, batch):
        return batch.index_in_epoch % 3 == 0

    def kind(self, c, batch):
        return "once" if self.once(batch) else None


class DoublesOfOne(Doubles):
    """The same, for the candidates with the lower rate alone."""

    def loss(self, c, batch):
        return super().loss(c, batch) if c.hparams["lr"] < 0.05 else Finetune.loss(self, c, batch)


class DoublesBehind(Finetune):
    """Other work of its own than a loss, so that losses are computed as a stack."""

    def after_backward(self, c, batch):
        if batch.epoch > 0:
            Finetune.loss(self, c, batch)


TWO_RATES = [{"lr": 0.01}, {"lr": 0.1}]


@pytest.mark.parametrize("options", [{}, {"candidates_at_once": 1}, {"stack": False}])
@pytest.mark.parametrize(
    ("cls", "wide", "more"),
    [
        (Doubles, 16, 2 / 3),
        (DoublesAndSays, 16, 4 / 7),
        (DoublesOfOne, 16, 1 / 3),
        (DoublesBehind, 64, None),
    ],
)
def test_operations_that_change_with_more_than_a_shape_are_counted_as_they_are(
    cls, wide, more, options
) -> None:
    """Seven mini-batches an epoch, the last of them smaller."""
    s = toys.stream(tasks=1, n_train=70 if cls is DoublesAndSays else 64)
    settings = training(max_epochs=3, **options)
    plain, doubled = (
        learn(each(build=builder(s, (wide, wide)), head=s.head, grid=TWO_RATES), s, settings).costs()
        for each in (Finetune, cls)
    )
    forward = 2 * (36 * wide + wide * wide + wide * 4)
    added = 2 * 2 * 64 * forward if more is None else plain["step_flops"] * more
    assert doubled["step_flops"] - plain["step_flops"] == pytest.approx(added, rel=1e-12)
    assert doubled["flops_executed"] == doubled["flops"]


class DoublesLate(Doubles):
    def once(self, batch):
        return batch.epoch < 5


def test_in_later_epochs_every_499th_mini_batch_is_counted_again() -> None:
    """The second half of 600 mini-batches is doubled: it is seen before 102 of them."""
    s, settings = toys.stream(tasks=1), training(max_epochs=10, batch_size=1)
    one, doubled = (
        learn(cls(build=builder(s), head=s.head), s, settings).costs()["step_flops"]
        for cls in (Finetune, DoublesLate)
    )
    assert doubled * 600 == one * (600 + 102)


class SaysATensor(Finetune):
    def kind(self, c, batch):
        return batch.x.sum()


def test_a_kind_of_work_is_a_plain_value() -> None:
    s = toys.stream(tasks=1)
    with pytest.raises(LearnerError, match=r"SaysATensor\.kind must return a text or a whole number"):
        learn(SaysATensor(build=builder(s), head=s.head), s)


class ScoresSlowly(Finetune):
    def logits(self, c, batch):
        if not torch.is_grad_enabled():
            sleep(0.05)
        return super().logits(c, batch)


def test_seconds_of_scoring_are_not_those_of_training() -> None:
    s = toys.stream(tasks=1)
    learned = learn(ScoresSlowly(build=builder(s), head=s.head), s, training(max_epochs=1, patience=1000))
    seconds = learned.costs()["seconds"]
    assert seconds["score"] > 6 * 0.05 > seconds["train"] > 0


def test_what_is_shared_is_executed_as_long_as_somebody_needs_it() -> None:
    """Two candidates, of which the first takes 10 mini-batches and shares 7 operations, the second 4 and
    shares 9."""
    counts = [{"batch": [10, 1, 7]}, {"batch": [4, 1, 9]}]
    assert alone(counts) == 10 * 8 + 4 * 10
    assert executed(counts) == 10 + 4 + 4 * 9 + 6 * 7


def test_memory_is_measured_texts_and_bytes_and_nested_lists_too() -> None:
    learner = Finetune(build=builder(toys.stream()), head=toys.stream().head)
    learner.memory = {"a": ["four", [b"12", (1.0, torch.zeros(3))]], "view": torch.zeros(100)[:1]}
    held = held_bytes(learner)
    assert held["memory.a"] == 4 + 2 + 8 + 12
    assert held["memory.view"] == 400, "a view keeps all of its storage"


def test_a_tensor_that_a_memory_holds_twice_is_stored_once_and_counts_once() -> None:
    learner, images = Finetune(build=builder(toys.stream()), head=toys.stream().head), torch.zeros(100)
    learner.memory = {"x": {"all": images, "again": images, "first": images[:10]}}
    assert held_bytes(learner)["memory.x"] == 400 + len("all" + "again" + "first")
