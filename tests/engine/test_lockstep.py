"""Candidates trained together end as if each had been alone; each rule of training has its test."""

from __future__ import annotations

import gc
import itertools
import weakref
from collections import UserDict, UserList
from pathlib import Path
from unittest.mock import patch

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

from cl_lightning.callbacks.base import StreamCallback
from cl_lightning.data.task import Blocks
from cl_lightning.engine import hooks, phases, scoring
from cl_lightning.engine.stack import Stack
from cl_lightning.learners import Candidate, Finetune, Needs, Phase
from cl_lightning.randomness import seeded
from tests import toys
from tests.toys import builder, learn, training

GRID = [
    {"lr": 0.03},
    {"lr": 1e-9, "weight_decay": 0.01},
    {"lr": 0.3},
    {"lr": 0.01},
]  # the second learns nothing, and leaves first


class TryAll(Finetune):
    """Keeps every candidate of every task; goes on with the one named ``keep``."""

    def __init__(self, *, keep: str, **base: object) -> None:
        super().__init__(**base)
        self.keep, self.tried = keep, {}

    def learn(self, task):
        candidates = self.candidates(task)
        with patch.object(phases, "take_network"):  # losers keep theirs, to be looked at
            yield Phase(candidates)
        for c in candidates:
            self.tried[task.index, c.name] = {
                name: value.clone() for name, value in c.network.state_dict().items()
            }
        self.adopt(next(c for c in candidates if c.name == self.keep), task)


def everything(grid: list[dict], **options: object) -> dict:
    s = toys.stream(tasks=3)
    network = {"dropout": 0.3} if options.pop("dropout", True) else {}
    learner = TryAll(keep="lr=0.01", build=builder(s, (64, 64), **network), head=s.head, grid=grid, seed=0)
    learned = learn(learner, s, training(max_epochs=8, patience=14, **options))
    return {
        (*key, name, learned.standing(key[0])[key[1]]["steps"]): value
        for key, state in learner.tried.items()
        for name, value in state.items()
    }


def same_where_shared(one: dict, other: dict) -> bool:
    assert set(one) <= set(other), "a candidate trained another number of mini-batches"
    return all(torch.equal(value, other[key]) for key, value in one.items())


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
@pytest.mark.parametrize("dropout", [True, False])
def test_a_candidate_ends_with_the_same_bits_alone_and_in_company(optimizer: str, dropout: bool) -> None:
    together = everything(GRID, optimizer=optimizer, dropout=dropout)
    alone = everything([{"lr": 0.01}], optimizer=optimizer, dropout=dropout)
    assert same_where_shared(alone, together)
    left_at = {(task, name): steps for task, name, _, steps in together}
    assert len(set(left_at.values())) > 1, "all left at the same time: the test shows nothing"


def test_without_the_seeding_before_each_hook_company_would_matter() -> None:
    with patch.object(hooks, "seed_default_generators", lambda *_: None), torch.random.fork_rng():
        torch.manual_seed(0)
        together = everything(GRID)
        torch.manual_seed(0)
        alone = everything([{"lr": 0.01}])
    assert not set(alone) <= set(together) or not same_where_shared(alone, together)


@pytest.mark.parametrize(
    "options",
    [{"candidates_at_once": 1}, {"candidates_at_once": 3}, {"block": 1}, {"block": 7}, {"stack": False}],
)
@pytest.mark.parametrize("dropout", [True, False])
def test_shares_blocks_and_stacks_do_not_change_a_bit(options: dict, dropout: bool) -> None:
    assert same_where_shared(everything(GRID, dropout=dropout, **options), everything(GRID, dropout=dropout))


def test_stacked_networks_own_their_weights_again_afterwards() -> None:
    s = toys.stream(tasks=1)
    learner = TryAll(keep="lr=0.01", build=builder(s, (64, 64)), head=s.head, grid=GRID, seed=0)
    learn(learner, s, training(patience=5))
    for p in learner.network.parameters():
        assert p.untyped_storage().nbytes() == p.nbytes, "a slice of the stack would be saved whole"


def one_task(learner: Finetune, **options: object) -> toys.Learned:
    return learn(learner, toys.stream(tasks=1), training(**options))


