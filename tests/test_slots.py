"""``hydra/launcher=devices``: one job a device at a time, whichever sweep it is of."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest
from filelock import FileLock

from cl_lightning.errors import Refusal
from cl_lightning.parallel import slots
from tests.commands import SMALL, command
from tests.soak import at_work


@pytest.fixture(autouse=True)
def own_locks(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)


def noted(name: Path) -> None:
    """A job that notes when it began and ended, and on which device."""
    began = time.monotonic()
    time.sleep(0.05)
    name.write_text(json.dumps([os.environ["CUDA_VISIBLE_DEVICES"], began, time.monotonic()]))


def worker(run: slots.OnOneDevice, jobs: list[Path]) -> None:
    for name in jobs:
        run(name)


def test_a_worker_keeps_its_device_and_no_two_share_one(tmp_path: Path) -> None:
    fork, run = multiprocessing.get_context("fork"), slots.OnOneDevice(noted, ["0", "1"])
    jobs = [[tmp_path / f"{number}-{i}.json" for i in range(2)] for number in range(4)]
    workers = [fork.Process(target=worker, args=(run, own)) for own in jobs]
    for process in workers:
        process.start()
    for process in workers:
        process.join(60)
        assert process.exitcode == 0
    spans: dict[str, list[tuple[float, float]]] = {}
    for number in range(4):
        said = [json.loads(name.read_text()) for name in jobs[number]]
        assert len({device for device, *_ in said}) == 1
        spans.setdefault(said[0][0], []).append((said[0][1], said[1][2]))
    assert set(spans) == {"0", "1"}
    for held in spans.values():
        held.sort()
        assert all(end <= begin for (_, end), (begin, _) in pairwise(held))


def test_devices_are_those_that_are_visible_and_no_more_than_there_are(monkeypatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,5")
    assert slots.slots("auto") == (["2", "5"], 2)
    assert slots.slots(1) == (["2", "5"], 1), "whichever of them is free"
    with pytest.raises(Refusal, match=r"hydra\.launcher\.devices=3, but there are 2: 2, 5"):
        slots.slots(3)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert slots.slots("auto") == (["cpu0"], 1)
    assert slots.slots(3) == (["cpu0", "cpu1", "cpu2"], 3)
    with pytest.raises(Refusal, match="no number of devices"):
        slots.slots("all")


def test_devices_that_were_hidden_stay_hidden(monkeypatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with slots.device_lock(slots.slots("auto")[0]) as device:
        assert (device, os.environ["CUDA_VISIBLE_DEVICES"]) == ("cpu0", "")


@pytest.mark.parametrize("visible", ["3,4", None])
def test_where_one_worker_is_enough_the_process_of_the_sweep_gives_its_device_back(
    visible: str | None, monkeypatch
) -> None:
    """Joblib runs the jobs of one worker in that process."""
    if visible:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    else:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    run = slots.OnOneDevice(lambda cfg: os.environ["CUDA_VISIBLE_DEVICES"], ["3", "4"])
    assert run(0) == "3"
    assert os.environ.get("CUDA_VISIBLE_DEVICES") == visible
    another = slots.device_lock(["3"])  # by another sweep, between two jobs
    another.__enter__()
    monkeypatch.setattr(slots, "sleep", lambda seconds: another.__exit__(None, None, None))
    assert run(1) == "3", "CUDA stays on the device that it found first"


def test_who_waits_says_which_processes_hold_the_devices(capsys, monkeypatch) -> None:
    holding = slots.device_lock(["0"])
    holding.__enter__()
    monkeypatch.setattr(slots, "sleep", lambda seconds: holding.__exit__(None, None, None))
    with slots.device_lock(["0"]):
        assert f"other sweeps hold 0 (process {os.getpid()})" in capsys.readouterr().err


def test_workers_of_a_sweep_that_was_killed_end_and_leave_their_devices(tmp_path: Path) -> None:
    fork, begun = multiprocessing.get_context("fork"), tmp_path / "begun"

    def job(cfg: int) -> None:
        begun.write_text(str(os.getpid()))
        time.sleep(60)

    def sweep() -> None:
        fork.Process(target=slots.OfOneSweep(slots.OnOneDevice(job, ["0"])), args=(0,)).start()
        time.sleep(60)

    killed = fork.Process(target=sweep)
    killed.start()
    while not (begun.exists() and begun.read_text()):
        time.sleep(0.01)
    killed.kill()
    killed.join()
    with FileLock(slots.folder_of_locks() / "0.lock").acquire(timeout=30):  # or Timeout is raised
        pass


def test_jobs_of_slurm_on_one_machine_do_not_wait_for_each_other(monkeypatch) -> None:
    """Each sees its own GPU as number 0."""
    monkeypatch.setattr(slots, "sleep", lambda seconds: pytest.fail("it waits"))
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    with slots.device_lock(["0"]):
        monkeypatch.setenv("SLURM_JOB_ID", "8")
        with slots.device_lock(["0"]):
            pass


def test_all_users_of_a_machine_can_hold_its_devices(tmp_path: Path) -> None:
    with slots.device_lock(["cpu0"]):
        pass
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


@pytest.mark.all
@pytest.mark.slow
def test_a_sweep_that_was_killed_leaves_its_devices_to_the_same_command(tmp_path: Path) -> None:
    env = {**os.environ, "TMPDIR": str(tmp_path), "LOKY_MAX_CPU_COUNT": "2"}
    launcher = ("hydra/launcher=devices", "hydra.launcher.devices=2")
    options = ["-m", *SMALL, "seed=0,1", "trainer.max_epochs=100", *launcher, f"outputs={tmp_path / 'runs'}"]
    sweep = subprocess.Popen([sys.executable, "-m", "cl_lightning", *options], env=env, cwd=tmp_path)
    while len(at_work(tmp_path / "runs")) < 2:
        time.sleep(0.05)
    sweep.kill()
    sweep.wait()
    command(*options, cwd=tmp_path, env=env, timeout=300)
    assert len(list(tmp_path.rglob("results.json"))) == 2
