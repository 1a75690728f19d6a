"""Units that are retrained, added and split (Yoon et al. 2018)."""

from __future__ import annotations

import copy
import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from cl_lightning.learners import DEN
from cl_lightning.learners.den import used_units
from cl_lightning.learners.parts.widths import wide_of, widened_by
from cl_lightning.randomness import seeded
from tests import toys
from tests.learners import by_hand

NARROW = (36, 16, 16, 2)
L1, L2, DRIFT, GROUP, SPLIT = 0.003, 0.05, 0.02, 0.02, 0.003
OLD, ADDED, SPLITS = 16, 6, 3


def den(s: toys.Stream, cls: Any = DEN, **options: Any) -> Any:
    keys = {"l1": L1, "l2": L2, "drift": DRIFT, "group": GROUP, "split": SPLIT, "splits": SPLITS}
    keys = {**keys, "units": ADDED, "threshold": 0, **options}
    return cls(build=toys.builder(s), head=s.head, seed=by_hand.SEED, **keys)


def learned(tasks: int = 2, **options: Any) -> Any:
    s = by_hand.pairs()
    return toys.learn(den(s, **options), s, by_hand.SETTINGS, tasks=tasks).learner


# ---- by hand -----------------------------------------------------------------------------------------------


def drawn(sizes: tuple[int, ...], *key: object) -> by_hand.Net:
    with seeded(by_hand.SEED, "init", *key):
        layers = [torch.nn.Linear(below, width) for below, width in itertools.pairwise(sizes)]
    return by_hand.copied([w for layer in layers for w in (layer.weight, layer.bias)])


@torch.no_grad()
def nearer(weight: Tensor, by: float) -> None:
    for value in weight.view(-1):
        value.copy_(torch.sign(value) * max(abs(float(value)) - by, 0))


def far(net: by_hand.Net, old: by_hand.Net) -> Any:
    """Squared distance of what was there before."""
    return sum(((w[tuple(map(slice, o.shape))] - o) ** 2).sum() for w, o in zip(net, old))


def leads(net: by_hand.Net) -> list[set[int]]:
    """Inputs, first and second layer: what has a way to an output whose weights are not 0."""
    found = [set(range(2))]
    for weight in (net[4], net[2], net[0]):
        found.insert(0, {i for i in range(weight.shape[1]) if bool(weight[sorted(found[0]), i].any())})
    return found[:3]


def between(net: by_hand.Net, units: list[set[int]], below: list[set[int]], read: set[int]) -> list[Tensor]:
    """1 where a weight is trained: of the first layer, the second, and the head."""
    masks = [torch.zeros_like(w) for w in net]
    for layer in range(2):
        for j in units[layer]:
            masks[2 * layer + 1][j] = 1
            for i in below[layer]:
                masks[2 * layer][j, i] = 1
    masks[4][:, sorted(read)] = 1
    masks[5][:] = 1
    return masks


def descend(net: by_hand.Net, value: Tensor, masks: list[Tensor]) -> None:
    by_hand.move(net, by_hand.gradient(value, net) * by_hand.row(masks))


class Sparse(DEN):
    """Its first task takes more from the weights: some inputs are not used any more."""

    def on_task_start(self, task):
        self.l1 = L1 if task.index else FIRST


FIRST = 0.008


