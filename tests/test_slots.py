"""``hydra/launcher=devices``: one job a device at a time, whichever sweep it is of."""

from __future__ import annotations

import json
import multiprocessing
import os
import time
from itertools import pairwise
from pathlib import Path

import pytest

from cl_lightning.cli import slots
from cl_lightning.errors import Refusal
from tests.commands import SMALL, command


def worker(folder: Path, number: int, jobs: int) -> None:
    """Jobs of one worker: each notes when it began and ended, and on which device."""

    def job(cfg: int) -> None:
        began = time.monotonic()
        time.sleep(0.05)
        said = [os.environ["CUDA_VISIBLE_DEVICES"], began, time.monotonic()]
        (folder / f"{number}-{cfg}.json").write_text(json.dumps(said))

    run = slots.OnOneDevice(job, ["0", "1"])
    for i in range(jobs):
        run(i)


def test_a_worker_keeps_its_device_and_no_two_share_one(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.delenv(slots.HELD, raising=False)
    fork = multiprocessing.get_context("fork")
    workers = [fork.Process(target=worker, args=(tmp_path, number, 2)) for number in range(4)]
    for process in workers:
        process.start()
    for process in workers:
        process.join(60)
        assert process.exitcode == 0
    spans: dict[str, list[tuple[float, float]]] = {}
    for number in range(4):
        said = [json.loads((tmp_path / f"{number}-{i}.json").read_text()) for i in range(2)]
        assert len({device for device, *_ in said}) == 1
        spans.setdefault(said[0][0], []).append((said[0][1], said[1][2]))
    assert set(spans) == {"0", "1"}
    for held in spans.values():
        held.sort()
        assert all(end <= begin for (_, end), (begin, _) in pairwise(held))


def test_devices_are_those_that_are_visible_and_no_more_than_there_are(monkeypatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,5")
    assert slots.slots("auto") == ["2", "5"]
    assert slots.slots(1) == ["2"]
    with pytest.raises(Refusal, match=r"hydra\.launcher\.devices=3, but there are 2: 2, 5"):
        slots.slots(3)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert (slots.slots("auto"), slots.slots(3)) == (["cpu0"], ["cpu0", "cpu1", "cpu2"])
    with pytest.raises(Refusal, match="no number of devices"):
        slots.slots("all")


def test_devices_that_were_hidden_stay_hidden(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv(slots.HELD, "")
    assert slots.take(slots.slots("auto")) == "cpu0"
    assert os.environ["CUDA_VISIBLE_DEVICES"] == ""
    slots._locks.pop().release()


def test_all_users_of_a_machine_can_hold_its_devices(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv(slots.HELD, "")
    slots.take(["cpu0"])
    slots._locks.pop().release()
    assert (tmp_path / "cl_lightning-devices").stat().st_mode & 0o777 == 0o777
    assert (tmp_path / "cl_lightning-devices" / "cpu0.lock").stat().st_mode & 0o666 == 0o666


@pytest.mark.all
@pytest.mark.slow
def test_a_sweep_runs_its_jobs_on_devices(tmp_path: Path) -> None:
    env = {**os.environ, "TMPDIR": str(tmp_path), "LOKY_MAX_CPU_COUNT": "2"}
    launcher = ("hydra/launcher=devices", "hydra.launcher.devices=2")
    command("-m", *SMALL, "seed=0,1,2", *launcher, f"outputs={tmp_path}", cwd=tmp_path, env=env)
    assert len(list(tmp_path.rglob("results.json"))) == 3
    assert {path.stem for path in (tmp_path / "cl_lightning-devices").iterdir()} <= {"cpu0", "cpu1"}
