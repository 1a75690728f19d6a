"""Fisher information and the penalties made of it."""

from __future__ import annotations

import pytest
import torch
import torch.nn as nn

from cl_lightning.data.task import Batch, Split
from cl_lightning.learners import EWC, Candidate, Finetune
from cl_lightning.learners.parts.fisher import fisher, linear_calls
from cl_lightning.learners.parts.gradients import gradient, trained
from cl_lightning.metrics.costs import held_bytes
from cl_lightning.metrics.flops import Flops
from cl_lightning.randomness import rng, seeded
from tests import toys
from tests.learners import by_hand
from tests.toys import builder, learn, training


def data(n: int = 40, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, 6, generator=generator, dtype=torch.float64), torch.randint(
        4, (n,), generator=generator
    )


def network(kind: str = "mlp") -> nn.Module:
    with seeded("network", kind):
        if kind == "linear":
            layers = [nn.Linear(6, 4)]
        elif kind == "mlp":
            layers = [nn.Linear(6, 7), nn.ReLU(), nn.Linear(7, 5, bias=False), nn.ReLU(), nn.Linear(5, 4)]
        elif kind == "norm":
            layers = [nn.Linear(6, 7), nn.LayerNorm(7), nn.ReLU(), nn.Linear(7, 4)]
        else:
            shared = nn.Linear(6, 6)
            layers = [shared, nn.ReLU(), shared, nn.Linear(6, 4)]
        return nn.Sequential(*layers).double()


def measured(net: nn.Module, kind: str, x: torch.Tensor, y: torch.Tensor, **options) -> torch.Tensor:
    return torch.cat(
        [f.flatten() for f in fisher(net, lambda part: net(x[part]).log_softmax(1), y, kind, **options)]
    )


