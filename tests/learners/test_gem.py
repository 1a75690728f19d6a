"""GEM's projection: the dual, its margin, and what a step does."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import chain, combinations
from statistics import mean

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cl_lightning.config.checking import check_value
from cl_lightning.data.task import Batch, Head, Split, Task
from cl_lightning.errors import Refusal
from cl_lightning.learners import AGEM, GEM, Candidate, Finetune, Learner
from cl_lightning.learners.parts.gradients import gradient, set_gradient, trained
from cl_lightning.learners.parts.memory import ring_of_batches
from cl_lightning.learners.parts.quadratic import dual
from cl_lightning.metrics.costs import held_bytes
from cl_lightning.randomness import rng, seeded
from tests import toys
from tests.learners import by_hand
from tests.toys import builder, learn, training


def problem(seed: int, constraints: int, size: int = 8) -> tuple[np.ndarray, np.ndarray]:
    """G (constraints, size) and g (size,) with at least one constraint violated."""
    draws = np.random.default_rng(seed)
    G, g = draws.normal(size=(constraints, size)), draws.normal(size=size)
    if (G @ g >= 0).all():
        G[0] *= -1
    return G, g


def solve(
    G: np.ndarray, g: np.ndarray, margin: float = 0.0, ridge: float = 0.0
) -> tuple[np.ndarray, np.ndarray]:
    v = dual(G @ G.T + ridge * np.eye(len(G)), G @ g, margin)
    return g + G.T @ v, v


def brute_force(P: np.ndarray, q: np.ndarray, margin: float) -> np.ndarray:
    """The best of the stationary points of all sets of variables that are at their margin."""
    n, best, least = len(q), None, np.inf
    for held in chain.from_iterable(combinations(range(n), k) for k in range(n + 1)):
        free = [i for i in range(n) if i not in held]
        v = np.full(n, margin)
        if free:
            v[free] = np.linalg.solve(
                P[np.ix_(free, free)], -q[free] - P[np.ix_(free, list(held))] @ v[list(held)]
            )
        value = v @ P @ v / 2 + q @ v
        if (v >= margin - 1e-10).all() and value < least:
            best, least = v, value
    return best


@settings(max_examples=300, deadline=None)
@given(
    seed=st.integers(0, 10**6), constraints=st.integers(1, 8), margin=st.sampled_from([0.0, 0.1, 0.5, 1.0])
)
def test_the_dual_is_that_of_trying_all_active_sets(seed: int, constraints: int, margin: float) -> None:
    G, g = problem(seed, constraints, size=12)
    P = G @ G.T + 1e-3 * np.eye(constraints)
    assert np.allclose(dual(P, G @ g, margin), brute_force(P, G @ g, margin), atol=1e-8)


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 10**6), constraints=st.integers(1, 8))
def test_the_step_raises_no_memorys_loss_and_is_the_nearest_that_does_not(
    seed: int, constraints: int
) -> None:
    G, g = problem(seed, constraints)
    z, v = solve(G, g)
    assert (
        G @ z >= -1e-9 * np.linalg.norm(g) * np.linalg.norm(G, axis=1)
    ).all()  # z itself may be 0, but for rounding
    assert np.abs(v * (G @ z)).max() < 1e-6  # complementary slackness
    draws = np.random.default_rng(seed + 1)
    for candidate in g + draws.normal(size=(1000, len(g))) * np.linalg.norm(z - g):
        if (G @ candidate >= 0).all():
            assert np.linalg.norm(z - g) <= np.linalg.norm(candidate - g) + 1e-9


@given(seed=st.integers(0, 10**6))
def test_with_one_memory_it_is_the_closed_form(seed: int) -> None:
    G, g = problem(seed, 1)
    z, _ = solve(G, g)
    expected = g - (G[0] @ g) / (G[0] @ G[0]) * G[0]
    assert np.allclose(z, expected, atol=1e-10)


@given(seed=st.integers(0, 10**6), margin=st.floats(0.01, 2.0))
def test_no_weight_is_below_the_margin(seed: int, margin: float) -> None:
    G, g = problem(seed, 5)
    assert (
        solve(G, g, margin)[1].min() == pytest.approx(margin, abs=1e-12)
        or solve(G, g, margin)[1].min() > margin
    )


def test_two_memories_that_contradict_each_other_leave_the_orthogonal_part() -> None:
    G, g = np.array([[1.0, 0.0], [-1.0, 0.0]]), np.array([0.3, 2.0])
    z, _ = solve(G, g, ridge=1e-3)
    assert np.isfinite(z).all()
    assert np.allclose(z, [0, 2], atol=2e-3)


def test_projecting_on_one_half_space_after_the_other_is_another_thing() -> None:
    different = 0
    for seed in range(100):
        G, g = problem(seed, 5)
        one_by_one = g.copy()
        for row in G:
            one_by_one -= min(row @ one_by_one, 0) / (row @ row) * row
        different += not np.allclose(one_by_one, solve(G, g)[0], atol=1e-6)
    assert different > 50


@pytest.mark.parametrize("constraints", [50, 100])
def test_a_hundred_memories_are_solved_to_the_conditions_of_the_optimum(constraints: int) -> None:
    G, g = problem(3, constraints, size=400)
    P, q = G @ G.T + 1e-3 * np.eye(constraints), G @ g
    v = dual(P, q, 0.5)
    slope = P @ v + q
    assert (v >= 0.5).all()
    assert slope.min() > -1e-7
    assert np.abs(slope * (v - 0.5)).max() < 1e-7


# ---- the learner -------------------------------------------------------------------------------------------


def learned(cls, tasks: int = 2, **options):
    return learn(
        cls(build=builder(toys.stream()), head=toys.stream().head, seed=0, **options),
        toys.stream(),
        training(optimizer="sgd", lr=0.1),
        tasks=tasks,
    ).learner


def edited(learner, batch: Batch) -> tuple[torch.Tensor, torch.Tensor, Candidate]:
    """The gradient before and after the hook."""
    c = Candidate(learner.network)
    learner.zero_grad()
    learner.loss(c, batch).backward()
    before = gradient(trained(c.network))
    with torch.no_grad():
        learner.after_backward(c, batch)
    return before, gradient(trained(c.network)), c


def batch_of(task: int, n: int = 10) -> Batch:
    return Batch(*toys.stream().task(task).train.gather(torch.arange(n)), key=(0, task))


def memory_gradients(learner, c: Candidate) -> torch.Tensor:
    rows = []
    for k, count in enumerate(learner.memory["counts"]):
        old = Batch(learner.memory["x"][k, :count], learner.memory["y"][k, :count], torch.full((count,), k))
        rows.append(
            torch.cat([g.flatten() for g in torch.autograd.grad(learner.loss(c, old), trained(c.network))])
        )
    return torch.stack(rows)


def test_the_step_agrees_with_every_memory_to_first_order() -> None:
    learner = learned(GEM, margin=0.0, memories=20)
    learner.ridge = 1e-9
    g, z, c = edited(learner, batch_of(2))
    G = memory_gradients(learner, c)
    assert (G @ g).min() < 0
    assert (G @ z).min() > -1e-3 * z.norm() * G.norm(dim=1).max()
    assert not torch.equal(g, z)


def test_without_violation_the_gradient_stays_as_it_is() -> None:
    learner = learned(GEM, memories=20)
    learner.memory["counts"] = learner.memory["counts"][1:]
    learner.memory["x"], learner.memory["y"] = learner.memory["x"][1:], learner.memory["y"][1:]
    g, z, c = edited(learner, batch_of(1, 60))
    assert (memory_gradients(learner, c) @ g).min() > 0
    assert torch.equal(g, z)


@pytest.mark.parametrize("cls", [GEM, AGEM])
def test_the_first_task_is_finetunes_to_the_bit(cls) -> None:
    assert torch.equal(
        *(
            torch.cat([p.flatten() for p in learned(kind, tasks=1).network.parameters()])
            for kind in (cls, Finetune)
        )
    )


def test_with_one_past_task_and_its_whole_memory_agem_is_gem() -> None:
    gem, agem = (
        learned(GEM, tasks=1, margin=0.0, memories=20),
        learned(AGEM, tasks=1, memories=20, reference_batch=20),
    )
    gem.ridge = 0.0
    agem.reference = lambda batch: Batch(
        agem.memory["x"][0], agem.memory["y"][0], torch.zeros(20, dtype=torch.int64)
    )
    c = Candidate(gem.network)
    r = memory_gradients(gem, c)[0]
    g = torch.randn(len(r), generator=torch.Generator().manual_seed(0)) * r.std() - r
    ends = []
    for learner in (gem, agem):
        set_gradient(trained(c.network), g.clone())
        with torch.no_grad():
            learner.after_backward(c, batch_of(1))
        ends.append(gradient(trained(c.network)))
    z, other = ends
    assert not torch.equal(g, z)
    assert torch.allclose(z, other, atol=1e-5)


def test_agems_step_agrees_with_its_reference_and_is_untouched_where_it_does() -> None:
    learner = learned(AGEM, memories=20, reference_batch=15)
    for batch in (batch_of(2), batch_of(1, 60)):
        g, z, c = edited(learner, batch)
        reference = learner.reference(batch)
        r = torch.cat(
            [p.flatten() for p in torch.autograd.grad(learner.loss(c, reference), trained(c.network))]
        )
        assert z @ r > -1e-5 * z.norm() * r.norm()
        assert torch.equal(g, z) == bool(g @ r >= 0)


def test_the_reference_is_drawn_from_the_memories_alone_and_keeps_task_ids() -> None:
    learner = learned(AGEM, memories=7, reference_batch=200)
    reference = learner.reference(batch_of(2))
    stored = {(t, x.sum().item()) for t in range(2) for x in learner.memory["x"][t]}
    assert {(t, x.sum().item()) for t, x in zip(reference.task.tolist(), reference.x)} == stored


def test_the_memory_holds_the_last_examples_of_each_task_in_its_full_size_from_the_start() -> None:
    learner = learned(GEM, tasks=2, memories=25)
    s = toys.stream()
    assert learner.memory["x"].shape == (3, 25, *toys.SHAPE)
    for k in range(2):
        assert torch.equal(learner.memory["x"][k], s.task(k).train.x[-25:])
        assert torch.equal(learner.memory["y"][k], s.task(k).train.y[-25:])
    early, late = (held_bytes(one) for one in (learned(GEM, tasks=1, memories=25), learner))
    assert all(early[f"memory.{name}"] == late[f"memory.{name}"] for name in "xy")


def test_a_task_with_fewer_examples_than_memories_leaves_the_rest_unused() -> None:
    learner = learned(GEM, tasks=1, memories=100)  # tasks have 60
    assert learner.memory["counts"] == [60]
    _, z, _ = edited(learner, batch_of(1))
    assert z.isfinite().all()


def test_where_the_number_of_tasks_is_not_known_memories_shrink_as_tasks_come() -> None:
    """12 in all: the last 12 of the first task, then 6 of each of two, then 4 of each of three."""
    s = toys.stream(tasks=3)
    for tasks in (1, 2, 3):
        learner = learned(GEM, tasks=tasks, total=12, tasks_known=False)
        assert learner.memory["counts"] == [12 // tasks] * tasks
        for t in range(tasks):
            train = s.task(t).train
            assert learner.memory["x"][t].equal(train.x[-12 // tasks :])
            assert learner.memory["y"][t].equal(train.y[-12 // tasks :])
    with pytest.raises(Refusal, match=r"Set learner\.total"):
        learned(GEM, tasks_known=False)


def test_the_authors_ring_keeps_what_fits_by_hand() -> None:
    """256 slots, mini-batches of 10, 1000 examples: of each 260 the last 4 are dropped. So the slots end with
    780 to 999 and, behind these 220, the 36 that lay there: 740 to 775."""
    learner = learned(GEM, tasks=1, memories=16, ring=10)  # 60 examples: 16 of each 20, thrice
    train = toys.stream(tasks=1).task(0).train
    assert learner.memory["x"][0].equal(train.x[40:56])
    rows = ring_of_batches(1000, 256, 10)
    assert rows == [*range(780, 1000), *range(740, 776)]
    assert len([row for row in rows if row < 1000 - 256]) == 4


def test_a_total_is_shared_out_among_the_tasks() -> None:
    assert learned(GEM, total=31).memory["x"].shape[:2] == (3, 10)
    with pytest.raises(Refusal, match="leave no memory for each of 3 tasks"):
        learned(GEM, total=2)


def test_memories_in_bf16_are_half_as_big_and_point_the_same_way() -> None:
    full, half = learned(GEM, memories=20), learned(GEM, memories=20, memory_precision="bf16")
    assert held_bytes(half)["memory.x"] * 2 == held_bytes(full)["memory.x"]
    c = Candidate(full.network)
    one, other = (learner.memory_gradients(c, batch_of(2)).clone() for learner in (full, half))
    assert torch.cosine_similarity(one, other).min() > 0.99
    assert not torch.equal(one, other)


@pytest.mark.all
def test_gem_forgets_less_than_finetune_and_the_margin_helps() -> None:
    """At a rate at which rounding does not grow: at 0.3 it moves the accuracy of one seed by 0.1 and more."""
    s = toys.stream(tasks=5, n_train=200, n_val=0)
    settings = training(optimizer="sgd", lr=0.03, max_epochs=3, single_pass=True)

    def accuracy(make: Callable[..., Learner]) -> float:
        return mean(
            mean(learn(make(build=builder(s, (32,)), head=s.head, seed=seed), s, settings).matrix[-1])
            for seed in range(3)
        )

    gem, without_margin = (accuracy(partial(GEM, memories=50, margin=margin)) for margin in (0.5, 0.0))
    assert gem > accuracy(Finetune) + 0.2
    assert gem > without_margin + 0.01


# ---- heads of tasks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", [GEM, AGEM])
def test_memories_count_for_the_outputs_of_their_own_task(cls) -> None:
    s = toys.pairs_of_classes()
    learner = learn(
        cls(build=builder(s), head=s.head, seed=0, memories=20), s, training(optimizer="sgd", lr=0.1), tasks=1
    ).learner
    seen = []
    own = learner.loss
    learner.loss = lambda c, batch: seen.append(batch.task.unique().tolist()) or own(c, batch)
    c = Candidate(learner.network)
    batch = Batch(*s.task(1).train.gather(torch.arange(10)), key=(0, 1))
    own(c, batch).backward()
    learner.after_backward(c, batch)
    assert seen == [[0]]
    assert gradient(trained(c.network)).isfinite().all()


@pytest.mark.parametrize("cls", [GEM, AGEM])
def test_a_head_that_no_loss_is_about_stays_without_a_gradient(cls) -> None:
    s = toys.pairs_of_classes(tasks=3)
    learner = learn(
        cls(build=builder(s, heads="per_task"), head=s.head, seed=0, memories=20),
        s,
        training(optimizer="sgd", lr=0.1),
        tasks=1,
    ).learner
    c = Candidate(learner.network)
    batch = Batch(*s.task(1).train.gather(torch.arange(10)), key=(0, 1))
    learner.loss(c, batch).backward()
    learner.after_backward(c, batch)
    assert [layer.weight.grad is None for layer in c.network.head.layers][1:] == [False, True]


def test_heads_are_projected_or_still() -> None:
    with pytest.raises(Refusal, match=r"learner\.heads.*project.*still"):
        check_value(GEM, "heads", "frozen", "learner.heads")
    s = toys.stream()
    assert [cls(build=builder(s), head=s.head).old_heads for cls in (GEM, AGEM)] == ["project", "project"]


def test_what_a_step_needs_is_not_kept() -> None:
    assert learned(GEM).rows.numel() == 0


# ---- by hand -----------------------------------------------------------------------------------------------


def stepped(cls, memories: list[list[float]], g: list[float], **options) -> list[float]:
    """The gradient that is stepped along where the loss is <w, mean of x>: an example is its own gradient."""

    class Linear(cls):
        def loss(self, c, batch):
            return (c.network.weight[0] * batch.x.flatten(1).mean(0)).sum()

    head = Head("domain", 1, ((0,),) * (len(memories) + 1))
    learner = Linear(
        build=lambda head: torch.nn.Linear(len(g), 1, bias=False), head=head, memories=1, **options
    )
    nothing = torch.zeros(1, dtype=torch.int64)
    for index, example in enumerate(memories):
        split = Split(torch.tensor(example).reshape(1, 1, 1, -1), nothing, nothing + index)
        learner.on_task_end(Task(index, len(memories) + 1, "", (), head, split))
    new = Batch(torch.tensor(g).reshape(1, 1, 1, -1), nothing, nothing + len(memories), key=(0, "task", 0, 0))
    return edited(learner, new)[1].tolist()


def test_one_violated_memory_of_many_is_enough_to_project() -> None:
    """The memories' gradients are at right angles, so that each is made good by itself."""
    memories = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    for g, expected in (
        ([-2.0, 3.0, 5.0], [0.0, 3.0, 5.0]),
        ([2.0, -3.0, 5.0], [2.0, 0.0, 5.0]),
        ([-2.0, -3.0, 5.0], [0.0, 0.0, 5.0]),
        ([2.0, 3.0, 5.0], [2.0, 3.0, 5.0]),
    ):
        found = stepped(GEM, memories, g, margin=0.0)
        assert found == pytest.approx(expected, abs=0.01)  # the ridge is 0.001


