"""What every learner promises, by the checks of ``python -m cl_lightning.contract``. One that lies beside the
others in ``conf/learner`` is held to it without further ado.

A learner with its default settings is held to all of them, a variant of it to two: the same bits whatever the
test data, a fresh learner for every task. That kills change nothing is also seen in ``test_cuts.py``.
``pytest`` tries each learner with several of them and each with many learners, ``pytest -m all`` every pair.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from hydra.utils import get_class

from cl_lightning.config.build import build_learner
from cl_lightning.config.resolvers import conf_dir
from cl_lightning.contract import checks
from cl_lightning.contract.checks import CHECKS, Case
from cl_lightning.learners import Finetune, Learner
from cl_lightning.learners.parts.class_rules import FINAL
from cl_lightning.metrics.costs import held_bytes
from tests import toys
from tests.commands import configure, thinned
from tests.toys import learn, training

LEARNERS = Path(conf_dir()) / "learner"
NAMES = sorted(path.stem for path in LEARNERS.glob("*.yaml"))
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


def named_by(name: str) -> tuple[str, ...]:
    """What the class of a learner names for these checks."""
    content = yaml.safe_load((LEARNERS / f"{name}.yaml").read_text())
    if "_target_" not in content:
        return named_by(content["defaults"][0])
    return get_class(content["_target_"]).contract


DEFAULTS = [(f"learner={name}", *named_by(name)) for name in NAMES]


def maker(*overrides: str) -> Callable[..., Learner]:
    """A function that makes the learner of a configuration anew, with other keys of its own."""

    def make(**keys: Any) -> Learner:
        more = (f"learner.{key}={value}" for key, value in keys.items())
        cfg = configure("backbone.sizes=[16]", "selection=none", *overrides, *more)
        return build_learner(cfg, toys.stream())

    return make


@cache
def case(*overrides: str) -> Case:
    """With early stopping; with mini-batches in their order for a learner that asks for them."""
    make = maker(*overrides)
    if getattr(make(), "policy", None) == "single_pass":
        return Case(make, toys.stream(n_val=0), training(single_pass=True))
    return Case(make, toys.stream(), training(patience=10))


def name_of(overrides: tuple[str, ...]) -> str:
    return ",".join(overrides).replace("learner=", "").replace("learner.", "")


def cases(of_defaults: list[tuple[str, ...]], variants: list[tuple[str, ...]] = []) -> list[Any]:  # noqa: B006
    return [
        pytest.param(case, id=name_of(case), marks=pytest.mark.all if case in variants else [])
        for case in [*of_defaults, *variants]
    ]


every_learner = pytest.mark.parametrize("overrides", cases(DEFAULTS))
every_learner_and_variant = pytest.mark.parametrize("overrides", cases(DEFAULTS, VARIANTS))


# ---- the checks of the command -----------------------------------------------------------------------------


@every_learner_and_variant
def test_the_same_seed_gives_the_same_bits_whatever_the_test_data_and_global_generators(
    overrides: tuple,
) -> None:
    checks.same_bits(case(*overrides))


@every_learner_and_variant
def test_it_ends_the_same_when_every_task_starts_in_a_fresh_learner(overrides: tuple) -> None:
    checks.nothing_hidden(case(*overrides))


OF_DEFAULTS = [check for check in CHECKS.values() if check not in (checks.same_bits, checks.nothing_hidden)]
SLOW = (checks.kills, checks.company, checks.auxiliary)  # of some learners, unless all is asked for
SOME = [(f"learner={name}",) for name in ("finetune", "er", "ewc", "hat", "mntdp_d")]


def of_defaults() -> list[Any]:
    return [
        pytest.param(each, check, id=f"{check.__name__}-{name_of(each)}",
                     marks=[] if tried(check, i + j, each) else pytest.mark.all)
        for j, check in enumerate(OF_DEFAULTS) for i, each in enumerate(DEFAULTS)
    ]  # fmt: skip


def tried(check: Callable, place: int, each: tuple[str, ...]) -> bool:
    return each in SOME if check in SLOW else place % 2 == 0


@pytest.mark.parametrize(("overrides", "check"), of_defaults())
def test_it_keeps_what_every_learner_promises(overrides: tuple, check: Callable[[Case], None]) -> None:
    check(case(*overrides))


def test_some_learners_have_settings_without_strength() -> None:
    assert {name for name in NAMES if maker(f"learner={name}")().without_strength} >= {"ewc", "er"}


# ---- U1: draws between phases -----------------------------------------------------------------------------


class DrawsByNumpyAndPython(Finetune):
    def on_task_end(self, task):
        rows = np.random.permutation(len(task.train))[: random.randrange(1, 20)]  # noqa: NPY002
        self.memory["replayed"] = [part[rows].clone() for part in task.train.parts]

    def extend(self, batch):
        return batch.cat(*self.memory["replayed"]) if self.memory else batch


def test_draws_by_numpy_and_python_between_phases_are_seeded_and_leave_no_trace() -> None:
    one = case("learner._target_=tests.test_contract.DrawsByNumpyAndPython")
    np.random.seed(1)  # noqa: NPY002
    random.seed(1)
    learn(one.make(), one.stream, one.settings)
    assert np.random.rand() == np.random.RandomState(1).rand()  # noqa: NPY002
    assert random.random() == random.Random(1).random()
    checks.same_bits(one)


# ---- U3: past data are not there ---------------------------------------------------------------------------


@every_learner
def test_only_learners_that_declare_it_are_lent_past_tasks(overrides: tuple) -> None:
    one = case(*overrides).base
    assert one.lent == ([0, 1, 2] if one.learner.needs.past_data else [0, 0, 0])


# ---- U7: the optimizer's state at a task switch ------------------------------------------------------------


KEPT_IN_PART = ("learner=mntdp_s",)  # of what was trained: moments of the whole belong to nothing
OPTIMIZERS = {"adam": {"optimizer": "adam"}, "momentum": {"optimizer": "sgd", "momentum": 0.9}}


@pytest.mark.parametrize(("overrides", "optimizer"), thinned(DEFAULTS, [*OPTIMIZERS], each=4))
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


# ---- the rest ----------------------------------------------------------------------------------------------


@every_learner
def test_the_engines_hooks_are_not_overridden(overrides: tuple) -> None:
    cls = type(maker(*overrides)())
    assert all(getattr(cls, name) is getattr(Learner, name) for name in FINAL)
