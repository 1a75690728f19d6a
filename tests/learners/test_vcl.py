"""VCL and its coresets: the objective, its priors, the coresets, and what a test leaves behind."""

from __future__ import annotations

import copy
from collections import UserDict
from collections.abc import Callable
from itertools import combinations
from typing import Any

import pytest
import torch
import torch.nn as nn

from cl_lightning.backbones.bayesian import Bayesian, gaussians
from cl_lightning.data.streams.stream import Stream
from cl_lightning.data.task import Batch, Head, Split
from cl_lightning.errors import Refusal
from cl_lightning.learners import VCL, Candidate, MCDropout, VCLCoreset
from cl_lightning.learners.vcl_coreset import k_center
from cl_lightning.randomness import rng, seed_of, seeded
from tests import toys
from tests.learners import by_hand
from tests.toys import learn, training

Net = list[torch.Tensor]  # of each layer: means of weights and biases, and their log-variances
LOG_VAR = -4.0


def made(s: Stream, cls: type[VCL] = VCL, heads: str = "shared", sizes: tuple = (16, 16), **options) -> Any:
    def build(**given) -> Bayesian:
        return Bayesian(input_shape=s.shape, sizes=sizes, heads=heads, log_var=LOG_VAR, **given)

    return cls(build=build, head=s.head, seed=by_hand.SEED, **{"draws": 20, **options})


# ---- the objective -----------------------------------------------------------------------------------------


def divergence(net: Net, prior: Net | None) -> torch.Tensor:
    """KL of independent normal variables, from their deviations."""
    total = torch.zeros(())
    for i in range(0, len(net), 4):
        for k in (0, 1):
            m, s = net[i + k], (net[i + k + 2] / 2).exp()
            m0, s0 = (0.0, torch.ones(())) if prior is None else (prior[i + k], (prior[i + k + 2] / 2).exp())
            total = total + (torch.log(s0 / s) + (s**2 + (m - m0) ** 2) / (2 * s0**2) - 0.5).sum()
    return total


def logits(net: Net, x: torch.Tensor, noisy: bool) -> torch.Tensor:
    h = x.flatten(1)
    for i in range(0, len(net), 4):
        weight, bias, log_var, log_var_bias = net[i : i + 4]
        a = h @ weight.T + bias
        if noisy:
            a = a + (h**2 @ log_var.exp().T + log_var_bias.exp()).sqrt() * torch.randn(a.shape)
        h = a.relu() if i + 4 < len(net) else a
    return h


def trained(net: Net, s: Stream, task: int, phase: int, prior: Net | None, noisy: bool = True) -> None:
    examples = s.task(task).train
    for key, x, y in by_hand.mini_batches(examples, task, phase):
        torch.manual_seed(seed_of(*key, "loss"))
        loss = -logits(net, x, noisy).log_softmax(1)[range(len(y)), y].mean()
        if noisy:
            loss = loss + divergence(net, prior) / len(examples)
        moving = net if noisy else [net[i + k] for i in range(0, len(net), 4) for k in (0, 1)]
        by_hand.move(moving, by_hand.gradient(loss, moving))


@pytest.mark.parametrize("prior", ["last", "standard"])
def test_three_tasks_are_learned_as_by_hand(prior: str) -> None:
    s = toys.stream()
    with torch.random.fork_rng():
        learner = by_hand.learned(made(s, prior=prior), s)
        means = by_hand.fresh(0)
        net = [
            w
            for pair in zip(means[::2], means[1::2])
            for w in (*pair, *(torch.full_like(p, LOG_VAR, requires_grad=True) for p in pair))
        ]
        trained(net, s, 0, 0, None, noisy=False)
        trained(net, s, 0, 1, None)
        for task in (1, 2):
            trained(net, s, task, 0, by_hand.copied(net) if prior == "last" else None)
    expected, found = by_hand.row(net), by_hand.row(list(learner.network.parameters()))
    assert torch.allclose(found, expected, atol=1e-4)


def test_a_second_task_begins_without_divergence_and_its_first_gradient_is_the_likelihoods() -> None:
    s = toys.stream()
    learner = made(s)
    learn(learner, s, training(), tasks=1)
    task = s.task(1)
    phase = next(learner.learn(task))
    (c,) = phase.candidates
    assert learner.divergence(c.network, 1, 1).item() == 0
    batch = Batch(*task.train.parts, learning=1)
    c.network.train()
    gradients = []
    for loss in (phase.loss, learner.loss):
        with seeded("the same noise"):
            gradients.append(by_hand.row(torch.autograd.grad(loss(c, batch), c.parameters)))
    assert torch.equal(*gradients)
    assert learner.divergence(c.network, 1, 0).item() > 1, "against N(0, 1)"


LOGS: list[tuple[str, float]] = []
EXPECTED: list[tuple[float, float]] = []  # of a mini-batch of the second task: both parts and the prior's