def test_two_tasks_are_learned_as_by_hand() -> None:
    s, learner = by_hand.pairs(), learned(cls=Sparse)
    net = by_hand.fresh(0, NARROW)
    for _, x, y in by_hand.mini_batches(s.task(0).train, 0):
        value = by_hand.loss(net, x, y) + L2 / 2 * sum((w**2).sum() for w in net)
        by_hand.move(net, by_hand.gradient(value, net))
        for weight in net[::2]:
            nearer(weight, FIRST)
    first, old = by_hand.copied(net), by_hand.copied(net[:4])
    train, everything = s.task(1).train, [set(range(n)) for n in NARROW]

    # the head alone, and then what leads to it
    net = by_hand.copied([*old, *drawn(NARROW, 1)[4:]])
    masks = between(net, [set(), set()], everything, everything[2])
    steps = by_hand.EPOCHS * math.ceil(len(train) / by_hand.SIZE)
    for step, (_, x, y) in enumerate(by_hand.mini_batches(train, 1)):
        descend(net, by_hand.loss(net, x, y - 2) + DRIFT / 2 * far(net, old), masks)
        if step < steps // 10:
            nearer(net[4], L1)
        if step == steps // 10 - 1:
            used = leads(net)
            masks = between(net, used[1:], used, used[2])
    assert learner.account()["used"] == [len(units) for units in used]
    assert 0 < len(used[0]) < 36

    # six units more in each layer
    wide = drawn((36, OLD + ADDED, OLD + ADDED, 2), 1, "expand")
    with torch.no_grad():
        for w, before in zip(wide[:5], net):
            w[tuple(map(slice, before.shape))] = before
        wide[2][:OLD, OLD:] = 0
        wide[5].copy_(net[5])
    net, new = wide, set(range(OLD, OLD + ADDED))
    masks = between(net, [new, new], [everything[0], everything[1] | new], used[2] | new)
    for _, x, y in by_hand.mini_batches(train, 1, 1):
        descend(net, by_hand.loss(net, x, y - 2), masks)
        nearer(net[4], L1)
        for weight, j in itertools.product((net[0], net[2]), new):
            nearer(weight[j], L1)
            with torch.no_grad():
                weight[j] *= max(0.0, 1 - GROUP / max(float(weight[j].norm()), 1e-12))
    stay = [
        [j for j in range(OLD + ADDED) if j < OLD or bool(weight[j].any())] for weight in (net[0], net[2])
    ]
    assert learner.account()["added"] == [len(units) - OLD for units in stay]
    assert any(0 < len(units) - OLD < ADDED for units in stay), "all or none stay: the test shows less"
    net = by_hand.copied([net[0][stay[0]], net[1][stay[0]], net[2][stay[1]][:, stay[0]], net[3][stay[1]],
                          net[4][:, stay[1]], net[5]])  # fmt: skip

    # the three farthest of each layer
    which = []
    for weight, before in ((net[0], old[0]), (net[2], old[2])):
        ways = [float((weight[j, : before.shape[1]] - before[j]).detach().norm()) for j in range(OLD)]
        which.append(
            sorted(sorted((j for j in range(OLD) if ways[j] > SPLIT), key=lambda j: -ways[j])[:SPLITS])
        )
    assert learner.account()["split"] == [len(units) for units in which] == [SPLITS, SPLITS]
    n, m = (len(units) for units in stay)
    net = split_by_hand(net, old, which)
    now = [set(range(OLD, n + len(which[0]))), set(range(OLD, m + len(which[1])))]
    masks = between(net, [(used[1] - {*which[0]}) | now[0], (used[2] - {*which[1]}) | now[1]],
                    [used[0], used[1] | now[0]], used[2] | now[1])  # fmt: skip
    for _, x, y in by_hand.mini_batches(train, 1, 2):
        descend(net, by_hand.loss(net, x, y - 2) + DRIFT / 2 * far(net, old), masks)

    assert learner.memory["widths"] == [[16, 16], [n + len(which[0]), m + len(which[1])]]
    x = s.test(1).x[:20]
    assert torch.allclose(learner(x, 1)[:, by_hand.OWN[1]], by_hand.logits(net, x), atol=1e-4)
    then = [net[0][:16], net[1][:16], net[2][:16, :16], net[3][:16], *first[4:]]
    assert torch.allclose(learner(x, 0)[:, by_hand.OWN[0]], by_hand.logits(then, x), atol=1e-4)


def split_by_hand(net: by_hand.Net, old: by_hand.Net, which: list[list[int]]) -> by_hand.Net:
    """Weight by weight: old units get their old weights, copies theirs; new units and outputs read copies."""
    lower, upper = (
        {len(bias) + k: j for k, j in enumerate(units)} for bias, units in zip((net[1], net[3]), which)
    )
    w1 = torch.zeros(len(net[1]) + len(lower), 36)
    b1, w2 = torch.zeros(len(w1)), torch.zeros(len(net[3]) + len(upper), len(w1))
    b2, w3 = torch.zeros(len(w2)), torch.zeros(2, len(w2))
    with torch.no_grad():
        for j in range(len(w1)):
            of = lower.get(j, j)
            w1[j], b1[j] = (old[0][of], old[1][of]) if j in which[0] else (net[0][of], net[1][of])
        for j, i in itertools.product(range(len(w2)), range(len(w1))):
            of, below, new = upper.get(j, j), lower.get(i, i), j >= OLD
            b2[j] = old[3][of] if j in which[1] else net[3][of]
            if j in which[1]:
                w2[j, i] = old[2][j, i] if i < OLD else 0
            elif new:
                w2[j, i] = 0 if i in which[0] else net[2][of, below]
            else:
                w2[j, i] = 0 if i in lower else net[2][j, i]
        for i in range(len(w2)):
            w3[:, i] = 0 if i in which[1] else net[4][:, upper.get(i, i)]
    return by_hand.copied([w1, b1, w2, b2, w3, net[5]])


