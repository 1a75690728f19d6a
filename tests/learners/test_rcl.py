"""Children that a controller draws, weights that stay, and widths that are remembered (Xu and Zhu 2018)."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import pytest
import torch

from cl_lightning.backbones import LWTA
from cl_lightning.errors import Refusal
from cl_lightning.learners import RCL
from cl_lightning.learners.rcl import Controller
from cl_lightning.randomness import rng, seeded
from tests import toys
from tests.learners import by_hand

NARROW = (36, 16, 16, 2)


def rcl(s: toys.Stream, **options: Any) -> Any:
    return RCL(
        build=toys.builder(s), head=s.head, seed=by_hand.SEED, **{"trials": 3, "actions": 4, **options}
    )


# ---- the controller ----------------------------------------------------------------------------------------


def controller(layers: int = 1, actions: int = 30, units: int = 100) -> Controller:
    with seeded("controller"):
        return Controller(layers, actions, units)


def test_a_reward_that_is_greatest_at_seven_is_found_in_five_hundred_steps() -> None:
    one = controller(actions=12, units=20)
    for step in range(500):
        added = one.draw(rng("bandit", step))
        one.learn(added, 1 - 0.1 * abs(added[0] - 7))
    assert abs(int(one.probabilities()[0].argmax()) - 7) <= 1


def test_the_expected_gradient_is_that_of_the_expected_reward_by_hand() -> None:
    """All draws for two layers, each with its probability; the baseline changes nothing."""
    one = controller(layers=2, actions=3, units=4)
    policy = [*one.lstm.parameters(), *one.out.parameters()]
    rewards = torch.randn(3, 3, generator=rng(0))
    expected = [torch.zeros_like(w) for w in policy]
    p = one.probabilities()
    for pair in itertools.product(range(3), repeat=2):
        weight = float((p[0, pair[0]] * p[1, pair[1]]).detach())
        for total, g in zip(expected, torch.autograd.grad(one.loss([*pair], float(rewards[pair])), policy)):
            total += weight * g
    mean = p[0] @ rewards @ p[1]
    for total, g in zip(expected, torch.autograd.grad(mean, policy)):
        assert torch.allclose(total, -g, atol=1e-5)


def test_the_baseline_learns_what_rewards_are_worth() -> None:
    one = controller(actions=3, units=4)
    for step in range(200):
        one.learn(one.draw(rng(step)), 0.7)
    assert one.value(one.state).item() == pytest.approx(0.7, abs=0.05)


# ---- by hand -----------------------------------------------------------------------------------------------


def drawn_by_hand(task: int, rewards: list[float]) -> list[int]:
    """What the controller of a task draws after these rewards."""
    with seeded(by_hand.SEED, "controller", task):
        one = Controller(2, 4)
    for trial in range(len(rewards) + 1):
        draws = rng(by_hand.SEED, "trial", task, trial)
        added = [int(torch.multinomial(p.detach(), 1, generator=draws)) for p in one.probabilities()]
        if trial < len(rewards):
            one.learn(added, rewards[trial])
    return added


def test_two_tasks_are_learned_as_by_hand() -> None:
    """Each child has new weights around the old ones, which get no gradient; the one with the greatest
    reward stays."""
    s, cost = by_hand.pairs(), 0.01
    learner = toys.learn(rcl(s, cost=cost), s, by_hand.SETTINGS, tasks=2).learner
    old = by_hand.fresh(0, NARROW)
    by_hand.train(old, s.task(0).train, 0)
    task, tried = s.task(1), []
    val: Any = task.val
    for trial in range(3):
        added = drawn_by_hand(1, [one[0] for one in tried])
        sizes = [36, 16 + added[0], 16 + added[1], 2]
        with seeded(by_hand.SEED, "init", 1, trial):
            layers = [torch.nn.Linear(below, width) for below, width in itertools.pairwise(sizes)]
        net = by_hand.copied([w for layer in layers for w in (layer.weight, layer.bias)])
        masks = [torch.ones_like(w) for w in net]
        for w, before, mask in zip(net[:4], old[:4], masks):
            block = tuple(slice(n) for n in before.shape)
            w.data[block], mask[block] = before.detach(), 0
        for _, x, y in by_hand.mini_batches(task.train, 1, trial):
            g = by_hand.gradient(by_hand.loss(net, x, y - 2), net)
            by_hand.move(net, g * by_hand.row(masks))
        right = by_hand.logits(net, val.x).argmax(1) == val.y - 2
        tried.append((right.double().mean().item() - cost * sum(added), added, net))
    assert learner.account()["rewards"] == pytest.approx([one[0] for one in tried])
    _, added, net = max(tried, key=lambda one: one[0])
    assert learner.account()["added"] == added
    assert learner.memory["widths"] == [[16, 16], [16 + added[0], 16 + added[1]]]
    x = s.test(1).x[:20]
    for index, expected in enumerate((old, net)):
        said = learner(x, index)[:, by_hand.OWN[index]]
        assert torch.allclose(said, by_hand.logits(expected, x), atol=1e-4)


# ---- what stays --------------------------------------------------------------------------------------------


def test_old_weights_and_predictions_keep_their_bits_whatever_decays() -> None:
    s, x = by_hand.pairs(), by_hand.pairs().test(0).x[:30]
    states: list[Any] = []

    class Notes(RCL):
        def on_task_end(self, task):
            states.append((copy.deepcopy(self.memory["hidden"]), [self(x, k) for k in range(task.index + 1)]))

    learner = Notes(build=toys.builder(s), head=s.head, seed=0, trials=2, actions=4)
    settings = toys.training(optimizer="adam", lr=0.01, weight_decay=0.1)
    toys.learn(learner, s, settings)
    for (before, said), (after, said_later) in itertools.pairwise(states):
        for old, new in zip(before, after):
            rows, columns = old[0].shape
            assert torch.equal(new[0][:rows, :columns], old[0])
            assert torch.equal(new[1][:rows], old[1])
        assert all(torch.equal(one, other) for one, other in zip(said, said_later))
    assert learner.memory["widths"][-1] > learner.memory["widths"][0], "nothing grew: the test shows nothing"
    wider = learner.memory["hidden"][1][0][:16, 16:]
    assert wider.numel()
    assert wider.abs().max() > 0, "old units read new ones"


def test_a_controller_that_can_add_nothing_leaves_the_width_as_it_is() -> None:
    s = by_hand.pairs()
    learner = toys.learn(rcl(s, trials=1, actions=1), s, toys.training()).learner
    assert learner.memory["widths"] == [[16, 16]] * 3


def test_memory_is_that_of_the_weights_the_heads_and_the_shapes() -> None:
    s = by_hand.pairs()
    learner = toys.learn(rcl(s, trials=1), s, toys.training()).learner
    a, b = learner.memory["widths"][-1]
    hidden, heads = 37 * a + (a + 1) * b, sum(2 * last + 2 for _, last in learner.memory["widths"])
    assert learner.published_memory(3) == 4 * (hidden + heads + 3 * 4)


def test_networks_with_other_parts_are_refused() -> None:
    s = toys.stream()
    for build in (toys.builder(s, input_dropout=0.2), toys.builder(s, sizes=()),
                  lambda **o: LWTA(input_shape=s.shape, sizes=(4,), **o)):  # fmt: skip
        with pytest.raises(Refusal, match="adds units to hidden linear layers"):
            toys.learn(RCL(build=build, head=s.head), s)
