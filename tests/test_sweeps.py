"""A job that fails ends no other; what failed is told at the end; each job can be made again alone."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from filelock import FileLock

from cl_lightning.cli.command import main
from cl_lightning.cli.report import main as report
from cl_lightning.engine.phases import Phases
from tests.commands import SMALL, command, process, run
from tests.dying import killed
from tests.test_resume import hears_ctrl_c

QUICK = (*SMALL, "selection=none", "trainer.optimizer=sgd", "stream.tasks=1", "logger=none")
LAUNCHERS = {
    "basic": (),
    "in batches": ("hydra.sweeper.max_batch_size=1",),
    "joblib": ("hydra/launcher=joblib", "hydra.launcher.n_jobs=2"),
    "submitit_local": ("hydra/launcher=submitit_local",),
}


@pytest.fixture(
    params=[
        pytest.param(name, marks=pytest.mark.all if "hydra/launcher" in str(options) else [])
        for name, options in LAUNCHERS.items()
    ]
)
def launcher(request: pytest.FixtureRequest) -> tuple[str, ...]:
    if request.param in ("joblib", "submitit_local"):
        pytest.importorskip(f"hydra_plugins.hydra_{request.param.partition('_')[0]}_launcher")
    return LAUNCHERS[request.param]


def made(outputs: Path) -> dict[float, Path]:
    """Finished runs by their learning rate."""
    found = {}
    for path in outputs.glob("*/*/*/results.json"):
        found[json.loads(path.read_text())["config"]["trainer"]["lr"]] = path
    return found


@pytest.mark.slow
def test_every_other_job_runs_and_the_same_command_again_does_what_is_missing(
    launcher: tuple[str, ...], tmp_path: Path
) -> None:
    died = tmp_path / "died"
    dies = f"trainer.callbacks=[{{_target_:tests.dying.DiesOnce,where:{died},lr:'${{trainer.lr}}',at:0.2}}]"
    sweep = (*QUICK, f"outputs={tmp_path}", *launcher, dies, "--multirun", "trainer.lr=0.2,1e30,-1,0.1")
    of_their_own = "hydra/launcher" in str(launcher)
    start = process if of_their_own else command
    if of_their_own:  # jobs have processes, one of which is killed
        killed = start(*sweep, check=False)
        assert killed.returncode == 2
        assert re.search(r"trainer\.lr=0\.2: It was killed \(\w+\)\. The same command does", killed.stderr)
        assert "Traceback" not in killed.stderr
        assert 0.2 not in made(tmp_path)
        assert 0.1 in made(tmp_path) or "joblib" in str(launcher), "joblib ends all jobs"
    died.touch()
    done = start(*sweep, check=False)
    assert done.returncode == 2, done.stderr
    assert made(tmp_path).keys() == {0.1, 0.2}
    assert "Traceback" not in done.stderr
    head, *failed = done.stderr.splitlines()[-3:]
    assert head == "2 of 4 jobs failed. The same command again does only what is missing."
    assert failed[0].startswith("  trainer.lr=1e+30: All candidates of task 0 were dropped")
    assert failed[1].startswith("  trainer.lr=-1: trainer.lr=-1 must be a number above 0, or null.")
    # ---- again
    if not of_their_own:
        there, lost = made(tmp_path)[0.1], made(tmp_path)[0.2]
        before = there.stat().st_mtime_ns, (there.parent / "run.json").stat().st_mtime_ns
        lost.unlink()
        again = start(*sweep, check=False)
        assert again.returncode == 2
        assert again.stderr.splitlines()[-3:] == [head, *failed]
        assert made(tmp_path) == {0.1: there, 0.2: lost}
        assert (there.stat().st_mtime_ns, (there.parent / "run.json").stat().st_mtime_ns) == before
    # ---- the jobs' own commands
    for rate, path in made(tmp_path).items():
        own = json.loads(path.read_text())["command"]
        assert f"trainer.lr={rate}" in own
        assert not any("launcher" in argument or "multirun" in argument.lower() for argument in own)


def test_a_sweep_says_a_line_a_job_ends_in_a_table_and_with_0(tmp_path: Path) -> None:
    done = command(*QUICK, f"outputs={tmp_path}", "--multirun", "trainer.lr=0.1,0.2", "seed=0,1")
    begins, *lines, came, see = done.stderr.splitlines()
    assert begins == "0 of 4 jobs ended"
    (folder,) = tmp_path.glob("*/sweeps/*")
    assert came == f"4 of 4 jobs are done. The sweep lies in {folder}"
    assert see.strip() == f"to see it: python -m cl_lightning.report {folder.parent.parent} --validation"
    assert [re.sub(", .* left", "", line) for line in lines] == [
        f"job {n} of 4 (trainer.lr={rate} seed={seed}) done"
        for n, (rate, seed) in enumerate(((r, s) for r in (0.1, 0.2) for s in (0, 1)), start=1)
    ]
    assert "learned" not in done.stdout, "a table of each run"
    heads, *rows = (line.split() for line in done.stdout.splitlines() if line[:1] in "┃│")
    assert (heads[3], heads[5], heads[7]) == ("lr", "val", "ACC")
    assert [row[3] for row in rows] == ["0.1", "0.2"], "seeds are aggregated"
    by_rate: dict[float, list[float]] = {}
    for path in tmp_path.glob("*/*/*/results.json"):
        results = json.loads(path.read_text())
        at_end = results["validation_at_end"]["mean"]
        by_rate.setdefault(results["config"]["trainer"]["lr"], []).append(at_end)
    assert [row[5] for row in rows] == [f"{sum(by_rate[rate]) / 2:.3f}" for rate in (0.1, 0.2)]
    assert report([str(tmp_path), "--validation"]) == 0


def test_a_key_of_learners_that_a_sweep_goes_through_reaches_each(tmp_path: Path) -> None:
    """Which ``learner=finetune`` of the configuration that the sweep begins with does not have."""
    command(*QUICK, f"outputs={tmp_path}", "--multirun", "learner=ewc,si", "learner.strength=7.5")
    runs = [json.loads(path.read_text())["config"] for path in tmp_path.glob("*/*/*/results.json")]
    assert {run["learner"]["name"]: run["learner"]["strength"] for run in runs} == {"ewc": 7.5, "si": 7.5}


def test_sweeps_have_folders_of_their_own_and_say_what_came_of_them(tmp_path: Path) -> None:
    for rates in ("0.1,1e30", "0.2,0.3"):
        command(*QUICK, f"outputs={tmp_path}", "--multirun", f"trainer.lr={rates}", check=False)
    sweeps = [json.loads(path.read_text()) for path in tmp_path.glob("*/sweeps/*/sweep.json")]
    assert len(sweeps) == len(list(tmp_path.glob("*/sweeps/*/multirun.yaml"))) == 2
    states = {job["overrides"][-1]: job["state"] for sweep in sweeps for job in sweep["jobs"]}
    assert states == {
        "trainer.lr=0.1": "done",
        "trainer.lr=1e+30": "diverged",
        "trainer.lr=0.2": "done",
        "trainer.lr=0.3": "done",
    }
    (sweep,) = (sweep for sweep in sweeps if sweep["jobs"][-1]["state"] == "diverged")
    assert [job["validation"] is None for job in sweep["jobs"]] == [False, True]


def test_a_run_that_diverged_is_not_tried_again_unless_one_asks(tmp_path: Path, capfd, monkeypatch) -> None:
    diverging = [*QUICK, f"outputs={tmp_path}", "trainer.lr=1e30"]
    assert main(diverging) == 2
    capfd.readouterr()
    with monkeypatch.context() as patch:
        patch.setattr("cl_lightning.runs.part.train", lambda *_: pytest.fail("tried again"))
        assert main(diverging) == 2
    said = capfd.readouterr().err
    assert "All candidates of task 0 were dropped" in said
    assert "resume=retry" in said
    original, trained = Phases.train_group, []
    monkeypatch.setattr(Phases, "train_group", lambda *given: trained.append(given) or original(*given))
    assert main([*diverging, "resume=retry"]) == 2
    assert len(trained) == 1


def test_the_status_of_every_run_is_told(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    main([*QUICK, f"outputs={tmp_path}", "trainer.lr=0.1"])
    main([*QUICK, f"outputs={tmp_path}", "trainer.lr=1e30"])
    killed("test:2", lambda: run(tmp_path, "stream.tasks=2"))
    capsys.readouterr()
    assert report(["status", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    for state in ("│ done ", "│ diverged after 0 of 1 tasks ", "│ interrupted after 0 of 2 tasks "):
        assert said.count(state) == 1, said
    assert "All candidates of task 0 were dropped" in said


def test_a_single_run_is_refused_by_its_sentence_alone(tmp_path: Path) -> None:
    done = command(*QUICK, f"outputs={tmp_path}", "trainer.lr=-1", check=False)
    assert done.returncode == 2
    assert done.stderr == "trainer.lr=-1 must be a number above 0, or null.\n"


def made_again_alone(outputs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each run's own command, without the sweep, finds the very run."""
    monkeypatch.setattr("cl_lightning.runs.part.train", lambda *_: pytest.fail("another run"))
    monkeypatch.setattr("cl_lightning.cli.sweeps.sweep_grid", lambda *_, **__: pytest.fail("a sweep"))
    runs = sorted(outputs.glob("*/*/*/results.json"))
    assert len(runs) == 2
    for path in runs:
        shown = []
        note = lambda results, folder, **_: shown.append(folder)  # noqa: B023, E731
        monkeypatch.setattr("cl_lightning.runs.run.show_end", note)
        assert main(json.loads(path.read_text())["command"]) == 0
        assert shown == [path.parent]


