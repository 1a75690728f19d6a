"""What jobs of a sweep say, what becomes of those that are killed, and what a sweep's folder is for."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from filelock import FileLock
from hydra.core.utils import JobReturn, JobStatus
from omegaconf import OmegaConf

from cl_lightning.cli.command import main
from cl_lightning.cli.jobs import new_sweep
from cl_lightning.cli.launching import WatchedLauncher
from cl_lightning.cli.report import main as report
from cl_lightning.cli.slurm import followed, leave, refuse_left
from cl_lightning.cli.sweeps import unsynced
from cl_lightning.config.resolvers import sweep_name
from cl_lightning.errors import Refusal
from cl_lightning.selection.sweep import write_job
from tests.commands import SMALL

QUICK = (*SMALL, "selection=none", "trainer.optimizer=sgd", "logger=none")


class Launcher:
    """Launches nothing: its jobs say what they are made to say."""

    def __init__(self, jobs: Callable[[], Sequence[JobReturn]]) -> None:
        self.jobs = jobs

    def launch(self, overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        return self.jobs()


def watched(folder: Path, jobs: Callable[[], Sequence[JobReturn]]) -> WatchedLauncher:
    new_sweep()
    return WatchedLauncher(Launcher(jobs), OmegaConf.create({"hydra": {"sweep": {"dir": str(folder)}}}))


def test_a_launcher_that_breaks_off_loses_no_job_that_has_ended(tmp_path: Path) -> None:
    """Raises what joblib raises where the process of a job is killed."""

    def break_off() -> Sequence[JobReturn]:
        write_job(tmp_path, 0, {"folder": "a", "done": True, "value": 0.5})
        write_job(tmp_path, 1, {"folder": "b"})
        write_job(tmp_path, 2, {"folder": "c", "failed": "It cannot work."})
        raise ChildProcessError

    launcher = watched(tmp_path, break_off)
    launcher.launch([["a"], ["b"], ["c"], ["d"]], 0)
    assert [(job.folder, job.value, job.failure) for job in launcher.jobs] == [
        ("a", 0.5, None),
        ("b", None, "It was killed (ChildProcessError). The same command does what is missing."),
        ("c", None, "It cannot work."),
        (
            None,
            None,
            "It had not begun when the launcher broke off (ChildProcessError). The same command does what is "
            "missing.",
        ),
    ]


def test_a_killed_job_of_submitit_does_not_end_the_wait_for_others(tmp_path: Path, monkeypatch) -> None:
    class Submitted:
        def __init__(self, number: int) -> None:
            self.number = number

        def results(self) -> list[JobReturn]:
            if self.number == 0:
                raise ChildProcessError
            write_job(tmp_path, self.number, {"folder": "b", "done": True, "value": 0.5})
            return [JobReturn(status=JobStatus.COMPLETED)]

    class Executor:
        map_array = None

    monkeypatch.setitem(sys.modules, "submitit", SimpleNamespace(Job=Submitted, Executor=Executor))
    monkeypatch.setattr(Launcher, "__module__", "hydra_plugins.hydra_submitit_launcher")
    launcher = watched(tmp_path, lambda: [Submitted(number).results()[0] for number in (0, 1)])
    launcher.launch([["a"], ["b"]], 0)
    assert [(job.value, job.failure is None) for job in launcher.jobs] == [(None, False), (0.5, True)]


def test_a_launcher_that_starts_no_job_says_why_itself(tmp_path: Path) -> None:
    def no_cluster() -> Sequence[JobReturn]:
        raise FileNotFoundError("sbatch")

    with pytest.raises(FileNotFoundError, match="sbatch"):
        watched(tmp_path, no_cluster).launch([["a"]], 0)


def test_what_a_job_said_in_an_earlier_start_does_not_count(tmp_path: Path) -> None:
    write_job(tmp_path, 0, {"folder": "a", "done": True, "value": 0.5})
    error = JobReturn(status=JobStatus.FAILED, _return_value=OSError("gone"))
    launcher = watched(tmp_path, lambda: [error])
    launcher.launch([["a"]], 0)
    assert [(job.value, bool(job.failure)) for job in launcher.jobs] == [(None, True)]


# ---- its folder
# --------------------------------------------------------------------------------------------


def test_two_processes_do_not_sweep_in_one_folder(tmp_path: Path, capfd) -> None:
    sweep = [*QUICK, "--multirun", "seed=0", f"outputs={tmp_path}", f"hydra.sweep.dir={tmp_path / 'here'}"]
    (tmp_path / "here").mkdir()
    with FileLock(tmp_path / "here" / "lock"):
        assert main(sweep) == 2
    assert "here is in use by process" in capfd.readouterr().err
    assert not list(tmp_path.rglob("run.json"))


def test_a_folder_of_ones_own_keeps_its_sweep(tmp_path: Path, capfd) -> None:
    """``hydra.sweep.dir`` may name the same folder for two sweeps; the other's record would be gone."""
    (tmp_path / "sweep.json").write_text(json.dumps({"name": "another", "arguments": ["learner=gem"]}))
    assert main([*QUICK, "--multirun", "seed=0", f"outputs={tmp_path}", f"hydra.sweep.dir={tmp_path}"]) == 2
    assert "is the folder of another sweep: learner=gem" in capfd.readouterr().err
    assert not list(tmp_path.rglob("multirun.yaml"))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ((), "leaves a sweep to Slurm: add hydra/launcher=submitit_slurm"),
        (
            ("hydra/sweeper=cl_task_level", "trainer.candidates_at_once=1"),
            "add hydra/launcher=submitit_slurm",
        ),
        (
            ("hydra/sweeper=cl_task_level", "trainer.candidates_at_once=1", "hydra/launcher=submitit_slurm"),
            "The rounds of hydra/sweeper=cl_task_level wait for one another",
        ),
    ],
)
def test_what_cannot_be_left_to_slurm_is_refused_before_any_job(
    options: tuple[str, ...], says: str, tmp_path: Path, capfd
) -> None:
    pytest.importorskip("submitit")
    assert main([*QUICK, *options, "--submit", f"outputs={tmp_path}"]) == 2
    assert says in capfd.readouterr().err
    assert not list(tmp_path.rglob("jobs/*.json"))


