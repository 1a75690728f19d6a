"""What an experiment takes is measured to its end, or told by the display when the budget is used up."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

import cl_lightning.callbacks.progress as progress
import cl_lightning.runs.making as making
from cl_lightning.report.groups import Group
from tests import experiment_times
from tests.commands import SMALL, configure
from tests.pages import to_row
from tests.tables import duration


@pytest.mark.parametrize(("budget", "ends"), [(1000.0, True), (0.0, False)])
def test_a_run_is_measured_to_its_end_or_stopped(
    budget: float, ends: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = [override for override in SMALL if override != "progress=false"]
    cfg = configure(*made, f"outputs={tmp_path}", "selection=none", "reference=true")
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
    of_learning = {"learner": "ewc", "seconds": seconds, "learning": True}
    assert duration(of_learning) == f"ewc: {said} to learn"


def test_seconds_of_learning_are_those_of_finished_runs_with_the_files_own_settings(tmp_path: Path) -> None:
    rows = [
        row("+experiment=ctrl_in", "learner=mntdp_d", "learner.k=5", seconds=1.0),
        row("+experiment=ctrl_in", "learner=finetune", seconds=2.0),
        row("+experiment=ctrl_in", "learner=mntdp_d", "data=real", "seed=0,1", seconds=300.0),
    ]
    (tmp_path / "page.json").write_text(json.dumps(rows))
    found = experiment_times.recorded("ctrl_in", [tmp_path / "page.json"])
    assert found == {"learner": "mntdp_d", "seconds": [300, 300], "learning": True}
    with pytest.raises(SystemExit, match="No finished runs"):
        experiment_times.recorded("ctrl_out", [tmp_path / "page.json"])


def row(*command: str, seconds: float) -> dict:
    """A row of an extract."""
    learner = command[1].partition("=")[2]
    return to_row(Group("ctrl_in", learner, {}, (0,), {"cpu_seconds": [seconds]}, command=command))


def test_what_learners_take_that_grow_is_told_by_the_tasks_after_the_first() -> None:
    """The first of five tasks takes 10 seconds, each later one 50. After the third the run is stopped: 110
    seconds are over, and 100 are left."""
    watch, now = experiment_times.Stopwatch(sizes=[100] * 5), time.process_time()
    watch.on_stream_start("toy", 5, 0)
    watch.begun, watch.budget, watch.least = now - 110, 0.0, 3
    for task, seconds in enumerate((10.0, 50.0, 50.0)):
        watch.task = task
        if task == 2:
            watch.look()  # two are not enough
        watch.pace.learned(task, seconds)
    watch.task, watch.task_began = 3, progress.monotonic()
    with pytest.raises(experiment_times.Enough):
        watch.look()
    low, high = experiment_times.Stopwatch.found
    assert (low + high) / 2 == pytest.approx(210, abs=1)
    watch.on_stream_end()
