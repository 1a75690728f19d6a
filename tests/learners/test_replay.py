"""Which examples are kept, and how they are replayed."""

from __future__ import annotations

import math
from collections import UserList

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cl_lightning.data.task import Batch, Head, Split, Task
from cl_lightning.errors import Refusal
from cl_lightning.learners import ER, Finetune
from cl_lightning.learners.parts.memory import reservoir, ring_of_each_class
from cl_lightning.randomness import rng
from tests import toys
from tests.learners import by_hand
from tests.toys import builder, learn, training

HEAD = Head("domain", 4, ((0, 1, 2, 3),) * 9)


def numbered(index: int, n: int, classes: int = 4) -> Task:
    """A task whose images hold their own number in the stream."""
    x = (torch.arange(n) + 1 + 1000 * index).float().reshape(n, 1, 1, 1)
    return Task(index, 9, "", (), HEAD, Split(x, torch.arange(n) % classes, torch.full((n,), index)))


def test_a_reservoir_holds_each_example_so_far_with_the_same_probability() -> None:
    size, streams, n = 50, 2000, 1000
    kept = torch.zeros(n)
    for seed in range(streams):
        memory: dict = {}
        reservoir(memory, numbered(0, n), size, torch.Generator().manual_seed(seed))
        kept[memory["x"].flatten().long() - 1] += 1
    assert (kept / streams - size / n).abs().max() < 0.02
    chi_square = ((kept - streams * size / n) ** 2 / (streams * size / n)).sum() / (1 - size / n)
    assert chi_square < n + 3.1 * math.sqrt(2 * n)  # p > 0.001


def test_a_reservoir_goes_on_over_tasks() -> None:
    first = 0
    for seed in range(300):
        memory: dict = {}
        for index in range(4):
            reservoir(memory, numbered(index, 100), 40, torch.Generator().manual_seed(100 * seed + index))
        first += (memory["task"] == 0).sum().item()
    assert first / 300 == pytest.approx(10, abs=0.7)


@given(st.integers(0, 30), st.lists(st.integers(1, 40), min_size=1, max_size=4))
def test_a_reservoir_never_holds_more_than_its_size_and_nothing_twice(size: int, tasks: list[int]) -> None:
    memory: dict = {}
    for index, n in enumerate(tasks):
        reservoir(memory, numbered(index, n), size, torch.Generator().manual_seed(index))
    assert memory["filled"] == min(size, sum(tasks))
    assert memory["x"].shape[0] == size
    held = memory["x"].flatten()[: memory["filled"]].tolist()
    assert len(set(held)) == len(held)
    assert 0 not in held


def test_a_ring_holds_the_last_of_each_class_of_each_task() -> None:
    memory: dict = {}
    for index in range(2):
        ring_of_each_class(memory, numbered(index, 40), 3)
    expected = {
        (t, c): [1000 * t + n + 1 for n in range(40) if n % 4 == c][-3:] for t in range(2) for c in range(4)
    }
    for (t, c), numbers in expected.items():
        rows = (memory["task"] == t) & (memory["y"] == c)
        assert memory["x"][rows].flatten().tolist() == numbers
    assert memory["filled"] == 24


# ---- the learner -------------------------------------------------------------------------------------------


class Noting(ER):
    def __init__(self, **base) -> None:
        super().__init__(**base)
        self.seen = UserList()

    def loss(self, c, batch):
        self.seen.append((batch.key[1], batch.task.tolist()))
        return super().loss(c, batch)


@pytest.mark.parametrize("policy", ["reservoir", "ring"])
def test_mini_batches_are_doubled_with_examples_of_past_tasks_alone(policy: str) -> None:
    learner = Noting(build=builder(toys.stream()), head=toys.stream().head, seed=0, policy=policy, size=20)
    learn(learner, toys.stream(), training(max_epochs=1))
    for where, tasks in learner.seen:
        index = int(where.removeprefix("task"))
        new, replayed = tasks[:10], tasks[10:]
        assert set(new) == {index}
        assert len(replayed) == (10 if index else 0)
        assert set(replayed) <= set(range(index))


def test_replayed_examples_count_for_their_own_tasks_outputs() -> None:
    s = toys.pairs_of_classes()
    learner = ER(build=builder(s), head=s.head, seed=0, size=20)
    learn(learner, s, training(max_epochs=1), tasks=1)
    batch = learner.extend(Batch(*s.task(1).train.gather(torch.arange(5)), key=(0, "task1", 0, 0)))
    logits = learner.masked(torch.zeros(10, 4), batch)
    for row, task in zip(logits, batch.task.tolist()):
        assert row.isfinite().tolist() == [[True, True, False, False], [False, False, True, True]][task]
    assert batch.task.tolist() == [1, 1, 1, 1, 1, 0, 0, 0, 0, 0]


Example = tuple[torch.Tensor, torch.Tensor, int]  # image, label, task


def kept_by_hand(memory: list[Example], seen: list[Example], policy: str, size: int) -> list[Example]:
    """What is stored after a task, the last of ``seen``: all examples so far."""
    task = seen[-1][2]
    new = [example for example in seen if example[2] == task]
    if policy == "ring":
        of_classes = [[example for example in new if example[1] == label] for label in range(6)]
        return memory + [example for of_class in of_classes for example in of_class[-size:]]
    draws = torch.rand(len(new), generator=rng(by_hand.SEED, task, "memory"), dtype=torch.float64).tolist()
    memory, count = list(memory), len(seen) - len(new)
    for example, draw in zip(new, draws):
        count += 1
        if len(memory) < size:
            memory.append(example)
        elif (slot := int(draw * count)) < size:  # with probability size / count, each slot alike
            memory[slot] = example
    return memory


