"""Learning without forgetting: what is distilled, from which network, and the warm-up."""

from __future__ import annotations

import pytest
import torch

from cl_lightning.backbones import MLP
from cl_lightning.data.streams.stream import Stream
from cl_lightning.data.task import Batch, Lazy
from cl_lightning.errors import Refusal
from cl_lightning.learners import Candidate, Finetune, LwF
from cl_lightning.randomness import seeded
from tests import toys
from tests.learners import by_hand
from tests.toys import builder, learn, training


def made(s: Stream, cls: type[LwF] = LwF, backbone: dict | None = None, **options) -> LwF:
    return cls(build=builder(s, **(backbone or {})), head=s.head, seed=by_hand.SEED, **options)


def cross_entropy(old: torch.Tensor, now: torch.Tensor, temperature: float) -> torch.Tensor:
    """-sum p' log q', where p' is proportional to p^(1/T)."""
    p, q = (z.softmax(1) ** (1 / temperature) for z in (old, now))
    p, q = (each / each.sum(1, keepdim=True) for each in (p, q))
    return -(p * q.log()).sum(1).mean()


OWN = [list(outputs) for outputs in by_hand.OWN]
PAST = {  # by the head mode: the past heads of task 1 and 2
    "domain": [[[0, 1, 2, 3]], [[0, 1, 2, 3]]],
    "single": [[OWN[0]], [[0, 1, 2, 3]]],
    "multi_test": [OWN[:1], OWN[:2]],
    "multi_train_test": [OWN[:1], OWN[:2]],
}


@pytest.mark.parametrize("mode", PAST)
@pytest.mark.parametrize("squared", [False, True])
def test_three_tasks_are_learned_as_by_hand(mode: str, squared: bool) -> None:
    s = toys.stream() if mode == "domain" else toys.pairs_of_classes(mode, tasks=3, n_val=40)
    options = {"strength": 1.5, "temperature": 2.5, "times_squared_temperature": squared}
    learner = by_hand.learned(made(s, **options), s)
    net = by_hand.fresh(0, (36, 16, 16, s.head.num_outputs))
    for index in range(3):
        own = OWN[index] if mode == "multi_train_test" else None
        old = by_hand.copied(net)
        for _, x, y in by_hand.mini_batches(s.task(index).train, index):
            loss = by_hand.loss(net, x, y, own)
            for head in PAST[mode][index - 1] if index else []:
                before, now = (by_hand.logits(which, x)[:, head] for which in (old, net))
                weight = 1.5 * (2.5**2 if squared else 1)
                loss = loss + weight * cross_entropy(before.detach(), now, 2.5)
            by_hand.move(net, by_hand.gradient(loss, net))
    found = by_hand.row(list(learner.network.parameters()))
    assert torch.allclose(found, by_hand.row(net), atol=1e-5)


def heads_by_hand(s: Stream) -> tuple[by_hand.Net, list[by_hand.Net]]:
    """A trunk and a head a task, as torch draws them."""
    with seeded(by_hand.SEED, "init", 0):
        network = MLP(s.shape, s.head, (16, 16), heads="per_task")
    return by_hand.copied(list(network.trunk.parameters())), [
        by_hand.copied(list(layer.parameters())) for layer in network.head.layers
    ]


