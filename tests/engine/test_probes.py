"""Looks at test data in the middle of a task, and that nothing comes of them."""

from __future__ import annotations

from pathlib import Path
from time import sleep

import pytest

from cl_lightning.evaluation.evaluator import Evaluator
from cl_lightning.store.files import Store
from tests.commands import but_what_may_differ, run, thinned
from tests.dying import killed
from tests.test_resume import FRAGILE

PROBED = (
    "selection=none",
    "trainer.patience=null",
    "trainer.max_epochs=2",
    "trainer.batch_size=10",
    "stream.tasks=3",
)  # 20 mini-batches a task


@pytest.mark.parametrize("learner", ["finetune", "independent", "gem", "er"])
def test_probes_change_nothing_and_the_last_is_the_row_after_the_task(learner: str, tmp_path: Path) -> None:
    options = (*PROBED, f"learner={learner}")
    plain, probed = (
        run(tmp_path / "plain", *options),
        run(tmp_path / "probed", *options, "trainer.probe_every=5"),
    )
    assert plain["probes"] == []
    assert probed["accuracy_matrix"] == plain["accuracy_matrix"]
    assert [(p["task"], p["step"]) for p in probed["probes"]] == [
        (t, s) for t in range(3) for s in (5, 10, 15, 20)
    ]
    for probe in probed["probes"]:
        if probe["step"] == 20:
            assert probe["accuracies"] == plain["accuracy_matrix"][probe["task"] + 1]
    assert len({str(p["accuracies"]) for p in probed["probes"]}) > 6


def test_probes_are_of_the_winner_among_candidates(tmp_path: Path) -> None:
    grid = (
        "selection.grid.lr=[0.0001,0.01]",
        "selection.grid.weight_decay=[0.0]",
        "trainer.patience=null",
        "trainer.max_epochs=2",
    )
    results = run(tmp_path, *grid, "trainer.batch_size=10", "trainer.probe_every=20")
    assert all(s["candidates"] == 2 for s in results["selected"])
    for probe in results["probes"]:
        assert probe["accuracies"] == results["accuracy_matrix"][probe["task"] + 1]


def test_all_candidates_are_probed_where_asked_for_and_the_chosen_one_as_before(
    tmp_path: Path, capsys
) -> None:
    """In shares as together; nothing else changes."""
    grid = (
        "selection.grid.lr=[0.0001,0.01]",
        "selection.grid.weight_decay=[0.0]",
        "trainer.patience=null",
        "trainer.max_epochs=2",
    )
    options = (*grid, "trainer.batch_size=10", "trainer.probe_at=[0,1,2,3,4,5]")
    winner, every = run(tmp_path, *options), run(tmp_path, *options, "trainer.probe=all")
    assert "every probe tests every candidate" in capsys.readouterr().err
    shares = run(tmp_path, *options, "trainer.probe=all", "trainer.candidates_at_once=1")
    chosen = {s["task"]: s["candidate"] for s in every["selected"]}
    of_chosen = [p for p in every["probes"] if p["candidate"] == chosen[p["task"]]]
    assert len(every["probes"]) == 2 * len(winner["probes"]) == 2 * 3 * 6
    assert [p["accuracies"] for p in of_chosen] == [p["accuracies"] for p in winner["probes"]]
    assert {str(p) for p in shares["probes"]} == {str(p) for p in every["probes"]}
    for key in ("accuracy_matrix", "metrics", "selected"):
        assert winner[key] == every[key] == shares[key]
    curves = {p["candidate"]: p["accuracies"] for p in every["probes"] if p["step"] == 5 and p["task"] == 0}
    assert len({str(curve) for curve in curves.values()}) == 2


@pytest.mark.parametrize(
    ("options", "keeps"),
    [
        (("trainer.probe=all",), False),
        (("selection=none",), False),
        ((), True),  # who wins is not known yet, and to test all would take six times as long
    ],
)
def test_weights_are_kept_only_where_nobody_knows_yet_whose_probes_are_asked_for(
    options: tuple, keeps: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names, original = [], Store.save_tensors
    monkeypatch.setattr(Store, "save_tensors", lambda *given: (names.append(given[1]), original(*given))[1])
    results = run(
        tmp_path, *options, "trainer.probe_every=5", "trainer.batch_size=10", "stream.tasks=2",
        "trainer.patience=null", "trainer.max_epochs=2",
    )  # fmt: skip
    kept, candidates = [name for name in names if "/looks/" in name], results["selected"][0]["candidates"]
    assert len(kept) == len(results["probes"]) * candidates * keeps
    assert not list(tmp_path.rglob("looks")), "gone with the task"


def test_checkpoints_hold_no_weights_for_probes(tmp_path: Path) -> None:
    sizes, fault = [], "block:4"
    options = (
        *PROBED[1:],
        "selection.grid.lr=[0.01,0.001]",
        "trainer.block=2",
        "trainer.checkpoint_minutes=0",
    )
    for probed in ((), ("trainer.probe_every=1",)):
        folder = tmp_path / str(len(probed))
        killed(fault, lambda: run(folder, *options, *probed))  # noqa: B023
        (checkpoint,) = folder.rglob("work/inside/*.pt")
        sizes.append(checkpoint.stat().st_size)
    (kept,) = {file.stat().st_size for file in folder.rglob("looks/*.pt")}
    assert abs(sizes[1] - sizes[0]) < kept / 4


def test_seconds_of_probes_are_not_those_of_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = Evaluator.probe
    slow = lambda self, *given: (sleep(0.1), original(self, *given))[1]  # noqa: E731
    monkeypatch.setattr(Evaluator, "probe", slow)
    results = run(tmp_path, *PROBED, "trainer.probe_every=2", "stream.tasks=1")
    assert len(results["probes"]) == 10
    assert results["costs"][0]["seconds"]["train"] < 0.8


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "of"),
    thinned(
        ["block:12", "record written:4", "record written:5", "record written:6", "phase done:2"],
        ["selection=none", "selection.grid.lr=[0.01,0.001]"],
        each=5,
    ),
)
def test_probes_survive_a_kill(fault: str, of: str, tmp_path: Path) -> None:
    options = (*FRAGILE, of, "trainer.probe_every=4")
    killed(fault, lambda: run(tmp_path / "killed", *options))
    resumed, whole = run(tmp_path / "killed", *options), run(tmp_path / "whole", *options)
    assert but_what_may_differ(resumed) == but_what_may_differ(whole)
    assert whole["probes"]


def test_only_seen_tasks_are_probed_where_only_these_are_evaluated(tmp_path: Path) -> None:
    probes = run(tmp_path, *PROBED, "trainer.probe_every=20", "trainer.evaluate=seen")["probes"]
    assert [sum(a is not None for a in p["accuracies"]) for p in probes] == [1, 2, 3]
