"""A path that is learned beside the weights: Gamma, the two halves, and the end of the search (Veniat et al.
2021)."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from cl_lightning.backbones import MLP, ResNet
from cl_lightning.data.streams.show import Show
from cl_lightning.engine import scoring
from cl_lightning.learners import MNTDP, MNTDPS
from cl_lightning.learners.mntdp_s import Search, loss_of_gamma, paths_of
from cl_lightning.learners.parts.paths import Paths, at_once, one_by_one
from cl_lightning.randomness import rng
from tests import toys
from tests.commands import but_what_may_differ, thinned
from tests.commands import run as run_command
from tests.dying import killed
from tests.learners import by_hand
from tests.learners.test_mntdp import copied
from tests.test_resume import FRAGILE

CHAIN: list[tuple[int, ...]] = [(), (0,), (0, 1), (0, 1, 2)]  # paths beside a task of three modules
TREE: list[tuple[int, ...]] = [
    (),
    (0,),
    (0, 1),
    (0, 3),
    (0, 1, 2),
    (0, 3, 4),
]  # of two, which share the first
DECISIONS: dict[str, Callable] = {"paths": at_once, "decisions": one_by_one}
NARROW = (36, 16, 16, 2)
RATE, ENTROPY = 0.5, 0.3

both_gammas = pytest.mark.parametrize("gamma", DECISIONS)


def paths(prefixes: Sequence[tuple[int, ...]], gamma: str) -> Paths:
    fresh = [torch.nn.Linear(1, 1) for _ in range(3)]
    return Paths(prefixes, fresh, DECISIONS[gamma](prefixes))


# ---- Gamma -------------------------------------------------------------------------------------------------


@both_gammas
@pytest.mark.parametrize("prefixes", [CHAIN, TREE, CHAIN[:3], CHAIN[:1]], ids=str)
def test_probabilities_of_paths_sum_to_one(prefixes: list, gamma: str) -> None:
    one = paths(prefixes, gamma)
    torch.nn.init.normal_(one.gamma, std=3, generator=rng(0))
    assert one.log_p().exp().sum().item() == pytest.approx(1, abs=1e-5)


def test_one_softmax_starts_uniform_and_decisions_start_with_half_for_what_re_uses_nothing() -> None:
    assert paths(CHAIN, "paths").log_p().exp().tolist() == pytest.approx([1 / 4] * 4)
    assert paths(CHAIN, "decisions").log_p().exp().tolist() == pytest.approx([1 / 2, 1 / 4, 1 / 8, 1 / 8])
    # at the input 1/2, behind the first module three ways, behind each of the next two
    expected = [1 / 2, 1 / 6, 1 / 12, 1 / 12, 1 / 12, 1 / 12]
    assert paths(TREE, "decisions").log_p().exp().tolist() == pytest.approx(expected)
    assert paths(CHAIN, "paths").entropy().item() == pytest.approx(math.log(4))
    assert paths(CHAIN, "decisions").entropy().item() == pytest.approx(math.log(2))


def test_of_equally_likely_paths_the_one_that_re_uses_least_counts() -> None:
    assert paths(CHAIN, "paths").prefix == ()


def by_words(gamma: Tensor, kind: str) -> Tensor:
    """Probabilities of the four paths of ``CHAIN``: a softmax; or three times first new, then old."""
    if kind == "paths":
        return gamma.exp() / gamma.exp().sum()
    new = [1 / (1 + (old - new).exp()) for new, old in gamma.view(3, 2)]
    return torch.stack([new[0], (1 - new[0]) * new[1], (1 - new[0]) * (1 - new[1]) * new[2],
                        (1 - new[0]) * (1 - new[1]) * (1 - new[2])])  # fmt: skip


@both_gammas
def test_the_expected_gradient_is_that_of_the_expected_reward_by_hand(gamma: str) -> None:
    """All draws of two examples, each with its probability. The mean of both as a baseline takes a half of
    the gradient; log p is the mean of one decision or of three."""
    one = paths(CHAIN, gamma).double()
    torch.nn.init.normal_(one.gamma, generator=rng(1))
    rewards = torch.randn(2, 4, dtype=torch.float64, generator=rng(2))
    expected = torch.zeros_like(one.gamma)
    p = by_words(one.gamma.detach(), gamma)
    for ways in itertools.product(range(4), repeat=2):
        loss = loss_of_gamma(one, torch.tensor(ways), rewards[[0, 1], list(ways)], entropy=0.0)
        expected += p[ways[0]] * p[ways[1]] * torch.autograd.grad(loss, one.gamma)[0]

    def mean_reward(at: Tensor) -> float:
        return (rewards @ by_words(at, gamma)).mean().item()

    for i, found in enumerate(expected):
        up, down = (one.gamma.detach().clone() for _ in range(2))
        up[i] += 1e-5
        down[i] -= 1e-5
        slope = (mean_reward(up) - mean_reward(down)) / 2e-5
        assert found.item() == pytest.approx(-slope / 2 / len(one.sizes), abs=1e-8)


@both_gammas
def test_the_entropy_alone_pulls_each_decision_to_the_middle(gamma: str) -> None:
    one = paths(CHAIN, gamma)
    torch.nn.init.normal_(one.gamma, generator=rng(1))
    optimizer = torch.optim.SGD([one.gamma], lr=1)
    for _ in range(1000):
        optimizer.zero_grad()
        loss_of_gamma(one, torch.tensor([0, 1]), torch.zeros(2), entropy=1.0).backward()
        optimizer.step()
    assert one.entropy().item() == pytest.approx(math.log(4 if gamma == "paths" else 2), abs=1e-4)


# ---- by hand -----------------------------------------------------------------------------------------------


class Notes(MNTDPS):
    """Notes what was adopted."""

    def adopt(self, c, task):
        super().adopt(c, task)
        NOTED.append(paths_of(c))


NOTED: list[Paths] = []


def noted(
    s: toys.Stream, settings: Any = by_hand.SETTINGS, tasks: int = 2, **options: Any
) -> tuple[Any, Paths]:
    """The learner, and the paths that it adopted last."""
    NOTED.clear()
    learner = Notes(build=toys.builder(s), head=s.head, seed=by_hand.SEED, **options)
    return toys.learn(learner, s, settings, tasks=tasks).learner, NOTED[-1]


def halves(y: Tensor) -> list[Tensor]:
    parts: list[list[Tensor]] = [[], []]
    for label in y.unique().tolist():
        rows = (y == label).nonzero()[:, 0]
        rows = rows[torch.randperm(len(rows), generator=rng(by_hand.SEED, "halves", 1, label))]
        middle = math.ceil(len(rows) / 2)
        parts[0].append(rows[:middle])
        parts[1].append(rows[middle:])
    return [torch.cat(part).sort().values for part in parts]


def in_turn(halves: list[Tensor]) -> list[tuple[tuple, int, Tensor]]:
    """The key, the half and the rows of each mini-batch: of one half and the other in turn, until the longer
    was gone through three times."""
    found, key = [], (by_hand.SEED, "task1", 0)

    def endless(k: int) -> Iterator[Tensor]:
        for epoch in itertools.count():
            draws = rng(*key, "order", epoch, *([k] if k else []))
            yield from halves[k][torch.randperm(len(halves[k]), generator=draws)].split(by_hand.SIZE)

    both = [endless(k) for k in range(2)]
    longer = math.ceil(max(map(len, halves)) / by_hand.SIZE)
    for step in range(2 * longer * by_hand.EPOCHS):
        found.append(((*key, step), step % 2, next(both[step % 2])))
    return found


@pytest.mark.parametrize(
    ("gamma", "rate", "draw"),
    [
        ("paths", RATE, "example"), ("paths", 1000.0, "batch"), ("paths", RATE, "never"),
        ("decisions", 1000.0, "example"), ("decisions", RATE, "batch"),
    ],
)  # fmt: skip
def test_a_task_is_learned_as_by_hand(gamma: str, rate: float, draw: str) -> None:
    """The search takes half of 24 mini-batches, or four where Gamma is soon sure: from there on the chosen
    path takes both halves."""
    s = by_hand.pairs()
    learner, found = noted(s, gamma=gamma, gamma_lr=rate, entropy=ENTROPY, draw=draw)
    old, train = by_hand.fresh(0, NARROW), s.task(1).train
    by_hand.train(old, s.task(0).train, 0)
    fresh, logits = by_hand.fresh(1, NARROW), torch.zeros(len(found.gamma))
    entries = [by_hand.copied(fresh[2 * r : 2 * r + 2]) for r in range(3)]
    column = by_hand.copied(fresh)  # what all paths share, but for its first two tensors
    steps, searching, chosen = in_turn(halves(train.y)), True, []

    def net(r: int) -> by_hand.Net:
        return old if r == 3 else [*old[: 2 * r], *entries[r], *column[2 * r + 2 :]]

    for number, (key, half, rows) in enumerate(steps):
        x, y, p = train.x[rows], train.y[rows] - by_hand.OWN[1][0], by_words(logits, gamma)
        if searching and half == 1:
            ways = torch.multinomial(p, len(rows), replacement=True, generator=rng(*key, "path")).tolist()
            with torch.no_grad():
                r = torch.tensor([-float(by_hand.loss(net(way), x[i : i + 1], y[i : i + 1]))
                                  for i, way in enumerate(ways)])  # fmt: skip
            logits += rate * upwards(logits, gamma, ways, (r - r.mean()).tolist())
        elif searching and draw == "example":
            ways = torch.multinomial(p[:3], len(rows), replacement=True, generator=rng(*key, "path")).tolist()
            new = [*itertools.chain(*entries), *column[2:]]
            losses = [by_hand.loss(net(way), x[i : i + 1], y[i : i + 1]) for i, way in enumerate(ways)]
            slopes = torch.autograd.grad(sum(losses) / len(rows), new, allow_unused=True)
            by_hand.move(new, by_hand.row([torch.zeros_like(w) if g is None else g
                                           for w, g in zip(new, slopes)]))  # fmt: skip
        else:
            draws = searching and draw == "batch"
            way = int(torch.multinomial(p[:3], 1, generator=rng(*key, "path")) if draws else p.argmax())
            chosen += [] if searching else [way]
            if way < 3:
                new = net(way)[2 * way :]
                by_hand.move(new, by_hand.gradient(by_hand.loss(net(way), x, y), new))
        p = by_words(logits, gamma)
        searching &= bool(p.max() <= 0.99) and number + 1 < len(steps) / 2
    assert len(chosen) == (12 if rate == RATE else 20)
    best = int(by_words(logits, gamma).argmax())
    assert found.best() == best
    assert torch.allclose(found.gamma.detach(), logits, rtol=1e-3, atol=1e-4)
    assert learner.account().reused == best
    assert learner.library.paths == [[0, 1, 2], [*range(best), *range(3, 6 - best)]]
    for r, entry in enumerate(found.entries):
        assert by_hand.equal(entry, entries[r]), f"the module behind {r} old ones"
    assert by_hand.equal(found.shared, column[2:])
    x = s.test(1).x[:20]
    assert torch.allclose(learner(x, 1)[:, by_hand.OWN[1]], by_hand.logits(net(best), x), atol=1e-4)


def upwards(logits: Tensor, gamma: str, ways: list[int], advantages: list[float]) -> Tensor:
    """The direction that Gamma takes: of one softmax, or of three with two options."""
    parts = logits.view(1, 4) if gamma == "paths" else logits.view(3, 2)
    total = torch.zeros_like(parts)
    for k, part in enumerate(parts):
        q = part.exp() / part.exp().sum()
        h = -(q * q.log()).sum()
        total[k] -= ENTROPY * q * (q.log() + h)
        for way, advantage in zip(ways, advantages):
            if gamma == "paths" or k <= way:
                option = way if gamma == "paths" else int(k < way)
                total[k] += advantage * (torch.eye(len(q))[option] - q) / len(ways)
    return total.flatten() / len(parts)


def test_each_example_goes_its_own_path_by_hand() -> None:
    s = copied()
    learner: Any = MNTDPS(build=partial(ResNet, input_shape=s.shape, width=4), head=s.head, seed=0, k="all")
    for index in range(2):  # two sources that share three modules
        (c,) = MNTDPS.paths_from(learner, [], s.task(index))[:1]
        own = [*learner.library.modules_by_number[:3]] if index else []
        learner.library.add(tuple(range(len(own))), paths_of(c).own(0)[len(own) :], num_outputs=4)
    (c,) = learner.paths_from([0, 1], s.task(2))
    found = paths_of(c).eval()
    assert len(found.prefixes) == 12
    x, ways = s.test(2).x[:24], torch.arange(24) % 12
    with torch.no_grad():
        together = learner.on_paths(found, x, ways)
        for i, way in enumerate(ways.tolist()):
            h = x[i : i + 1]
            for number in found.prefixes[way]:
                h = learner.library.modules_by_number[number](h)
            for module in found.own(way):
                h = module(h)
            assert torch.allclose(together[i : i + 1], h, atol=1e-5)
    assert len({tuple(row) for row in together[:12].tolist()}) == 12


# ---- who is trained when -----------------------------------------------------------------------------------


class Watches(MNTDPS):
    """Notes what moves in each mini-batch of the second task."""

    def kind(self, c, batch):
        BEFORE.clear()
        BEFORE.update({name: value.clone() for name, value in c.network.state_dict().items()})
        return super().kind(c, batch)

    def after_step(self, c, batch):
        super().after_step(c, batch)
        if self.phase_run.task.index == 1:
            now, searched = c.network.state_dict(), bool(BEFORE.pop("searching"))
            moved = {name for name, before in BEFORE.items() if not torch.equal(before, now[name])}
            MOVED.append((batch.part, searched, paths_of(c).best(), moved))


BEFORE: dict[str, Tensor] = {}
MOVED: list[tuple[int, bool, int, set[str]]] = []


def test_a_mini_batch_trains_gamma_or_new_modules_and_after_the_choice_those_of_one_path() -> None:
    """One image each, with batch normalisation, momentum and weight decay."""
    MOVED.clear()
    s = replace(copied(n_train=8), show=Show(shape=[3, 32, 32]))
    build = partial(ResNet, input_shape=(3, 32, 32), width=4)
    learner = Watches(build=build, head=s.head, seed=0, gamma_lr=0.1)
    settings = toys.training(batch_size=1, max_epochs=1, weight_decay=0.1)
    final: Any = toys.learn(learner, s, settings, tasks=2).learner
    assert len(MOVED) == 40
    for part, searched, path, moved in MOVED:
        if searched and part == 1:
            assert moved <= {"gamma"}
            continue
        assert "gamma" not in moved
        assert moved or path == 7
        owners = {name.split(".")[0] + name.split(".")[1] for name in moved}
        assert sum(owner.startswith("entries") for owner in owners) <= 1, "of one path alone"
        if not searched:
            assert owners <= {f"entries{path}", *(f"shared{depth}" for depth in range(path, 6))}
    assert any("running_mean" in name for *_, moved in MOVED for name in moved)
    assert [searched for _, searched, *_ in MOVED] == [True] * 20 + [False] * 20
    assert final.account().reused == MOVED[-1][2]


def test_where_the_chosen_path_is_an_old_one_nothing_more_is_trained() -> None:
    MOVED.clear()
    s = by_hand.pairs()

    class Sure(Watches):
        def paths_from(self, sources, task):
            (c,) = super().paths_from(sources, task)
            if sources:
                paths_of(c).gamma.data[-1] = 20.0
            return [c]

    learner = Sure(build=toys.builder(s), head=s.head, seed=0, gamma_lr=1e-6)
    final: Any = toys.learn(learner, s, toys.training(), tasks=2).learner
    assert all(not moved for _, searched, _, moved in MOVED if not searched)
    assert len(MOVED) == 24
    assert final.library.paths[1] == final.library.paths[0]


def test_gamma_has_a_rate_of_its_own_and_no_decay() -> None:
    learner = MNTDPS(build=partial(MLP, input_shape=(1, 2, 2), sizes=(4,)), head=copied().head)
    fresh = learner.new_modules(0, range(2))
    point = {"lr": 0.1, "weight_decay": 0.3, "gamma_lr": 0.02}
    for c, rate in ((Search(Paths([()], fresh, at_once([()])), point), 0.02),
                    (Search(Paths([()], fresh, at_once([()])), {}, gamma_lr=0.5), 0.5)):  # fmt: skip
        weights, gamma = c.groups()
        assert [len(group["params"]) for group in (weights, gamma)] == [len(c.parameters) - 1, 1]
        assert gamma["params"][0] is paths_of(c).gamma
        assert (gamma["lr"], gamma["weight_decay"]) == (rate, 0.0)
        assert weights.get("lr", 0.1) == 0.1


def test_halves_are_apart_and_have_half_of_each_class_and_what_is_over() -> None:
    s = by_hand.pairs()
    task = s.task(0)
    odd = replace(task, train=type(task.train)(*(part[:59] for part in task.train.parts)))
    learner = MNTDPS(build=toys.builder(s), head=s.head, seed=0)
    first, second = learner.halves(odd)
    counts, (one, other) = odd.train.y.bincount(), (half.y.bincount() for half in (first, second))
    assert one.tolist() == [math.ceil(n / 2) for n in counts.tolist()]
    assert (one + other).tolist() == counts.tolist()
    together = {tuple(x.flatten().tolist()) for half in (first, second) for x in half.x}
    assert together == {tuple(x.flatten().tolist()) for x in odd.train.x}


# ---- the whole ---------------------------------------------------------------------------------------------


def test_a_task_without_sources_is_learned_as_by_mntdp_d_and_not_once_for_each_rate_of_gamma() -> None:
    s = toys.stream(tasks=1)
    grid = [{"lr": lr, "gamma_lr": rate} for lr in (0.01, 0.1) for rate in (0.001, 0.01)]
    build = toys.builder(s)
    one = toys.learn(MNTDPS(build=build, head=s.head, seed=0, grid=grid), s)
    other = toys.learn(MNTDP(build=build, head=s.head, seed=0, grid=[{"lr": 0.01}, {"lr": 0.1}]), s)
    assert [c.name for c in one.phase(0).candidates] == ["lr=0.01", "lr=0.1"]
    assert torch.equal(one.weights, other.weights)


@pytest.mark.all
def test_candidates_of_a_grid_end_alone_as_in_company() -> None:
    s = replace(copied(), show=Show(shape=[3, 16, 16]))
    grid = [{"lr": lr, "gamma_lr": rate} for lr in (0.003, 0.03) for rate in (0.01, 0.3)]
    build = partial(ResNet, input_shape=s.shape, width=4, channels_last=False)
    found = []
    for points, at_once_ in ((grid, None), (grid, 1), (grid[1:2], None)):
        learner = MNTDPS(build=build, head=s.head, seed=0, grid=points)
        settings = toys.training(max_epochs=4, patience=1000, candidates_at_once=at_once_)
        found.append(toys.learn(learner, s, settings, tasks=2))
    together, apart, alone = found
    assert together.standing(1) == apart.standing(1)
    assert together.costs(1)["flops"] == apart.costs(1)["flops"]
    assert together.costs(0)["flops"] == apart.costs(0)["flops"]
    if together.winner(0) == alone.winner(0):
        name = "lr=0.003,gamma_lr=0.3"
        assert together.standing(1)[name] == alone.standing(1)[name]


def test_the_best_weights_come_back_with_their_gamma(monkeypatch: pytest.MonkeyPatch) -> None:
    """The best is forged to lie in the search: the path is that of Gamma then, not the last one."""
    original, best, seen = scoring.accuracies, 10, {}

    def forged(learner: Any, run: Any) -> list[float]:
        original(learner, run)
        if run.task.index == 1:
            seen[run.step] = {k: v.clone() for k, v in run.candidates[0].network.state_dict().items()}
        return [1.0 if run.step == best else 0.5]

    monkeypatch.setattr(scoring, "accuracies", forged)
    settings = replace(by_hand.SETTINGS, patience=1000)
    learner, found = noted(by_hand.pairs(), settings, gamma_lr=RATE)
    assert not torch.equal(seen[best]["gamma"], seen[max(seen)]["gamma"])
    assert bool(seen[best]["searching"])
    assert all(torch.equal(value, seen[best][name]) for name, value in found.state_dict().items())
    assert learner.account().reused == int(seen[best]["gamma"].argmax())


def test_operations_are_those_of_the_paths_that_were_taken_by_hand() -> None:
    """Of a layer, 2 operations a weight and image forward; twice that backward where it is trained, but once
    in the first layer that is."""
    s = by_hand.pairs()
    layers = [36 * 16, 16 * 16, 16 * 2]
    counted: dict[str, list[int]] = {}

    class Counts(MNTDPS):
        def kind(self, c, batch):
            kind = super().kind(c, batch)
            if self.phase_run.task.index == 1:
                counted.setdefault(kind, []).append(len(batch))
            return kind

    learner = Counts(build=toys.builder(s), head=s.head, seed=0, gamma_lr=0.1)
    costs = toys.learn(learner, s, toys.training(), tasks=2).costs(1)
    expected = 0
    for kind, images in counted.items():
        if kind == "gamma":
            expected += 2 * sum(images) * sum(layers)
            continue
        numbers = [sum(images)]  # of images by path
        first = int(kind.removeprefix("reuse=")) if kind.startswith("reuse") else 0
        if kind.startswith("paths"):
            numbers = [len(images) * n for n in json.loads(kind.removeprefix("paths="))]
        for r, n in enumerate(numbers, start=first):
            trained = layers[r:]
            expected += 2 * n * (sum(layers) + 2 * sum(trained) - trained[0] if trained else 0)
    assert {kind[:5] for kind in counted} == {"gamma", "paths", "reuse"}
    assert costs["step_flops"] == expected


@pytest.mark.parametrize(("gamma", "k"), thinned(["paths", "decisions"], [1, "all"], each=4))
def test_a_task_that_was_there_before_is_re_used_on_augmented_images(gamma: str, k: Any) -> None:
    s = replace(copied(n_train=300, again=40), show=Show(shape=[3, 16, 16], crop=1))
    build = partial(ResNet, input_shape=s.shape, width=8, channels_last=False)
    learner: Any = MNTDPS(build=build, head=s.head, seed=0, gamma=gamma, k=k, gamma_lr=0.1, entropy=0.0)
    settings = toys.training(max_epochs=8, patience=1000, lr=0.003)
    learned: Any = toys.learn(learner, s, settings).learner
    notes = learned.account()
    assert notes.sources == ([0] if k == 1 else [1, 0])
    assert notes.path[: notes.reused] == notes.prefixes["default"]
    assert notes.reused == sum(number < 14 for number in notes.path)


@pytest.mark.slow
@pytest.mark.parametrize("blocks", [(2, 9), pytest.param((1, 3, 4, 5, 6, 7, 8, 10), marks=pytest.mark.all)])
def test_killed_at_ten_blocks_it_ends_the_same_with_its_operations(blocks: tuple, tmp_path: Path) -> None:
    options = (*FRAGILE, "learner=mntdp_s", "learner.gamma_lr=0.1", "selection=none")
    for number in blocks:
        killed(f"block:{number}", partial(run_command, tmp_path / str(number), *options))
    whole = run_command(tmp_path / "whole", *options)
    assert sum(cost["flops"] for cost in whole["costs"]) > 0
    for number in blocks:
        again = run_command(tmp_path / str(number), *options)
        assert but_what_may_differ(again) == but_what_may_differ(whole)
        assert [c["flops"] for c in again["costs"]] == [c["flops"] for c in whole["costs"]]
