"""Hard attention to the task: gates, what holds the weights in use, and the gradient of the gates."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from cl_lightning.backbones import LWTA, MLP, AlexNet, ResNet
from cl_lightning.data.task import Batch, Head
from cl_lightning.errors import Refusal
from cl_lightning.learners import HAT
from cl_lightning.learners.base import Candidate
from cl_lightning.randomness import rng, seeded
from tests import toys
from tests.learners import by_hand
from tests.toys import builder

S_MAX = 400.0


def hat(s: toys.Stream, **options: Any) -> HAT:
    return HAT(**{"build": builder(s), "head": s.head, "seed": by_hand.SEED, **options})


# ---- by hand -----------------------------------------------------------------------------------------------


def outputs(net: by_hand.Net, gates: list[torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    """Convolutions with ReLU and pooling, linear layers with ReLU, each times its gates; and a head."""
    h = x
    for w, b, a in zip(net[:-2:2], net[1:-2:2], gates):
        if w.dim() == 4:
            h = F.max_pool2d(F.conv2d(h, w, b).clamp(min=0), 2) * a[:, None, None]
        else:
            h = (h.flatten(1) @ w.T + b).clamp(min=0) * a
    return h @ net[-2].T + net[-1]


def part_to_move(net: by_hand.Net, A: list[torch.Tensor]) -> by_hand.Net:
    """1 - min(A of the output, A of the input) of each weight of the trunk."""
    parts = []
    for i, w in enumerate(net[:-2:2]):
        mask = A[i].view(-1, *[1] * (w.dim() - 1)).expand_as(w)
        if i:  # a channel feeds all the pixels of it that are flattened
            below = A[i - 1].repeat_interleave(w.shape[1] // len(A[i - 1]))
            mask = torch.min(mask, below.view(1, -1, *[1] * (w.dim() - 2)))
        parts += [1 - mask, 1 - A[i]]
    return parts


ALEXNET = {"dropouts": (0.0,) * 5, "widen": 0.0625}


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("network", ["mlp", "alexnet"])
def test_tasks_are_learned_as_by_hand(network: str, momentum: float, monkeypatch) -> None:
    """The paper's form: gradients are masked, for plain steps and for momentum that starts anew."""
    if network == "alexnet":
        monkeypatch.setattr(
            toys, "SHAPE", (1, 28, 28)
        )  # 256 channels of 2x2 pixels in front of linear layers
    s, rate, strength, tasks = by_hand.pairs(), 0.01, 0.75, 3 if network == "mlp" else 2
    kind = partial(MLP, sizes=(16, 16)) if network == "mlp" else partial(AlexNet, **ALEXNET)
    learner = hat(s, build=partial(kind, input_shape=s.shape, head=s.head), strength=strength)
    settings = toys.training(optimizer="sgd", momentum=momentum, lr=rate)
    toys.learn(learner, s, settings, tasks=tasks)

    def fresh(task: int) -> by_hand.Net:
        with seeded(by_hand.SEED, "init", task):
            return by_hand.copied(
                list(kind(input_shape=s.shape, head=Head("domain", 2, ((0, 1),))).parameters())
            )

    trunk = fresh(0)[:-2]
    units = [len(w) for w in trunk[::2]]
    A, heads, embeddings = [torch.zeros(n) for n in units], [], []
    for index in range(tasks):
        e = torch.randn(sum(units), generator=rng(by_hand.SEED, "gates", index)).requires_grad_()
        net = [*trunk, *fresh(index)[-2:]]
        v = [torch.zeros_like(w) for w in (*net, e)]
        for key, x, y in by_hand.mini_batches(s.task(index).train, index):
            step = 1 / S_MAX + (S_MAX - 1 / S_MAX) * (key[-1] % 6) / 5  # of 60 examples, six mini-batches
            a = torch.sigmoid(step * e).split(units)
            free = sum((1 - of_layer).sum() for of_layer in A)
            R = sum((one * (1 - of_layer)).sum() for one, of_layer in zip(a, A)) / free
            loss = -outputs(net, a, x).log_softmax(1)[range(len(y)), y - 2 * index].mean() + strength * R
            *g, ge = torch.autograd.grad(loss, [*net, e])
            g[:-2] = [one * part for one, part in zip(g[:-2], part_to_move(net, A))]
            with torch.no_grad():
                ge *= S_MAX / step * ((step * e).clamp(-50, 50).cosh() + 1) / (e.cosh() + 1)
                assert by_hand.row([*g, ge]).norm() < 10_000
                v = [momentum * old + new for old, new in zip(v, [*g, ge])]
                for w, change in zip([*net, e], v):
                    w -= rate * change
                e.clamp_(-6, 6)
        A = [torch.max(old, new) for old, new in zip(A, torch.sigmoid(S_MAX * e.detach()).split(units))]
        heads.append(net[-2:])
        embeddings.append(e.detach())

    def close(one: torch.Tensor, other: torch.Tensor) -> bool:
        return (one - other).abs().max() < 1e-5

    assert close(torch.stack(learner.memory["e"]), torch.stack(embeddings))
    assert close(by_hand.row(list(learner.trunk.parameters())), by_hand.row(trunk))
    assert close(
        by_hand.row(list(learner.heads.parameters())), by_hand.row([w for head in heads for w in head])
    )
    x = s.test(0).x[:20]
    for task, (head, e) in enumerate(zip(heads, embeddings)):
        expected = outputs([*trunk, *head], list(torch.sigmoid(S_MAX * e).split(units)), x)
        assert torch.allclose(learner(x, task)[:, by_hand.OWN[task]], expected, atol=1e-5)