def finetune(cls: type = Finetune, grid=({},), **network: object) -> Finetune:
    return cls(
        build=builder(toys.stream(tasks=1), **network), head=toys.stream(tasks=1).head, grid=grid, seed=0
    )


def test_a_candidate_leaves_after_patience_mini_batches_without_improvement() -> None:
    standing = one_task(finetune(), max_epochs=50, patience=20).standing(0)["default"]
    assert standing["steps"] < 300
    assert standing["steps"] - standing["steps_to_best"] >= 20


def test_the_untrained_candidate_counts_and_can_win() -> None:
    learner = finetune()
    learner.fresh = lambda *_: pytest.fail("no new network is needed")
    learner.network = one_task(finetune(), max_epochs=20).learner.network
    before = flat(learner.network)
    learned = one_task(learner, optimizer="sgd", lr=1e4, patience=10)
    assert learned.standing(0)["default"]["steps_to_best"] == 0
    assert torch.equal(learned.weights, before)


def test_the_winner_is_restored_to_its_best_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    weights: dict[int, torch.Tensor] = {}

    def forged(learner, run) -> list[float]:
        """The best lies in the middle of training."""
        weights[run.step] = flat(run.candidates[0].network).clone()
        return [1.0 if run.step == 12 else 0.5]

    monkeypatch.setattr(scoring, "accuracies", forged)
    learned = one_task(finetune(), max_epochs=6, patience=1000)
    assert learned.standing(0)["default"] == {"val_accuracy": 1.0, "steps": 36, "steps_to_best": 12}
    assert torch.equal(learned.weights, weights[12])
    assert not torch.equal(learned.weights, weights[36])


def test_a_score_is_the_accuracy_on_the_validation_split() -> None:
    learned = one_task(finetune(), max_epochs=6)
    val = toys.stream(tasks=1).task(0).val
    with torch.no_grad():
        right = (learned.learner.network.eval()(val.x).argmax(1) == val.y).sum().item()
    assert learned.standing(0)["default"]["val_accuracy"] == pytest.approx(
        right / len(val), abs=1.5 / len(val)
    )


def test_without_patience_the_last_weights_stay() -> None:
    standing = one_task(finetune(), max_epochs=4).standing(0)["default"]
    assert standing["steps"] == standing["steps_to_best"] == 4 * 6


def test_the_first_of_equals_wins() -> None:
    learned = one_task(
        finetune(grid=[{"lr": 0.01, "momentum": 0.0}, {"lr": 0.01, "momentum": 0}]), optimizer="sgd"
    )
    assert learned.phase().winner == 0


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_hyper_parameters_of_a_candidate_are_its_own(optimizer: str) -> None:
    """A grid point gives what the trainer's keys give."""
    by_grid = one_task(finetune(grid=[{"lr": 0.003, "weight_decay": 0.1}]), optimizer=optimizer, lr=1.0)
    by_trainer = one_task(finetune(), optimizer=optimizer, lr=0.003, weight_decay=0.1)
    other = one_task(finetune(), optimizer=optimizer, lr=0.003)
    assert torch.equal(by_grid.weights, by_trainer.weights)
    assert not torch.equal(by_grid.weights, other.weights)


def test_momentum_is_that_of_sgd() -> None:
    s, learner = toys.stream(tasks=1), finetune(dropout=0.0)
    network, task = finetune().network, s.task(0)
    optimizer = torch.optim.SGD(network.parameters(), 0.01, momentum=0.9, fused=True)
    for block in Blocks(task.train, (0, "task0", 0), 10, 3, 25):
        for batch in block.batches:
            optimizer.zero_grad()
            F.cross_entropy(network(batch.x), batch.y).backward()
            optimizer.step()
    learned = learn(learner, s, training(optimizer="sgd", momentum=0.9))
    assert torch.equal(learned.weights, torch.cat([p.detach().flatten() for p in network.parameters()]))


class Norms(Finetune):
    def __init__(self, **base: object) -> None:
        super().__init__(**base)
        self.seen = UserList()

    def after_backward(self, c: Candidate, batch) -> None:
        self.seen.append((c.name, sum(p.grad.norm() ** 2 for p in c.network.parameters()) ** 0.5))

    def after_step(self, c: Candidate, batch) -> None:
        self.seen.append((c.name, sum(p.grad.norm() ** 2 for p in c.network.parameters()) ** 0.5))