def test_the_margin_counts_for_memories_that_agree_once_another_is_violated() -> None:
    memories = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    assert stepped(GEM, memories, [-2.0, 3.0, 5.0], margin=0.5) == pytest.approx([0.0, 3.5, 5.0], abs=0.01)
    assert stepped(GEM, memories, [-0.1, 3.0, 5.0], margin=0.5) == pytest.approx([0.4, 3.5, 5.0], abs=0.01)
    assert stepped(GEM, memories, [2.0, 3.0, 5.0], margin=0.5) == [2.0, 3.0, 5.0]


def test_agem_takes_away_what_is_against_its_reference_and_nothing_else() -> None:
    assert stepped(AGEM, [[1.0, 0.0]], [-2.0, 3.0]) == pytest.approx([0.0, 3.0])
    assert stepped(AGEM, [[4.0, 0.0]], [-2.0, 3.0]) == pytest.approx([0.0, 3.0])
    assert stepped(AGEM, [[1.0, 0.0]], [2.0, 3.0]) == [2.0, 3.0]
    assert stepped(AGEM, [[1.0, 1.0]], [-2.0, 3.0]) == [-2.0, 3.0]  # a part is against, the whole is not


def projected_by_hand(g: torch.Tensor, rows: list[torch.Tensor], margin: float) -> torch.Tensor:
    G = torch.stack(rows).double().numpy()
    q = G @ g.double().numpy()
    if q.min() >= 0:
        return g
    v = brute_force(G @ G.T + 1e-3 * np.eye(len(G)), q, margin)
    return g + torch.from_numpy(G.T @ v).float()


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("margin", [0.0, 0.5])
def test_gem_learns_three_tasks_as_by_hand(margin: float, masked: bool) -> None:
    s = by_hand.pairs() if masked else toys.stream(tasks=3)
    learner = by_hand.learned(
        GEM(build=builder(s), head=s.head, seed=by_hand.SEED, memories=20, margin=margin), s
    )
    net = by_hand.fresh(0, (36, 16, 16, s.head.num_outputs))
    memories: list[tuple] = []
    cosines = []
    for index in range(3):
        task, own = s.task(index).train, by_hand.OWN[index] if masked else None
        for _, x, y in by_hand.mini_batches(task, index):
            g = by_hand.gradient(by_hand.loss(net, x, y, own), net)
            rows = [by_hand.gradient(by_hand.loss(net, *old), net) for old in memories]
            if rows:
                cosines.append([torch.cosine_similarity(g, row, dim=0).item() for row in rows])
                g = projected_by_hand(g, rows, margin)
            by_hand.move(net, g)
        memories.append((task.x[-20:], task.y[-20:], own))
    assert any(min(one) < 0 < max(one) for one in cosines)  # some memories are violated, others are not
    assert margin == 0 or min(abs(min(one)) for one in cosines) > 1e-4, "rounding decides whether to project"
    assert by_hand.equal(learner.network, net)