@pytest.mark.parametrize(("policy", "size"), [("reservoir", 25), ("ring", 4)])
def test_three_tasks_are_learned_as_by_hand(policy: str, size: int) -> None:
    s = by_hand.pairs()
    learner = by_hand.learned(
        ER(build=builder(s), head=s.head, seed=by_hand.SEED, policy=policy, size=size), s
    )
    net = by_hand.fresh(0, (36, 16, 16, 6))
    memory: list[Example] = []
    seen: list[Example] = []

    def loss(x: torch.Tensor, y: torch.Tensor, task: int) -> torch.Tensor:
        return by_hand.loss(net, x[None], y[None], by_hand.OWN[task])

    for index in range(3):
        task = s.task(index).train
        for key, x, y in by_hand.mini_batches(task, index):
            losses = [loss(one, label, index) for one, label in zip(x, y)]
            if memory:
                drawn = torch.randint(len(memory), (len(y),), generator=rng(*key, "replay")).tolist()
                losses += [loss(*memory[i]) for i in drawn]
            by_hand.move(net, by_hand.gradient(torch.stack(losses).mean(), net))
        seen += [(x, y, index) for x, y in zip(task.x, task.y)]
        memory = kept_by_hand(memory, seen, policy, size)
    assert {example[2] for example in memory} == {0, 1, 2}
    assert by_hand.equal(learner.network, net)


@pytest.mark.parametrize("epochs", [1, 2])
@pytest.mark.parametrize(("size", "per_class"), [(25, False), (4, True)])
def test_a_single_pass_is_learned_as_by_hand(size: int, per_class: bool, epochs: int) -> None:
    """Each example enters the memory after its own step, once; a later epoch finds all of the task there."""
    s = toys.pairs_of_classes(tasks=3, n_train=64, n_val=0)  # the last mini-batch is short
    options = {"policy": "single_pass", "size": size, "per_class": per_class}
    learner = ER(build=builder(s), head=s.head, seed=by_hand.SEED, **options)
    settings = training(optimizer="sgd", lr=by_hand.RATE, max_epochs=epochs, single_pass=True)
    learn(learner, s, settings)
    net = by_hand.fresh(0, (36, 16, 16, 6))
    memory: list[Example] = []
    seen = 0
    for index in range(3):
        x, y, _ = s.task(index).train.parts
        draws = torch.rand(64, generator=rng(by_hand.SEED, index, "memory"), dtype=torch.float64).tolist()
        room = size * 2 * (index + 1) if per_class else size
        later = torch.randperm(64, generator=rng(by_hand.SEED, f"task{index}", 0, "order", 1))
        orders = [torch.arange(64), later][:epochs]
        steps = [(epoch, rows) for epoch, order in enumerate(orders) for rows in order.split(10)]
        for step, (epoch, rows) in enumerate(steps):
            examples = [(x[i], y[i], index) for i in rows.tolist()]
            if memory:
                generator = rng(by_hand.SEED, f"task{index}", 0, step, "replay")
                drawn = torch.randint(len(memory), (len(rows),), generator=generator).tolist()
                examples = examples + [memory[i] for i in drawn]
            losses = [by_hand.loss(net, a[None], b[None], by_hand.OWN[task]) for a, b, task in examples]
            by_hand.move(net, by_hand.gradient(torch.stack(losses).mean(), net))
            for i in rows.tolist() if epoch == 0 else []:
                seen += 1
                if len(memory) < room:
                    memory.append((x[i], y[i], index))
                elif (slot := int(draws[i] * seen)) < room:
                    memory[slot] = (x[i], y[i], index)
    assert torch.allclose(by_hand.row(list(learner.network.parameters())), by_hand.row(net), atol=1e-5)
    held = torch.stack([example[0] for example in memory])
    assert torch.equal(learner.memory["x"], held)
    assert len(held) == (24 if per_class else 25)


def test_a_reservoir_of_so_many_a_class_fills_its_new_slots_first() -> None:
    memory: dict = {}
    for index, size in enumerate((8, 16)):
        reservoir(memory, numbered(index, 40), size, torch.Generator().manual_seed(index))
    assert memory["filled"] == 16
    assert (memory["task"][8:] == 1).all()


@pytest.mark.parametrize("policy", ["reservoir", "ring", "single_pass"])
def test_without_a_memory_it_is_finetune_to_the_bit(policy: str) -> None:
    s, settings = toys.stream(n_val=0), training(single_pass=policy == "single_pass")
    none = learn(ER(build=builder(s), head=s.head, policy=policy, size=0), s, settings)
    assert torch.equal(none.weights, learn(Finetune(build=builder(s), head=s.head), s, settings).weights)


def test_a_single_pass_of_shuffled_examples_is_refused() -> None:
    s = toys.stream()
    with pytest.raises(Refusal, match=r"trainer\.single_pass=true"):
        learn(ER(build=builder(s), head=s.head, policy="single_pass", size=5), s, training())


def test_a_branch_with_a_smaller_reservoir_is_refused() -> None:
    memory: dict = {}
    reservoir(memory, numbered(0, 5), 8, torch.Generator())
    with pytest.raises(Refusal, match="made for 8 examples, not 7"):
        reservoir(memory, numbered(1, 5), 7, torch.Generator())


def test_replay_forgets_less_than_finetune() -> None:
    s = toys.stream(tasks=5, n_train=200, n_val=0)
    settings = training(optimizer="sgd", lr=0.3, max_epochs=3, single_pass=True)
    er, none = (
        sum(learn(ER(build=builder(s, (32,)), head=s.head, size=size), s, settings).matrix[-1])
        for size in (200, 0)
    )
    assert er > none + 0.5