@pytest.mark.parametrize("state", ["reset", "carry"])
@pytest.mark.parametrize("warm_up", [0, 1, 2])
def test_the_new_head_is_warmed_up_as_by_hand(warm_up: int, state: str) -> None:
    """A head a task. While it is trained alone nothing else moves, and moments wait."""
    s = by_hand.pairs()
    learner = made(s, backbone={"heads": "per_task"}, warm_up=warm_up)
    settings = training(
        optimizer="sgd", lr=0.05, momentum=0.9, optimizer_state=state, max_epochs=3, batch_size=10
    )
    learner = learn(learner, s, settings).learner
    trunk, heads = heads_by_hand(s)
    everything = [*trunk, *(w for head in heads for w in head)]
    for index in range(3):
        if index == 0 or state == "reset":
            optimizer = torch.optim.SGD(everything, 0.05, 0.9)
        new, past = heads[index], heads[:index]
        examples, first = s.task(index).train, OWN[index][0]
        old_trunk, old_heads = by_hand.copied(trunk), [by_hand.copied(head) for head in past]
        for step, (_, x, y) in enumerate(by_hand.mini_batches(examples, index)):
            optimizer.zero_grad()
            loss = by_hand.loss([*trunk, *new], x, y - first)
            if index and step < warm_up * 6:
                loss.backward(inputs=new)
            else:
                for old, now in zip(old_heads, past):
                    before = by_hand.logits([*old_trunk, *old], x).detach()
                    loss = loss + cross_entropy(before, by_hand.logits([*trunk, *now], x), 2.0)
                loss.backward()
            optimizer.step()
    found = by_hand.row(list(learner.network.parameters()))
    assert torch.allclose(found, by_hand.row(everything), atol=1e-5)


def test_a_warm_up_that_leaves_no_time_is_refused() -> None:
    s = by_hand.pairs()
    with pytest.raises(Refusal, match="nothing but its head would learn"):
        learn(made(s, warm_up=3), s, training(max_epochs=3))


@pytest.mark.parametrize("heads", ["shared", "per_task"])
@pytest.mark.parametrize("optimizer", ["adam", "sgd", "momentum"])
def test_without_strength_it_is_finetune_to_the_bit_and_with_it_is_not(optimizer: str, heads: str) -> None:
    s = by_hand.pairs()
    name = {"optimizer": "adam"} if optimizer == "adam" else {"optimizer": "sgd", "lr": 0.05}
    more = {"momentum": 0.9, "optimizer_state": "carry"} if optimizer == "momentum" else {}
    settings, backbone = training(**name, **more, weight_decay=0.01), {"heads": heads, "dropout": 0.3}
    finetune = learn(Finetune(build=builder(s, **backbone), head=s.head, seed=by_hand.SEED), s, settings)
    off, on = (learn(made(s, backbone=backbone, strength=strength), s, settings) for strength in (0.0, 1.0))
    assert torch.equal(off.weights, finetune.weights)
    assert torch.equal(on.after[0], finetune.after[0])
    assert not torch.allclose(on.weights, finetune.weights, atol=1e-4)


def test_distillation_has_no_gradient_where_the_network_is_the_old_one() -> None:
    s = by_hand.pairs()
    learner = made(s, strength=100.0)
    learn(learner, s, training(), tasks=1)
    (c,) = learner.candidates(s.task(1))
    c.network.train()
    batch = Batch(*s.task(1).train.parts, learning=1)
    old = [logits.detach() for logits in learner.shared(batch, [c])]
    batch.lazy = Lazy(lambda: old)
    plain = Candidate(c.network, {"strength": 0.0}, "plain")
    gradients = [torch.autograd.grad(learner.loss(each, batch), c.parameters) for each in (c, plain)]
    assert torch.allclose(*map(by_hand.row, gradients), atol=1e-5)
    with torch.no_grad():
        c.parameters[0].add_(0.1)
    gradients = [torch.autograd.grad(learner.loss(each, batch), c.parameters) for each in (c, plain)]
    assert not torch.allclose(*map(by_hand.row, gradients), atol=1e-2)


STATES: list[tuple[bool, bool]] = []


class Noting(LwF):
    """Notes the state of the old network while the new one is trained."""

    def shared(self, batch, candidates):
        STATES.append((self.network.training, candidates[0].network.training))
        return super().shared(batch, candidates)


def test_the_old_network_is_in_evaluation_mode_while_the_new_one_is_trained() -> None:
    s = by_hand.pairs()
    learner = made(s, Noting, {"dropout": 0.5})
    learn(learner, s, training())
    assert (False, True) in STATES
    assert not any(old for old, _ in STATES)
