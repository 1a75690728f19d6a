"""Modules re-used and frozen, the prior that finds them, and what candidates share (Veniat et al. 2021)."""

from __future__ import annotations

import copy
from collections import UserDict
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cl_lightning.backbones import MLP, AlexNet, ResNet
from cl_lightning.data.sources.cache import Images, Pool
from cl_lightning.data.streams.sequence import sequence
from cl_lightning.data.streams.show import Show
from cl_lightning.data.streams.stream import Stream
from cl_lightning.data.task import Head, Split, Task
from cl_lightning.engine import scoring
from cl_lightning.engine.phase_run import PhaseRun
from cl_lightning.engine.phases import group_key
from cl_lightning.errors import Refusal
from cl_lightning.learners import MNTDP, Independent, NewHead
from cl_lightning.learners.parts.neighbours import some_of_each_class, vote_accuracy
from cl_lightning.metrics.costs import numbers_in
from cl_lightning.metrics.flops import Flops
from cl_lightning.randomness import rng
from cl_lightning.store.records import Place
from tests import toys
from tests.commands import run as run_command
from tests.commands import thinned
from tests.learners import by_hand

SHAPES = {"resnet": (3, 32, 32), "alexnet": (3, 32, 32), "mlp": (1, 28, 28)}
NETWORKS: dict[str, Any] = {
    "resnet": lambda modules=7: partial(ResNet, input_shape=SHAPES["resnet"], modules=modules),
    "alexnet": lambda: partial(AlexNet, input_shape=SHAPES["alexnet"]),
    "mlp": lambda: partial(MLP, input_shape=SHAPES["mlp"], sizes=(1000, 1000)),
}


def tasks(n: int, num_outputs: int = 10) -> list[Task]:
    """Without examples: enough to propose candidates."""
    head = Head("domain", num_outputs, (tuple(range(num_outputs)),) * n)
    nothing = Split(torch.empty(0, 1), torch.empty(0, dtype=torch.int64), torch.empty(0, dtype=torch.int64))
    return [Task(i, n, "", tuple(map(str, range(num_outputs))), head, nothing) for i in range(n)]


def after_first_task(
    network: str = "resnet", num_outputs: int = 10, **options: Any
) -> tuple[MNTDP, list[Task]]:
    built, backbone = (
        tasks(3, num_outputs),
        NETWORKS[network](**{k: options.pop(k) for k in ("modules",) if k in options}),
    )
    learner = MNTDP(build=backbone, head=built[0].head, **options)
    learner.adopt(learner.paths_from([], built[0])[0], built[0])
    return learner, built


# ---- candidates --------------------------------------------------------------------------------------------


TRAINABLE = {
    7: 0,
    6: 650,
    5: 74_634,
    4: 152_842,
    3: 305_034,
    2: 457_226,
    1: 605_194,
    0: 607_050,
}  # by modules re-used


def test_candidates_re_use_ever_fewer_modules_and_train_the_rest() -> None:
    learner, built = after_first_task()
    found = learner.paths_from([0], built[1])
    counts = [(len(c.network.prefix), sum(p.numel() for p in c.parameters)) for c in found]
    assert counts == list(TRAINABLE.items())


@pytest.mark.parametrize(
    ("network", "options", "count"),
    [("resnet", {}, 8), ("resnet", {"modules": 6}, 7), ("resnet", {"modules": 10}, 11),
    ("resnet", {"modules": 3}, 4), ("alexnet", {}, 7), ("mlp", {}, 4)],
)  # fmt: skip
def test_there_is_one_candidate_more_than_modules(network: str, options: dict, count: int) -> None:
    learner, built = after_first_task(network, **options)
    assert len(learner.paths_from([0], built[1])) == count
    assert len(after_first_task(network, **options)[0].paths_from([], built[0])) == 1


def test_the_grid_multiplies_all_but_pure_re_use() -> None:
    grid = [{"lr": lr, "weight_decay": decay} for lr in (0.01, 0.001) for decay in (0.0, 1e-5, 1e-4)]
    learner, built = after_first_task(grid=grid)
    names = [c.name for c in learner.paths_from([0], built[1])]
    assert len(names) == len(set(names)) == 7 * 6 + 1
    assert names[0] == "reuse=7"


