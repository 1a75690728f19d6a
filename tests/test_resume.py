"""Killed at any instant, the same command goes on and ends with the same results."""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch

from cl_lightning import faults
from cl_lightning.engine.phases import InsideCheckpoints
from cl_lightning.errors import Refusal
from cl_lightning.journal import Journal, read_rows
from cl_lightning.runs import run_folder
from tests.commands import SMALL, but_what_may_differ, configure, run

# Small mini-batches and blocks, a checkpoint after each, dropout and Adam: there is something to lose.
FRAGILE = (
    "trainer.batch_size=16",
    "trainer.block=2",
    "trainer.checkpoint_minutes=0",
    "backbone.dropout=0.2",
    "trainer.max_epochs=3",
    "stream.tasks=2",
)


def in_a_child(function: Callable[[], object]) -> int:
    """Exit code of a process that starts where this one is: negative where a signal ended it."""
    child = multiprocessing.get_context("fork").Process(target=function)
    child.start()
    child.join(600)
    assert child.exitcode is not None, "still running"
    return child.exitcode


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., dict]:
    """Results of the uninterrupted run."""
    known: dict[tuple, dict] = {}

    def results(*overrides: str) -> dict:
        if overrides not in known:
            known[overrides] = but_what_may_differ(run(tmp_path_factory.mktemp("whole"), *FRAGILE, *overrides))
        return known[overrides]

    return results


def folder_of(outputs: Path, *overrides: str) -> Path:
    return run_folder(configure(f"outputs={outputs}", *SMALL, *FRAGILE, *overrides))


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("point", faults.POINTS)
def test_killed_at_a_named_point(point: str, count: int, tmp_path: Path, whole, capfd: pytest.CaptureFixture) -> None:
    count = {"task_end": min(count, 2), "adopt": min(count, 2), "results.write": 1, "evaluate": min(count, 3)}.get(point, count)
    code = in_a_child(lambda: run(tmp_path, *FRAGILE, f"debug.fault={point}:{count}"))
    assert code == -signal.SIGKILL, "the point was not reached"
    results = run(tmp_path, *FRAGILE)
    if point == "block" and count > 2:  # the checkpoint of one block is completed while the next is trained
        assert "resumed at step" in capfd.readouterr().err
    assert but_what_may_differ(results) == whole()
    assert sorted(p.name for p in (folder_of(tmp_path) / "checkpoints").iterdir()) == ["task0.pt", "task1.pt"]


@pytest.mark.slow
@pytest.mark.parametrize("extra", ["trainer.candidates_at_once=2", "backbone.sizes=[64] backbone.dropout=0.0"])  # the latter is stacked
def test_killed_again_and_again_inside_a_phase(extra: str, tmp_path: Path, whole, capfd: pytest.CaptureFixture) -> None:
    options, kills = (*FRAGILE, *extra.split()), 0
    while in_a_child(lambda: run(tmp_path, *options, "debug.fault=block:4")) == -signal.SIGKILL:
        kills += 1
        assert kills < 60, "no progress is made between kills"
    assert kills >= 2
    assert "resumed at step" in capfd.readouterr().err
    assert but_what_may_differ(run(tmp_path, *options)) == whole(*extra.split())


def interrupted(tmp_path: Path, fault: str = "block:8") -> Path:
    """The folder of a run that was killed when every checkpoint before the fault was complete: none is being written behind."""
    saving = InsideCheckpoints.on_train_batch_end

    def save_and_wait(self: InsideCheckpoints, *arguments: Any) -> None:
        saving(self, *arguments)
        self.journal.settle()

    def run_until_killed() -> None:
        with patch.object(InsideCheckpoints, "on_train_batch_end", save_and_wait):
            run(tmp_path, *FRAGILE, f"debug.fault={fault}")

    assert in_a_child(run_until_killed) == -signal.SIGKILL
    return folder_of(tmp_path)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)


DAMAGES = [truncate, flip_a_bit, Path.unlink]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_newest_checkpoint_is_noticed_and_the_one_before_it_used(damage, tmp_path: Path, whole, capfd) -> None:
    folder = interrupted(tmp_path)
    inside = [row for row in read_rows(folder / "journal.jsonl") if row["event"] == "inside"]
    assert [row["step"] for row in inside[-2:]] == [12, 14], "the kill came at another moment"
    damage(folder / "checkpoints" / inside[-1]["saved"]["file"])
    with pytest.warns(UserWarning, match="going back to the checkpoint before it"):
        results = run(tmp_path, *FRAGILE)
    assert f"resumed at step {inside[-2]['step']}" in capfd.readouterr().err
    assert but_what_may_differ(results) == whole()


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("fault", ["evaluate:3", "task_end:2", "results.write"])
def test_a_damaged_boundary_is_learned_again(damage, fault: str, tmp_path: Path, whole) -> None:
    folder = interrupted(tmp_path, fault)
    damage(sorted((folder / "checkpoints").glob("task?.pt"))[-1])
    with pytest.warns(UserWarning, match="going back"):
        assert but_what_may_differ(run(tmp_path, *FRAGILE)) == whole()