# ---- what is in use stays ----------------------------------------------------------------------------------


def in_use(s: toys.Stream, of_each: int = 7, **options: Any) -> HAT:
    """After a task that uses so many units of both layers, wholly, and no other."""
    learner = toys.learn(hat(s, **options), s, toys.training(max_epochs=1), tasks=1).learner
    learner.memory["e"] = [torch.where(torch.arange(32) % 16 < of_each, 6.0, -6.0)]
    return learner


class Naive(HAT):
    """Masks the gradient, and that is all."""

    def after_backward(self, c, batch):
        super().after_backward(c, batch)
        for p, mask in zip(c.network.trunk.parameters(), self.masks()):
            p.grad *= 1 - mask

    def after_step(self, c, batch):
        c.network.embedding.data.clamp_(-6, 6)


OPTIMIZERS = {
    "adam": (torch.optim.Adam, {}),
    "adam, decay": (torch.optim.Adam, {"weight_decay": 0.1}),
    "adam, carried": (torch.optim.Adam, {}),
    "sgd": (torch.optim.SGD, {}),
    "sgd, decay": (torch.optim.SGD, {"weight_decay": 0.1}),
    "momentum": (torch.optim.SGD, {"momentum": 0.9}),
    "momentum, decay": (torch.optim.SGD, {"momentum": 0.9, "weight_decay": 0.1}),
    "momentum, carried": (torch.optim.SGD, {"momentum": 0.9}),
}


def moved(learner: HAT, s: toys.Stream, name: str) -> list[torch.Tensor]:
    """Which weights of the trunk differ after five steps in the second task."""
    cls, options = OPTIMIZERS[name]
    (c,) = learner.candidates(s.task(1))
    trunk = list(c.network.trunk.parameters())
    optimizer = cls(c.parameters, lr=0.05, fused=True, **options)
    if "carried" in name:
        for p in c.parameters:
            p.grad = torch.ones_like(p)
        optimizer.step()
    before = [p.detach().clone() for p in trunk]
    x, y, task = s.task(1).train.parts
    for step in range(5):
        batch = Batch(x, y, task, index_in_epoch=step, batches_per_epoch=5, learning=1)
        optimizer.zero_grad()
        learner.loss(c, batch).backward()
        learner.after_backward(c, batch)
        optimizer.step()
        with torch.no_grad():
            learner.after_step(c, batch)
    return [p != old for p, old in zip(trunk, before)]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_no_weight_between_used_units_moves_whatever_the_optimizer(name: str) -> None:
    s = by_hand.pairs()
    ours, naive = in_use(s), in_use(s)
    naive.__class__ = Naive
    held = [mask.expand_as(p) == 1 for mask, p in zip(ours.masks(), ours.trunk.parameters())]
    assert sum(int(mask.sum()) for mask in held) == 7 * 36 + 7 + 7 * 7 + 7 == 315

    def count(learner: HAT) -> tuple[int, int]:
        """How many of the weights that are held moved, and how many of the others."""
        pairs = list(zip(held, moved(learner, s, name)))
        return sum(int((m & h).sum()) for h, m in pairs), sum(int((m & ~h).sum()) for h, m in pairs)

    (of_held, of_others), (in_naive_form, _) = count(ours), count(naive)
    assert of_held == 0
    assert of_others > 100
    assert in_naive_form == (315 if "decay" in name or "carried" in name else 0)


class Binary(HAT):
    """Gates are open or closed."""

    def adopt(self, c, task):
        c.network.embedding.data.sign_().mul_(6)
        super().adopt(c, task)


@pytest.mark.parametrize("options", [{}, {"optimizer": "sgd", "momentum": 0.9}], ids=["adam", "momentum"])
def test_with_gates_open_or_closed_old_tasks_outputs_keep_their_bits(options: dict) -> None:
    s = by_hand.pairs()
    x, said = s.test(0).x[:50], {}

    class Notes(Binary):
        def on_task_end(self, task):
            said[task.index] = self.eval()(x, task.index), torch.stack(self.memory["e"])

    settings = toys.training(weight_decay=0.01, **options)
    learner = toys.learn(Notes(build=builder(s), head=s.head), s, settings).learner
    for task, (logits, rows) in said.items():
        assert torch.equal(learner(x, task), logits)
        assert torch.equal(torch.stack(learner.memory["e"][: task + 1]), rows)


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, id="adam"),
        pytest.param({"optimizer": "sgd", "lr": 0.1}, id="sgd", marks=pytest.mark.all),
    ],
)
def test_it_forgets_next_to_nothing_where_finetune_forgets(options: dict) -> None:
    s, settings = toys.stream(n_train=200), toys.training(max_epochs=10, **options)
    build = builder(s, (64, 64))
    ends = {}
    for cls in (HAT, toys.Finetune):
        matrix = toys.learn(cls(build=build, head=s.head), s, settings).matrix
        ends[cls] = [matrix[task + 1][task] - matrix[3][task] for task in range(2)]
        assert min(matrix[task + 1][task] for task in range(3)) > 0.6  # chance is 0.25
    assert max(ends[HAT]) <= 0.005
    assert max(ends[toys.Finetune]) > 0.05


