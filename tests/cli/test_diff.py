"""What differs between two rows of a report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cl_lightning.cli.report import main
from cl_lightning.metrics.table import metrics_of
from tests.report.whole import task_costs, write_whole_results


def made(folder: Path, accuracy: float, lr: float, seed: int = 0, **more: Any) -> None:
    matrix = [[None], [accuracy]]
    config = {"stream": {"head": "domain"}, "learner": {"_target_": "m.L"}, "trainer": {"lr": lr}, "data": {}}
    write_whole_results(
        folder / f"s{seed}", seed=seed, config=config, costs=[task_costs(0)], accuracy_matrix=matrix,
        metrics=metrics_of(matrix), **more,
    )  # fmt: skip


def test_settings_and_results_that_differ_stand_side_by_side_and_others_do_not(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    for seed, accuracy in enumerate((0.25, 0.75)):
        made(tmp_path / "a", accuracy, 0.1, seed)
    made(tmp_path / "b", 0.625, 0.2, learner="er", version={"package": "2", "source_hash": "x", "torch": "t"})
    assert main(["diff", str(tmp_path / "a"), str(tmp_path / "b"), "--json"]) == 0
    rows = {row["what differs"]: row for row in json.loads(capsys.readouterr().out)}
    assert (rows["trainer.lr"]["first"], rows["trainer.lr"]["second"]) == (0.1, 0.2)
    assert (rows["learner"]["first"], rows["learner"]["second"]) == ("gem", "er")
    assert rows["seeds"]["first"] == "0, 1"
    assert "cl_lightning 2" in rows["code"]["second"]
    acc = rows["ACC"]
    assert (acc["first"], acc["first ±"], acc["second"]) == (0.5, 0.354, 0.625)
    assert acc["difference"] == 0.125
    assert not {"experiment", "stream.head", "CPU s"} & set(rows)
    assert main(["diff", str(tmp_path / "a"), str(tmp_path / "b")]) == 0
    assert "trainer.lr" in capsys.readouterr().out


def test_of_equal_rows_it_is_said_and_what_is_no_pair_of_rows_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    made(tmp_path / "a", 0.5, 0.1)
    made(tmp_path / "b", 0.5, 0.1)
    a, b = str(tmp_path / "a"), str(tmp_path / "b")
    assert main(["diff", a, b]) == 0
    assert capsys.readouterr().out == "Nothing differs that a report knows of.\n"
    assert main(["diff", a]) == 2
    assert "diff compares two folders, and these are 1" in capsys.readouterr().err
    made(tmp_path / "b" / "more", 0.5, 0.3, learner="er")
    assert main(["diff", a, b]) == 2
    assert "runs of 2 rows of a report (gem_rotations er, gem_rotations gem)" in capsys.readouterr().err