def test_the_command_of_a_job_makes_its_run_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = (
        "data.substitute={svhn: dtd, cifar10: cifar100}",
        "+selection.grid.weight_decay=[0.0]",
        "~stream.class_order",
    )
    main([*QUICK, *own, f"outputs={tmp_path}", "--multirun", "trainer.lr=0.1,0.2"])
    made_again_alone(tmp_path, monkeypatch)


def test_the_command_of_a_job_of_a_study_makes_its_run_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whose file says that it is a sweep, and of what."""
    small = (
        "stream.tasks=2",
        "stream.n_train=20",
        "stream.n_test=20",
        "data.sources.mnist.train=500",
        "data.sources.mnist.test=100",
    )
    looks = ("progress=false", "figures=false", "logger=none")
    main(
        [
            "+experiment=gem_passes",
            "learner=finetune",
            "trainer.max_epochs=1,2",
            f"outputs={tmp_path}",
            *looks,
            *small,
        ]
    )
    made_again_alone(tmp_path, monkeypatch)


@pytest.mark.parametrize("option", ["--config-dir={}", "hydra.searchpath=[{}]"])
def test_the_command_of_a_job_knows_folders_of_ones_own(
    option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "conf" / "learner").mkdir(parents=True)
    (tmp_path / "conf" / "learner" / "mine.yaml").write_text(
        "_target_: cl_lightning.learners.Finetune\nname: mine\n"
    )
    given = (option.format(tmp_path / "conf"), "learner=mine")
    main([*given, *QUICK[1:], f"outputs={tmp_path / 'out'}", "--multirun", "seed=0,1"])
    made_again_alone(tmp_path / "out", monkeypatch)


# ---- ended early -------------------------------------------------------------------------------------------


@contextmanager
def two_long_runs(outputs: Path, launcher: tuple[str, ...]) -> Iterator[subprocess.Popen]:
    """A sweep whose first runs train, in a session of its own, of which nothing is left afterwards."""
    long = ("trainer.max_epochs=100000", "trainer.patience=null", "--multirun", "seed=0,1")
    arguments = [sys.executable, "-m", "cl_lightning", *QUICK, f"outputs={outputs}", *launcher, *long]
    output = (outputs / "said").open("w")
    process = subprocess.Popen(
        arguments, stdout=output, stderr=output, start_new_session=True, preexec_fn=hears_ctrl_c
    )
    at_once = 1 if not launcher or "sweeper" in launcher[0] else 2
    try:
        for _ in range(2400):
            if len(list(outputs.glob("*/*/*/rows/000.json"))) == at_once:
                break
            assert process.poll() is None, (outputs / "said").read_text()
            time.sleep(0.05)
        else:
            pytest.fail("the runs did not begin")
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        output.close()


TRIED = [("basic", "sigterm")]
SIGNALLED = [
    pytest.param(name, how, marks=[] if (name, how) in TRIED else pytest.mark.all)
    for name in LAUNCHERS
    for how in ("ctrl_c", "sigterm")
] + [pytest.param("joblib", "killed", marks=pytest.mark.all)]  # its workers end by themselves


@pytest.mark.slow
@pytest.mark.parametrize(("launcher", "how"), SIGNALLED, indirect=["launcher"])
def test_whoever_ends_a_sweep_ends_all_its_jobs(how: str, launcher: tuple[str, ...], tmp_path: Path) -> None:
    number = {"ctrl_c": signal.SIGINT, "sigterm": signal.SIGTERM, "killed": signal.SIGKILL}[how]
    with two_long_runs(tmp_path, launcher) as process:
        process.send_signal(number)
        assert process.wait(60) == (-number if how == "killed" else 128 + number)
        for folder in tmp_path.glob("*/*/*/"):
            FileLock(folder / "lock").acquire(timeout=60).lock.release()  # nobody holds the run any more
    assert not list(tmp_path.glob("*/*/*/results.json"))
    assert "Traceback" not in (tmp_path / "said").read_text()
