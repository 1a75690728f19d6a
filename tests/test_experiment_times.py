"""What an experiment takes is measured to its end, or told by the display when the budget is used up."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import cl_lightning.callbacks.progress as progress
import cl_lightning.runs.making as making
from tests import experiment_times
from tests.commands import SMALL, configure
from tests.tables import duration


@pytest.mark.parametrize(("budget", "ends"), [(1000.0, True), (0.0, False)])
def test_a_run_is_measured_to_its_end_or_stopped(
    budget: float, ends: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = [override for override in SMALL if override != "progress=false"]
    cfg = configure(*made, f"outputs={tmp_path}", "selection=none")
    monkeypatch.setattr(experiment_times, "compose_config", lambda *_: cfg)
    monkeypatch.setattr(progress, "monotonic", time.process_time)
    monkeypatch.setattr(progress, "BEGUN", 0.0)
    monkeypatch.setattr(making, "ProgressDisplay", experiment_times.Stopwatch)
    found = experiment_times.measured("small", budget)
    assert bool(list(tmp_path.rglob("results.json"))) == ends
    assert found["learner"] == "finetune"
    low, high = experiment_times.Stopwatch.found
    assert 0 < low <= high
    assert (low == high) == ends


@pytest.mark.parametrize(
    ("seconds", "said"), [([7, 7], "0.1 min"), ([90, 300], "1.5 to 5.0 min"), ([590, 1200], "9.8 to 20 min")]
)
def test_minutes_are_one_number_where_a_run_came_to_its_end(seconds: list[int], said: str) -> None:
    assert duration({"learner": "ewc", "seconds": seconds}) == f"ewc: {said}"