HEADS = [(h, optimizer) for h in ("project", "still") for optimizer in ("sgd", "adam")]


@pytest.mark.parametrize("cls", [GEM, AGEM])
@pytest.mark.parametrize(("heads", "optimizer"), HEADS)
def test_heads_of_past_tasks_are_projected_or_still_as_by_hand(cls, heads: str, optimizer: str) -> None:
    """A trunk and a head a task, in plain torch. The products are over all weights, a head's that a loss does
    not use are 0; still: a head without a gradient keeps its weights, and is not stepped by Adam either."""
    s, rate = by_hand.pairs(), {"sgd": 0.1, "adam": 0.01}[optimizer]
    settings = toys.training(optimizer=optimizer, lr=rate, max_epochs=by_hand.EPOCHS, batch_size=by_hand.SIZE)
    own = {"margin": 0.5} if cls is GEM else {"reference_batch": 15}
    learner = cls(
        build=builder(s, heads="per_task"), head=s.head, seed=by_hand.SEED, memories=20, heads=heads, **own
    )
    with seeded(by_hand.SEED, "init", 0):
        first = builder(s, heads="per_task")(head=s.head)
    learned = learn(learner, s, settings).learner
    weights = by_hand.copied(list(first.parameters()))
    shapes = [w.shape for w in weights]
    assert shapes == [(16, 36), (16,), (16, 16), (16,), *[(2, 16), (2,)] * 3]
    moments, memories, projected, moved = {}, [], 0, 0
    for index in range(3):
        task = s.task(index).train
        for key, x, y in by_hand.mini_batches(task, index):

            def grads(x, y, of) -> list[torch.Tensor]:
                mean = sum(
                    by_hand.loss(
                        [*weights[:4], *weights[4 + 2 * k : 6 + 2 * k]], x[of == k], y[of == k] - 2 * k
                    )
                    * (of == k).sum()
                    for k in of.unique().tolist()
                ) / len(y)
                return torch.autograd.grad(mean, weights, allow_unused=True)

            def flat(parts) -> torch.Tensor:
                return by_hand.row([torch.zeros_like(w) if p is None else p for p, w in zip(parts, weights)])

            mine = grads(x, y, torch.full((len(y),), index))
            g, has = flat(mine), [part is not None for part in mine]
            z = g
            if index and cls is GEM:
                z = projected_by_hand(g, [flat(grads(*old)) for old in memories], 0.5)
            elif index:
                x_old, y_old, of = (torch.cat(parts) for parts in zip(*memories))
                drawn = torch.randint(len(y_old), (15,), generator=rng(*key, "reference"))
                r = flat(grads(x_old[drawn], y_old[drawn], of[drawn]))
                z = g - min((g @ r).item(), 0.0) / (r @ r) * r
            projected += not torch.equal(z, g)
            with torch.no_grad():
                parts = z.split([w.numel() for w in weights])
                for place, (w, part) in enumerate(zip(weights, parts)):
                    if has[place] or (heads == "project" and part.any()):
                        moved += not has[place]
                        w -= rate * direction(moments, (index, place), part.view_as(w), optimizer)
        memories.append((task.x[-20:], task.y[-20:], torch.full((20,), index)))
    assert projected > 5
    assert (moved > 0) == (heads == "project")
    assert by_hand.equal(learned.network, weights)