@pytest.fixture
def slurm_without_accounts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs in the place of Slurm's: of three jobs one was cancelled, one runs, and one is forgotten."""
    for name, does in {"sacct": "exit 1", "squeue": "printf '7_0|CANCELLED\\n7_1|RUNNING\\n'"}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{does}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)


@pytest.mark.usefixtures("slurm_without_accounts")
def test_without_accounts_squeue_says_which_jobs_have_ended(capfd) -> None:
    watcher = pytest.importorskip("submitit").SlurmJob.watcher
    watcher.clear()
    with followed():
        ended = [job for job in ("7_0", "7_1", "7_2") if watcher.is_done(job, mode="force")]
    assert ended == ["7_0", "7_2"]
    assert "update" not in vars(watcher)
    assert capfd.readouterr() == ("", ""), "sacct's error, at each look"


@pytest.mark.usefixtures("slurm_without_accounts")
def test_jobs_that_were_left_and_have_not_ended_are_not_begun_again(tmp_path: Path, capsys) -> None:
    sweep = tmp_path / "sweep"
    for number in range(3):
        write_job(sweep, number, {"overrides": [f"seed={number}"]})
    leave(sweep, {0: "7_0", 1: "7_1", 2: "7_2"})
    with pytest.raises(Refusal, match="1 jobs of this sweep are still with Slurm: 7_1"):
        refuse_left(sweep)
    assert report(["status", str(sweep)]) == 0
    assert "sweep with Slurm (1 jobs there): 2 missing, 1 waiting" in capsys.readouterr().out


def test_the_command_that_sends_a_sweeps_offline_runs_names_the_last_attempt_of_each(tmp_path: Path) -> None:
    (tmp_path / "wandb" / "offline-run-1-aaa").mkdir(parents=True)
    (tmp_path / "wandb" / "offline-run-2-bbb").mkdir()
    assert unsynced(tmp_path) == [], "a run that did not log there"
    (tmp_path / "wandb.json").write_text(json.dumps([{"id": "aaa"}, {"id": "bbb"}]))
    last = tmp_path / "wandb" / "offline-run-2-bbb"
    assert unsynced(tmp_path) == [last]
    (last / "run-bbb.wandb.synced").touch()
    assert unsynced(tmp_path) == [], "wandb sync leaves this"


