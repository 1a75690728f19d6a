"""Incremental moment matching: what is merged, from what, and what learning goes on from."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn as nn

from cl_lightning.backbones import MLP
from cl_lightning.data.task import Batch
from cl_lightning.learners import IMM, Finetune
from cl_lightning.learners.imm import DropTransfer
from tests import toys
from tests.learners import by_hand
from tests.learners.by_hand import Net
from tests.toys import builder, learn

S = toys.stream(tasks=3)
STRENGTH = 0.3


def made(s=S, **options) -> IMM:
    return IMM(build=builder(s), head=s.head, seed=by_hand.SEED, **options)


def networks_by_hand(strength: float) -> list[Net]:
    """The network after each task, trained from the last with a pull to its weights."""
    net, found = by_hand.fresh(0), []
    for index in range(3):
        last = by_hand.row(net)
        for _, x, y in by_hand.mini_batches(S.task(index).train, index):
            pull = 2 * strength * (by_hand.row(net) - last) if index else 0.0
            by_hand.move(net, by_hand.gradient(by_hand.loss(net, x, y), net) + pull)
        found.append(by_hand.copied(net))
    return found


def information_by_hand(net: Net, x: torch.Tensor) -> torch.Tensor:
    """E over the model's own labels of squared gradients, example by example, and the authors' 1e-8."""
    total = torch.zeros_like(by_hand.row(net))
    for image in x:
        p = by_hand.logits(net, image[None]).softmax(1)[0].detach()
        for label, weight in enumerate(p):
            log_p = by_hand.logits(net, image[None]).log_softmax(1)[0, label]
            total += weight * by_hand.gradient(log_p, net) ** 2 / len(x)
    return total + 1e-8


def weights(learner) -> torch.Tensor:
    return by_hand.row(list(learner.network.parameters()))


@pytest.mark.parametrize("merging", ["mean", "mode"])
def test_three_tasks_are_merged_as_by_hand(merging: str) -> None:
    learner = by_hand.learned(made(merging=merging, strength=STRENGTH, fisher="exact"), S)
    nets = networks_by_hand(STRENGTH)
    w = torch.stack([by_hand.row(net) for net in nets])
    F = torch.ones_like(w)
    if merging == "mode":
        F = torch.stack([information_by_hand(net, S.task(t).train.x) for t, net in enumerate(nets)])
    assert torch.allclose(weights(learner), w[2], atol=1e-5), "learning goes on from the last network"
    for alpha in (0.0, 0.2, 1 / 3, 0.9):
        a = torch.tensor([(1 - alpha) / 2, (1 - alpha) / 2, alpha])[:, None]
        by_moments = (a * F * w).sum(0) / (a * F).sum(0)
        assert torch.allclose(weights(learner.merged(alpha, 3)), by_moments, atol=1e-4), alpha
        assert (by_moments - w[2]).abs().max() > 0.003
    assert weights(learner.merged(1.0, 3)).equal(weights(learner))


def test_the_merged_network_is_tested_and_the_last_one_learns_on() -> None:
    """An accuracy by hand of merged weights; and the weights after the stream are finetune's."""
    learned = learn(made(merging="mean", alphas=(0.0, 1.0)), S, by_hand.SETTINGS)
    finetune = learn(Finetune(build=builder(S), head=S.head, seed=by_hand.SEED), S, by_hand.SETTINGS)
    assert learned.weights.equal(finetune.weights)
    assert learned.matrix[1] == finetune.matrix[1], "one network is not merged"
    half = torch.stack(finetune.after[:2]).mean(0)
    net, shapes = [], [(16, 36), (16,), (16, 16), (16,), (4, 16), (4,)]
    for part, shape in zip(half.split([torch.Size(shape).numel() for shape in shapes]), shapes):
        net.append(part.view(shape))
    for task in range(3):
        test = S.test(task)
        right = by_hand.logits(net, test.x).argmax(1) == test.y
        assert learned.matrix[2][task] == pytest.approx(right.float().mean().item(), abs=1e-6)


