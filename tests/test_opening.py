"""What a run says first."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cl_lightning.runs.announce import tell_learned, tell_shown, tell_start
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
    cfg = configure("stream=split", *overrides)
    tell_start(cfg, stream, learner)
    tell_learned(cfg, len(stream), learned)
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
        "Nothing is logged to W&B now. This sends the run there (--project=NAME says where):",
        f"  python -m cl_lightning.report wandb '{folder}'",
    ]
    assert shown(capsys, folder, WANDB) == send
    assert shown(capsys, folder, {"csv": CSV, "wandb": WANDB}) == send
    assert shown(
        capsys, folder, {"csv": CSV, "tensorboard": {"_target_": "cl_lightning.loggers.TensorBoard"}}
    ) == [
        "Nothing is logged to TensorBoard now. This writes the run there:",
        f"  python -m cl_lightning.report tensorboard '{folder}'",
    ]