@pytest.mark.parametrize("stack", [True, False])
def test_clipping_limits_each_candidates_own_norm_after_its_hook(stack: bool) -> None:
    learner = finetune(Norms, grid=[{"lr": 0.01}, {"lr": 0.02}])
    one_task(learner, clip=0.05, stack=stack)
    before, after = learner.seen[0:2], learner.seen[2:4]
    assert [name for name, _ in before] == ["lr=0.01", "lr=0.02"]
    assert all(norm > 0.05 for _, norm in before)
    assert all(norm == pytest.approx(0.05, rel=1e-3) for _, norm in after)


class Zeroed(Finetune):
    def after_backward(self, c: Candidate, batch) -> None:
        for p in c.network.parameters():
            p.grad.zero_()


class Clamped(Finetune):
    def after_step(self, c: Candidate, batch) -> None:
        for p in c.network.parameters():
            p.clamp_(-0.01, 0.01)


def test_gradients_may_be_changed_before_the_step_and_weights_after_it() -> None:
    assert torch.equal(one_task(finetune(Zeroed)).weights, flat(finetune().network))
    assert one_task(finetune(Clamped)).weights.abs().max() <= 0.01


def flat(network: nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in network.parameters()])


class Extended(Finetune):
    """Takes every mini-batch twice, the second time under another task's number."""

    def __init__(self, **base: object) -> None:
        super().__init__(**base)
        self.calls, self.sizes = UserList(), UserList()

    def extend(self, batch):
        self.calls.append(len(batch))
        return batch.cat(batch.x, batch.y, batch.task + 7)

    def loss(self, c: Candidate, batch) -> torch.Tensor:
        self.sizes.append((len(batch), batch.task.unique().tolist()))
        return super().loss(c, batch)


def test_a_mini_batch_is_extended_once_for_all_candidates_and_never_in_scoring() -> None:
    learner = finetune(Extended, grid=[{"lr": 0.01}, {"lr": 0.02}])
    one_task(learner, max_epochs=1, patience=100)
    assert learner.calls == [10] * 6
    assert learner.sizes == [(20, [0, 7])] * 12


class OnFrozenTrunk(Finetune):
    """Heads on a frozen random layer that is computed once for all candidates."""

    def __init__(self, **base: object) -> None:
        super().__init__(**base)
        self.trunk, self.calls = self.fresh("trunk").trunk.requires_grad_(False), UserList()

    def candidates(self, task):
        return [Candidate(nn.Linear(16, 4), point, str(point)) for point in self.grid]

    def shared(self, batch, candidates):
        self.calls += [len(batch)] * (len(batch) > 1)  # one example tells what a candidate would need alone
        assert not torch.is_grad_enabled()
        return self.trunk(batch.x)

    def logits(self, c, batch):
        return c.network(batch.shared)

    def adopt(self, c, task):
        self.network = c.network

    def forward(self, x, task):
        h = self.trunk(x)
        return self.network(h) if isinstance(self.network, nn.Linear) else self.network(x)


class RemembersBatches(OnFrozenTrunk):
    def __init__(self, **base: object) -> None:
        super().__init__(**base)
        self.known, self.living = UserList(), UserList()

    def logits(self, c, batch):
        self.living.append(sum(each() is not None for each in self.known))
        self.known.append(weakref.ref(batch.shared))
        return super().logits(c, batch)


def test_what_is_shared_is_freed_with_its_mini_batch() -> None:
    """At once, and not when Python collects garbage: a device has no memory for that."""
    gc.disable()
    try:
        learner = finetune(RemembersBatches)
        one_task(learner, max_epochs=1)
        assert learner.living == [0] * 7
    finally:
        gc.enable()


class ReadsOnce(OnFrozenTrunk):
    """One candidate alone reads what is shared, in its loss and before it draws."""

    def logits(self, c, batch):
        return c.network(F.dropout(self.trunk(batch.x).detach(), 0.5, c.network.training))

    def loss(self, c, batch):
        more = batch.shared.mean() if c.hparams.get("reads") else 0.0
        return super().loss(c, batch) + more


