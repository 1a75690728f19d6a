"""Task-level selection as a sweep: jobs train shares of a task's candidates, and end with the results of one
process."""

from __future__ import annotations

import importlib.util
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import count, cycle
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import MissingConfigException

from cl_lightning.cli.command import main
from cl_lightning.cli.jobs import Job
from cl_lightning.cli.launching import WatchedLauncher
from cl_lightning.cli.report import main as report
from cl_lightning.cli.rounds import InRounds
from cl_lightning.config.resolvers import RULES, conf_dir
from cl_lightning.engine.phases import Phases
from cl_lightning.errors import InUse, Refusal
from cl_lightning.learners.mntdp import MNTDP
from cl_lightning.parallel import rounds
from cl_lightning.parallel.rounds import Rounds, missing_in
from cl_lightning.runs import run as experiment
from cl_lightning.selection import sweep
from cl_lightning.store import atomic as whole
from cl_lightning.store.files import Store
from cl_lightning.store.status import status_of
from tests.commands import SMALL, but_what_may_differ, configure, process, results_in, run
from tests.dying import dying, forked, in_a_child
from tests.soak import at_work
from tests.test_resume import hears_ctrl_c

GRID = ("selection.grid.lr=[0.001,0.01]", "selection.grid.weight_decay=[0.0,0.001]")
TWO_TASKS = (*SMALL, "stream.tasks=2", *GRID, "trainer.candidates_at_once=2")
ROUNDS = "hydra/sweeper=cl_task_level"


def alone(outputs: Path, *options: str) -> dict:
    return but_what_may_differ(run(outputs, *options, small=False))


def test_what_is_searched_between_phases_is_searched_once(tmp_path: Path, monkeypatch) -> None:
    """Jobs read what one of them has searched."""
    searches, scores = [], MNTDP.scores
    monkeypatch.setattr(MNTDP, "scores", lambda *given: searches.append(given) or scores(*given))
    searching = (*TWO_TASKS, "learner=mntdp_d", "trainer.candidates_at_once=8")
    assert main([ROUNDS, *searching, f"outputs={tmp_path / 'jobs'}"]) == 0
    of_jobs = len(searches)
    alone(tmp_path / "one", *searching)
    assert len(searches) == 2 * of_jobs


LAST_IS_BEST = (
    *SMALL, "stream.tasks=2", "selection.grid.lr=[0.00001,0.00002,0.00003,0.01]",
    "~selection.grid.weight_decay", "trainer.candidates_at_once=1",
)  # fmt: skip


def test_the_best_candidate_may_be_in_the_last_share(tmp_path: Path) -> None:
    options = (*LAST_IS_BEST, "stream.tasks=1")
    assert main([ROUNDS, *options, f"outputs={tmp_path / 'jobs'}"]) == 0
    found = results_in(tmp_path / "jobs")
    assert [chosen["candidate"] for chosen in found["selected"]] == ["lr=0.01"]
    assert but_what_may_differ(found) == alone(tmp_path / "one", *options)


def test_a_job_trains_its_share_alone_and_the_last_goes_on(tmp_path: Path, monkeypatch) -> None:
    trained: list[tuple[str, tuple[int, ...]]] = []
    original = Phases.train_group

    def noted(self: Phases, learner, phase, numbers, task, place):
        trained.append((place.name, tuple(numbers)))
        return original(self, learner, phase, numbers, task, place)

    monkeypatch.setattr(Phases, "train_group", noted)
    assert main([ROUNDS, *TWO_TASKS, f"outputs={tmp_path}"]) == 0
    assert sorted(trained) == [(f"task{t}", share) for t in (0, 1) for share in ((0, 3), (1, 2))]
    jobs = [json.loads(path.read_text()) for path in tmp_path.rglob("jobs/*.json")]
    assert len(jobs) == 1 + 2 + 2  # one finds the first phase, two train each phase: the last of them goes on


def test_no_batch_of_jobs_is_larger_than_asked_for(tmp_path: Path, monkeypatch) -> None:
    batches, original = [], WatchedLauncher.launch

    def launch(self: WatchedLauncher, overrides, initial_job_idx: int):
        batches.append((initial_job_idx, len(overrides)))
        return original(self, overrides, initial_job_idx)

    monkeypatch.setattr(WatchedLauncher, "launch", launch)
    assert (
        main([ROUNDS, *TWO_TASKS, "stream.tasks=1", "hydra.sweeper.max_batch_size=1", f"outputs={tmp_path}"])
        == 0
    )
    assert batches == [(number, 1) for number in range(3)]
    assert len(list(tmp_path.rglob("results.json"))) == 1