# ---- invariants --------------------------------------------------------------------------------------------


def test_used_units_are_those_from_which_a_way_of_weights_leads_to_the_head() -> None:
    """Two ways: 1 - 0 - 2 and 3 - 0 - 2. Unit 1 of the first layer leads to what the head does not read."""
    first, second, head = torch.zeros(3, 4), torch.zeros(3, 3), torch.zeros(2, 3)
    first[0, 1] = first[0, 3] = first[1, 2] = 0.5
    second[2, 0] = second[1, 1] = -0.5
    head[1, 2] = 0.1
    network = wide_of([[first, torch.ones(3)], [second, torch.ones(3)]], [head, torch.ones(2)], 0.0)
    assert [units.nonzero()[:, 0].tolist() for units in used_units(network)] == [[1, 3], [0], [2]]


class Notes(DEN):
    """Notes the network that retraining chose, and the layers after each task."""

    def expanded(self, network, task):
        raise AssertionError("nothing is to be added")

    def after_split(self, wide, moved, used):
        raise AssertionError("nothing is to be split")

    def adopt(self, c, task):
        super().adopt(c, task)
        NOTED.append((c.network, copy.deepcopy(self.memory["hidden"])))


NOTED: list[tuple[Any, Any]] = []


def test_where_nothing_is_added_or_split_all_weights_outside_of_what_is_used_keep_their_bits() -> None:
    NOTED.clear()
    s = by_hand.pairs()
    settings = toys.training(optimizer="adam", lr=0.01, weight_decay=0.1)
    learner = Notes(build=toys.builder(s), head=s.head, seed=0, l1=0.005, threshold=math.inf, splits=0)
    toys.learn(learner, s, settings, tasks=2)
    (_, before), (network, after) = NOTED
    used = network.trained
    assert not all(units.all() for units in used)
    for (old, old_bias), (now, bias), below, units in zip(before, after, used, used[1:]):
        inside = units[:, None] & below
        assert torch.equal(now[~inside], old[~inside])
        assert torch.equal(bias[~units], old_bias[~units])
        assert not torch.equal(now[inside], old[inside])
    assert not network.head.weight[:, ~used[-1]].any()


def test_old_tasks_are_predicted_with_the_widths_that_they_had() -> None:
    learner, x = learned(), by_hand.pairs().test(0).x[:30]
    said = [learner(x, task) for task in range(2)]
    wider = widened_by(learner.memory["hidden"], [3, 5], 2, 0.0, "noise")
    learner.memory["hidden"] = [[values.detach() for values in layer] for layer in wider.layers()]
    assert all(torch.equal(learner(x, task), before) for task, before in enumerate(said))


def test_where_every_unit_that_moved_is_split_old_tasks_are_predicted_as_before() -> None:
    learner, x = learned(tasks=1), by_hand.pairs().test(0).x[:30]
    later = learned(split=0, splits=1000)
    assert sum(later.account()["split"]) > 0
    assert torch.equal(later(x, 0), learner(x, 0))
    assert not torch.equal(learned(splits=0)(x, 0), learner(x, 0)), "without a split they are not"


@pytest.mark.parametrize(("l1", "zeros"), [(L1, True), (0.0, False)])
def test_weights_become_exactly_zero_by_l1_alone(l1: float, zeros: bool) -> None:
    (weight, _), *_ = learned(tasks=1, l1=l1).memory["hidden"]
    assert bool((weight == 0).any()) == zeros


def test_units_are_added_where_the_training_loss_is_above_the_threshold() -> None:
    def added(threshold: float) -> Any:
        return learned(threshold=threshold, group=0).account()

    loss = added(math.inf)["loss"]
    assert loss > 0
    for threshold, number in ((math.inf, 0), (loss * 1.01, 0), (loss * 0.99, ADDED), (0, ADDED)):
        assert added(threshold)["added"] == [number, number]


def test_memory_is_that_of_the_weights_the_heads_and_the_widths() -> None:
    learner = learned(tasks=3)
    a, b = learner.memory["widths"][-1]
    hidden, heads = 37 * a + (a + 1) * b, sum(2 * last + 2 for _, last in learner.memory["widths"])
    assert learner.published_memory(3) == 4 * (hidden + heads + 3 * 2)