def test_what_is_shared_is_computed_when_somebody_reads_it_and_changes_no_draws() -> None:
    weights, calls, flops = {}, {}, {}
    for reads in (False, True):
        learner = finetune(ReadsOnce, grid=[{"lr": 0.02, "reads": reads}, {"lr": 1e-9}])
        learned = one_task(learner, max_epochs=1)
        weights[reads], calls[reads] = learned.weights, len(learner.calls)
        flops[reads] = learned.costs()["flops"]
    assert calls == {False: 0, True: 6}  # no scoring reads it
    assert torch.equal(weights[False], weights[True])
    assert flops[True] - flops[False] == 60 * 2 * (36 * 16 + 16 * 16)  # of the candidate that reads it alone


def test_what_is_shared_is_computed_once_and_its_operations_counted_so() -> None:
    learner = finetune(OnFrozenTrunk, grid=[{"lr": 0.01}, {"lr": 0.02}, {"lr": 0.03}])
    learned = one_task(learner, max_epochs=1)
    assert len(learner.calls) == 6 + 1  # mini-batches, and one scoring at the end
    trunk, head = 2 * (36 * 16 + 16 * 16), 2 * 16 * 4
    costs = learned.costs()
    examples, val = 60, 40
    assert costs["flops"] == 3 * (
        examples * (trunk + 2 * head) + val * (trunk + head)
    )  # no gradient flows into the input of the head
    assert costs["flops_executed"] == examples * (trunk + 3 * 2 * head) + val * (trunk + 3 * head)


class Reused(Finetune):
    """A candidate without parameters beside one with them: pure re-use."""

    def candidates(self, task):
        frozen = self.fresh(0).requires_grad_(False)
        return [Candidate(frozen, {}, "reuse"), Candidate(self.fresh(1), {}, "new")]


class OnlyReused(Reused):
    def candidates(self, task):
        return super().candidates(task)[:1]


@pytest.mark.parametrize(
    "options", [{}, {"patience": 10}, {"patience": 10, "score_at": ()}, {"patience": 10, "score_at": (3,)}]
)
def test_a_candidate_without_parameters_is_scored_once_and_not_trained_alone_or_in_company(
    options: dict,
) -> None:
    together = one_task(finetune(Reused), max_epochs=10, **options).standing(0)
    assert together["new"]["steps_to_best"] > 0
    assert together["reuse"]["steps"] == together["reuse"]["steps_to_best"] == 0
    for alone in (finetune(OnlyReused), finetune(Reused)):
        assert (
            one_task(alone, max_epochs=10, candidates_at_once=1, **options).standing(0)["reuse"]
            == together["reuse"]
        )


def test_bf16_changes_bits_and_blocks_still_do_not() -> None:
    """Weights cast for one mini-batch must not be used for the next: Lightning's autocast would last for a
    block."""
    full = one_task(finetune())
    mixed = [one_task(finetune(), precision="bf16-mixed", block=block).weights for block in (1, 25)]
    assert not torch.equal(full.weights, mixed[0])
    assert torch.equal(*mixed)
    assert (full.weights - mixed[0]).abs().max() < 0.05


class Dtypes(Finetune):
    seen = UserDict()

    def logits(self, c, batch):
        logits = super().logits(c, batch)
        self.seen["logits"] = logits.dtype
        return logits

    def after_backward(self, c, batch):
        p = next(c.network.parameters())
        self.seen["product"] = (p @ p.T).dtype


def test_only_losses_and_logits_run_under_autocast() -> None:
    learner = finetune(Dtypes)
    one_task(learner, precision="bf16-mixed")
    assert learner.seen == {"logits": torch.bfloat16, "product": torch.float32}


class Watch(StreamCallback):
    def __init__(self) -> None:
        self.steps, self.blocks = [], []

    def on_train_batch_end(self, trainer, learner, *_: object) -> None:
        self.steps.append(learner.phase_run.step)
        self.blocks.append(trainer.global_step)


def test_lightning_counts_blocks_and_the_engine_mini_batches() -> None:
    watch = Watch()
    learn(finetune(), toys.stream(tasks=1), training(max_epochs=2, block=5), callbacks=[watch])
    assert watch.steps == [5, 10, 12]
    assert watch.blocks == [1, 2, 3]