def test_seeds_go_through_rounds_side_by_side_and_end_in_one_table(tmp_path: Path, capsys) -> None:
    assert main([ROUNDS, *TWO_TASKS, "stream.tasks=1", "seed=0,1", f"outputs={tmp_path}"]) == 0
    assert len(list(tmp_path.rglob("results.json"))) == 2
    assert "finetune" in capsys.readouterr().out
    (record,) = tmp_path.rglob("sweep.json")
    swept = json.loads(record.read_text())
    assert (swept["kind"], [job["state"] for job in swept["jobs"]]) == ("task_level", ["done", "done"])
    assert report(["status", str(tmp_path)]) == 0
    assert capsys.readouterr().out.count("│ done ") == 2


def test_without_a_number_of_candidates_a_job_nothing_begins(tmp_path: Path, capsys) -> None:
    options = [option for option in TWO_TASKS if "at_once" not in option]
    assert main([ROUNDS, *options, f"outputs={tmp_path}"]) == 2
    assert "trainer.candidates_at_once=6" in capsys.readouterr().err
    assert not list(tmp_path.rglob("run.json"))


def test_a_job_that_fails_ends_its_run_and_the_same_command_goes_on(
    tmp_path: Path, monkeypatch, capsys
) -> None:
    original, calls = Phases.train_group, []

    def fails_once(self: Phases, *arguments):
        calls.append(None)
        if len(calls) == 2:
            raise OSError(28, "No space left on device", "x")
        return original(self, *arguments)

    monkeypatch.setattr(Phases, "train_group", fails_once)
    assert main([ROUNDS, *TWO_TASKS, "seed=0,1", f"outputs={tmp_path}"]) == 2
    assert len(list(tmp_path.rglob("results.json"))) == 1
    assert "the disk is full" in capsys.readouterr().err
    before = len(calls)
    assert main([ROUNDS, *TWO_TASKS, "seed=0,1", f"outputs={tmp_path}"]) == 0
    assert len(calls) - before == 3, "the share that was lost, and those of the second task"
    assert len(list(tmp_path.rglob("results.json"))) == 2


def test_what_was_begun_in_rounds_a_plain_command_ends_and_the_other_way_round(tmp_path: Path) -> None:
    whole = alone(tmp_path / "one", *TWO_TASKS)
    for name, first, second in (("a", [ROUNDS], []), ("b", [], [ROUNDS])):
        options = [*TWO_TASKS, f"outputs={tmp_path / name}"]
        in_a_child(partial(dying, "phase done:1", partial(main, [*first, *options])))
        assert not list((tmp_path / name).rglob("results.json"))
        assert main([*second, *options]) == 0
        assert but_what_may_differ(results_in(tmp_path / name)) == whole


@pytest.fixture
def job(tmp_path: Path, monkeypatch) -> Callable[[str | None], float | None]:
    """Makes a job of a round in this process, as its launcher would."""
    cfg = configure(*TWO_TASKS, f"outputs={tmp_path}")

    def made(share: str | None) -> float | None:
        with monkeypatch.context() as patch:
            patch.setattr(experiment, "own_rounds", lambda: Rounds(share))
            return experiment.run(cfg)

    return made


def shared_out(outputs: Path) -> list[str]:
    """The shares that are to be trained."""
    (start,) = outputs.rglob("run.json")
    return missing_in(start.parent) or []


def test_a_share_belongs_to_one_job_at_a_time(tmp_path: Path, job, monkeypatch) -> None:
    """Jobs of Slurm may outlive their sweep, and the same command starts others."""
    job(None)
    assert status_of(next(tmp_path.rglob("run.json")).parent).state == "waiting"
    first, second = shared_out(tmp_path)
    fork = multiprocessing.get_context("fork")
    trains, may_end = fork.Event(), fork.Event()
    original = Phases.train_group

    def waits(*arguments):
        trains.set()
        assert may_end.wait(120)
        return original(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Phases, "train_group", waits)
        outlived = forked(lambda: job(first))
    assert trains.wait(120)
    for command in (lambda: job(first), lambda: run(tmp_path, *TWO_TASKS, small=False)):
        with pytest.raises(InUse, match=rf"{first} is in use by process {outlived.pid}"):
            command()
    may_end.set()
    outlived.join(120)
    assert outlived.exitcode == 0
    assert shared_out(tmp_path) == [second]


