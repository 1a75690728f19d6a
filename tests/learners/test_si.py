"""Synaptic intelligence: paths, what they make of weights, and the penalty."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn as nn

from cl_lightning.data.task import Batch
from cl_lightning.learners import SI, Finetune
from tests import toys
from tests.learners import by_hand
from tests.toys import builder, learn, training

S = toys.stream(tasks=3)


def made(**options) -> SI:
    return SI(build=builder(S), head=S.head, seed=by_hand.SEED, **options)


def importance(learner: SI) -> torch.Tensor:
    return by_hand.row(learner.memory["importance"])


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("options", [{}, {"clamp": False}, {"penalty_in_path": True}], ids=str)
def test_three_tasks_are_learned_as_by_hand(options: dict, masked: bool) -> None:
    s, strength, damping = by_hand.pairs() if masked else S, 8.0, 0.05
    learner = SI(
        build=builder(s), head=s.head, seed=by_hand.SEED, strength=strength, damping=damping, **options
    )
    learner = by_hand.learned(learner, s)
    net = by_hand.fresh(0, (36, 16, 16, s.head.num_outputs))
    omega = lowest = torch.zeros_like(by_hand.row(net))
    for index in range(3):
        own = by_hand.OWN[index] if masked else None
        last, path = by_hand.row(net), torch.zeros_like(omega)
        for _, x, y in by_hand.mini_batches(s.task(index).train, index):
            before = by_hand.row(net)
            g = by_hand.gradient(by_hand.loss(net, x, y, own), net)
            whole = g + 2 * strength * omega * (before - last)  # of strength sum Omega (w - w_last)^2
            by_hand.move(net, whole)
            path -= (whole if options.get("penalty_in_path") else g) * (by_hand.row(net) - before)
        grown = path / ((by_hand.row(net) - last) ** 2 + damping)
        lowest = torch.minimum(lowest, grown)
        omega = omega + grown if options.get("clamp") is False else omega + grown.clamp(min=0)
    assert torch.allclose(by_hand.row(list(learner.network.parameters())), by_hand.row(net), atol=1e-5)
    assert torch.allclose(importance(learner), omega, rtol=1e-3, atol=1e-5)
    assert omega.abs().max() > 0.05
    if not masked and "penalty_in_path" not in options:
        assert (lowest < 0).any(), "or the clamp makes no difference"


OPTIMIZERS = {
    "adam": {"optimizer": "adam", "weight_decay": 0.01},
    "sgd": {"optimizer": "sgd", "lr": 0.1},
    "momentum": {"optimizer": "sgd", "lr": 0.05, "momentum": 0.9, "optimizer_state": "carry"},
}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_without_strength_it_is_finetune_to_the_bit_and_with_it_is_not(optimizer: str) -> None:
    settings = training(**OPTIMIZERS[optimizer])
    finetune = learn(Finetune(build=builder(S), head=S.head, seed=by_hand.SEED), S, settings)
    off, on = (learn(made(strength=strength), S, settings) for strength in (0.0, 1.0))
    assert torch.equal(off.weights, finetune.weights)
    assert torch.equal(on.after[0], finetune.after[0])
    assert not torch.allclose(on.weights, finetune.weights, atol=1e-4)


class Noting(SI):
    """Notes the path of each task."""

    def adopt(self, c, task):
        self.path = by_hand.row(list(c.network.path.buffers()))
        super().adopt(c, task)


def test_the_path_of_plain_descent_is_how_far_the_loss_fell() -> None:
    """All examples in each step, small steps: the sum over the weights is the whole fall."""
    s = toys.stream(tasks=1, n_val=0)
    learner = Noting(build=builder(s), head=s.head, seed=0)
    losses = []
    x, y, _ = s.task(0).train.parts
    start = copy.deepcopy(learner.network)
    learn(learner, s, training(optimizer="sgd", lr=5e-3, batch_size=60, max_epochs=200))
    for network in (start, learner.network):
        losses.append(nn.functional.cross_entropy(network(x), y).item())
    assert losses[0] - losses[1] > 0.01
    assert learner.path.sum().item() == pytest.approx(losses[0] - losses[1], rel=0.01)


def test_without_a_step_the_path_is_0() -> None:
    learner = made()
    (c,) = learner.candidates(S.task(0))
    learner.loss(c, (batch := Batch(*S.task(0).train.parts))).backward()
    learner.after_backward(c, batch)
    learner.after_step(c, batch)
    assert all(not path.any() for path in c.network.path.buffers())
    assert not learner.before


@pytest.mark.parametrize("tasks", [0, 1])
@pytest.mark.parametrize("penalty_in_path", [False, True])
def test_clipping_shortens_the_step_and_not_the_gradient_of_the_path(
    tasks: int, penalty_in_path: bool
) -> None:
    learner = made(strength=5.0, penalty_in_path=penalty_in_path)
    learn(learner, S, training(), tasks=tasks)
    (c,) = learner.candidates(S.task(tasks))
    with torch.no_grad():
        c.parameters[0].add_(0.1)
    batch = Batch(*S.task(tasks).train.parts)
    learner.loss(c, batch).backward()
    g = [p.grad.clone() for p in c.parameters]
    learner.after_backward(c, batch)
    whole = [p.grad.clone() for p in c.parameters]
    with torch.no_grad():
        for p in c.parameters:
            p.grad.mul_(0.1)
            p.sub_(p.grad)
        learner.after_step(c, batch)
    expected = [a * 0.1 * b for a, b in zip(whole if penalty_in_path else g, whole)]
    assert torch.allclose(
        by_hand.row(list(c.network.path.buffers())), by_hand.row(expected), rtol=1e-2, atol=1e-7
    )


def test_with_early_stopping_the_path_leads_to_the_weights_that_are_kept() -> None:
    """A run that is cut at the best step has the same path as one that went on and came back to it."""
    s, rate = toys.stream(tasks=1), {"optimizer": "sgd", "lr": 0.3, "batch_size": 10}
    stopped, cut = (Noting(build=builder(s), head=s.head, seed=0) for _ in range(2))
    best = learn(stopped, s, training(**rate, max_epochs=30, patience=60, score_every=1)).winner(0)
    assert best["steps_to_best"] < best["steps"]
    learn(cut, s, training(**rate, max_epochs=30, max_steps=best["steps_to_best"]))
    assert torch.equal(stopped.path, cut.path)


def test_importances_never_fall_and_the_penalty_has_no_gradient_where_a_task_ended() -> None:
    learner = made(strength=1000.0)
    learn(learner, S, training(), tasks=1)
    first = importance(learner).clone()
    assert (first >= 0).all()
    assert first.any()
    (c,) = learner.candidates(S.task(1))
    batch = Batch(*S.task(1).train.parts)
    learner.loss(c, batch).backward()
    before = [p.grad.clone() for p in c.parameters]
    learner.after_backward(c, batch)
    assert all(torch.equal(p.grad, g) for p, g in zip(c.parameters, before))
    again = made(strength=1000.0)
    learn(again, S, training())
    assert (importance(again) >= first).all()


def test_heads_of_other_tasks_stay_where_they_are() -> None:
    s = by_hand.pairs()
    learner = SI(build=builder(s, heads="per_task"), head=s.head, seed=0, strength=5.0)
    learn(learner, s, training(optimizer="adam", weight_decay=0.1), tasks=1)
    heads = [by_hand.row(list(layer.parameters())) for layer in learner.network.head.layers]
    assert [size.any().item() for size in per_head(learner)] == [True, False, False]
    again = SI(build=builder(s, heads="per_task"), head=s.head, seed=0, strength=5.0)
    learn(again, s, training(optimizer="adam", weight_decay=0.1), tasks=2)
    after = [by_hand.row(list(layer.parameters())) for layer in again.network.head.layers]
    assert [torch.equal(*pair) for pair in zip(heads, after)] == [True, False, True]


def per_head(learner: SI) -> list[torch.Tensor]:
    of_heads = learner.memory["importance"][-6:]
    return [by_hand.row(of_heads[i : i + 2]) for i in (0, 2, 4)]
