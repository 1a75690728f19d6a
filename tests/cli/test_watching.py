"""The lines of a sweep while its jobs run."""

from __future__ import annotations

from pathlib import Path

import pytest

from cl_lightning.cli.watching import Watch
from cl_lightning.store.status import Status, write_status
from tests.golden import new_console, printed


def test_elsewhere_a_line_a_minute_says_how_many_jobs_ended_and_where_the_others_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, runs = [100.0], tmp_path / "run"
    monkeypatch.setattr("cl_lightning.cli.watching.monotonic", lambda: now[0])
    jobs: list[dict] = [{"done": True}, {"folder": str(runs)}, {}]
    monkeypatch.setattr("cl_lightning.cli.watching.read_job", lambda folder, number: jobs[number])
    runs.mkdir()
    write_status(runs, Status("running", 2, 5))
    watch = Watch(tmp_path, [[f"seed={seed}"] for seed in range(3)], 0)
    watch.console = new_console(120)
    for _ in range(61):
        now[0] += 1
        watch.look()
    first, second = printed(watch.console).splitlines()
    # One job took so far m seconds, 1 and 61. Two more take 2 m, more or less m / 2 * sqrt(2 + 2 * 2).
    assert first == "job 1 of 3 (seed=0) done, 0:00 to 0:03 left"
    assert second == "1 of 3 jobs ended, 0:47 to 3:16 left; seed=1: 2 of 5 tasks"
