"""Runs from Python: made, loaded, looked at, predicted with."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from omegaconf import OmegaConf

import cl_lightning
from cl_lightning import load, notebook, run
from cl_lightning.errors import Refusal
from tests.commands import SMALL
from tests.commands import run as run_command
from tests.dying import killed


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory):
    return run(*SMALL, f"outputs={tmp_path_factory.mktemp('made')}", "selection.grid.lr=[0.01,0.001]")


def test_frames_say_what_results_say(made) -> None:
    results = made.results
    assert made.accuracy.to_numpy().tolist() == results["accuracy_matrix"]
    assert made.metrics["average_accuracy"] == results["metrics"]["average_accuracy"]
    assert made.costs["flops"].tolist() == [cost["flops"] for cost in results["costs"]]
    assert made.costs["seconds.train"].min() > 0
    assert len(made.candidates) == 3 * 6
    chosen = made.candidates[made.candidates["chosen"]]
    assert chosen["candidate"].tolist() == [phase["candidate"] for phase in results["selected"]]
    assert "finetune on split_mnist, seed 0" in repr(made)


def test_a_learner_from_a_folder_predicts_what_was_measured(made) -> None:
    again = load(made.folder)
    for after in (1, 3, None):
        row = made.results["accuracy_matrix"][3 if after is None else after]
        for task in range(3):
            test = again.stream().test(task)
            right = (again.predict(test.x, task, after) == test.y).double().mean().item()
            assert right == pytest.approx(row[task])


def test_a_folder_of_somebody_elses_runs_nothing(made, tmp_path: Path) -> None:
    copied = shutil.copytree(made.folder, tmp_path / "run")
    cfg = OmegaConf.load(copied / "config.yaml")
    ran = tmp_path / "ran"
    cfg.stream.seed = {
        "_target_": "pathlib.Path.touch",
        "_args_": [{"_target_": "pathlib.Path", "_args_": [str(ran)]}],
    }
    OmegaConf.save(cfg, copied / "config.yaml")
    again = load(copied)
    with pytest.raises(Refusal, match="not what the run was made with"):
        again.stream()
    again.start.config["stream"] = OmegaConf.to_container(cfg.stream)  # its records are somebody's, too
    for use in (again.stream, again.learner):
        with pytest.raises(Refusal, match=r"stream\.seed\._target_=pathlib\.Path\.touch is not made"):
            use()
    assert not ran.exists()


def test_an_unfinished_run_is_loaded_as_far_as_it_is(tmp_path: Path) -> None:
    killed("test:3", lambda: run_command(tmp_path))
    cut = load(next(tmp_path.glob("*/*/*")))
    assert cut.accuracy.isna().sum().tolist() == [2, 2, 2]
    assert cut.learner(after=2) is not None
    with pytest.raises(Refusal, match="has no learner after 3 tasks"):
        cut.learner(after=3)
    with pytest.raises(Refusal, match="is no number of tasks"):
        cut.learner(after=4)
    with pytest.raises(Refusal, match="holds no run"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("argument", "says"),
    [
        ("learner=nix", "learner=nix is not there"),
        ("learner=[gem,ewc]", "names several values: that is a sweep, and run makes a single run"),
        ("lr=0.1", "lr is not a key here. Did you mean trainer.lr=0.1?"),
        ("seed=0,1", "names several values: that is a sweep, and run makes a single run"),
        ("-m", "-m is for the command line"),
        ("--config-dir=x", "--config-dir=x is for the command line"),
        ("learner=[", "learner=[ cannot be read: arguments are group=choice or key=value"),
    ],
)
def test_what_is_no_single_run_is_refused_with_a_sentence(argument: str, says: str) -> None:
    with pytest.raises(Refusal) as refusal:
        run(argument)
    assert says in str(refusal.value)
    assert "--multirun" not in str(refusal.value)


def test_a_task_that_is_not_there_is_refused(made) -> None:
    for task in (3, -1):
        with pytest.raises(Refusal, match=f"task={task} is no task of this stream: it has 3"):
            made.predict(made.stream().test(0).x, task=task)


def test_the_package_itself_imports_nothing_that_takes_time() -> None:
    assert cl_lightning.run is notebook.run, "which takes torch"
    code = "import cl_lightning, sys; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError, match="no attribute 'walk'"):
        cl_lightning.walk  # noqa: B018


def test_a_quiet_run_prints_nothing_and_still_refuses(made, capfd: pytest.CaptureFixture) -> None:
    again = run(*SMALL, f"outputs={made.folder.parents[2]}", "selection.grid.lr=[0.01,0.001]", quiet=True)
    assert again.folder == made.folder
    assert "".join(capfd.readouterr()) == ""
    with pytest.raises(Refusal, match="Did you mean finetune"):
        run("learner=finetun", quiet=True)