def test_an_old_head_is_re_used_only_where_the_numbers_of_classes_match() -> None:
    learner, _ = after_first_task(num_outputs=10)
    assert [len(c.network.prefix) for c in learner.paths_from([0], tasks(3, num_outputs=5)[1])] == [
        6,
        5,
        4,
        3,
        2,
        1,
        0,
    ]
    learner, built = after_first_task(allow_head_reuse=False)
    assert len(learner.paths_from([0], built[1])) == 7


def test_two_sources_that_share_three_of_seven_modules_give_twelve_candidates() -> None:
    learner, built = after_first_task()
    branch = next(c for c in learner.paths_from([0], built[1]) if len(c.network.prefix) == 3)
    learner.adopt(branch, built[1])
    found = learner.paths_from([0, 1], built[2])
    assert len(found) == 12
    assert len({c.name for c in found}) == 12


def test_candidates_share_no_tensor_that_they_train() -> None:
    learner, built = after_first_task()
    owned = [p.data_ptr() for c in learner.paths_from([0], built[1]) for p in c.parameters]
    assert len(owned) == len(set(owned))
    assert not {p.data_ptr() for p in learner.library.parameters()} & set(owned)


def test_new_modules_begin_alike_in_all_candidates_and_as_independents_do() -> None:
    learner, built = after_first_task()
    found = learner.paths_from([0], built[1])
    fresh = Independent(build=learner.build, head=learner.head).new_network(1)
    for c in found:
        whole = list(fresh.path_modules().values())[len(c.network.prefix) :]
        for mine, its in zip(c.network.own, whole):
            assert all(
                torch.equal(a, b) for a, b in zip(mine.state_dict().values(), its.state_dict().values())
            )


# ---- memory, as published ----------------------------------------------------------------------------------


SAVED = {0: 0, 1: 0.008, 2: 0.602, 3: 1.213, 4: 1.825, 5: 2.139, 6: 2.436, 7: 2.439}  # MB, by modules re-used


@pytest.mark.parametrize("reused", SAVED)
def test_a_task_adds_what_it_does_not_re_use(reused: int) -> None:
    learner, built = after_first_task()
    before, alone = (
        learner.published_memory(1),
        4 * numbers_in(Independent(build=learner.build, head=learner.head).new_network(1).state_dict()),
    )
    learner.adopt(
        next(c for c in learner.paths_from([0], built[1]) if len(c.network.prefix) == reused), built[1]
    )
    added = learner.published_memory(2) - before
    assert round((alone - added) / 1e6, 3) == SAVED[reused]
    assert added == 4 * TRAINABLE[reused] + 4 * sum(
        b.numel()
        for n in learner.library.paths[1][reused:]
        for b in learner.library.modules_by_number[n].buffers()
    )


# ---- learning ----------------------------------------------------------------------------------------------


def copied(seed: int = 0, n_train: int = 120, again: int = 40, **last: Any) -> Stream:
    """Patterns, others, and ``again`` images of the first ones."""
    sources = {"one": patterns(0), "two": patterns(5)}
    entries = [
        {"source": "one", "n_train": n_train, "n_val": 80},
        {"source": "two", "n_train": 40, "n_val": 40},
        {"source": "one", "like": 0, "n_train": again, "n_val": 80, **last},
    ]
    return sequence(sources, seed, entries, head="domain", show=Show(shape=[3, 8, 8]))


def patterns(seed: int) -> Images:
    generator = torch.Generator().manual_seed(seed)
    shapes = torch.rand(4, 3, 8, 8, generator=generator)
    pools = []
    for count in (800, 200):
        y = torch.arange(count) % 4
        x = (shapes[y] * 0.35 + torch.rand(count, 3, 8, 8, generator=generator) * 0.65) * 255
        pools.append(Pool(x.to(torch.uint8), y))
    return Images(f"patterns{seed}", tuple("abcd"), *pools, digest=f"patterns{seed}")