def test_where_all_units_are_in_use_only_gates_and_the_head_learn() -> None:
    s = by_hand.pairs()
    learner = in_use(s, of_each=16)
    assert not any(weights.any() for weights in moved(learner, s, "sgd"))
    (c,) = learner.candidates(s.task(1))
    batch = Batch(*s.task(1).train.parts, learning=1)
    assert learner.loss(c, batch) == F.cross_entropy(learner.masked(learner.logits(c, batch), batch), batch.y)


# ---- gates -------------------------------------------------------------------------------------------------


def batch_at(index: int, of: int, epoch: int = 0) -> Batch:
    return Batch(*[torch.zeros(1)] * 3, epoch=epoch, index_in_epoch=index, batches_per_epoch=of)


def test_s_rises_in_a_line_within_each_epoch() -> None:
    learner = hat(by_hand.pairs(), s_max=100.0)
    expected = [0.01, 25.0075, 50.005, 75.0025, 100.0]
    for epoch in range(2):
        assert [learner.s(batch_at(i, 5, epoch)) for i in range(5)] == pytest.approx(expected)
    assert learner.s(batch_at(0, 1)) == pytest.approx(0.01)


def test_candidates_are_scored_with_the_gates_of_the_test() -> None:
    s = by_hand.pairs()
    learner = hat(s)
    (c,) = learner.candidates(s.task(0))
    x, y, task = (part[:10] for part in s.task(0).val.parts)
    batch = Batch(x, y, task)
    in_training, in_scoring = learner.logits(c, batch), learner.logits(Candidate(c.network.eval()), batch)
    learner.adopt(c, s.task(0))
    assert torch.equal(learner(x, 0), in_scoring)
    assert not torch.allclose(in_training[:, :2], in_scoring[:, :2])


@pytest.mark.parametrize("index", range(5))
def test_the_gradient_of_gates_is_s_max_times_that_of_a_slope_of_one(index: int) -> None:
    """sigmoid' = 1 / (2 (cosh + 1)), so that the factor takes out s, and nothing is infinite at |e| = 6."""
    learner, batch = hat(by_hand.pairs()), batch_at(index, 5)
    e, s = torch.linspace(-1, 1, 32) ** 5 * 6, learner.s(batch)
    network = learner.candidates(by_hand.pairs().task(0))[0].network
    network.embedding.data.copy_(e)
    c = Candidate(network)
    torch.sigmoid(s * network.embedding).sum().backward()
    learner.after_backward(c, batch)
    slope = torch.sigmoid(e) * (1 - torch.sigmoid(e))
    near = (s * e).abs() < 8  # beyond, 1 - sigmoid has few digits
    assert near.any()
    assert network.embedding.grad.isfinite().all()
    assert torch.allclose(network.embedding.grad[near], S_MAX * slope[near], rtol=1e-2)


def test_gates_stay_within_six_and_the_gradient_within_ten_thousand() -> None:
    learner = hat(s := by_hand.pairs())
    (c,) = learner.candidates(s.task(0))
    for p in c.parameters:
        p.grad = torch.full_like(p, 1e6)
    learner.after_backward(c, batch_at(0, 5))
    assert torch.stack([p.grad.norm() for p in c.parameters]).norm() == pytest.approx(10_000, rel=1e-4)
    with torch.no_grad():
        c.network.embedding.copy_(torch.linspace(-20, 20, 32))
        learner.after_step(c, batch_at(0, 5))
    assert c.network.embedding.aminmax() == (-6, 6)


def test_it_tells_the_units_that_each_task_uses() -> None:
    s = by_hand.pairs()
    learner = in_use(s, of_each=7)
    assert learner.account() == {"units": [16, 16], "units_used": [7, 7], "units_used_so_far": [7, 7]}
    row = torch.where(torch.arange(32) % 16 >= 6, 0.5, -0.5) * torch.where(torch.arange(32) < 16, 1, -1)
    learner.memory["e"] = [*learner.memory["e"], row]
    assert learner.account() == {"units": [16, 16], "units_used": [10, 6], "units_used_so_far": [16, 7]}


# ---- networks ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("network", [partial(ResNet, width=4), partial(LWTA, sizes=(8,))])
def test_a_network_with_parts_that_it_cannot_hold_is_refused(network: Any) -> None:
    s = by_hand.pairs()
    with pytest.raises(Refusal, match="backbone=alexnet"):
        hat(s, build=partial(network, input_shape=s.shape, head=s.head))