def direction(moments: dict, key: tuple, g: torch.Tensor, optimizer: str) -> torch.Tensor:
    """The way of a step: Adam's moments are of a task and a weight."""
    if optimizer == "sgd":
        return g
    m, v, t = moments.get(key, (torch.zeros_like(g), torch.zeros_like(g), 0))
    moments[key] = m, v, t = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g, t + 1
    return (m / (1 - 0.9**t)) / ((v / (1 - 0.999**t)).sqrt() + 1e-8)


def test_agem_learns_three_tasks_as_by_hand() -> None:
    s = toys.stream(tasks=3)
    learner = by_hand.learned(
        AGEM(build=builder(s), head=s.head, seed=by_hand.SEED, memories=20, reference_batch=15), s
    )
    net = by_hand.fresh(0)
    x_old, y_old = torch.empty(0, 1, 6, 6), torch.empty(0, dtype=torch.int64)
    products = []
    for index in range(3):
        task = s.task(index).train
        for key, x, y in by_hand.mini_batches(task, index):
            g = by_hand.gradient(by_hand.loss(net, x, y), net)
            if index:
                drawn = torch.randint(len(y_old), (15,), generator=rng(*key, "reference"))
                r = by_hand.gradient(by_hand.loss(net, x_old[drawn], y_old[drawn]), net)
                products.append((g @ r).item())
                if g @ r < 0:
                    g = g - (g @ r) / (r @ r) * r
            by_hand.move(net, g)
        x_old, y_old = torch.cat([x_old, task.x[-20:]]), torch.cat([y_old, task.y[-20:]])
    assert min(products) < 0 < max(products)
    assert by_hand.equal(learner.network, net)


def test_each_pass_over_a_memory_shifts_running_statistics_in_its_turn() -> None:
    """Running statistics move as in the authors' program, whose networks stay in training mode: by the
    mini-batch, then by one memory after the other, each a tenth of the way to its mean."""

    class Normed(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.out = torch.nn.BatchNorm1d(36), torch.nn.Linear(36, 4)

        def forward(self, x: torch.Tensor, task: object = None) -> torch.Tensor:
            return self.out(self.norm(x.flatten(1)))

    learner = learned(GEM, memories=20)
    learner.network = Normed().train()
    edited(learner, batch_of(2))
    mean = torch.zeros(36)
    for x in (batch_of(2).x, *learner.memory["x"][:2]):
        mean = 0.9 * mean + 0.1 * x.flatten(1).mean(0)
    assert torch.allclose(learner.network.norm.running_mean, mean, atol=1e-6)
    assert learner.network.norm.num_batches_tracked == 3