def test_a_job_waits_until_a_slow_disk_shows_what_other_machines_wrote(
    tmp_path: Path, job, monkeypatch
) -> None:
    job(None)
    for share in shared_out(tmp_path):
        job(share)
    first, second = shared_out(tmp_path)  # of the second task
    read, late = Store._content, {"tasks/000": 2, "work/plan": 4}

    def content(self: Store, key: str):
        return None if late.get(key, 0) > slept.count(1) else read(self, key)

    slept: list[int] = []
    monkeypatch.setattr(Store, "_content", content)
    monkeypatch.setattr(whole, "sleep", slept.append)
    with pytest.raises(Refusal, match="does not show here"):
        job(first)
    assert not slept, "on one machine nobody waits"
    monkeypatch.setattr(rounds, "late_by", lambda: sweep.lateness("SlurmLauncher"))
    job(first)
    assert (len(slept), shared_out(tmp_path)) == (4, [second])


def test_a_job_that_goes_on_does_not_undo_a_task_that_shows_late(tmp_path: Path, job, monkeypatch) -> None:
    job(None)
    for share in shared_out(tmp_path):
        job(share)
    read, slept = Store._content, []
    monkeypatch.setattr(
        Store, "_content", lambda self, key: None if key == "tasks/000" and not slept else read(self, key)
    )
    monkeypatch.setattr(whole, "sleep", slept.append)
    monkeypatch.setattr(rounds, "late_by", lambda: sweep.lateness("SlurmLauncher"))
    monkeypatch.setattr(Phases, "train_group", lambda *_: pytest.fail("a share is trained"))
    before = shared_out(tmp_path)
    job(None)
    assert (slept, shared_out(tmp_path)) == ([1], before)


@pytest.mark.parametrize(("late_by", "shares"), [(0.0, []), (90.0, ["work/task0-0/0"])])
def test_a_sweep_waits_until_its_disk_shows_what_a_job_wrote(
    late_by: float, shares: list[str], tmp_path: Path, monkeypatch
) -> None:
    shown = iter([None, None, ["work/task0-0/0"]])
    monkeypatch.setattr(rounds, "missing_in", lambda folder: next(shown))
    monkeypatch.setattr(whole, "sleep", lambda seconds: None)
    run = InRounds([])
    run.after([Job([], None, None, str(tmp_path))], late_by)
    assert run.shares == shares
    assert bool(run.job and run.job.failure) == (not shares)


def test_only_jobs_that_may_be_on_other_machines_are_waited_for() -> None:
    GlobalHydra.instance().clear()
    local = [f"hydra/launcher={name}" for name in ("basic", "joblib", "devices", "submitit_local")]
    for launcher in (*local, "hydra/launcher=submitit_slurm"):
        with suppress(MissingConfigException), initialize_config_dir(conf_dir(), **RULES):
            target = compose("config", [launcher], return_hydra_config=True).hydra.launcher._target_
            assert sweep.lateness(target) == (0 if launcher in local else sweep.LATE)


def test_a_job_of_an_earlier_phase_trains_nothing(tmp_path: Path, job, monkeypatch) -> None:
    job(None)
    early = shared_out(tmp_path)
    for share in early:
        job(share)
    late = shared_out(tmp_path)
    assert len(late) == 2
    assert not {*early} & {*late}
    monkeypatch.setattr(Phases, "train_group", lambda *_: pytest.fail("a share is trained"))
    for share in early:
        with pytest.raises(Refusal, match="the run has gone on"):
            job(share)
    assert shared_out(tmp_path) == late


def test_rounds_begin_afresh_once(tmp_path: Path) -> None:
    sweep = [ROUNDS, *TWO_TASKS, "stream.tasks=1", f"outputs={tmp_path}"]
    assert main(sweep) == 0
    before = next(tmp_path.rglob("run.json")).read_text()
    assert main([*sweep, "resume=false"]) == 0
    assert next(tmp_path.rglob("run.json")).read_text() != before
    assert len(list(tmp_path.rglob("jobs/*.json"))) == 1 + 2


def test_jobs_that_do_not_see_what_others_wrote_end_the_sweep(tmp_path: Path, monkeypatch, capsys) -> None:
    """Machines that share no disk: each job has a folder of its own."""
    folders = (tmp_path / str(number) for number in count())
    monkeypatch.setattr(experiment, "run_folder", lambda cfg, stream: next(folders))
    assert main([ROUNDS, *TWO_TASKS, f"outputs={tmp_path}"]) == 2
    assert "on a disk that all machines share" in capsys.readouterr().err