@pytest.mark.parametrize("line", [0, 2, -1])
@pytest.mark.parametrize("damage", [truncate, flip_a_bit])
def test_a_damaged_line_of_the_journal_takes_away_only_what_follows(damage, line: int, tmp_path: Path, whole) -> None:
    path = interrupted(tmp_path, "evaluate:3") / "journal.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    (tmp_path / "line").write_bytes(lines[line])
    damage(tmp_path / "line")
    lines[line] = (tmp_path / "line").read_bytes()
    path.write_bytes(b"".join(lines))
    cut_short = line == -1 and damage is truncate  # as by a kill: nothing to warn of
    with nullcontext() if cut_short else pytest.warns(UserWarning, match="damaged in line"):
        assert but_what_may_differ(run(tmp_path, *FRAGILE)) == whole()


class Malicious:
    def __reduce__(self):
        return (os.system, ("echo broken into",))


def test_a_checkpoint_that_would_run_code_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    folder = interrupted(tmp_path, "evaluate:2")
    journal = Journal(folder)
    boundary = journal.rows.index(journal.find("boundary"))
    forged = journal.save("task0", lambda path: path.write_bytes(pickle.dumps(Malicious())))
    journal.rows[boundary]["saved"] = forged
    journal.rewind(len(journal.rows))
    with pytest.raises(Refusal, match="more than tensors and plain values"):
        run(tmp_path, *FRAGILE)
    assert "broken into" not in capfd.readouterr().out


def test_every_checkpoint_loads_as_plain_values(tmp_path: Path) -> None:
    folder = interrupted(tmp_path)
    files = list((folder / "checkpoints").glob("*.pt"))
    assert len(files) >= 2
    for path in files:
        torch.load(path, weights_only=True)


def start(outputs: Path, *overrides: str) -> subprocess.Popen:
    command = [sys.executable, "-m", "cl_lightning", *SMALL, *FRAGILE, f"outputs={outputs}", *overrides]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=hears_ctrl_c)


