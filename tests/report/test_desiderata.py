"""Experiments x desiderata: what is decided from what happened in runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cl_lightning.cli.report import main
from cl_lightning.report.desiderata import card_table, challenges, largest_change, largest_overlap
from cl_lightning.report.reading import runs_in
from tests.commands import run


def task(classes: str, source: str = "mnist", **more: Any) -> dict:
    return {"source": source, "classes": list(classes), "head": {"mode": "single"}, **more}


def a_run(*tasks: dict, held: tuple[int, ...] = (), **trainer: Any) -> dict:
    costs = [
        {"held": {"x": n}, "seconds": {"train": 2.0 + i}} for i, n in enumerate(held or [10] * len(tasks))
    ]
    settings = {"single_pass": False, "max_steps": None, **trainer}
    return {"stream": {"tasks": [*tasks]}, "costs": costs, "config": {"trainer": settings}}


def verdicts(run: dict) -> dict[str, str]:
    return {each.rule: each.verdict for each in challenges(run)}


def test_the_change_between_neighbours_is_their_total_variation_by_hand() -> None:
    assert largest_change(a_run(task("01"), task("23"))) == 1
    assert largest_change(a_run(task("012"), task("234"))) == pytest.approx(2 / 3)
    assert largest_change(a_run(task("01"), task("01", "svhn"))) == 1
    smooth = [task("0", mixture=[1.0, 0.0]), task("01", mixture=[0.7, 0.3]), task("01", mixture=[0.5, 0.5])]
    assert largest_change(a_run(*smooth)) == pytest.approx(0.3)


def test_where_the_classes_stay_it_is_not_their_mixture_that_changes() -> None:
    assert largest_change(a_run(task("01"), task("01"), task("23"))) is None
    assert verdicts(a_run(task("01"), task("01")))["continuous tasks"] == "unknown"


def test_the_overlap_is_the_share_of_common_classes_of_any_two_tasks() -> None:
    assert largest_overlap([task("01"), task("23")]) == 0
    assert largest_overlap([task("012"), task("34"), task("234")]) == pytest.approx(2 / 3)
    assert largest_overlap([task("01"), task("01")]) == 1
    assert largest_overlap([task("01"), task("01", "svhn")]) == 0


def test_time_and_memory_and_length_are_judged_by_limits_and_growth() -> None:
    few, many = [task("01"), task("23"), task("45")], [task("01"), task("23")] * 10
    assert verdicts(a_run(*few))["long sequence"] == "violated"
    assert verdicts(a_run(*many))["long sequence"] == "satisfied"
    assert verdicts(a_run(*few, held=(10, 100, 101)))["memory limit"] == "satisfied"
    assert verdicts(a_run(*few, held=(100, 100, 102)))["memory limit"] == "violated"
    kinds = ({}, {"max_steps": 9}, {"single_pass": True})
    limits = [verdicts(a_run(*few, **kind))["time limit"] for kind in kinds]
    assert limits == ["violated", "satisfied", "satisfied"]
    assert "4 s a task" in [each.evidence for each in challenges(a_run(*few))], "of the longest one"


def test_experiments_are_rows_and_heads_and_learners_are_told_apart(tmp_path: Path, capsys: Any) -> None:
    common = ("selection=none", "learner=finetune")
    run(tmp_path, *common, "stream.head=single")
    run(tmp_path, *common, "stream.head=single", "seed=1")
    run(tmp_path, *common, "stream.head=multi_test")
    heads, rows = card_table(runs_in([tmp_path]).results)
    table = {row[1]: dict(zip(heads, row)) for row in rows}
    assert len(rows) == 2
    assert table["single"]["one head"] == "yes"
    assert table["multi_test"]["one head"] == table["multi_test"]["no label"] == "no"
    assert table["single"]["no boundaries told"] == "no (told)"
    assert table["single"]["no retraining"] == "yes"
    assert main(["card", str(tmp_path), "--markdown"]) == 0
    assert "| experiment | head | learner | tasks resemble | one head |" in capsys.readouterr().out
    assert main(["card", str(tmp_path / "quickstart" / "none")]) == 2
