"""What every learner promises. One that lies beside the others in ``conf/learner`` is held to it without
further ado.

A learner with its default settings is held to all promises, a variant of it to three: the same bits, garbage
for test data, a fresh learner for every task. That kills change nothing is seen in ``test_cuts.py``.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cl_lightning.config.build import build_learner
from cl_lightning.config.resolvers import conf_dir
from cl_lightning.data.streams.stream import Stream
from cl_lightning.data.task import Blocks, Lazy
from cl_lightning.engine.hooks import hooks_of
from cl_lightning.engine.phase_run import PhaseRun
from cl_lightning.engine.scoring import set_mode
from cl_lightning.engine.training import train_batch, train_block
from cl_lightning.learners import Finetune, Learner
from cl_lightning.learners.parts.class_rules import FINAL
from cl_lightning.metrics.costs import held_bytes
from cl_lightning.protocol import LearnerError, ProtocolError
from cl_lightning.randomness import seeded
from tests import toys
from tests.commands import but_what_may_differ, configure, run
from tests.toys import learn, training

NAMES = sorted(path.stem for path in (Path(conf_dir()) / "learner").glob("*.yaml"))
VARIANTS = [
    ("learner=independent", "learner.start=clone"),
    ("learner=joint", "learner.at=last_task"),
    ("learner=joint", "learner.restart=false"),
    ("learner=er", "learner.policy=ring", "learner.size=5"),
    ("learner=ewc", "learner.penalty=online", "learner.gamma=0.9", "learner.fisher=sample"),
    ("learner=mntdp_d", "learner.k=all"),
    ("learner=mntdp_d", "learner.prior=random", "learner.allow_head_reuse=false"),
    ("learner=mntdp_s", "learner.k=all", "learner.gamma=decisions"),
    ("learner=new_head", "learner.trunk=finetune"),
    ("learner=new_leg", "learner.trunk=finetune"),
    ("learner=er", "learner.policy=single_pass", "learner.size=20"),
    ("learner=lwf", "learner.warm_up=1"),
    ("learner=si", "learner.clamp=false", "learner.penalty_in_path=true"),
    ("learner=vcl", "learner.start=drawn", "backbone.heads=per_task"),
    ("learner=vgr", "learner.replay=stored", "backbone.dropout=0.2"),
    ("learner=coreset_only", "learner.choice=random", "learner.size=8", "learner.coreset_epochs=2"),
    ("learner=gem", "learner.total=60", "learner.memory_precision=bf16"),
]
FEWER = {"rcl": ("learner.trials=2",)}  # it trains fifty networks a task
DEFAULTS = [(f"learner={name}", *FEWER.get(name, ())) for name in NAMES]

Make = Callable[[], Learner]


def maker(*overrides: str, tasks: int = 3) -> Make:
    """A function that makes the learner of a configuration anew."""
    cfg, s = configure("backbone.sizes=[16]", "selection=none", *overrides), toys.stream(tasks=tasks)
    return lambda: build_learner(cfg, s)


def name_of(overrides: tuple[str, ...]) -> str:
    return ",".join(overrides).replace("learner=", "").replace("learner.", "")


def cases(*of_defaults: list[tuple[str, ...]]) -> list[Any]:
    return [pytest.param(case, id=name_of(case)) for some in of_defaults for case in some]


every_learner = pytest.mark.parametrize("overrides", cases(DEFAULTS))
every_learner_and_variant = pytest.mark.parametrize("overrides", cases(DEFAULTS, VARIANTS))


# ---- the toy stream, learned once --------------------------------------------------------------------------


def ends(make: Make, global_seed: int, stream: Callable[..., Stream] = toys.stream) -> toys.Learned:
    torch.manual_seed(global_seed)
    random.seed(global_seed)
    return usually(make, stream)


def usually(make: Make, stream: Callable[..., Stream] = toys.stream, **options: Any) -> toys.Learned:
    """With early stopping; with mini-batches in their order for a learner that asks for them."""
    learner = make()
    if getattr(learner, "policy", None) == "single_pass":
        return learn(learner, stream(n_val=0), training(single_pass=True), **options)
    return learn(learner, stream(), training(patience=10), **options)


@cache
def learned(*overrides: str) -> toys.Learned:
    return ends(maker(*overrides), 1)


def garbage(**options: Any) -> Stream:
    """The toy stream, with noise in the place of test images."""
    s = toys.stream(**options)
    s.sources[0].test.x.random_(0, 255, generator=torch.Generator().manual_seed(0))
    return s


@cache
def learned_beside_garbage(*overrides: str) -> toys.Learned:
    """With noise for test data, and with other states of the global generators."""
    return ends(maker(*overrides), 2, garbage)


# ---- U1, U2: the same seed, the same bits; test data decide nothing ----------------------------------------


def same_bits_whatever_else(one: toys.Learned, other: toys.Learned) -> None:
    assert all(map(torch.equal, one.after, other.after))
    assert one.matrix != other.matrix, "the noise was not looked at: the test shows nothing"


@every_learner_and_variant
def test_the_same_seed_gives_the_same_bits_whatever_the_test_data_and_global_generators(
    overrides: tuple,
) -> None:
    same_bits_whatever_else(learned(*overrides), learned_beside_garbage(*overrides))


@every_learner
def test_the_same_seed_gives_the_same_accuracies(overrides: tuple) -> None:
    assert ends(maker(*overrides), 2).matrix == learned(*overrides).matrix


UNSEEDED = random.Random()  # of one's own: the engine looks at the global generators alone


class DrawsUnseeded(Finetune):
    def after_step(self, c, batch):
        with torch.no_grad():
            next(c.network.parameters()).add_(UNSEEDED.random() * 1e-3)


def test_an_unseeded_draw_is_caught() -> None:
    own = "learner._target_=tests.test_contract.DrawsUnseeded"
    with pytest.raises(AssertionError):
        same_bits_whatever_else(learned(own), learned_beside_garbage(own))


class DrawsByNumpyAndPython(Finetune):
    def on_task_end(self, task):
        rows = np.random.permutation(len(task.train))[: random.randrange(1, 20)]  # noqa: NPY002
        self.memory["replayed"] = [part[rows].clone() for part in task.train.parts]

    def extend(self, batch):
        return batch.cat(*self.memory["replayed"]) if self.memory else batch


def test_draws_by_numpy_and_python_between_phases_are_seeded_and_leave_no_trace() -> None:
    own = "learner._target_=tests.test_contract.DrawsByNumpyAndPython"
    np.random.seed(1)  # noqa: NPY002
    first = learned(own)
    assert np.random.rand() == np.random.RandomState(1).rand()  # noqa: NPY002
    assert random.random() == random.Random(1).random()
    same_bits_whatever_else(first, learned_beside_garbage(own))


# ---- U3: past data are not there ---------------------------------------------------------------------------


@every_learner
def test_only_learners_that_declare_it_are_lent_past_tasks(overrides: tuple) -> None:
    one = learned(*overrides)
    assert one.lent == ([0, 1, 2] if one.learner.needs.past_data else [0, 0, 0])


# ---- U4, U5: without strength, and on the first task, finetune to the bit ----------------------------------


@every_learner
def test_without_strength_it_is_finetune_to_the_bit(overrides: tuple) -> None:
    settings = learned(*overrides).learner.without_strength or {}
    without = [f"learner.{key}={value}" for key, value in settings.items()]
    finetune = learned("learner=finetune").weights
    assert not without or torch.equal(learned(*overrides, *without).weights, finetune)


def test_some_learners_have_settings_without_strength() -> None:
    assert {name for name in NAMES if maker(f"learner={name}")().without_strength} >= {"ewc", "er"}


@every_learner
def test_on_the_first_task_it_is_finetune_to_the_bit_unless_it_says_otherwise(overrides: tuple) -> None:
    one, finetune = learned(*overrides).after[0], learned("learner=finetune").after[0]
    same = one.shape == finetune.shape and torch.equal(one, finetune)
    assert same == learned(*overrides).learner.first_as_finetune


# ---- U6: what it holds is what is stored -------------------------------------------------------------------


@every_learner
def test_what_is_held_is_what_a_checkpoint_stores(overrides: tuple, tmp_path: Path) -> None:
    state = (learner := learned(*overrides).learner).state_dict()
    torch.save(state, tmp_path / "whole.pt")
    held, stored = sum(held_bytes(learner).values()), (tmp_path / "whole.pt").stat().st_size
    assert 0 < held <= stored <= held + 4096 + 1024 * len(state), "besides bytes a file has names"


@every_learner
def test_a_checkpoint_restores_it_in_an_empty_one(overrides: tuple) -> None:
    learner, empty = learned(*overrides).learner, maker(*overrides)()
    empty.load_state_dict(learner.state_dict())
    x, told = toys.stream().test(0).x, 1 if learner.needs.task_id_at_test else None
    said = []
    for each in (empty, learner):
        with torch.no_grad(), seeded("draws at test"):
            said.append(each.eval()(x, told))
    assert torch.equal(*said)


# ---- U7: the optimizer's state at a task switch ------------------------------------------------------------


KEPT_IN_PART = ("learner=mntdp_s",)  # of what was trained: moments of the whole belong to nothing
OPTIMIZERS = {"adam": {"optimizer": "adam"}, "momentum": {"optimizer": "sgd", "momentum": 0.9}}


@every_learner
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_the_optimizers_state_is_reset_at_a_switch_unless_it_is_to_be_carried(
    overrides: tuple, optimizer: str
) -> None:
    settings = {
        state: training(max_epochs=2, optimizer_state=state, **OPTIMIZERS[optimizer])
        for state in ("reset", "carry")
    }
    sizes: list[int] = []
    reset = learn(maker(*overrides)(), toys.stream(), settings["reset"])
    carry = learn(noting_what_is_trained(maker(*overrides)(), sizes), toys.stream(), settings["carry"])
    assert not reset.engine.moments
    assert any(sizes)
    held = held_bytes(carry.learner, carry.engine.moments)
    assert held.get("optimizer", 0) >= sizes[-1] or overrides[0] in KEPT_IN_PART
    assert torch.equal(reset.weights, carry.weights) == reset.learner.starts_anew


def noting_what_is_trained(learner: Learner, sizes: list[int]) -> Learner:
    """A learner that notes how many bytes of parameters each network has that it adopts."""

    class Notes(type(learner)):  # type: ignore[misc]
        def adopt(self, c, task):
            sizes.append(sum(p.nbytes for p in c.parameters))
            super().adopt(c, task)

    learner.__class__ = Notes
    return learner


# ---- hidden state ------------------------------------------------------------------------------------------


@every_learner_and_variant
def test_it_ends_the_same_when_every_task_starts_in_a_fresh_learner(overrides: tuple) -> None:
    make = maker(*overrides)
    fresh = usually(make, fresh=make)
    assert torch.equal(fresh.weights, learned(*overrides).weights)
    assert fresh.matrix == learned(*overrides).matrix


def nothing_is_hidden(tmp_path: Path, *overrides: str) -> None:
    plain, fresh = (
        run(tmp_path / word, *overrides, f"debug.fresh_learner={word}") for word in ("false", "true")
    )
    assert but_what_may_differ(plain) == but_what_may_differ(fresh)


class Hides(Finetune):
    """Copies images into an attribute that no checkpoint knows, and trains on them."""

    def extend(self, batch):
        return batch.cat(*self.hidden) if hasattr(self, "hidden") else batch

    def on_task_end(self, task):
        self.hidden = [part[:20].clone() for part in task.train.parts]


def test_a_hidden_tensor_is_caught(tmp_path: Path) -> None:
    with pytest.raises(ProtocolError, match=r"Hides keeps self\.hidden\[0\]"):
        nothing_is_hidden(tmp_path, "learner._target_=tests.test_contract.Hides")


# ---- devices that are not at hand --------------------------------------------------------------------------


def stands_for_numbers(tensor: torch.Tensor) -> torch.Tensor:
    """What ``.cpu()``, the one way to look at values in a step, gives on a device without values."""
    if not tensor.is_floating_point():
        return torch.zeros(tensor.shape, dtype=tensor.dtype)
    square = tensor.dim() == 2 and tensor.shape[0] == tensor.shape[1]
    return (
        torch.eye(len(tensor), dtype=tensor.dtype)
        if square
        else -torch.ones(tensor.shape, dtype=tensor.dtype)
    )


def every_hook_runs_on_meta(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Learns a task on the CPU, then takes mini-batches of the next with all tensors on a device where
    nothing is computed: a tensor left on the CPU, or a value looked at in the middle of a step other than by
    ``.cpu()``, raises."""
    s = toys.stream(tasks=2)
    learned = learn(make(), s, training(max_epochs=1), tasks=1)
    learner = learned.learner
    task = s.task(1, past=(s.task(0),) if learner.needs.past_data else ())
    learner.on_task_start(task)
    phases = learner.learn(task)
    phase = next(phases)
    monkeypatch.setattr(torch.Tensor, "cpu", stands_for_numbers)
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: nullcontext())  # which does not know this device
    settings = training(stack=False)
    blocks = Blocks(task.train if phase.train is None else phase.train, (0, "task1", 0), 10, 1, 5, 1)
    run = learner.phase_run = PhaseRun(
        phase, phase.candidates, task, settings, blocks, hooks_of(learner), train_block
    )
    learner.to("meta")
    optimizer = learner.configure_optimizers()
    set_mode(learner, run, training=True)
    for block in blocks:
        for batch in block.to(torch.device("meta")).batches:
            train_batch(learner, run, batch, optimizer)
    assert any(p.grad is not None for c in phase.candidates for p in c.network.parameters())
    set_mode(learner, run, training=False)
    with torch.no_grad():
        for batch in s.task(1).val.batches(10):
            batch = batch.to(torch.device("meta"))
            batch.learning = 1
            batch.lazy = Lazy(partial(learner.shared, replace(batch), phase.candidates))
            assert learner.logits(phase.candidates[0], batch).device.type == "meta"
        told = 0 if learner.needs.task_id_at_test else None
        assert learner(torch.zeros(5, *toys.SHAPE, device="meta"), told).device.type == "meta"


@every_learner
def test_every_hook_runs_on_a_device_that_is_not_the_cpu(
    overrides: tuple, monkeypatch: pytest.MonkeyPatch
) -> None:
    every_hook_runs_on_meta(maker(*overrides), monkeypatch)


class StaysOnTheCpu(Finetune):
    def loss(self, c, batch):
        return super().loss(c, batch) + torch.ones(4).sum() * torch.zeros(1)


class LooksAtValues(Finetune):
    def after_backward(self, c, batch):
        if next(c.network.parameters()).grad.norm().item() > 1:
            c.network.zero_grad()


@pytest.mark.parametrize("cls", ["StaysOnTheCpu", "LooksAtValues"])
def test_a_tensor_left_on_the_cpu_or_looked_at_is_caught(cls: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(LearnerError, match=f"{cls}.*raised (RuntimeError|NotImplementedError)"):
        every_hook_runs_on_meta(maker(f"learner._target_=tests.test_contract.{cls}"), monkeypatch)


# ---- the rest ----------------------------------------------------------------------------------------------


@every_learner
def test_the_engines_hooks_are_not_overridden(overrides: tuple) -> None:
    cls = type(maker(*overrides)())
    assert all(getattr(cls, name) is getattr(Learner, name) for name in FINAL)