def test_equal_information_makes_the_mode_the_mean() -> None:
    mode, mean = (by_hand.learned(made(merging=merging), S) for merging in ("mode", "mean"))
    mode.memory["F"] = [torch.ones_like(f) for f in mode.memory["F"]]
    counts, sums = mean.memory["past"]
    mode.memory["past"] = [[torch.full_like(s, n) for n, s in zip(counts, sums)], sums]
    assert torch.allclose(weights(mode.merged(0.3, 3)), weights(mean.merged(0.3, 3)), atol=1e-6)


def test_where_one_task_is_sure_the_merged_weight_is_its_own() -> None:
    learner = by_hand.learned(made(), S)
    past = [fw / f for f, fw in zip(*learner.memory["past"])]
    learner.memory["F"] = [torch.full_like(f, 1e-12) for f in learner.memory["F"]]
    assert torch.allclose(weights(learner.merged(0.5, 3)), by_hand.row(past), atol=1e-3)


def test_each_alpha_is_made_when_it_is_asked_for_and_none_is_kept() -> None:
    learner = by_hand.learned(made(alphas=[n / 100 for n in range(101)]), S)
    generator = learner.predictors(3)
    with pytest.raises(StopIteration) as end:
        next(generator)
    merges = end.value.value
    assert list(merges)[:3] == ["", "alpha=0", "alpha=0.01"]
    assert len(merges) == 102
    assert not any(isinstance(value, IMM) for value in merges.values())
    assert torch.equal(weights(merges["alpha=0.5"]()), weights(learner.merged(0.5, 3)))


def test_output_layers_of_one_task_each_are_not_merged() -> None:
    s = by_hand.pairs()
    learner = IMM(build=builder(s, heads="per_task"), head=s.head, seed=by_hand.SEED)
    learner = by_hand.learned(learner, s)
    merged = learner.merged(0.4, 3).network
    heads, own = merged.head.state_dict(), learner.network.head.state_dict()
    assert all(heads[name].equal(own[name]) for name in own)
    assert not merged.trunk.linear1.weight.equal(learner.network.trunk.linear1.weight)


def test_drop_transfer_by_hand_is_dropout_around_the_last_weights() -> None:
    """At the start nothing is dropped; then dropout(x (W - W_last)) + x W_last with inverted scaling."""
    torch.manual_seed(0)
    layer, x = nn.Linear(5, 4), torch.randn(6, 5)
    before = copy.deepcopy(layer)
    drop = DropTransfer(layer, 0.5)
    assert drop(x).equal(before(x)), "dropout of no difference"
    with torch.no_grad():
        layer.weight += torch.randn(4, 5)
        layer.bias += torch.randn(4)
    torch.manual_seed(1)
    out = drop(x)
    torch.manual_seed(1)
    kept = nn.functional.dropout(torch.ones(6, 4), 0.5) > 0
    change = x @ (layer.weight - before.weight).T + (layer.bias - before.bias)
    assert torch.allclose(out, torch.where(kept, change / 0.5, 0.0) + before(x), atol=1e-6)
    assert kept.any()
    assert not kept.all()
    assert torch.allclose(drop.eval()(x), layer(x), atol=1e-6), "nothing is dropped at test"


def test_drop_transfer_trains_otherwise_and_leaves_a_plain_network() -> None:
    learned = learn(made(drop=0.5), S, by_hand.SETTINGS)
    plain = learn(made(), S, by_hand.SETTINGS)
    assert learned.after[0].equal(plain.after[0]), "the first task has nothing before it"
    assert not torch.allclose(learned.weights, plain.weights, atol=1e-3)
    assert type(learned.learner.network) is MLP
    assert not any(isinstance(module, DropTransfer) for module in learned.learner.network.modules())


def test_a_first_task_is_not_pulled() -> None:
    learner = made(strength=1e6)
    (c,) = learner.candidates(S.task(0))
    batch = Batch(*S.task(0).train.parts)
    learner.loss(c, batch).backward()
    g = [p.grad.clone() for p in c.parameters]
    learner.after_backward(c, batch)
    assert all(p.grad.equal(old) for p, old in zip(c.parameters, g))