class Notes:
    """Notes, at the end of each task, its state and what it answers to the first test images of all tasks so
    far; and which parts of candidates have gradients, in the second task."""

    def __init__(self, **base: Any) -> None:
        super().__init__(**base)
        self.states, self.answers, self.gradients = [], [], UserDict()

    def on_task_end(self, task):
        super().on_task_end(task)
        self.states.append(copy.deepcopy(self.state_dict()))
        with torch.no_grad():
            self.answers.append([self(FIRST, earlier).clone() for earlier in range(task.index + 1)])

    def after_backward(self, c, batch):
        super().after_backward(c, batch)
        if self.phase_run.task.index == 1 and isinstance(self, MNTDP):
            names = {name for name, p in c.network.named_parameters() if p.grad is not None}
            self.gradients[len(c.network.prefix)] = names
            assert all(p.grad is None for p in self.library.parameters())


@cache
def shared(kind: Any = MNTDP, tasks: int = 3, **options: Any) -> toys.Learned:
    """What one learner comes to, for all tests that ask for no more."""
    return learned(copied(), type("Noting", (Notes, kind), {}), tasks=tasks, **options)


FIRST = copied().test(0).x[:50]


def learned(
    s: Stream, learner: Any = MNTDP, tasks: int | None = None, epochs: int = 3, **options: Any
) -> toys.Learned:
    build = partial(ResNet, input_shape=s.shape, width=8, channels_last=False)
    return toys.learn(
        learner(build=build, head=s.head, seed=0, **options),
        s,
        toys.training(max_epochs=epochs, patience=1000, lr=0.003),
        tasks=tasks,
    )


class SecondAnew(MNTDP):
    """Re-uses nothing for the second task: its modules are its own, whichever candidate would have won."""

    def paths_from(self, sources, task):
        found = super().paths_from(sources, task)
        return found[-1:] if task.index == 1 else found


@pytest.fixture(scope="module")
def run() -> toys.Learned:
    """The first task is learned well; of the third there are too few images to learn it anew."""
    return learned(copied(n_train=300, again=12), SecondAnew, epochs=6)


def forge(monkeypatch: pytest.MonkeyPatch, score: Callable[[PhaseRun, int], float]) -> None:
    """Put a score in the place of each candidate's validation accuracy."""
    monkeypatch.setattr(scoring, "accuracies", lambda learner, run: [score(run, i) for i in run.active])


def test_a_task_that_was_there_before_is_found_and_re_used_whole(run: toys.Learned) -> None:
    learner: Any = run.learner
    assert learner.account().sources == [0]
    assert learner.library.paths[2] == learner.library.paths[0]
    assert learner.account().reused == 7


def test_nothing_is_ever_forgotten_to_the_bit() -> None:
    learner: Any = shared().learner
    for later in learner.answers[1:]:
        assert torch.equal(later[0], learner.answers[0][0])
    assert torch.equal(learner.answers[2][1], learner.answers[1][1])
    matrix = shared().matrix
    assert all(row[0] == matrix[1][0] for row in matrix[1:])


def test_candidates_that_are_discarded_leave_frozen_modules_as_they_were() -> None:
    first, *_, later = shared().learner.states
    assert len(later) > len(first)
    assert all(
        torch.equal(value, later[key]) for key, value in first.items() if isinstance(value, torch.Tensor)
    )
    assert any("num_batches_tracked" in key for key in first)


def test_a_candidate_trains_nothing_but_its_new_modules() -> None:
    gradients = shared().learner.gradients
    assert set(gradients) == set(range(7))
    assert all(
        len({name.split(".")[1] for name in names}) == 7 - reused for reused, names in gradients.items()
    )


def test_the_all_new_candidate_is_the_independent_network() -> None:
    """Trained in company on what others re-use, it ends with the bits that it has alone."""

    class AllNew(MNTDP):
        def paths_from(self, sources, task):
            return super().paths_from(sources, task)[-1:]

    s, independent = copied(), shared(Independent, 2)
    alone = learned(s, AllNew, tasks=2).learner
    x = s.test(1).x[:20]
    assert torch.equal(alone(x, 1), independent.learner(x, 1))
    in_company = shared().standing(1)["reuse=0,default"]
    assert in_company["val_accuracy"] == independent.standing(1)["default"]["val_accuracy"]


LEARN_ALIKE = [(MNTDP, 3, {}), (Independent, 2, {}), (NewHead, 1, {}), (NewHead, 2, {"trunk": "finetune"})]


def test_all_learners_end_the_first_task_alike() -> None:
    one, *others = (shared(kind, n, **options).learner.answers[0][0] for kind, n, options in LEARN_ALIKE)
    assert all(torch.equal(other, one) for other in others)


