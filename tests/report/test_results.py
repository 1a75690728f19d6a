"""results.json is made of records, of finished runs and of others."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from cl_lightning.cli.report import main as report
from cl_lightning.errors import Refusal
from cl_lightning.learners import Finetune, ModulePaths
from cl_lightning.report.results import results_of, validation_of
from cl_lightning.report.schema import schema
from cl_lightning.store.folder import open_store
from cl_lightning.store.records import ValidationRecord
from tests.commands import run
from tests.dying import killed


def test_of_an_unfinished_run_results_are_what_is_known_and_null(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    whole = run(tmp_path / "whole")
    killed("test:3", lambda: run(tmp_path / "cut"))  # before the test after two of three tasks
    folder = next(tmp_path.glob("cut/*/*/*"))
    so_far = results_of(*open_store(folder))
    jsonschema.validate(so_far, schema())
    assert (so_far["finished"], whole["finished"]) == (False, True)
    assert so_far["accuracy_matrix"] == [*whole["accuracy_matrix"][:2], [None] * 3, [None] * 3]
    assert so_far["metrics"]["average_accuracy"] is None
    assert [s["task"] for s in so_far["selected"]] == [0, 1]
    assert [cost["task"] for cost in so_far["costs"]] == [0]
    assert so_far["stream"] == whole["stream"]
    assert not (folder / "results.json").exists()
    capsys.readouterr()
    assert report([str(tmp_path)]) == 0
    assert (
        "Not finished, and not above: quickstart finetune (seed 0), 1 of 3 tasks learned."
        in capsys.readouterr().out
    )
    assert report([str(tmp_path), "--results"]) == 0
    assert str(folder / "results.json") in capsys.readouterr().out
    assert json.loads((folder / "results.json").read_text())["finished"] is False
    again = run(tmp_path / "cut")
    assert again["accuracy_matrix"] == whole["accuracy_matrix"], (
        "written results of an unfinished run keep nobody from going on"
    )


def test_a_value_of_the_trainers_that_was_not_used_is_not_in_the_results(tmp_path: Path) -> None:
    keys = ("lr", "momentum", "weight_decay")
    for overrides, told in {
        ("selection.grid.lr=[0.01,0.02]",): ["grid", 0.0, "grid"],
        ("trainer.lr=0.03",): [0.03, 0.0, "grid"],
        ("selection=none",): [0.001, 0.0, 0.0],
    }.items():
        results = run(tmp_path, "stream.tasks=1", "trainer.max_epochs=1", *overrides)
        assert [results["config"]["trainer"][key] for key in keys] == told
        trained = {key: {s["hparams"].get(key) for s in results["selected"]} for key in keys}
        assert all((value == "grid") == (trained[key] != {None}) for key, value in zip(keys, told))


def test_a_run_that_has_only_begun_has_results(tmp_path: Path) -> None:
    killed("test:1", lambda: run(tmp_path))
    results = results_of(*open_store(next(tmp_path.glob("*/*/*"))))
    jsonschema.validate(results, schema())
    assert (results["card"], results["costs"], results["finished"]) == ([], [], False)


def test_the_schemas_are_printed(capsys: pytest.CaptureFixture) -> None:
    for arguments, of in ((["--schema"], "results"), (["--schema", "sweep"], "sweep")):
        assert report(arguments) == 0
        assert json.loads(capsys.readouterr().out) == schema(of)


class Tells(Finetune):
    """Says what it is told to say."""

    says: dict = {}

    def account(self):
        return self.says


@pytest.mark.parametrize(
    "note",
    [
        {"path": "of a hero"},
        {"path": [1, 2], "reused": 1, "sources": []},
        pytest.param({"path": None}, marks=pytest.mark.all),
    ],
)
def test_notes_of_ones_own_may_have_any_name_and_are_no_paths_of_modules(
    note: dict, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setattr(Tells, "says", note)
    results = run(
        tmp_path, "learner._target_=tests.report.test_results.Tells", "figures=true", "stream.tasks=2"
    )
    assert results["notes"] == [note] * 2
    assert {path.stem for path in next(tmp_path.glob("*/*/*/figures")).iterdir()} == {"over_tasks"}
    assert report([str(tmp_path)]) == 0


class TellsPaths(Tells):
    def account(self):
        return ModulePaths(path=[0, 1], reused=1, sources=[0])


def test_any_learner_may_tell_its_paths_of_modules(tmp_path: Path) -> None:
    results = run(
        tmp_path, "learner._target_=tests.report.test_results.TellsPaths", "figures=true", "stream.tasks=2"
    )
    assert results["notes"][1] == {
        "kind": "module_paths",
        "path": [0, 1],
        "reused": 1,
        "sources": [0],
        "scores": [],
        "prefixes": {},
    }
    assert {path.stem for path in next(tmp_path.glob("*/*/*/figures")).iterdir()} == {"over_tasks", "paths"}


@pytest.mark.parametrize(
    ("note", "says"),
    [
        ({"kind": "module_paths"}, "the name 'kind'"),
        ({"x": float("nan")}, "cannot hold"),
        ({"x": object()}, "cannot hold"),
    ],
)
def test_notes_that_results_cannot_hold_are_refused(
    note: dict, says: str, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setattr(Tells, "says", note)
    with pytest.raises(Refusal, match=rf"Tells\.account gave .*{says}"):
        run(tmp_path, "learner._target_=tests.report.test_results.Tells")


def test_what_is_trained_for_a_test_is_a_part_of_what_a_task_costs(tmp_path: Path) -> None:
    """Copies learn 30 examples twice before each test: forward, and backward but for the pixels."""
    options = ("selection=none", "trainer.patience=null", "stream.n_val=0")
    plain = run(tmp_path, *options)
    tested = run(tmp_path, *options, "learner._target_=tests.toys.Coreset", "learner.name=coreset")
    first, head = 2 * 784 * 16, 2 * 16 * 10  # operations of a layer on one example
    copies = 30 * 2 * (2 * first + 3 * head)
    for one, other in zip(plain["costs"], tested["costs"]):
        assert other["flops"] - one["flops"] == copies
        assert other["flops_executed"] - one["flops_executed"] == copies


@pytest.mark.parametrize(
    ("accuracies", "mean"),
    [([0.5, None, 0.25], 0.375), ([None, 0.0, 0.5], 0.25), ([None, 0.75], 0.75), ([None, None], None)],
)
def test_a_task_without_validation_examples_is_no_part_of_their_mean(accuracies: list, mean) -> None:
    """It does not count as 0, and a task of which nothing is right does."""
    assert validation_of(ValidationRecord(accuracies)) == {"accuracies": accuracies, "mean": mean}
