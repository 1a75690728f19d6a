"""However a run is cut up, its results are equal: killed, in shares, on ranks, in rounds of jobs, in a fresh
learner for each task, as a branch.

Each kind of learner is tried with the cuts that could hurt it most, learners that lie in ``conf/learner``
without further ado with kills; all pairs are tried by ``pytest -m all``.
"""

from __future__ import annotations

import random
import shutil
import signal
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from cl_lightning.cli.command import main
from tests.commands import SMALL, but_what_may_differ, configure, folder_of, made, results_in, run
from tests.dying import dying, in_a_child
from tests.ranks import on_ranks
from tests.test_contract import DEFAULTS, VARIANTS, name_of
from tests.test_resume import FRAGILE

# Four candidates, dropout, small blocks: there is something to lose.
SAVED = "trainer.checkpoint_minutes=0"  # after each block
BASE = (
    *(option for option in FRAGILE if option != SAVED),
    "selection.grid.lr=[0.001,0.01]",
    "selection.grid.weight_decay=[0.0,0.001]",
)
ONE = "selection=none"


# ---- the cuts ----------------------------------------------------------------------------------------------


def killed_on_and_on(outputs: Path, *options: str) -> dict[str, Any]:
    """A kill inside the first task, one between tasks, and then one in each seventh block that is left."""

    def ends(fault: str) -> bool:
        code = in_a_child(lambda: dying(fault, lambda: run(outputs, *options, SAVED)))
        assert code in (0, -signal.SIGKILL)
        return code == 0

    assert not ends("block:7")
    assert not ends("test:1")
    kills = 0
    while not ends("block:7"):
        kills += 1
        assert kills < 60, "no progress is made between kills"
    return run(outputs, *options)


def in_shares(outputs: Path, *options: str) -> dict[str, Any]:
    return run(outputs, *options, "trainer.candidates_at_once=1")


def in_fresh_learners(outputs: Path, *options: str) -> dict[str, Any]:
    return run(outputs, *options, "debug.fresh_learner=true")


def on_two_ranks(outputs: Path, *options: str, count: int = 2) -> dict[str, Any]:
    assert on_ranks(count, outputs, *options) == [0] * count
    return results_in(outputs)


def on_five_ranks(outputs: Path, *options: str) -> dict[str, Any]:
    return on_two_ranks(outputs, *options, count=5)


def in_rounds(outputs: Path, *options: str) -> dict[str, Any]:
    cut = ("hydra/sweeper=cl_task_level", "trainer.candidates_at_once=2", f"outputs={outputs}")
    assert main([*SMALL, *options, *cut]) == 0
    found = results_in(outputs)
    assert main(found["command"]) == 0
    assert results_in(outputs) == found, "the run's own command shows it, and makes no other"
    return found


def killed_in_rounds(outputs: Path, *options: str) -> dict[str, Any]:
    for fault in ("block:9", "phase done:1"):
        in_a_child(lambda fault=fault: dying(fault, lambda: in_rounds(outputs, *options, SAVED)))
    return in_rounds(outputs, *options)


def branched(outputs: Path, *options: str) -> dict[str, Any]:
    """From the first task of the run that was not cut."""
    shutil.copytree(made(*options)[0], outputs, dirs_exist_ok=True)
    old = folder_of(configure(f"outputs={outputs}", *SMALL, *options))
    return run(outputs, *options, f"run={old}", "from_task=1")


CUTS = (
    killed_on_and_on, in_shares, in_fresh_learners, on_two_ranks, on_five_ranks, in_rounds, killed_in_rounds,
    branched,
)  # fmt: skip


def comparable(results: dict[str, Any], cut: Callable) -> dict[str, Any]:
    kept = but_what_may_differ(results)
    if cut is branched:  # which is another run, and says so
        kept = {key: value for key, value in kept.items() if key not in ("config", "fingerprint", "run")}
    return kept


# ---- the kinds ---------------------------------------------------------------------------------------------