def hears_ctrl_c() -> None:
    """Also where these tests run in the background of a shell, which makes its children deaf to it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def wait_for(path: Path, content: str) -> None:
    for _ in range(2400):  # two minutes: other work may be going on
        if path.is_file() and content in path.read_text():
            return
        time.sleep(0.05)
    pytest.fail(f"{content} did not appear in {path}")


LONG = ("trainer.max_epochs=4000", "trainer.patience=null", "selection=none")


def test_sigterm_saves_the_open_phase_and_exits_143(tmp_path: Path) -> None:
    options = (*LONG, "trainer.checkpoint_minutes=60", "logger=csv", "trainer.log_every=1")
    process, folder = start(tmp_path, *options), folder_of(tmp_path, *options)
    wait_for(folder / "logs.csv", "loss/")  # it trains
    process.send_signal(signal.SIGTERM)
    assert process.wait(120) == 143
    assert "Traceback" not in process.stderr.read()
    newest = read_rows(folder / "journal.jsonl")[-1]
    assert newest["event"] == "inside"
    assert newest["step"] > 0


def test_sigterm_before_training_exits_143_and_the_command_goes_on(tmp_path: Path, whole) -> None:
    process = start(tmp_path)
    while not (folder_of(tmp_path) / "holder.json").is_file():
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    assert process.wait(120) == 143
    assert but_what_may_differ(run(tmp_path, *FRAGILE)) == whole()


def test_a_second_process_on_one_folder_says_who_holds_it(tmp_path: Path) -> None:
    first = start(tmp_path, *LONG)
    wait_for(folder_of(tmp_path, *LONG) / "journal.jsonl", '"evaluated"')
    second = start(tmp_path, *LONG)
    assert second.wait(120) == 2
    assert f"held by process {first.pid}" in second.stderr.read()
    first.kill()
    first.wait()


def test_the_hold_of_a_killed_process_is_over(tmp_path: Path) -> None:
    folder = interrupted(tmp_path)
    assert (folder / "holder.json").is_file()
    run(tmp_path, *FRAGILE)
    assert not (folder / "holder.json").exists()
    assert not (folder / "lock").exists()


# ---- branching ---------------------------------------------------------------------------------------------------


def test_a_branch_takes_over_what_was_learned_before_and_goes_on_with_other_settings(tmp_path: Path, whole) -> None:
    run(tmp_path, *FRAGILE)
    old = folder_of(tmp_path)
    same = run(tmp_path, *FRAGILE, f"run={old}", "from_task=1")
    assert same["accuracy_matrix"] == whole()["accuracy_matrix"]
    assert same["selected"] == whole()["selected"]
    other = run(tmp_path, *FRAGILE, f"run={old}", "from_task=1", "trainer.optimizer=sgd", "selection=none")
    assert other["accuracy_matrix"][:2] == whole()["accuracy_matrix"][:2]
    assert other["accuracy_matrix"][2] != whole()["accuracy_matrix"][2]
    assert len(list(tmp_path.glob("*/*/*/results.json"))) == 3


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (["from_task=1", "run=/nowhere"], "holds no journal"),
        (["from_task=7"], "has not learned the task before"),
        (["from_task=1", "stream.n_train=99"], "another stream"),
        (["from_task=1", "run=null"], "needs run="),
    ],
)
def test_branches_that_cannot_be_are_refused(overrides: list[str], says: str, tmp_path: Path) -> None:
    run(tmp_path, *FRAGILE)
    with pytest.raises(Refusal, match=says):
        run(tmp_path, *FRAGILE, f"run={folder_of(tmp_path)}", *overrides)


@pytest.mark.slow
@pytest.mark.parametrize("point", faults.POINTS)
def test_sigterm_in_any_state_exits_143_and_the_command_goes_on(point: str, tmp_path: Path, whole, capfd: pytest.CaptureFixture) -> None:
    fault = f"debug.fault={point}:{1 if point == 'results.write' else 2}:term"
    assert in_a_child(lambda: os._exit(exit_code(lambda: run(tmp_path, *FRAGILE, fault)))) == 143
    assert "Traceback" not in capfd.readouterr().err
    assert but_what_may_differ(run(tmp_path, *FRAGILE)) == whole()


def exit_code(function: Callable[[], object]) -> int:
    try:
        function()
    except SystemExit as end:
        return end.code
    return 0


@pytest.mark.parametrize("fault", ["nowhere", "block:x", "block:1:stop", "block:1:kill:2"])
def test_faults_that_are_none_are_refused(fault: str, tmp_path: Path) -> None:
    with pytest.raises(Refusal, match=r"debug\.fault"):
        run(tmp_path, f"debug.fault={fault}")


def test_results_are_written_whole(tmp_path: Path) -> None:
    folder = interrupted(tmp_path, "results.write")
    assert not (folder / "results.json").exists()
    run(tmp_path, *FRAGILE)
    assert json.loads((folder / "results.json").read_text())["schema"] == 4


# ---- what else may go wrong ----------------------------------------------------------------------------------------------


def test_training_before_a_test_leaves_no_moments_behind(tmp_path: Path) -> None:
    options = (
        *FRAGILE,
        "learner._target_=tests.toys.Coreset",
        "trainer.optimizer_state=carry",
        "stream.tasks=3",
        "selection=none",
        "trainer.patience=null",
    )
    plain = run(tmp_path / "whole", *options)
    assert in_a_child(lambda: run(tmp_path / "killed", *options, "debug.fault=evaluate:3")) == -signal.SIGKILL
    assert but_what_may_differ(run(tmp_path / "killed", *options)) == but_what_may_differ(plain)


def test_a_checkpoint_that_was_just_resumed_from_is_not_written_over(tmp_path: Path) -> None:
    folder = interrupted(tmp_path, "block:8")
    inside = [row for row in read_rows(folder / "journal.jsonl") if row["event"] == "inside"]
    newest, before = (folder / "checkpoints" / row["saved"]["file"] for row in (inside[-1], inside[-2]))
    truncate(newest)
    good = before.read_bytes()
    assert in_a_child(lambda: run(tmp_path, *FRAGILE, "debug.fault=checkpoint.write")) == -signal.SIGKILL
    assert before.read_bytes() == good


def test_checkpoints_go_straight_to_their_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    monkeypatch.setattr("tempfile.tempdir", None)
    for _ in range(3):
        in_a_child(lambda: run(tmp_path / "out", *FRAGILE, "debug.fault=block:4"))
    assert not [path for path in scratch.rglob("*") if path.is_file()]


@pytest.mark.parametrize("where", ["memory", "once"])
def test_values_that_a_checkpoint_cannot_hold_are_refused_by_name_when_they_are_stored(where: str, tmp_path: Path) -> None:
    says = {"memory": r"self\.memory\['mean'\] is of type numpy\.float64", "once": r"what self\.once\('mean', \.\.\.\) came to is of type"}
    with pytest.raises(Refusal, match=says[where]):
        run(tmp_path, *FRAGILE, f"learner._target_=tests.toys.Numpy{where.title()}")


@pytest.mark.parametrize("overrides", [[], ["resume=anyway"]])
def test_a_run_of_another_format_is_not_read(overrides: list[str], tmp_path: Path) -> None:
    folder = interrupted(tmp_path)
    journal = Journal(folder)
    journal.rows[0]["format"] = 1
    journal.rewind(len(journal.rows))
    with pytest.raises(Refusal, match=r"kept its records in another way\. Start afresh"):
        run(tmp_path, *FRAGILE, *overrides)
    with pytest.raises(Refusal, match=r"kept its records in another way\. Run it again"):
        run(tmp_path / "branch", *FRAGILE, f"run={folder}", "from_task=1")


def test_ctrl_c_is_not_an_exit_with_code_1(tmp_path: Path) -> None:
    options = (*LONG, "logger=csv", "trainer.log_every=1")
    process = start(tmp_path, *options)
    wait_for(folder_of(tmp_path, *options) / "logs.csv", "loss/")  # it trains
    process.send_signal(signal.SIGINT)
    assert process.wait(120) == 130
    assert "Traceback" not in process.stderr.read()