class NotesGradients(VCL):
    """Notes what is logged, and what the gradient of the whole and of the prior are by hand."""

    def log(self, name, value, *_, **__):
        LOGS.append((name, value))

    def after_backward(self, c, batch):
        if batch.phase == "train" and batch.learning and batch.key[-1] < 2:
            now, last = c.network.head, self.network.head
            prior = (now.weight - last.weight) / last.weight_log_var.exp() / 60
            EXPECTED.append(((now.weight.grad - prior).abs().mean().item(), prior.abs().mean().item()))


def test_gradients_of_the_first_mini_batches_are_those_by_hand_and_to_look_changes_nothing() -> None:
    """The prior's is (m - m0) / s0^2 / N: at the second task's first mini-batch 0 to the bit."""
    s = toys.stream(tasks=2)
    LOGS.clear()
    EXPECTED.clear()
    with_logs, without = (
        learn(made(s, cls, logged=n), s, training()) for cls, n in ((NotesGradients, 2), (VCL, 0))
    )
    assert torch.equal(with_logs.weights, without.weights)
    assert with_logs.costs(1)["flops"] == without.costs(1)["flops"]
    assert [name for name, _ in LOGS] == 4 * ["gradient_of_likelihood", "gradient_of_prior"]
    values = torch.tensor([value for _, value in LOGS]).view(4, 2)[2:]
    assert values[0, 1] == 0
    assert values[1, 1] > 0
    assert torch.allclose(values, torch.tensor(EXPECTED), rtol=1e-4)


class Regression(VCL):
    """Squared errors of a linear layer without bias and unit noise: a likelihood whose posterior is known.
    The expectation over weights is taken exactly."""

    def loss(self, c, batch):
        layer, y = next(gaussians(c.network)), batch.y[:, None]
        mean, variance = batch.x @ layer.weight.T, batch.x**2 @ layer.weight_log_var.exp().T
        return ((y - mean).square() + variance).mean() / 2


def test_two_tasks_of_a_conjugate_regression_are_as_one_by_inference_on_both() -> None:
    """x has one component that is not 0, so that the true posterior is a product: of each weight, precision
    1 + n and mean sum y / (1 + n)."""

    def build(**_) -> nn.Module:
        return nn.Sequential(nn.Linear(3, 1, bias=False))

    learner = Regression(build=build, head=Head("domain", 1, ((0,), (0,))), seed=0)
    generator = torch.Generator().manual_seed(0)
    x = torch.eye(3).repeat_interleave(torch.tensor([10, 20, 30]), 0)[torch.randperm(60, generator=generator)]
    y = x @ torch.tensor([2.0, -1.0, 0.5]) + torch.randn(60, generator=generator)
    for task, rows in enumerate((slice(0, 25), slice(25, 60))):
        batch = Batch(x[rows], y[rows], torch.full((len(y[rows]),), task))
        c = Candidate(copy.deepcopy(learner.network))
        loss = learner.objective(task, task, len(batch))
        optimizer = torch.optim.Adam(c.parameters, lr=0.02)
        for _ in range(1500):
            optimizer.zero_grad()
            loss(c, batch).backward()
            optimizer.step()
        learner.network = c.network
    precision = 1 + x.sum(0)
    (layer,) = gaussians(learner.network)
    assert torch.allclose(layer.weight[0], (x * y[:, None]).sum(0) / precision, atol=1e-3)
    assert torch.allclose(layer.weight_log_var[0].exp(), 1 / precision, rtol=1e-3)


class NotesPriors(VCL):
    """Notes, at every mini-batch, the posterior that the divergence is from."""

    seen: UserDict[int, list[torch.Tensor]] = UserDict()

    def after_step(self, c, batch):
        self.seen.setdefault(batch.learning, []).append(by_hand.row(list(self.network.parameters())))


def test_priors_change_at_the_end_of_a_task_and_never_else() -> None:
    s = toys.stream()
    NotesPriors.seen = UserDict()
    after = learn(made(s, NotesPriors), s, training()).after
    assert all(torch.equal(prior, after[0]) for prior in NotesPriors.seen[1])
    assert all(torch.equal(prior, after[1]) for prior in NotesPriors.seen[2])
    assert not torch.equal(after[0], after[1])


# ---- heads -------------------------------------------------------------------------------------------------


def test_an_output_layer_has_the_standard_prior_until_its_task_is_learned() -> None:
    s = by_hand.pairs()
    learner = made(s, heads="per_task")
    learn(learner, s, training(), tasks=1)
    (c,) = learner.candidates(s.task(1))
    first, second, third = (list(layer.parameters()) for layer in c.network.head.layers)
    assert learner.divergence(c.network, 1, 1).item() == pytest.approx(divergence(second, None).item())
    with torch.no_grad():
        first[0].add_(0.5)
        third[0].add_(9.0)
    old = list(learner.network.head.layers[0].parameters())
    both = (divergence(first, old) + divergence(second, None)).item()
    assert learner.divergence(c.network, 1, 1).item() == pytest.approx(both)