# What there is to lose or to mix up, and the cuts that are tried by ``pytest``.
KINDS: dict[str, tuple[tuple[str, ...], tuple[Callable, ...]]] = {
    "a network": ((), (killed_on_and_on, killed_in_rounds, branched)),
    "candidates that stop at other steps": (
        ("trainer.patience=8", "trainer.max_epochs=6", "stream.tasks=3"), (on_two_ranks, in_shares),
    ),
    "fewer candidates than processes": (("~selection.grid.weight_decay",), (on_five_ranks,)),
    "one candidate": (("learner=gem", ONE), (on_two_ranks, in_rounds)),
    "a stack": (("backbone.sizes=[64]", "backbone.dropout=0.0"), (killed_on_and_on,)),
    "a memory": (("learner=er",), (killed_on_and_on, on_two_ranks)),
    "what was measured": (("learner=ewc",), (killed_on_and_on,)),
    "a strength to choose, and carried moments": (
        ("learner=ewc", "~selection.grid.weight_decay", "+selection.grid.strength=[0.0,100.0]",
         "trainer.optimizer_state=carry"),
        (on_two_ranks, killed_on_and_on, in_fresh_learners),
    ),
    "a network that grows, by a search between phases": (
        ("learner=mntdp_d", "stream.tasks=3"), (killed_on_and_on, on_two_ranks, in_rounds),
    ),
    "data of all tasks": (("learner=joint",), (on_two_ranks,)),
    "predictors that are trained": (
        ("learner._target_=tests.toys.TwoCopies", "learner.name=copies", "trainer.patience=null",
         "trainer.optimizer_state=carry"),
        (killed_on_and_on, on_two_ranks, in_rounds),
    ),
    "weights in bf16": (("learner=ewc", "trainer.precision=bf16-mixed"), (killed_on_and_on,)),
    "probes of all candidates, and a reference": (
        ("trainer.probe=all", "trainer.probe_at=[0,3]", "reference=true", "stream.head=multi_train_test"),
        (on_two_ranks, in_rounds),
    ),
    "what no tensor holds": (
        ("learner._target_=tests.test_resume.FreezesAtTheEnd", "learner.name=freezes"),
        (in_fresh_learners, killed_on_and_on),
    ),
}  # fmt: skip
LEARNERS = [*DEFAULTS, *VARIANTS]
DRAWN = random.Random("kills").sample(LEARNERS, 2)
ASKED = {  # what settings of learners ask of a run
    "learner.policy=single_pass": (
        "trainer.single_pass=true", "trainer.max_epochs=1", "trainer.patience=null", "stream.n_val=0",
        "selection.grid.lr=[0.01]", "selection.grid.weight_decay=[0.0]",
    ),
    "backbone.heads=per_task": ("stream.head=multi_train_test",),
}  # fmt: skip


def pairs() -> list[Any]:
    of_kinds = [
        pytest.param(
            options, cut, id=f"{kind}, {cut.__name__}", marks=[] if cut in tried else pytest.mark.all
        )
        for kind, (options, tried) in KINDS.items()
        for cut in CUTS
    ]
    of_learners = [
        pytest.param(
            ("stream.head=multi_test", *learner, *(one for word in learner for one in ASKED.get(word, ()))),
            killed_on_and_on,
            id=name_of(learner),
            marks=[] if learner in DRAWN else pytest.mark.all,
        )
        for learner in LEARNERS
    ]
    return [*of_kinds, *of_learners]


@pytest.mark.slow
@pytest.mark.parametrize(("options", "cut"), pairs())
def test_however_a_run_is_cut_up_its_results_are_equal(
    options: tuple[str, ...], cut: Callable, tmp_path: Path
) -> None:
    options = (*BASE, *options)
    if ONE in options:
        options = tuple(option for option in options if not option.startswith("selection.grid"))
    whole = deepcopy(made(*options)[1])
    assert comparable(cut(tmp_path, *options), cut) == comparable(whole, cut)
    assert not list(tmp_path.rglob("work"))