def named(task: Sequence[str], hydra: Sequence[str] = ()) -> str:
    overrides = {"task": [*task], "hydra": [*hydra]}
    return sweep_name(OmegaConf.create({"hydra": {"overrides": overrides, "sweeper": {"params": None}}}))


def test_sweeps_have_one_folder_if_they_sweep_the_same() -> None:
    """Else Optuna's record of ten trials would take the place of that of twenty."""
    one = named(["seed=0,1", "trainer.lr=1"])
    assert one == named(["trainer.lr=1", "outputs=x", "seed=0,1", "progress=false"])
    assert one == named(["seed=0,1", "trainer.lr=1"], ["hydra/launcher=joblib", "hydra.sweeper.n_jobs=3"])
    others = [
        named(["seed=0,1", "trainer.lr=2"]),
        named(["seed=0,1", "trainer.lr=1"], ["hydra/sweeper=optuna"]),
        named(["seed=0,1", "trainer.lr=1"], ["hydra/sweeper=optuna", "hydra.sweeper.n_trials=3"]),
        named(["seed=0,1", "trainer.lr=1"], ["hydra/sweeper=optuna", "hydra/sweeper/sampler=random"]),
    ]
    assert len({one, *others}) == 5


@pytest.mark.parametrize("held", [True, False])
def test_the_report_tells_how_far_a_sweep_is(held: bool, tmp_path: Path, capsys) -> None:
    said: list[dict[str, Any]] = [{"done": True}, {"folder": "x", "failed": "no"}, {"folder": "y"}, {}, {}]
    for number, about in enumerate(said):
        write_job(tmp_path, number, about)
    lock = FileLock(tmp_path / "lock")
    if held:
        lock.acquire()
        (tmp_path / "holder.json").write_text(json.dumps({"process": 7, "machine": "m"}))
    assert report(["status", str(tmp_path)]) == 0
    lock.release()
    expected = (
        "sweep running by process 7 on m: 1 done, 1 failed, 1 running, 2 waiting"
        if held
        else "sweep interrupted: 1 done, 1 failed, 3 missing"
    )
    assert expected in capsys.readouterr().out


def test_jobs_that_outlive_a_killed_sweep_run_and_what_was_refused_is_told(tmp_path: Path, capsys) -> None:
    run_of, refused = tmp_path / "a_run", "It cannot work."
    run_of.mkdir()
    write_job(tmp_path, 0, {"overrides": ["seed=0", "x=1"], "folder": str(run_of)})
    write_job(tmp_path, 1, {"overrides": ["seed=0", "x=2"], "failed": refused})
    with FileLock(run_of / "lock"):
        assert report(["status", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "sweep interrupted: 1 failed, 1 running" in said
    assert f"{tmp_path}: x=2: {refused}" in said


def test_jobs_keep_their_newest_learner_and_single_runs_all(tmp_path: Path) -> None:
    two = (*QUICK, "stream.tasks=2", "trainer.max_epochs=1")
    kept = {}
    for name, more in (("sweep", ["--multirun", "seed=0"]), ("single", ["seed=0"])):
        assert main([*two, *more, f"outputs={tmp_path / name}"]) == 0
        kept[name] = sorted(path.name for path in (tmp_path / name).rglob("tasks/*.pt"))
    assert kept == {"sweep": ["001.pt"], "single": ["000.pt", "001.pt"]}


def test_optuna_is_refused_where_it_is_not_installed_and_is_one_more_sweeper_where_it_is(capfd) -> None:
    code = main(["hydra/sweeper=optuna", "hydra.sweeper.direction=maximize", "--cfg", "job"])
    if find_spec("hydra_plugins.hydra_optuna_sweeper"):
        assert code == 0
    else:
        assert code == 2
        assert "hydra/sweeper=optuna is not there" in capfd.readouterr().err