LAUNCHERS = {
    "joblib": ("hydra.launcher.n_jobs=2",),
    "submitit_local": ("hydra.launcher.timeout_min=10",),
    "ray": (),
}


def there(launcher: str) -> pytest.MarkDecorator:
    plugin = f"hydra-{launcher.partition('_')[0]}-launcher"
    missing = importlib.util.find_spec(f"hydra_plugins.{plugin.replace('-', '_')}") is None
    return pytest.mark.skipif(missing, reason=f"{plugin} is not installed")


STREAMS = {
    "the best in the last share": LAST_IS_BEST,
    "ctrl_short": (
        "progress=false", "figures=false", "learner=mntdp_d", "stream=ctrl_short", "backbone.sizes=[16,16]",
        "trainer.max_epochs=2", *GRID, "trainer.candidates_at_once=10",
    ),
}  # fmt: skip


@pytest.mark.all
@pytest.mark.parametrize(
    ("launcher", "case"),
    [pytest.param(name, case, marks=there(name)) for name, case in zip(LAUNCHERS, cycle(STREAMS))],
)
def test_every_launcher_ends_with_the_same_results(
    launcher: str, case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Names of sockets may have 107 characters. Those in the folder of a test would have more.
    monkeypatch.setenv("RAY_TMPDIR", "/tmp")
    options = STREAMS[case]
    more = (f"hydra/launcher={launcher}", *LAUNCHERS[launcher], f"outputs={tmp_path / 'jobs'}")
    process(ROUNDS, *options, *more, cwd=tmp_path)
    found = results_in(tmp_path / "jobs")
    assert but_what_may_differ(found) == alone(tmp_path / "one", *options)
    jobs = [json.loads(path.read_text()) for path in tmp_path.rglob("jobs/*.json")]
    if case == "the best in the last share":
        assert [chosen["candidate"] for chosen in found["selected"]] == ["lr=0.01"] * 2
        assert len(jobs) == 1 + 4 + 4
    if launcher == "joblib":
        assert len({job["process"] for job in jobs}) <= 2, "its workers serve all rounds"


SLURM = {
    "srun": "",
    "sbatch": "echo Submitted batch job 12; touch submitted",
    "sacct": "echo 'JobID|State|NodeList'; echo '12|PENDING|'",
    "scancel": 'echo "$@" >> cancelled',
}  # commands that only say that they do something


@pytest.mark.all
@pytest.mark.parametrize("launcher", [pytest.param("submitit_slurm", marks=there("submitit_slurm"))])
def test_ctrl_c_cancels_the_jobs_of_a_sweep_in_slurm(launcher: str, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    for name, does in SLURM.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{does}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    env = {**os.environ, "PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    command = [sys.executable, "-m", "cl_lightning", ROUNDS, *TWO_TASKS, f"hydra/launcher={launcher}"]
    sweep = subprocess.Popen(command, cwd=tmp_path, env=env, preexec_fn=hears_ctrl_c)
    while not (tmp_path / "submitted").exists():
        assert sweep.poll() is None
        time.sleep(0.05)
    time.sleep(0.5)  # sbatch is answered
    sweep.send_signal(signal.SIGINT)
    assert sweep.wait(60) == 130
    assert (tmp_path / "cancelled").read_text() == "12\n"


@pytest.mark.all
@pytest.mark.parametrize(
    "launcher", [pytest.param(name, marks=there(name)) for name in LAUNCHERS if name != "ray"]
)
def test_after_a_job_is_killed_in_a_round_the_same_command_goes_on(launcher: str, tmp_path: Path) -> None:
    options = [
        *TWO_TASKS,
        "trainer.max_epochs=100",
        "trainer.patience=null",
        "trainer.checkpoint_minutes=0.001",
    ]
    sweep, outputs = [ROUNDS, *options, f"outputs={tmp_path / 'jobs'}"], tmp_path / "jobs"
    command = [*sweep, f"hydra/launcher={launcher}", *LAUNCHERS[launcher]]
    started = subprocess.Popen([sys.executable, "-m", "cl_lightning", *command], cwd=tmp_path)
    while not list(outputs.rglob("work/inside/*.json")):  # a share is trained
        assert started.poll() is None
        time.sleep(0.05)
    os.kill(at_work(outputs)[0], signal.SIGKILL)
    assert started.wait(300) == 2
    assert main(sweep) == 0
    assert but_what_may_differ(results_in(outputs)) == alone(tmp_path / "one", *options)
