"""What a run says first."""

from __future__ import annotations

import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from omegaconf import OmegaConf

from cl_lightning.cli import dashboard
from cl_lightning.runs import announce as opening
from cl_lightning.runs.announce import tell_shown, tell_start
from tests.commands import configure

WANDB = {"_target_": "cl_lightning.loggers.open_wandb", "project": "cl_lightning"}
CSV = {"_target_": "cl_lightning.loggers.CSVLogger"}
TENSORBOARD = {"_target_": "pytorch_lightning.loggers.TensorBoardLogger"}


class FiveTasks(SimpleNamespace):
    name, head = "five", SimpleNamespace(mode="single", owned=[(task,) for task in range(5)])

    def __len__(self) -> int:
        return 5


def started(
    capsys: pytest.CaptureFixture, *overrides: str, learned: int = 0, told: bool = False
) -> list[str]:
    learner: Any = SimpleNamespace(needs=SimpleNamespace(task_id_at_test=told))
    stream: Any = FiveTasks()
    tell_start(configure("stream=split", *overrides), stream, learner, learned)
    return capsys.readouterr().err.splitlines()


def test_the_first_line_says_stream_scenario_and_head_mode(
    capsys: pytest.CaptureFixture,
) -> None:
    of_class = "class-incremental (outputs of all tasks compete, no task ids at test)"
    plain = f"finetune on split_mnist: 5 tasks, {of_class}, head mode single, seed 0"
    assert started(capsys) == [plain]
    assert started(capsys, told=True) == [
        plain.replace(of_class, "task-incremental (task ids given at test)")
    ]
    assert started(capsys, "trainer.lr=0.1")[0] == plain
    assert started(capsys, "progress=false") == []


def test_a_run_that_goes_on_says_where(capsys: pytest.CaptureFixture) -> None:
    assert started(capsys, learned=3)[1:] == ["It goes on where it was: 3 of 5 tasks are learned."]


def test_a_branch_says_what_it_takes_over_until_it_has_learned_a_task_of_its_own(
    capsys: pytest.CaptureFixture,
) -> None:
    for tasks, taken in ((1, "task 0"), (3, "tasks 0..2")):
        first = started(capsys, "run=outputs/a", f"from_task={tasks}", learned=tasks)
        later = started(capsys, "run=outputs/a", f"from_task={tasks}", learned=4)
        assert first[1:] == [f"It takes over {taken} of outputs/a."]
        assert later[1:] == ["It goes on where it was: 4 of 5 tasks are learned."]


def shown(capsys: pytest.CaptureFixture, folder: Path, logger: dict) -> list[str]:
    cfg = configure()
    cfg.logger = logger
    tell_shown(cfg, folder)
    first, *others = capsys.readouterr().err.splitlines()
    assert first == "Finished before: it is only shown. resume=false starts afresh."
    return others


def test_a_run_that_is_only_shown_says_so_and_how_wandb_gets_it(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    folder = tmp_path / "a b"
    folder.mkdir()
    (folder / "logs.csv").touch()
    assert shown(capsys, folder, CSV) == []
    assert shown(capsys, folder, {}) == []
    send = [
        "Nothing is logged to W&B now. This sends the run there:",
        f"  python -m cl_lightning.report wandb '{folder}'",
    ]
    assert shown(capsys, folder, WANDB) == send
    assert shown(capsys, folder, {"csv": CSV, "wandb": WANDB}) == send


OWN = {"project": "mine", "entity": None, "mode": "online", "tags": [], "timeout": 15, "checkpoints": False}


@pytest.mark.parametrize(
    ("now", "options"),
    [
        ({}, []),
        ({"timeout": 3}, []),
        ({"project": "other one", "entity": "us"}, ["--project=other one", "--entity=us"]),
        ({"mode": "offline", "checkpoints": True}, ["--offline", "--checkpoints"]),
        ({"tags": ["a", "b c"]}, ["--tags", "a", "b c"]),
    ],
)
@pytest.mark.parametrize("back", [False, True])
def test_the_command_that_sends_a_run_sends_it_where_was_said(
    now: dict, options: list[str], back: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Options that are what ``report wandb`` takes by itself are left out. It is also tried from the other
    side: the run's own configuration differs, and what is asked for now is as shipped."""
    own, asked = ({**OWN, **now}, OWN) if back else (OWN, {**OWN, **now})
    target = {"_target_": "cl_lightning.loggers.open_wandb"}
    folder = tmp_path / "a b"
    folder.mkdir()
    (folder / "run.json").touch()
    OmegaConf.save({"logger": {"wandb": {**target, **own}}}, folder / "config.yaml")
    words = shlex.split(opening.command_to_send([folder], asked))
    assert words[:5] == ["python", "-m", "cl_lightning.report", "wandb", str(folder)]
    assert back or words[5:] == options
    sent: list[dict] = []
    monkeypatch.setattr(dashboard, "send", lambda folder, chosen: sent.append(chosen) or True)
    assert dashboard.report_wandb(words[4:]) == 0
    assert {**own, **sent[0], "timeout": 15} == {**asked, "timeout": 15}


def test_where_a_configuration_is_damaged_the_command_names_all_options(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("{")
    *_, project, entity, mode, tags, checkpoints = opening.command_to_send([tmp_path], OWN).split(" ")
    assert (project, entity, mode) == ("--project=mine", "--entity=", "--no-offline")
    assert (tags, checkpoints) == ("--tags", "--no-checkpoints")


def test_other_loggers_are_said_to_log_nothing(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    (line,) = shown(capsys, tmp_path, {"mine": TENSORBOARD})
    assert line == "TensorBoardLogger logs nothing now: with resume=false the run is made again, and logged."
    (line,) = shown(capsys, tmp_path, CSV)
    assert line.startswith("logs.csv is not written now")


def test_jobs_of_a_sweep_say_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "in_a_sweep", lambda: True)
    assert started(capsys, learned=3) == []
    tell_shown(configure("logger=wandb"), tmp_path)
    assert capsys.readouterr().err == ""