def test_new_heads_moving_trunk_keeps_the_running_statistics_of_the_first_task() -> None:
    one, two = shared(NewHead, 2, trunk="finetune").learner.states
    trunk = dict(shared(NewHead, 2, trunk="finetune").learner.trunk.named_parameters())
    kept = {name for name in one if name.startswith("trunk.") and torch.is_tensor(one[name])}
    moved = {f"trunk.{name}" for name in trunk}
    assert len(kept) > len(moved) > 0
    assert all(torch.equal(one[name], two[name]) for name in kept - moved)
    assert not any(torch.equal(one[name], two[name]) for name in moved)


def test_winners_with_batch_normalisation_are_restored_to_their_best_statistics(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The best is forged to lie in the middle of training; weights and statistics are those of that moment,
    and so are the logits."""
    best, states, logits = 36, {}, {}

    class Watch(MNTDP):
        def logits(self, c, batch):
            out = super().logits(c, batch)
            if not c.network.training:
                logits[self.phase_run.step] = out.clone()
            return out

    original = scoring.accuracies

    def forged(learner, run) -> list[float]:
        original(learner, run)
        states[run.step] = copy.deepcopy(run.candidates[0].network.state_dict())
        return [1.0 if run.step == best else 0.5]

    monkeypatch.setattr(scoring, "accuracies", forged)
    s = copied()
    run = learned(s, Watch, tasks=1, epochs=6)
    winner, last = run.winner(0), max(states)
    assert (winner["val_accuracy"], winner["steps_to_best"], winner["steps"]) == (1.0, best, last)
    kept: Any = run.learner
    found = {
        name: value
        for name, value in kept.library.modules_by_number.state_dict().items()
        if isinstance(value, torch.Tensor)
    }
    assert [name for name in found if "running" in name]
    for (name, value), at_best, at_last in zip(found.items(), states[best].values(), states[last].values()):
        assert torch.equal(value, at_best), name
        assert not torch.equal(value, at_last), f"{name} did not move after the best: the test shows nothing"
    again = kept(s.task(0).val.x, 0)
    assert torch.allclose(again, logits[best], atol=1e-5)
    assert not torch.allclose(again, logits[last], atol=1e-2)


def test_shifted_labels_need_another_head() -> None:
    learner: Any = learned(copied(n_train=300, labels="shift"), SecondAnew).learner
    assert learner.account().sources == [0]
    assert 1 <= learner.account().reused < 7


@pytest.mark.parametrize(
    ("tied", "at_once"), thinned([range(8), (7, 0), (5, 4, 1), (2, 0)], [None, 1, 3], each=2)
)
def test_ties_go_to_the_candidate_that_re_uses_more(
    tied: Sequence[int], at_once: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    forge(monkeypatch, lambda run, i: 0.5 + 0.25 * (prefix_length(run, i) in tied))
    s = copied(n_train=20)
    learner = MNTDP(build=partial(ResNet, input_shape=s.shape, width=4), head=s.head)
    settings = toys.training(max_epochs=1, patience=1000, candidates_at_once=at_once)
    chosen = toys.learn(learner, s, settings, tasks=2).phase(1).chosen
    assert chosen.name.removesuffix(",default") == f"reuse={max(tied)}"
    assert learner.account().reused == max(tied)


def prefix_length(run: PhaseRun, i: int) -> int:
    network: Any = run.candidates[i].network
    return len(network.prefix)


def test_the_random_prior_looks_at_no_data() -> None:
    chosen = set()
    for seed in range(20):
        learner, built = after_first_task("mlp", prior="random", seed=seed)
        learner.adopt(learner.paths_from([], built[1])[0], built[1])
        assert not learner.searches(built[2])
        chosen.add(tuple(learner.sources(built[2], [])))
    assert chosen == {(0,), (1,)}


def test_of_equal_scores_the_most_recent_task_is_taken() -> None:
    learner = MNTDP(build=partial(MLP, input_shape=(1, 2, 2), sizes=(4,)), head=tasks(1)[0].head, k=2)
    assert learner.sources(tasks(5)[4], [0.5, 0.9, 0.9, 0.1]) == [2, 1]
    assert MNTDP(build=learner.build, head=learner.head, k="all").sources(tasks(4)[3], []) == [2, 1, 0]


def test_a_learner_grows_back_from_its_state(run: toys.Learned) -> None:
    learner: Any = run.learner
    s = copied()
    empty: Any = MNTDP(build=learner.build, head=learner.head, seed=0)
    empty.head = s.head
    empty.load_state_dict(copy.deepcopy(learner.state_dict()))
    x = s.test(0).x[:10]
    for task in range(3):
        assert torch.equal(empty.eval()(x, task), learner(x, task))
    assert empty.library.training is False


def test_frozen_modules_stay_in_evaluation_mode_whoever_asks(run: toys.Learned) -> None:
    learner: Any = copy.deepcopy(run.learner)
    learner.train()
    assert not any(module.training for module in learner.library.modules_by_number.modules())


# ---- the search --------------------------------------------------------------------------------------------


def test_features_of_many_paths_call_each_module_once() -> None:
    learner, built = after_first_task("mlp")
    learner.adopt(next(c for c in learner.paths_from([0], built[1]) if len(c.network.prefix) == 1), built[1])
    calls: list[int] = []
    for number, module in enumerate(learner.library.modules_by_number):
        module.register_forward_hook(lambda *_, number=number: calls.append(number))
    trunks = {tuple(path[:-1]) for path in learner.library.paths}
    x = torch.rand(3, 1, 28, 28)
    made = learner.library.features(x, trunks)
    assert sorted(calls) == sorted({number for trunk in trunks for number in trunk})
    assert all(torch.equal(made[trunk], learner.library(x, trunk)) for trunk in trunks)


def test_of_modules_made_alike_one_is_watched_a_shape_and_all_count() -> None:
    """The head takes as many features as the module before it, and makes fewer of them."""
    learner, built = after_first_task("mlp")
    learner.adopt(next(c for c in learner.paths_from([0], built[1]) if len(c.network.prefix) == 1), built[1])
    modules, paths, watched = learner.library.modules_by_number, set(map(tuple, learner.library.paths)), []
    for module in modules:
        module.register_forward_hook(lambda *_: watched.append(torch._C._len_torch_dispatch_stack()))
    with Flops() as flops:
        for rows in (4, 4, 2):
            learner.library.features(torch.rand(rows, 1, 28, 28), paths)
    assert flops.total == 2 * 10 * (784 * 1000 + 2 * (1000 * 1000 + 1000 * 10))
    assert watched == [1, 1, 1, 0, 0, *[0] * 5, 1, 1, 1, 0, 0]


@given(n=st.integers(1, 30), k=st.integers(1, 7), seed=st.integers(0, 5))
@settings(max_examples=40, deadline=None)
def test_votes_are_those_of_a_loop(n: int, k: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    known, asked = torch.rand(n, 3, generator=generator), torch.rand(9, 3, generator=generator)
    labels, answers = torch.randint(4, (n,), generator=generator), torch.randint(4, (9,), generator=generator)
    right = 0
    for one, answer in zip(asked, answers.tolist()):
        order = sorted(range(n), key=lambda i: float((known[i] - one).norm()))[:k]
        votes = [sum(int(labels[i]) == c for i in order) for c in range(4)]
        right += votes.index(max(votes)) == answer
    assert vote_accuracy(known, labels, asked, answers, k) == pytest.approx(right / 9)


def test_the_search_sees_every_class_in_its_proportion() -> None:
    y = torch.arange(10).repeat_interleave(400)
    split = Split(torch.rand(len(y), 1), y, torch.zeros_like(y))
    some = some_of_each_class(split, 1000, rng(0))
    assert some.y.bincount().tolist() == [100] * 10
    assert some_of_each_class(split, 5000, rng(0)) is split


def test_the_order_of_examples_does_not_change_scores() -> None:
    generator = torch.Generator().manual_seed(0)
    known, asked, labels, answers = (
        torch.rand(50, 4, generator=generator),
        torch.rand(20, 4),
        torch.arange(50) % 3,
        torch.arange(20) % 3,
    )
    order = torch.randperm(50, generator=generator)
    assert vote_accuracy(known, labels, asked, answers, 5) == vote_accuracy(
        known[order], labels[order], asked, answers, 5
    )


def test_without_validation_data_there_is_no_search() -> None:
    s = toys.stream(n_val=0)
    with pytest.raises(Refusal, match=r"Set n_val of the stream or its tasks above 0"):
        toys.learn(MNTDP(build=toys.builder(s), head=s.head), s, toys.training())


# ---- costs and references ----------------------------------------------------------------------------------


def test_candidates_cost_what_they_cost_alone_and_less_together() -> None:
    s = copied()
    build = partial(ResNet, input_shape=s.shape, width=8, channels_last=False)
    costs = []
    for at_once in (None, 1):
        settings = toys.training(max_epochs=2, candidates_at_once=at_once, patience=None)
        costs.append(toys.learn(MNTDP(build=build, head=s.head, seed=0), s, settings, tasks=2).costs(1))
    together, apart = costs
    assert together["step_flops"] == pytest.approx(apart["step_flops"], rel=0.02)
    assert together["flops_executed"] < 0.8 * together["flops"]
    assert together["examples"] == apart["examples"] == 80


def test_shares_of_candidates_lose_no_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    forge(monkeypatch, lambda run, i: prefix_length(run, i) / 7)
    s = copied()
    build = partial(ResNet, input_shape=s.shape, width=8, channels_last=False)
    settings = toys.training(max_epochs=2, patience=1000, lr=0.003, candidates_at_once=1, probe_at=(0, 1))
    learned = toys.learn(MNTDP(build=build, head=s.head, seed=0), s, settings)
    assert learned.phase(2).winner == 0  # the path that is re-used whole, in a share that trains nothing
    assert 0 in learned.store.tensors(group_key(Place("task", 2), [0]))["snapshots"]


def test_distances_are_exact_far_from_the_origin() -> None:
    known = torch.randn(500, 64, generator=torch.Generator().manual_seed(0)) * 0.1 + 1000
    labels = torch.arange(500)
    assert vote_accuracy(known, labels, known + 0.001, labels, 1) == 1.0


def test_transfer_is_refused_where_the_reference_would_have_other_outputs(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match=r"stream\.head=single it would have the outputs of all tasks"):
        run_command(tmp_path, "learner=mntdp_d", "stream.head=single", "reference=true")


def test_transfer_of_the_independent_learner_is_zero(tmp_path: Path) -> None:
    results = run_command(tmp_path, "learner=independent", "reference=true")
    assert results["reference"]["transfer"] == 0
    assert results["reference"]["accuracy"] == results["accuracy_matrix"][-1][-1]
    assert [s["where"] for s in results["selected"]][-1] == "reference:task2"
    assert all(cost["published_memory"] > 0 for cost in results["costs"])


# ---- by hand -----------------------------------------------------------------------------------------------


def votes_by_hand(known: torch.Tensor, y: torch.Tensor, asked: torch.Tensor, answers: torch.Tensor) -> float:
    """The share of right answers of the five nearest; of equal votes the smallest label."""
    right = 0
    for one, answer in zip(asked.double(), answers.tolist()):
        distances = ((known.double() - one) ** 2).sum(1)
        nearest = y[distances.argsort()[:5]].tolist()
        right += max(sorted(set(nearest)), key=nearest.count) == answer
    return right / len(asked)


def accuracy_by_hand(net: by_hand.Net, examples: Split) -> float:
    z = by_hand.logits(net, examples.x)
    first, second = z.topk(2).values.T
    assert (first - second).min() > 1e-4, "rounding decides which output is the greatest"
    return (z.argmax(1) == examples.y).double().mean().item()


def test_three_tasks_are_searched_trained_and_chosen_as_by_hand() -> None:
    """The second task is learned from scratch, the third with two modules of the first."""
    s = copied(labels="shift", n_train=396)
    grid = [{"lr": 0.1}, {"lr": 0.3}]
    build = partial(MLP, input_shape=s.shape, sizes=(16, 16))
    learner = by_hand.learned(MNTDP(build=build, head=s.head, seed=by_hand.SEED, grid=grid), s)
    nets: list[by_hand.Net] = []  # of each task: three layers of two tensors
    owners: list[list[int]] = []  # of each task: by layer, the task that trained it
    found: list[float] = []
    for index in range(3):
        train, val = s.task(index).train, s.task(index).val
        assert val is not None
        seen = [[by_hand.features(net[:4], split.x) for split in (train, val)] for net in nets]
        found = [votes_by_hand(known, train.y, asked, val.y) for known, asked in seen]
        nearest = found.index(max(found)) if nets else -1
        tried = []
        for reused in (3, 2, 1, 0) if nets else (0,):
            for point in grid if reused < 3 else grid[:1]:
                old = nets[nearest][: 2 * reused] if reused else []
                new = by_hand.fresh(index, (192, 16, 16, 4))[2 * reused :]
                for _, x, y in by_hand.mini_batches(train, index) if new else ():
                    by_hand.move(new, by_hand.gradient(by_hand.loss([*old, *new], x, y), new), point["lr"])
                tried.append((accuracy_by_hand([*old, *new], val), reused, [*old, *new]))
        _, reused, net = max(tried, key=lambda one: one[0])  # of equals the first, which re-uses most
        nets.append(net)
        owners.append([*(owners[nearest][:reused] if reused else []), *[index] * (3 - reused)])
    assert learner.account().scores == pytest.approx(found, abs=0.02)
    assert owners == [[0, 0, 0], [1, 1, 1], [0, 0, 2]]
    assert learner.library.paths == [[0, 1, 2], [3, 4, 5], [0, 1, 6]]
    for path, net in zip(learner.library.paths, nets):
        for layer, number in enumerate(path):
            assert by_hand.equal(learner.library.modules_by_number[number], net[2 * layer : 2 * layer + 2])


Pair = tuple[int, int]
Example = tuple[int, int, int]  # two pixels and the class


def scaling(first: Pair, second: Pair, head: Pair) -> by_hand.Net:
    """A network of two pixels and four classes: layers that scale the pixels, and a head that adds them
    up."""
    weights = torch.diag(torch.tensor(first)), torch.diag(torch.tensor(second)), torch.tensor([head] * 4)
    return [tensor.float() for weight in weights for tensor in (weight, torch.zeros(len(weight)))]


def examples(rows: list[Example]) -> Split:
    pixels, y = torch.tensor(rows).split((2, 1), 1)
    return Split(pixels.float().reshape(-1, 1, 1, 2), y[:, 0], torch.zeros_like(y[:, 0]))


def scores(nets: list[by_hand.Net], train: list[Example], val: list[Example], **options: Any) -> list[float]:
    """What the search finds for past tasks that ended with these weights."""
    built = tasks(len(nets) + 1, num_outputs=4)
    learner = MNTDP(build=partial(MLP, input_shape=(1, 1, 2), sizes=(2, 2)), head=built[0].head, **options)
    for task, net in zip(built, nets):
        c = learner.paths_from([], task)[0]
        for own, w in zip(c.network.parameters(), net, strict=True):
            own.data.copy_(w)
        learner.adopt(c, task)
    return learner.scores(replace(built[-1], train=examples(train), val=examples(val)))


def test_the_search_asks_validation_data_of_training_data_in_the_features_before_the_head() -> None:
    """Where the first pixel says what is near, 3 of 5 validation images lie beside a training image of their
    class; where the second does, 1 of 5. One layer lower and behind the head, the other pixel does. Fitted on
    validation images, both would find 5 of 5; asked of training images there, the first would find 3 of 4."""
    train = [(0, 0, 0), (10, 10, 1), (20, 20, 2), (30, 30, 3)]
    val = [(1, 31, 0), (11, 1, 1), (21, 11, 2), (28, 22, 2), (4, 23, 1)]
    by_first, by_second = scaling((1, 10), (100, 1), head=(0, 1)), scaling((10, 1), (1, 100), head=(1, 0))
    assert scores([by_first, by_second], train, val, neighbours=1) == [0.6, 0.2]
    assert scores([by_second, by_first], train, val, neighbours=1) == [0.2, 0.6]


def test_the_search_takes_images_of_all_classes_though_they_lie_in_class_order() -> None:
    """The first pixel tells the class, the second that of another class, but for the first class."""
    train = [(10 * y, 10 * y, y) for y in range(4) for _ in range(25)]
    val = [(10 * y, 10 * (0, 2, 3, 0)[y], y) for y in range(4) for _ in range(25)]
    nets = [scaling((1, 1), (1, 0), head=(1, 1)), scaling((1, 1), (0, 1), head=(1, 1))]
    assert scores(nets, train, val, searched=20) == [1.0, 0.25]