def example_by_example(net: nn.Module, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    rows = []
    for one, label in zip(x, labels):
        g = torch.autograd.grad(net(one[None]).log_softmax(1)[0, label], list(net.parameters()))
        rows.append(torch.cat([part.flatten() for part in g]) ** 2)
    return torch.stack(rows).mean(0)


@pytest.mark.parametrize("kind", ["linear", "mlp", "norm", "twice"])
@pytest.mark.parametrize("at_once", [7, 250])
def test_empirical_and_predicted_are_means_of_squares_example_by_example(kind: str, at_once: int) -> None:
    net, (x, y) = network(kind), data()
    assert torch.allclose(
        measured(net, "empirical", x, y, at_once=at_once), example_by_example(net, x, y), rtol=1e-10
    )
    likeliest = net(x).argmax(1)
    assert torch.allclose(
        measured(net, "predicted", x, y, at_once=at_once), example_by_example(net, x, likeliest), rtol=1e-10
    )


@pytest.mark.parametrize("kind", ["linear", "mlp", "norm"])
def test_exact_is_the_expectation_over_all_labels(kind: str) -> None:
    net, (x, y) = network(kind), data()
    p = net(x).softmax(1).detach()
    rows = [
        p[i, label] * example_by_example(net, x[i : i + 1], torch.tensor([label]))
        for i in range(len(x))
        for label in range(4)
    ]
    assert torch.allclose(measured(net, "exact", x, y), torch.stack(rows).sum(0) / len(x), rtol=1e-9)


def test_exact_on_a_linear_softmax_is_the_textbook_formula() -> None:
    net, (x, y) = network("linear"), data()
    p = net(x).softmax(1).detach()
    variance = p - p**2  # the diagonal of diag(p) - pp'
    expected = (variance.T @ x**2 / len(x)).flatten()
    assert torch.allclose(measured(net, "exact", x, y)[:24], expected, rtol=1e-6)


def test_sampled_labels_are_unbiased() -> None:
    net, (x, y) = network(), data()
    with seeded("labels"):
        mean = torch.stack([measured(net, "sample", x, y) for _ in range(2000)]).mean(0)
    exact = measured(net, "exact", x, y)
    assert (mean - exact).abs().sum() < 0.05 * exact.sum()


def test_the_square_of_the_mean_gradient_is_too_small_unless_all_examples_are_one() -> None:
    net, (x, y) = network(), data(n=64)
    assert measured(net, "batch_squared", x, y).sum() < 0.5 * measured(net, "empirical", x, y).sum()
    same_x, same_y = x[:1].expand(64, -1), y[:1].expand(64)
    assert torch.allclose(
        measured(net, "batch_squared", same_x, same_y), measured(net, "empirical", same_x, same_y), rtol=1e-9
    )


@pytest.mark.parametrize("kind", ["empirical", "exact"])
def test_what_it_costs_is_counted_as_if_nothing_were_remembered(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Linear layers, with another one frozen each, more and fewer rows, deeper inputs, more outputs that are
    possible."""
    x, y = data(40)
    mask = torch.tensor([0.0, 0.0, 0.0, -torch.inf], dtype=torch.float64)

    def frozen(layer: int) -> nn.Module:
        net = network("mlp")
        net[layer].requires_grad_(False)
        return net

    net, wide = network("mlp"), nn.Linear(8, 6).double().requires_grad_(False)
    cases = [
        (net, lambda part: net(x[part]).log_softmax(1), y),
        (net, lambda part: net(x[part]).log_softmax(1), y[:30]),
        (net, lambda part: (net(x[part]) + mask).log_softmax(1), y % 3),
        (net, lambda part: net(wide(x[part].repeat(1, 2)[:, :8])).log_softmax(1), y),
        *(
            (other, lambda part, other=other: other(x[part]).log_softmax(1), y)
            for other in map(frozen, (0, 2, 4))
        ),
    ]

    def cost(case: tuple) -> int:
        with Flops() as flops:
            fisher(*case, kind, at_once=15)
        return flops.total

    anew = []
    for case in cases:
        monkeypatch.setattr("cl_lightning.learners.parts.fisher._known", {})
        anew.append(cost(case))
    assert len(set(anew)) >= 5
    assert [cost(case) for case in cases + cases] == anew + anew


def test_linear_layers_cost_what_they_cost_by_hand() -> None:
    net, (x, y) = network("mlp"), data(40)
    layers, first = 6 * 7 + 7 * 5 + 5 * 4, 6 * 7
    with Flops() as flops:
        measured(net, "empirical", x, y, at_once=15)
    assert flops.total == 2 * (layers + 40 * (layers + layers - first + layers)), (
        "one row more tells whether the layers are alone"
    )


def test_it_is_nowhere_negative_and_zero_into_dead_units() -> None:
    net, (x, y) = network(), data()
    with torch.no_grad():
        net[0].bias[2] = -1e6
    values = fisher(net, lambda part: net(x[part]).log_softmax(1), y, "exact")
    assert all((f >= 0).all() for f in values)
    assert not values[0][2].any()


def test_masked_outputs_do_not_make_it_infinite() -> None:
    net, (x, y) = network(), data()
    y = y % 2
    mask = torch.tensor([0.0, 0.0, -torch.inf, -torch.inf])
    for kind in ("exact", "sample", "empirical", "predicted", "batch_squared"):
        assert all(
            f.isfinite().all()
            for f in fisher(net, lambda part: (net(x[part]) + mask).log_softmax(1), y, kind)
        )


@pytest.mark.parametrize(("kind", "closed"), [("mlp", True), ("norm", False), ("twice", False)])
def test_the_closed_form_is_for_networks_of_linear_layers_called_once(kind: str, closed: bool) -> None:
    net, (x, _) = network(kind), data()
    with linear_calls(net) as calls:
        net(x)
    assert bool(calls) == closed


# ---- the learner -------------------------------------------------------------------------------------------

S = toys.stream(tasks=3)


def learned(tasks: int, **options) -> EWC:
    settings = training(optimizer="sgd", lr=0.05)
    return learn(EWC(build=builder(S), head=S.head, seed=0, **options), S, settings, tasks=tasks).learner


def flat(network: nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in network.parameters()])


def penalty_gradient(learner: EWC, shift: float) -> torch.Tensor:
    """At the latest optimum, moved by ``shift`` everywhere."""
    c = Candidate(learner.fresh(0))
    with torch.no_grad():
        for p, latest in zip(trained(c.network), trained(learner.network)):
            p.copy_(latest + shift)
            p.grad = torch.zeros_like(p)
    learner.after_backward(c, Batch(torch.empty(0), torch.empty(0), torch.empty(0)))
    return gradient(trained(c.network))


def flat_memory(learner: EWC, name: str) -> torch.Tensor:
    return torch.cat([part.flatten() for part in learner.memory[name]])


@pytest.mark.parametrize("penalty", ["separate", "huszar", "online"])
def test_after_one_task_the_pull_is_strength_times_fisher_times_drift(penalty: str) -> None:
    learner = learned(1, penalty=penalty, strength=3.0)
    assert not penalty_gradient(learner, 0.0).any()
    assert torch.allclose(
        penalty_gradient(learner, 0.01), 3.0 * flat_memory(learner, "A") * 0.01, rtol=1e-4, atol=1e-12
    )


def test_after_more_tasks_separate_pulls_to_each_of_its_centres() -> None:
    centres, fishers = [], []

    class Noting(EWC):
        def information(self, task):
            found = super().information(task)
            centres.append(flat(self.network))
            fishers.append(torch.cat([f.flatten() for f in found]))
            return found

    learner = Noting(build=builder(S), head=S.head, seed=0, strength=2.0)
    learn(learner, S, training(optimizer="sgd", lr=0.05))
    w = centres[-1] + 0.02
    expected = 2.0 * sum(f * (w - centre) for f, centre in zip(fishers, centres))
    assert len(centres) == 3
    assert torch.allclose(penalty_gradient(learner, 0.02), expected, rtol=1e-3, atol=1e-6)


def test_the_three_penalties_agree_until_the_second_task_and_differ_from_the_third() -> None:
    ends = {
        tasks: [
            flat(learned(tasks, penalty=p, strength=50.0).network) for p in ("separate", "huszar", "online")
        ]
        for tasks in (2, 3)
    }
    assert torch.equal(ends[2][0], ends[2][1])
    assert torch.equal(ends[2][0], ends[2][2])
    separate, huszar, online = ends[3]
    assert (separate - huszar).norm() > 1e-3 * separate.norm()
    assert torch.equal(huszar, online)  # gamma = 1


def test_online_with_gamma_zero_remembers_nothing() -> None:
    settings = training(optimizer="sgd", lr=0.05)
    assert torch.equal(
        flat(learned(3, penalty="online", gamma=0.0, strength=50.0).network),
        learn(Finetune(build=builder(S), head=S.head, seed=0), S, settings).weights,
    )


def test_a_huge_strength_holds_what_matters() -> None:
    first, strength, steps = learned(1), 1e6, 1500
    start, F = flat(first.network), flat_memory(first, "A")
    matters, rate = F.max() / 10 < F, 1 / (strength * F.max().item())  # larger rates diverge from 2 on
    batch = Batch(*S.task(1).train.parts)

    def drift(strength: float) -> torch.Tensor:
        learner = EWC(build=builder(S), head=S.head, seed=0, strength=strength)
        learner.load_state_dict(first.state_dict())
        c = learner.candidates(S.task(1))[0]
        opt = torch.optim.SGD(c.network.parameters(), lr=rate)
        for _ in range(steps):
            opt.zero_grad()
            learner.loss(c, batch).backward()
            learner.after_backward(c, batch)
            opt.step()
        return (flat(c.network) - start)[matters]

    assert drift(strength).norm() < 1e-2 * drift(0.0).norm()


@pytest.mark.parametrize("penalty", ["separate", "huszar", "online"])
def test_what_it_holds_does_not_grow_with_tasks(penalty: str) -> None:
    assert held_bytes(learned(1, penalty=penalty)) == held_bytes(learned(3, penalty=penalty))


def test_fisher_is_of_the_first_examples_and_of_the_data_alone() -> None:
    few, all_of_them = learned(1, examples=5), learned(1)
    x, y, _ = S.task(0).train.parts
    expected = fisher(few.network, lambda part: few.network(x[:5][part]).log_softmax(1), y[:5], "empirical")
    assert torch.allclose(flat_memory(few, "A"), torch.cat([f.flatten() for f in expected]))
    assert not torch.allclose(flat_memory(few, "A"), flat_memory(all_of_them, "A"))


def test_online_decays_what_it_stores_by_gamma_at_every_task() -> None:
    fishers = []

    class Noting(EWC):
        def information(self, task):
            fishers.append(super().information(task))
            return fishers[-1]

    learner = Noting(build=builder(S), head=S.head, seed=0, penalty="online", gamma=0.5)
    learn(learner, S, training(optimizer="sgd", lr=0.05))
    expected = [0.5 * (0.5 * (0.5 * a + b) + c) for a, b, c in zip(*fishers)]
    assert all(torch.allclose(a, e) for a, e in zip(learner.memory["A"], expected))


def test_the_closed_form_holds_where_each_task_has_a_head() -> None:
    from cl_lightning.backbones import MLP
    from cl_lightning.data.task import Head

    net = MLP((1, 6, 6), Head("multi_train_test", 4, ((0, 1), (2, 3))), (8,), heads="per_task").double()
    x, y = torch.rand(20, 1, 6, 6, dtype=torch.float64), torch.randint(2, (20,))
    with linear_calls(net) as calls:
        net(x, 0)
    assert len(calls) == 2
    found = fisher(net, lambda part: net(x[part], 0).log_softmax(1), y, "empirical")
    rows = [
        torch.autograd.grad(
            net(x[i : i + 1], 0).log_softmax(1)[0, y[i]], list(net.parameters()), allow_unused=True
        )
        for i in range(20)
    ]
    for f, parts in zip(found, zip(*rows)):
        expected = sum(torch.zeros_like(f) if g is None else g**2 for g in parts) / 20
        assert torch.allclose(f, expected, rtol=1e-9)


# ---- by hand -----------------------------------------------------------------------------------------------


def fisher_by_hand(
    net: by_hand.Net, examples: Split, own: list[int] | None, predicted: bool = False
) -> torch.Tensor:
    """Empirical, or of predicted labels: the mean of the squared gradients of single examples."""
    x, y, _ = examples.parts
    if predicted:
        z = by_hand.logits(net, x)
        y = z.argmax(1) if own is None else z[:, own].argmax(1) + own[0]
    losses = [by_hand.loss(net, one[None], label[None], own) for one, label in zip(x, y)]
    return torch.stack([by_hand.gradient(loss, net) ** 2 for loss in losses]).mean(0)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("penalty", ["separate", "huszar", "online", "veniat"])
@pytest.mark.parametrize("merging", ["sum", "mean"])
def test_three_tasks_are_learned_as_by_hand(penalty: str, masked: bool, merging: str) -> None:
    """In the head mode multi_train_test, Fisher information is of the outputs that the loss is about."""
    s, strength, gamma = by_hand.pairs() if masked else toys.stream(tasks=3), 30.0, 0.5
    options = {"penalty": penalty, "strength": strength, "gamma": gamma, "merging": merging}
    learner = by_hand.learned(EWC(build=builder(s), head=s.head, seed=by_hand.SEED, **options), s)
    net = by_hand.fresh(0, (36, 16, 16, s.head.num_outputs))
    centres: list[torch.Tensor] = []
    fishers: list[torch.Tensor] = []

    def pull(w: torch.Tensor) -> torch.Tensor:
        """The gradient of strength/2 sum F (w - c)^2, or of the mean over past tasks."""
        weight = strength / (len(fishers) if merging == "mean" else 1)
        if penalty == "separate":
            return weight * sum(F * (w - c) for F, c in zip(fishers, centres))
        decay = {"huszar": 1.0, "online": gamma, "veniat": gamma}[penalty]
        youngest = int(penalty == "online")  # how often the last task's was decayed
        ages = range(len(fishers) - 1 + youngest, youngest - 1, -1)
        return weight * sum(decay**age * F for F, age in zip(fishers, ages)) * (w - centres[-1])

    for index in range(3):
        own = by_hand.OWN[index] if masked else None
        for _, x, y in by_hand.mini_batches(s.task(index).train, index):
            g = by_hand.gradient(by_hand.loss(net, x, y, own), net)
            by_hand.move(net, g + pull(by_hand.row(net)) if index else g)
        centres.append(by_hand.row(net))
        fishers.append(fisher_by_hand(net, s.task(index).train, own))
    assert by_hand.equal(learner.network, net)


@pytest.mark.parametrize("heads", ["shared", "per_task"])
def test_online_ewc_of_ctrl_is_learned_as_by_hand(heads: str) -> None:
    """The settings of conf/learner/online_ewc.yaml, with fewer examples: the trunk alone is held, by the
    Fisher information of predicted labels of examples drawn. With ``shared``, tasks of the same outputs
    share the head, which is free, too."""
    of_one = {"penalty": "veniat", "gamma": 0.9, "fisher": "predicted", "drawn": True, "free_heads": True}
    s, strength, examples = by_hand.pairs() if heads == "per_task" else toys.stream(tasks=3), 30.0, 25
    build = builder(s, heads=heads)
    learner = EWC(build=build, head=s.head, seed=by_hand.SEED, strength=strength, examples=examples, **of_one)
    with seeded(by_hand.SEED, "init", 0):
        network = build()
    trunk = by_hand.copied(list(network.trunk.parameters()))
    layers = network.head.layers if heads == "per_task" else [network.head] * 3
    nets = [by_hand.copied(list(layer.parameters())) for layer in layers]
    F, centre = torch.zeros_like(by_hand.row(trunk)), by_hand.row(trunk)
    for index in range(3):
        head, first = nets[index], by_hand.OWN[index][0] if heads == "per_task" else 0
        net, n = [*trunk, *head], len(F)
        for _, x, y in by_hand.mini_batches(s.task(index).train, index):
            g = by_hand.gradient(by_hand.loss(net, x, y - first), net)
            g[:n] += strength * F * (by_hand.row(trunk) - centre)
            by_hand.move(net, g)
        if heads == "shared":
            nets = [head] * 3
        drawn = torch.randperm(60, generator=rng(by_hand.SEED, index, "fisher"))[:examples]
        new = fisher_by_hand(net, Split(*s.task(index).train.gather(drawn)), None, predicted=True)[:n]
        F, centre = 0.9 * F + new, by_hand.row(trunk)
    learner = by_hand.learned(learner, s)
    heads_by_hand = nets if heads == "per_task" else nets[:1]
    expected = by_hand.row([*trunk, *(w for head in heads_by_hand for w in head)])
    assert torch.allclose(by_hand.row(list(learner.network.parameters())), expected, atol=1e-5)
    assert torch.allclose(flat_memory(learner, "A"), F, rtol=1e-3, atol=1e-6)


def test_veniats_penalty_is_online_with_the_strength_over_gamma() -> None:
    """And with a gamma of 0 it keeps the last task alone, where online keeps none."""
    ours = [
        learned(3, penalty="veniat", gamma=0.5, strength=10.0),
        learned(3, penalty="online", gamma=0.5, strength=20.0),
    ]
    assert torch.allclose(*(by_hand.row(list(each.network.parameters())) for each in ours), atol=1e-5)
    assert not flat_memory(learned(2, penalty="online", gamma=0.0), "A").any()
    assert flat_memory(learned(2, penalty="veniat", gamma=0.0), "A").any()