def test_outputs_of_tasks_to_come_stay_as_they_were_initialised() -> None:
    s = by_hand.pairs()
    learner = made(s, heads="per_task")
    begun = by_hand.row(list(learner.network.head.layers[2].parameters()))
    learn(learner, s, training(), tasks=2)
    assert torch.equal(by_hand.row(list(learner.network.head.layers[2].parameters())), begun)


def test_one_layer_for_outputs_that_are_masked_in_training_is_refused() -> None:
    s = by_hand.pairs()
    with pytest.raises(Refusal, match=r"Set backbone\.heads=per_task, or stream\.head=multi_test\."):
        learn(made(s), s, training(), tasks=1)


# ---- predictions -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [made, lambda s: with_dropout(s, 0.5)], ids=["VCL", "MC-dropout"])
def test_predictions_are_the_mean_probability_over_draws(make: Callable) -> None:
    s = toys.stream()
    learner, x = make(s).eval(), s.test(0).x[:30]
    with torch.no_grad():
        with seeded("draws"):
            samples = learner.samples(x, None)
        with seeded("draws"):
            predicted = learner(x, None)
    assert samples.shape == (20, 30, 4)
    assert not torch.allclose(samples[0], samples[1], atol=1e-3)
    assert torch.allclose(predicted.exp(), samples.softmax(2).mean(0), atol=1e-6)
    assert not any(module.training for module in learner.modules())


@pytest.mark.parametrize("make", [made, lambda s: with_dropout(s, 0.5)], ids=["VCL", "MC-dropout"])
def test_validation_goes_by_the_mean_probability_and_training_by_one_draw(make: Callable) -> None:
    s = toys.stream()
    learner, examples = make(s), s.test(0)
    candidate = Candidate(learner.network.eval())
    batch = Batch(*(part[:30] for part in examples.parts))
    with torch.no_grad():
        with seeded("draws"):
            of_draws = learner.samples(batch.x, batch.task).softmax(2).mean(0)
        with seeded("draws"):
            of_validation = learner.logits(candidate, batch).exp()
        candidate.network.train()
        with seeded("draws"):
            drawn_once = candidate.network(batch.x, batch.task)
        with seeded("draws"):
            of_training = learner.logits(candidate, batch)
    assert torch.allclose(of_validation, of_draws, atol=1e-6)
    assert torch.equal(of_training, drawn_once)


def with_dropout(s: Stream, rate: float, draws: int = 20) -> MCDropout:
    return MCDropout(build=toys.builder(s, dropout=rate), head=s.head, seed=by_hand.SEED, draws=draws)


def test_mc_dropout_agrees_with_passes_by_hand_and_is_stable_over_a_thousand() -> None:
    s, x = toys.stream(), toys.stream().test(0).x[:10]
    learner = with_dropout(s, 0.3, draws=1000).eval()
    net = list(learner.network.parameters())

    def passed() -> torch.Tensor:
        h = x.flatten(1)
        for i in (0, 2):
            h = torch.nn.functional.dropout((h @ net[i].T + net[i + 1]).relu(), 0.3)
        return (h @ net[4].T + net[5]).softmax(1)

    with torch.no_grad(), seeded("passes"):
        by_passes = torch.stack([passed() for _ in range(1000)]).mean(0)
        one, other = learner(x, None).exp(), learner(x, None).exp()
    assert torch.allclose(one, by_passes, atol=0.02)
    assert torch.allclose(one, other, atol=0.02)
    assert not torch.equal(one, other)


def test_a_network_without_randomness_is_asked_once_and_says_the_same_each_time() -> None:
    s = toys.stream()
    learner, x = with_dropout(s, 0.0).eval(), s.test(0).x[:10]
    assert learner.samples(x, None).shape[0] == 1
    assert torch.equal(learner(x, None), learner.network(x))


# ---- coresets ----------------------------------------------------------------------------------------------


def coreset(s: Stream, **options) -> VCLCoreset:
    return made(s, VCLCoreset, **{"size": 8, **options})


def rows_of(part: torch.Tensor) -> set[bytes]:
    return {image.numpy().tobytes() for image in part}


@pytest.mark.parametrize("choice", ["k_center", "random"])
def test_a_coreset_is_out_of_the_training_data(choice: str) -> None:
    s = toys.stream()
    learner = coreset(s, choice=choice)
    for index in range(2):
        task = s.task(index)
        learner.on_task_start(task)
        stored, rest = rows_of(learner.memory["x"][8 * index :]), rows_of(learner.examples(task).x)
        assert len(stored) == 8
        assert not stored & rest
        assert stored | rest == rows_of(task.train.x)
    assert learner.memory["task"].tolist() == [0] * 8 + [1] * 8
    assert learner.memory["y"][:8].tolist() == [
        int(s.task(0).train.y[row]) for row in chosen(s.task(0).train, choice)
    ]