def test_training_stops_when_nobody_is_left() -> None:
    watch = Watch()
    learned = learn(
        finetune(grid=[{"lr": 1e-9}]),
        toys.stream(tasks=1),
        training(max_epochs=500, patience=5),
        callbacks=[watch],
    )
    assert learned.standing(0)["lr=1e-09"]["steps"] == 5
    assert len(watch.blocks) <= 2


def test_global_random_state_is_left_as_it_was() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    one_task(finetune(dropout=0.5))
    assert torch.equal(torch.rand(3), expected)


def test_weights_of_candidates_are_in_lightnings_own_checkpoint(tmp_path: Path) -> None:
    class Save(StreamCallback):
        def on_train_batch_end(self, trainer, learner, *_: object) -> None:
            trainer.save_checkpoint(tmp_path / "inside.ckpt")

    learn(finetune(grid=[{"lr": 0.1}, {"lr": 0.2}]), toys.stream(tasks=1), training(), callbacks=[Save()])
    checkpoint = torch.load(tmp_path / "inside.ckpt", weights_only=True)
    assert {
        name.split(".")[1] for name in checkpoint["state_dict"] if name.startswith("networks_in_training.")
    } == {"0", "1"}


# ---- at the shapes of real use -----------------------------------------------------------------------------


def mnist_like(n: int = 120):
    from cl_lightning.data.sources.cache import Images, Pool
    from cl_lightning.data.streams.recipes import permuted

    generator = torch.Generator().manual_seed(0)
    x = torch.randint(0, 255, (n, 1, 28, 28), generator=generator, dtype=torch.uint8)
    pool = Pool(x, (x[:, 0, 14, 14] // 26).long())
    return permuted(
        Images("noise", tuple("0123456789"), pool, pool, "noise"),
        seed=0,
        tasks=1,
        n_train=100,
        n_val=0,
        n_test=None,
    )


@pytest.mark.parametrize("sizes", [(5, 5), (33, 17), (100, 100), (7,), (64, 65), (100,), ()])
@pytest.mark.parametrize("batch_size", [10, 33, 64])
def test_stacked_and_alone_and_separate_give_the_same_bits(sizes: tuple, batch_size: int) -> None:
    s, grid = mnist_like(), [{"lr": 0.001 * (i + 1)} for i in range(5)]

    def ends(points: list[dict], stack: bool) -> list[torch.Tensor]:
        learner = TryAll(keep="lr=0.001", build=builder(s, sizes), head=s.head, grid=points, seed=0)
        learner.candidates = lambda task: [Candidate(learner.fresh(0), p, f"lr={p['lr']}") for p in points]
        learner.adopt = lambda c, task: None
        learner.keep = f"lr={points[0]['lr']}"
        settings = training(max_epochs=2, batch_size=batch_size, stack=stack, evaluate="final")
        val = s.task(0).train
        learner.learn = lambda task: keep_all(learner, task, val)
        learn(learner, s, settings)
        return [flat_state(learner.tried[0, f"lr={p['lr']}"]) for p in points]

    together, separate = ends(grid, True), ends(grid, False)
    for i, point in enumerate(grid):
        assert torch.equal(together[i], separate[i]), f"stacked network {i} has other bits than by itself"
        assert torch.equal(together[i], ends([point], True)[0]), f"network {i} depends on its company"


def keep_all(learner: TryAll, task, val):
    candidates = learner.candidates(task)
    with patch.object(phases, "take_network"):
        yield Phase(candidates, val=val)
    for c in candidates:
        learner.tried[task.index, c.name] = {
            name: value.clone() for name, value in c.network.state_dict().items()
        }


def flat_state(state: dict) -> torch.Tensor:
    return torch.cat([value.flatten() for value in state.values()])


@pytest.fixture
def mkl(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with MKL and the package's own setting, whatever this machine has."""
    monkeypatch.setattr("torch.backends.mkl.is_available", lambda: True)
    monkeypatch.setenv("MKL_CBWR", "AVX2,STRICT")


@pytest.mark.usefixtures("mkl")
def test_nothing_is_stacked_where_its_bits_are_not_assured(monkeypatch: pytest.MonkeyPatch) -> None:
    from cl_lightning.engine.stack import stackable

    wide = finetune(sizes=(64,))
    phase = Phase(wide.candidates(None))
    assert all(stackable(wide, phase))
    assert not any(stackable(finetune(), Phase(finetune().candidates(None)))), "too narrow"
    with monkeypatch.context() as patch:
        patch.setenv("MKL_CBWR", "AVX2")
        assert not any(stackable(wide, phase))
    with monkeypatch.context() as patch:
        patch.setattr("torch.backends.mkl.is_available", lambda: False)
        assert not any(stackable(wide, phase))


class CosineLinear(nn.Linear):
    def forward(self, x):
        return F.linear(F.normalize(x, dim=-1), F.normalize(self.weight, dim=-1))


@pytest.mark.usefixtures("mkl")
@pytest.mark.parametrize("change", ["subclass", "hook", "no bias", "frozen", "dropout", "own loss"])
def test_networks_that_are_more_than_linear_layers_are_not_stacked(change: str) -> None:
    from cl_lightning.engine.stack import stackable

    learner = finetune(Norms if change != "own loss" else Dtypes, sizes=(64, 64))
    network = learner.network
    if change == "subclass":
        network.head = CosineLinear(64, 4)
    elif change == "hook":
        network.head.register_forward_hook(lambda *_: None)
    elif change == "no bias":
        network.head = nn.Linear(64, 4, bias=False)
    elif change == "frozen":
        network.head.weight.requires_grad_(False)
    elif change == "dropout":
        network.trunk.add_module("drop", nn.Dropout(0.1))
    others = finetune(Norms if change != "own loss" else Dtypes, sizes=(64, 64)).candidates(None)
    alone = (False, *[change != "own loss"] * len(others))
    shapes = stackable(learner, Phase([*learner.candidates(None)[:1], *others]))
    assert tuple(map(bool, shapes)) == alone, "one that is not stacked is no reason for others"


@pytest.mark.usefixtures("mkl")
def test_networks_of_several_topologies_have_the_same_bits_in_stacks_alone_and_separate() -> None:
    """Among them one with dropout and one with a frozen layer, which are in no stack."""
    s = mnist_like()
    sizes = {"a": (64, 64), "b": (100,), "c": (64, 64), "dropout": (64, 64), "frozen": (64, 64), "d": (100,)}

    rates = {name: 0.001 * (1 + k) for k, name in enumerate(sizes)}

    def network(name: str) -> nn.Module:
        with seeded(3, name):
            made = builder(s, sizes[name], dropout=0.3 * (name == "dropout"))()
        made.head.weight.requires_grad_(name != "frozen")
        return made

    def ends(names: list[str], stack: bool) -> dict[str, torch.Tensor]:
        learner = TryAll(keep="", build=builder(s), head=s.head, seed=0)
        learner.candidates = lambda task: [
            Candidate(network(name), {"lr": rates[name]}, name) for name in names
        ]
        learner.adopt = lambda c, task: None
        learner.keep, val = names[0], s.task(0).train
        learner.learn = lambda task: keep_all(learner, task, val)
        with patch.object(Stack, "learn_from", autospec=True, side_effect=Stack.learn_from) as stacked:
            learn(learner, s, training(max_epochs=2, batch_size=20, stack=stack, evaluate="final"))
        members = {len(each.args[0].members) for each in stacked.call_args_list}
        alone = {1} if names[0] in "abcd" else set()
        assert members == (({2} if len(names) > 1 else alone) if stack else set())
        return {name: flat_state(learner.tried[0, name]) for name in names}

    together, separate = ends([*sizes], True), ends([*sizes], False)
    for name in sizes:
        assert torch.equal(together[name], separate[name])
        assert torch.equal(together[name], ends([name], True)[name])


class Draws(Finetune):
    """Draws from torch's default generator wherever it can."""

    def on_task_start(self, task):
        self.memory["noise"] = torch.rand(3)

    def extend(self, batch):
        rows = torch.randint(len(batch), (4,))
        return batch.cat(batch.x[rows], batch.y[rows], batch.task[rows])

    def loss(self, c, batch):
        return super().loss(c, batch) * (1 + torch.rand(()))

    def logits(self, c, batch):
        return super().logits(c, batch) + 0.1 * torch.randn(len(batch), 4)


@pytest.mark.parametrize("patience", [None, 8])
def test_draws_in_any_hook_depend_on_seed_and_step_and_not_on_global_state(patience) -> None:
    ends = []
    for global_seed in (1, 2):
        torch.manual_seed(global_seed)
        ends.append(one_task(finetune(Draws), patience=patience, max_epochs=4).weights)
    assert torch.equal(*ends)


class NotesDraws(Finetune):
    """Draws in every hook, and notes it by the hook's name."""

    drawn = UserDict()  # of the class: testing is done by copies

    def note(self, name, value=None):
        value = torch.rand(()) if value is None else value
        self.drawn.setdefault(name, []).append(value.double().sum().item())

    def on_task_start(self, task):
        self.note("on_task_start")

    def learn(self, task):
        self.note("learn")
        self.once("work", lambda: self.note("once"))
        best = yield Phase(self.candidates(task), score=self.scored)
        self.note("after the phase")
        self.adopt(best.candidate, task)

    def scored(self, c, val):
        self.note("score")
        return 0.5

    def extend(self, batch):
        self.note("extend")
        self.note("batch.rng", torch.rand((), generator=batch.rng("mine")))
        self.note("order", batch.x[0])
        return batch

    def shared(self, batch, candidates):
        if len(batch) > 1:  # one example more, to count operations, draws the same
            self.note("shared")

    def loss(self, c, batch):
        assert batch.shared is None
        self.note("loss")
        return super().loss(c, batch)

    def after_backward(self, c, batch):
        self.note("after_backward")

    def after_step(self, c, batch):
        self.note("after_step")

    def adopt(self, c, task):
        super().adopt(c, task)
        self.note("adopt")

    def on_task_end(self, task):
        self.note("on_task_end")
        self.note("fresh", self.fresh(task.index).head.weight)

    def predictors(self, seen):
        self.note("predictors")
        return {"": self}
        yield

    def forward(self, x, task):
        self.note("forward")
        return super().forward(x, task)


class ToldItsTask(NotesDraws):
    needs = Needs(task_id_at_test=True)


def drawn_by(seed: int, learner_class: type[NotesDraws] = NotesDraws) -> UserDict:
    NotesDraws.drawn = UserDict()
    s = toys.stream(tasks=2)
    learn(learner_class(build=builder(s), head=s.head, seed=seed), s, training(max_epochs=2, patience=100))
    return NotesDraws.drawn


def test_every_hook_draws_something_else_for_another_seed_another_task_and_another_hook() -> None:
    one, again, other = drawn_by(0), drawn_by(0), drawn_by(1)
    assert one == again
    for drawn in (one, other):  # predictions in another order are asked for with the same draws
        drawn["forward"] = list(dict.fromkeys(drawn["forward"]))
    assert len(one) == 17
    assert all(len(values) == len(other[name]) >= 2 for name, values in one.items())
    assert one.pop("order") != other.pop("order"), "the order of examples is the same for two seeds"
    for name, values in one.items():
        assert set(values).isdisjoint(other[name]), f"{name} draws the same for two seeds"
        assert len({*values}) == len(values), f"{name} draws the same twice"
    assert len({*itertools.chain(*one.values())}) == sum(map(len, one.values())), "two hooks draw the same"
    told, of_other = (set(drawn_by(seed, ToldItsTask)["forward"]) for seed in (0, 1))
    assert told.isdisjoint(of_other)


def test_a_score_of_its_own_draws_the_same_alone_and_in_company() -> None:
    class Noisy(Finetune):
        def learn(self, task):
            best = yield Phase(
                self.candidates(task), score=lambda c, val: torch.rand(()).item(), patience=1000
            )
            self.adopt(best.candidate, task)

    together = one_task(finetune(Noisy, grid=[{"lr": 0.01}, {"lr": 0.02}])).standing(0)
    alone = one_task(finetune(Noisy, grid=[{"lr": 0.02}])).standing(0)
    assert together["lr=0.02"] == alone["lr=0.02"]


@pytest.mark.parametrize("options", [{"score_every": 1000}, {"score_at": [], "score_every": 1000}])
def test_the_last_mini_batch_is_always_scored(options: dict) -> None:
    standing = one_task(finetune(), patience=10_000, max_epochs=6, **options).standing(0)["default"]
    assert standing["steps_to_best"] == standing["steps"] == 36


def test_memory_goes_where_parameters_go() -> None:
    learner = finetune()
    learner.memory = {"x": torch.ones(2), "more": [(torch.ones(1), 3)]}
    learner.double()
    assert learner.memory["x"].dtype == learner.memory["more"][0][0].dtype == torch.float64
    assert learner.memory["more"][0][1] == 3
    learner.to("meta")
    assert learner.memory["x"].is_meta


class LooksAtModes(Finetune):
    def __init__(self, **base: object) -> None:
        super().__init__(**base)
        self.modes = []

    def on_task_start(self, task):
        self.modes.append(self.network.training)

    def on_task_end(self, task):
        self.modes.append(self.network.training)


@pytest.mark.parametrize("patience", [None, 5])
def test_task_hooks_see_networks_in_evaluation_mode(patience) -> None:
    learner = finetune(LooksAtModes, dropout=0.2)
    learn(learner, toys.stream(), training(patience=patience, max_epochs=20))
    assert learner.modes == [False] * 6


def test_head_masks_are_there_in_task_hooks() -> None:
    class Masked(Finetune):
        def on_task_end(self, task):
            batch = next(task.train.batches(4))
            self.seen = self.masked(torch.zeros(4, 4), batch)

    s = toys.pairs_of_classes(n_train=20)
    learner = Masked(build=builder(s), head=s.head, seed=0)
    learn(learner, s)
    assert learner.seen.isinf().sum(1).tolist() == [2] * 4


def test_lightnings_own_hooks_cannot_be_overridden() -> None:
    from cl_lightning.errors import Refusal

    with pytest.raises(Refusal, match=r"overrides training_step.*\n.*loss, logits"):
        type("Own", (Finetune,), {"training_step": lambda self, batch, i: None})


# ---- candidates that diverge -------------------------------------------------------------------------------


@pytest.mark.parametrize("patience", [None, 20])
@pytest.mark.parametrize("options", [{}, {"candidates_at_once": 1}, {"block": 1}])
def test_a_candidate_whose_weights_are_no_numbers_is_dropped_with_a_warning_and_the_rest_go_on(
    patience, options: dict
) -> None:
    grid = [{"lr": 1e30}, {"lr": 0.01}]
    with pytest.warns(UserWarning, match=r"lr=1e\+30 is dropped after \d+ mini-batches of task 0"):
        learned = one_task(finetune(grid=grid), optimizer="sgd", patience=patience, **options)
    assert learned.phase().winner == 1
    alone = one_task(finetune(grid=grid[1:]), optimizer="sgd", patience=patience)
    assert torch.equal(learned.weights, alone.weights)


def test_if_all_are_lost_the_run_stops_with_a_sentence() -> None:
    from cl_lightning.errors import Refusal

    with (
        pytest.warns(UserWarning, match="dropped"),
        pytest.raises(Refusal, match=r"All candidates of task 0 were dropped.*\n.*Lower trainer\.lr"),
    ):
        one_task(finetune(grid=[{"lr": 1e30}, {"lr": 1e29}]), optimizer="sgd")


# ---- logits that are no numbers ----------------------------------------------------------------------------


class Breaks(Finetune):
    """In scoring it says output 0 of everything, but NaN of the first seven images."""

    def logits(self, c, batch):
        logits = super().logits(c, batch)
        if c.network.training:
            return logits
        said = torch.eye(4)[torch.zeros(len(batch), dtype=torch.int64)]
        return said.index_fill(0, torch.arange(7), torch.nan)


@pytest.mark.parametrize("patience", [None, 1000])
def test_validation_images_whose_logits_are_nan_are_wrong_and_one_sentence_a_candidate_counts_them(
    patience: int | None,
) -> None:
    s = toys.stream(tasks=1)
    y = s.task(0).val.y
    assert (y[:7] == 0).any(), "nothing would be gained by calling them class 0"
    learner = Breaks(build=builder(s), head=s.head, grid=[{"lr": 0.01}, {"lr": 0.02}])
    with pytest.warns(UserWarning, match="NaN logits for 7 of 40 validation images of task 0") as told:
        standings = learn(learner, s, training(max_epochs=2, patience=patience), tasks=1).standing(0)
    said = [str(each.message).split()[0] for each in told if "validation images" in str(each.message)]
    assert said == ["lr=0.01", "lr=0.02"]
    assert {each["val_accuracy"] for each in standings.values()} == {(y[7:] == 0).sum().item() / 40}