def chosen(examples: Split, choice: str) -> list[int]:
    """By hand: all distances at each pick."""
    if choice == "random":
        return torch.randperm(60, generator=rng(by_hand.SEED, 0, "coreset"))[:8].tolist()
    points, rows = examples.x.flatten(1), [0]
    while len(rows) < 8:
        nearest = torch.cdist(points, points[rows]).min(1).values
        rows.append(int(nearest.argmax()))
    return rows


def test_k_center_is_within_twice_the_best_and_its_picks_come_nearer_and_nearer() -> None:
    x = torch.rand(12, 1, 2, 2, generator=torch.Generator().manual_seed(0))
    distances = torch.cdist(x.flatten(1), x.flatten(1))
    rows = k_center(x, 4).tolist()
    best = min(float(distances[:, list(some)].min(1).values.max()) for some in combinations(range(12), 4))
    assert float(distances[:, rows].min(1).values.max()) <= 2 * best
    picks = [float(distances[row, rows[:i]].min()) for i, row in enumerate(rows) if i]
    assert picks == sorted(picks, reverse=True)
    assert len(set(k_center(torch.zeros(5, 1), 4).tolist())) == 4, "equal examples are not taken twice"


def test_a_test_leaves_the_learner_as_it_was_to_the_bit_and_goes_on_without_coresets() -> None:
    """What trains on coresets is thrown away: the same weights come out however long it trained."""
    s = toys.stream()
    short, long = (learn(coreset(s, coreset_epochs=epochs), s, training()) for epochs in (1, 20))
    assert all(map(torch.equal, short.after, long.after))
    assert short.matrix != long.matrix
    state = copy.deepcopy(long.learner.state_dict())
    tested = dict(long.engine.predictors(long.learner, 3, s.task_without_data(2)))[""]
    assert len(tested.tuned) == 1
    assert not len(long.learner.tuned)
    assert all(
        torch.equal(now, state[name])
        for name, now in long.learner.network.state_dict(prefix="network.").items()
    )


def test_the_coreset_copy_begins_with_the_posterior_as_its_prior() -> None:
    s = toys.stream()
    for prior, none in (("last", True), ("standard", False)):
        learner = coreset(s, prior=prior)
        learn(learner, s, training(), tasks=2)
        phase = next(learner.predictors(2))
        batch = Batch(*phase.train.parts)
        (c,) = phase.candidates
        c.network.train()
        losses = []
        for loss in (phase.loss, learner.loss):
            with seeded("the same noise"):
                losses.append(loss(c, batch).item())
        assert len(batch) == 16
        assert phase.settings == {"batch_size": 8}
        if not none:
            kl = learner.divergence(c.network, 1, 2).item()
            assert losses[0] - losses[1] == pytest.approx(kl / (60 - 8), rel=1e-3)
        assert (losses[0] == losses[1]) == none


def test_coreset_only_is_vcl_with_coresets_on_the_first_task_to_the_bit_and_not_after_it() -> None:
    s = toys.stream()
    with_vcl, only = (learn(coreset(s, prior=prior), s, training()) for prior in ("last", "standard"))
    assert torch.equal(with_vcl.after[0], only.after[0])
    assert not torch.equal(with_vcl.after[1], only.after[1])


def test_with_a_head_a_task_each_test_has_a_copy_trained_on_its_own_coreset() -> None:
    s = by_hand.pairs()
    learner = coreset(s, heads="per_task")
    learned = learn(learner, s, training(), tasks=2)
    tested = dict(learned.engine.predictors(learner, 2, s.task_without_data(1)))[""]
    assert len(tested.tuned) == 2
    for task, network in enumerate(tested.tuned):
        moved = [
            not torch.equal(*map(by_hand.row, (list(a.parameters()), list(b.parameters()))))
            for a, b in zip(network.head.layers, learner.network.head.layers)
        ]
        assert moved[task]
        x = s.test(task).x
        with torch.no_grad(), seeded("draws"):
            said = tested.eval()(x, task)
        with torch.no_grad(), seeded("draws"):
            expected = torch.stack([network.eval()(x, task) for _ in range(20)]).softmax(2).mean(0)
        assert torch.allclose(said.exp(), expected, atol=1e-6)


def test_a_coreset_that_leaves_nothing_is_refused() -> None:
    s = toys.stream()
    with pytest.raises(Refusal, match=r"A coreset of 60 examples leaves nothing of the 60 of task 0"):
        learn(coreset(s, size=60), s, training(), tasks=1)
