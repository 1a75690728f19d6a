"""Weights & Biases gets what the records say: each point once, whatever the run went through.

Offline files are read back record by record; no test reaches for the network."""

from __future__ import annotations

import csv
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import warnings
from collections import Counter
from dataclasses import replace
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import wandb
from wandb.sdk import wandb_setup

from cl_lightning.cli.command import main as command_line
from cl_lightning.cli.report import main as report
from cl_lightning.loggers import CSVLogger, wandb_run, wandb_service
from cl_lightning.loggers.wandb_run import WandbRun, open_wandb, send_run, tags_of
from cl_lightning.loggers.wandb_service import Account, Attempt, Identity, Service, mark_chosen, new_attempt
from cl_lightning.report.projection import (
    AXES,
    Curves,
    Projection,
    Sheet,
    chosen_at,
    costs_at,
    is_drawn,
    metrics_at,
)
from cl_lightning.runs import loop
from cl_lightning.store.files import checksum
from cl_lightning.store.folder import open_store
from cl_lightning.store.records import RowRecord, TaskRecord
from tests import docs, dying
from tests.commands import SMALL, configure, folder_of, run
from tests.wandb_file import Read, drawn_by_leet, ended, runs_in

OFFLINE = ("logger=[csv,wandb]", "logger.wandb.mode=offline")
WHOLE = (
    *OFFLINE, "learner=mntdp_d", "stream.head=multi_train_test", "trainer.log_every=1", "reference=true",
    "figures=true", "logger.wandb.tags=[mine]",
)  # fmt: skip


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run of three tasks that logged to W&B."""
    outputs = tmp_path_factory.mktemp("finished")
    run(outputs, *WHOLE)
    return folder_of(configure(f"outputs={outputs}", *SMALL, *WHOLE))


@pytest.fixture(scope="module")
def results(finished: Path) -> dict[str, Any]:
    return json.loads((finished / "results.json").read_text())


@pytest.fixture(scope="module")
def read(finished: Path) -> Read:
    """What W&B got of it while it went on."""
    return runs_in(finished)[0]


def at_boundaries(read: Read) -> dict[int, dict[str, Any]]:
    """What stands at each number of learned tasks."""
    found: dict[int, dict[str, Any]] = {}
    for learned, key, value in read.points("learned"):
        assert key not in found.setdefault(int(learned), {}), "a point is there twice"
        found[int(learned)][key] = value
    return found


def curves_in(folder: Path) -> list[tuple[int, str, float]]:
    """The curves of training in logs.csv."""
    with (folder / "logs.csv").open() as file:
        rows = [(int(row["step"]), row["name"], float(row["value"])) for row in csv.DictReader(file)]
    return [row for row in rows if row[1].startswith(("train/", "val/"))]


# ---- points ------------------------------------------------------------------------------------------------


def test_every_key_goes_by_the_axis_of_its_kind(read: Read) -> None:
    assert read.axes == {key: axis for axis, keys in AXES.items() for key in keys}
    for row in read.rows:
        (axis,) = {"learned", "batches"} & set(row)
        kinds = {key.partition("/")[0] for key in row if key != axis}
        assert {f"{kind}/*" for kind in kinds} <= set(AXES[axis])


@pytest.mark.skipif(sys.platform == "win32", reason="it has no pseudo-terminals")
def test_wandbs_own_reader_draws_every_curve_over_its_axis(read: Read, tmp_path: Path) -> None:
    """A key that it took for its own, as `train/loss` was on its pages once, would go by its own steps."""
    wanted = {key: axis for axis in AXES for _, key, value in read.points(axis) if not isinstance(value, str)}
    assert {"train/loss": "batches", "test/task/2": "learned", "cl/ACC": "learned"}.items() <= wanted.items()
    drawn = drawn_by_leet(read.path, set(wanted), tmp_path)
    assert {key: axis for key, axis in drawn.items() if key in wanted} == wanted


def test_keys_have_no_values_candidates_or_classes_in_them(read: Read) -> None:
    keys = {key for row in read.rows for key in row} - {"learned", "batches"}
    held = {f"cost/bytes_{part}" for part in ("parameters", "buffers", "structure")}
    assert keys == held | {
        "test/mean_learned", "test/task/0", "test/task/1", "test/task/2",
        "cl/ACC", "cl/AIA", "cl/LA", "cl/BWT", "cl/forgetting", "cl/forgetting_from_best", "cl/T",
        "cost/flops", "cost/seconds",
        "chosen/val_accuracy", "chosen/lr", "chosen/weight_decay", "chosen/reused_modules",
        "train/loss", "val/best", "val/alive", "matrix/table", "matrix/heat", "card/table",
        "figures/over_tasks", "figures/paths",
    }  # fmt: skip


def test_keys_are_of_letters_digits_and_underscores_in_groups_by_slashes(read: Read, finished: Path) -> None:
    """W&B keeps a dot for what lies inside a value, and reads a hyphen as minus."""
    task = Projection(finished).store.load("tasks/000", TaskRecord)
    row = Projection(finished).store.load("rows/001", RowRecord)
    (last,) = task.phases[-1:]
    last.chosen.hparams["my.rate"] = 0.5
    task.held["memory.A"] = 8
    made = {**costs_at(task, row), **chosen_at(task)}
    assert (made["cost/bytes_memory_A"], made["chosen/my_rate"]) == (8, 0.5)
    for key in {*made, *read.summary, *(key for row in read.rows for key in row)}:
        assert re.fullmatch(r"\w+(/\w+)*", key), key


def test_each_boundary_has_the_row_the_costs_and_the_choice_of_its_task(read: Read, results: dict) -> None:
    points = at_boundaries(read)
    for learned in (1, 2, 3):
        row, cost = results["accuracy_matrix"][learned], results["costs"][learned - 1]
        (chosen,) = [each for each in results["selected"] if each["where"] == f"task{learned - 1}"]
        for j, accuracy in enumerate(row):
            assert points[learned].get(f"test/task/{j}") == accuracy
        assert points[learned]["test/mean_learned"] == pytest.approx(sum(row[:learned]) / learned)
        assert points[learned]["cost/flops"] == cost["flops"]
        assert points[learned]["cost/bytes_parameters"] == cost["held"]["parameters"]
        assert points[learned]["chosen/val_accuracy"] == chosen["val_accuracy"]
        assert points[learned]["chosen/lr"] == chosen["hparams"]["lr"]
        assert points[learned]["chosen/reused_modules"] == results["notes"][learned - 1]["reused"]


def test_metrics_at_a_boundary_are_those_of_a_stream_that_ends_there() -> None:
    matrix = [[0.5, 0.25, 0.5], [0.875, 0.5, 0.25], [0.625, 0.75, 0.5], [0.5, 0.5, 1.0]]
    assert metrics_at(matrix[:2]) == {"cl/ACC": 0.875, "cl/AIA": 0.875, "cl/LA": 0.875}
    assert metrics_at(matrix[:3]) == {
        "cl/ACC": 0.6875,
        "cl/AIA": (0.875 + 0.6875) / 2,
        "cl/LA": (0.875 + 0.75) / 2,
        "cl/BWT": -0.25,
        "cl/FWT": 0.25,
        "cl/forgetting": 0.25,
        "cl/forgetting_from_best": 0.25,
    }
    assert metrics_at(matrix)["cl/BWT"] == (-0.375 - 0.25) / 2


def test_the_last_boundary_has_the_metrics_of_the_results(read: Read, results: dict) -> None:
    last, metrics = at_boundaries(read)[3], results["metrics"]
    assert last["cl/ACC"] == pytest.approx(metrics["average_accuracy"])
    assert last["cl/AIA"] == pytest.approx(metrics["average_incremental_accuracy"])
    assert last["cl/forgetting"] == pytest.approx(metrics["forgetting"])
    assert last["cl/T"] == results["reference"]["transfer"]


def test_each_point_inside_tasks_is_there_once(read: Read, finished: Path) -> None:
    wanted = curves_in(finished)
    assert {name for _, name, _ in wanted} == {"train/loss", "val/best", "val/alive"}
    assert Counter(read.points("batches")) == Counter(wanted)


# ---- media, summary, files ---------------------------------------------------------------------------------


def test_the_matrix_is_there_after_each_task_as_a_picture_and_at_the_end_as_a_table(
    read: Read, results: dict
) -> None:
    (table,) = [json.loads(path.read_text()) for path in read.media("matrix/table")]
    assert table["columns"] == ["learned", "task 0", "task 1", "task 2"]
    assert table["data"] == [[i, *row] for i, row in enumerate(results["accuracy_matrix"])]
    pictures = [path.read_bytes() for path in read.media("matrix/heat")]
    assert [row["learned"] for row in read.rows if "matrix/heat" in row] == [1, 2, 3]
    assert all(picture.startswith(b"\x89PNG") for picture in pictures)
    assert len(set(pictures)) == 3


def test_a_finished_run_has_its_figures_and_its_card(read: Read, results: dict, finished: Path) -> None:
    (card,) = [json.loads(path.read_text()) for path in read.media("card/table")]
    assert card["data"] == [[each["rule"], each["verdict"], each["evidence"]] for each in results["card"]]
    for name in ("over_tasks", "paths"):
        (picture,) = read.media(f"figures/{name}")
        assert picture.read_bytes() == (finished / "figures" / f"{name}.png").read_bytes()


def test_the_summary_has_what_the_run_came_to_and_the_verdicts_of_its_card(read: Read, results: dict) -> None:
    metrics = results["metrics"]
    assert {key: value for key, value in read.summary.items() if key.startswith("final/")} == {
        "final/ACC": metrics["average_accuracy"],
        "final/AIA": metrics["average_incremental_accuracy"],
        "final/LA": metrics["learning_accuracy"],
        "final/BWT": metrics["backward_transfer"],
        "final/forgetting": metrics["forgetting"],
        "final/forgetting_from_best": metrics["forgetting_from_best"],
        "final/T": results["reference"]["transfer"],
        "final/val_accuracy": results["validation_at_end"]["mean"],
    }
    verdicts = {f"card/{re.sub('[ -]', '_', each['rule'])}": each["verdict"] for each in results["card"]}
    assert "card/cross_task_resemblance" in verdicts
    assert {key: read.summary[key] for key in verdicts} == verdicts
    assert read.exit_code == 0


def artifact(read: Read) -> Any:
    (found,) = [each for each in read.of("artifact") if each.type == "results"]
    return found


def test_the_artifact_has_results_configuration_and_figures_and_learners_where_they_are_asked_for(
    read: Read, finished: Path, tmp_path: Path
) -> None:
    files = ["config.yaml", "results.json"] + [
        f"figures/{name}.{kind}" for name in ("over_tasks", "paths") for kind in ("png", "svg")
    ]
    assert artifact(read).name == "results"
    assert sorted(entry.path for entry in artifact(read).manifest.contents) == sorted(files)
    copied = shutil.copytree(finished, tmp_path / "run")
    send_run(copied, Account("p", mode="offline"), checkpoints=True)
    learners = [f"tasks/00{i}.pt" for i in range(3)]
    entries = artifact(runs_in(copied)[-1]).manifest.contents
    assert sorted(entry.path for entry in entries) == sorted([*files, *learners])


def test_every_key_of_a_run_is_on_the_page_and_every_number_on_a_panel(finished: Path) -> None:
    keys = {key for point in Projection(finished).news() for key in point}
    page = docs.page("dashboard")
    listed = page.partition("## Keys")[2].partition("The summary")[0]
    known = [re.sub(r"\{\w+\}", "*", key) for key in re.findall(r"`([\w/{}]+)`", listed)]
    rows = re.findall(r"^\| \[\w+\]\(#panel-\w+\) \| (.*) \| `\w+` \| \w+ \|$", page, re.MULTILINE)
    drawn = [pattern for row in rows for pattern in re.findall("`(.*?)`", row)]
    for key in keys - {"learned", "batches"}:
        assert any(fnmatch(key, pattern) for pattern in known), key
        alone = key in ("matrix/heat", "chosen/weight_decay", "cl/LA", "cl/forgetting_from_best")
        assert alone or any(fnmatch(key, pattern) for pattern in drawn), key


# ---- identity ----------------------------------------------------------------------------------------------


def test_a_run_says_what_it_is(read: Read, results: dict, finished: Path) -> None:
    own, token = read.run, open_store(finished)[0].run[:8]
    kind = f"quickstart/mntdp_d/{results['fingerprint']}"
    assert own.display_name == f"{kind}-s0/{token}/1"
    assert re.fullmatch(f"quickstart-mntdp_d-{results['fingerprint']}-s0-{token}-1-[0-9a-f]{{6}}", own.run_id)
    assert read.config["attempt"] == "1"
    assert (own.run_group, own.job_type) == (kind, "run")
    assert set(own.tags) == {"mntdp_d", "split_mnist", "task-incremental", "multi_train_test", "mine"}
    assert read.config["trainer"]["batch_size"] == 64
    assert read.config["trainer"]["lr"] == "grid", "0.001, which nobody trained with"
    about = read.config["run"]
    assert about["fingerprint"] == results["fingerprint"]
    assert about["stream_fingerprint"] == results["stream"]["fingerprint"]
    assert about["commit"] == results["environment"]["commit"]
    assert re.fullmatch("[0-9a-f]{40}|unknown", about["commit"])


def test_two_experiments_and_two_people_have_a_run_each_in_one_project(tmp_path: Path) -> None:
    """Today's names were made of learner, fingerprint and seed, which all of these share."""
    little = (*OFFLINE, "stream.tasks=1", "trainer.max_epochs=1", "selection=none")
    for outputs, name in (("mine", "one"), ("mine", "two"), ("yours", "one")):
        run(tmp_path / outputs, *little, f"name={name}")
    own = [ended(path).run for path in tmp_path.glob("*/*/*/*/wandb/offline-run-*/*.wandb")]
    assert len({each.run_id for each in own}) == len({each.display_name for each in own}) == 3
    assert len({re.search("[0-9a-f]{12}-s0", each.run_id)[0] for each in own}) == 1
    assert {each.run_group.partition("/")[0] for each in own} == {"one", "two"}
    assert {each.project for each in own} == {"cl_lightning"}


def test_an_experiment_of_a_paper_is_tagged_with_it_and_a_single_pass_is_one(finished: Path) -> None:
    _, start = open_store(finished)
    of_gem = replace(start, name="gem_permutations", passes=1)
    assert tags_of(of_gem) == [
        "mntdp_d", "split_mnist", "task-incremental", "multi_train_test", "single_pass", "gem"
    ]  # fmt: skip
    assert tags_of(replace(start, name="ctrl_minus"))[-1] == "mntdp"


# ---- kills and resumptions ---------------------------------------------------------------------------------

FRAGILE = (*OFFLINE, "trainer.log_every=1", "trainer.block=1", "trainer.checkpoint_minutes=0")


def but_seconds(points: list[tuple[float, str, Any]]) -> Counter:
    return Counter(point for point in points if point[1] != "cost/seconds")


def test_after_kills_the_newest_run_has_each_point_once_and_all_of_them(tmp_path: Path, read: Read) -> None:
    each_alone = (*WHOLE, "figures=false", "trainer.block=1")
    again = partial(run, tmp_path, *each_alone)
    for fault in ("block:3", "record written:3", "results:1"):  # two mini-batches are trained again
        dying.killed(fault, again)
    again()
    killed = runs_in(folder_of(configure(f"outputs={tmp_path}", *SMALL, *each_alone)))
    assert len(killed) == 4
    assert len({each.id for each in killed}) == 4
    assert [each.exit_code for each in killed] == [None, None, None, 0]
    for axis in AXES:
        assert but_seconds(killed[-1].points(axis)) == but_seconds(read.points(axis))
    assert len(killed[-1].media("matrix/heat")) == 3
    assert len(killed[-1].media("matrix/table")) == 1


def test_a_killed_run_can_be_sent_and_is_no_finished_one(tmp_path: Path) -> None:
    dying.killed("test:3", partial(run, tmp_path, "trainer.log_every=1"))
    assert report(["wandb", str(tmp_path), "--offline", "--project", "other"]) == 0
    folder = folder_of(configure(f"outputs={tmp_path}", *SMALL))
    (sent,) = runs_in(folder)
    assert sent.run.project == "other"
    assert sorted(at_boundaries(sent)) == [0, 1]
    assert Counter(sent.points("batches")) == Counter(curves_in(folder))
    assert not [key for key in sent.summary if key.startswith(("final/", "card/"))]
    assert sent.exit_code == 1


def test_report_sends_what_the_run_itself_sent(finished: Path, read: Read, tmp_path: Path, capsys) -> None:
    copied = shutil.copytree(finished, tmp_path / "run", ignore=shutil.ignore_patterns("wandb"))
    assert report(["wandb", str(tmp_path)]) == 0  # offline, as its own configuration says
    (sent,) = runs_in(copied)
    assert sent.run.display_name == read.run.display_name[:-1] + "2", "the next attempt"
    for axis in AXES:
        assert Counter(sent.points(axis)) == Counter(read.points(axis))
    ends = [{k: v for k, v in each.summary.items() if k[:5] in ("final", "card/")} for each in (sent, read)]
    assert ends[0] == ends[1]
    assert set(sent.run.tags) == set(read.run.tags)
    (said,) = capsys.readouterr().err.splitlines()
    assert said.endswith(f"wandb sync {sent.path.parent}")


def test_a_run_that_cannot_be_sent_keeps_no_other_back_and_is_told(
    finished: Path, tmp_path: Path, capsys
) -> None:
    for name in ("a", "b"):
        shutil.copytree(finished, tmp_path / name, ignore=shutil.ignore_patterns("wandb"))
    (tmp_path / "a" / "run.json").write_text("{")
    assert report(["wandb", str(tmp_path), "--offline"]) == 2
    assert "run.json" in capsys.readouterr().err
    assert len(runs_in(tmp_path / "b")) == 1


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The outputs of a sweep of two runs that logged to W&B, without what was sent."""
    outputs = tmp_path_factory.mktemp("swept")
    sweep = (
        *SMALL,
        "stream.tasks=1",
        "seed=0,1",
        "selection=none",
        "logger=wandb",
        "logger.wandb.mode=offline",
    )
    own = ("logger.wandb.project=mine", "logger.wandb.entity=us", "logger.wandb.tags=[pilot]")
    assert command_line(["--multirun", *sweep, *own, f"outputs={outputs}"]) == 0
    for path in outputs.rglob("wandb"):
        shutil.rmtree(path)
    return outputs


def copy_of(swept: Path, to: Path) -> tuple[Path, list[Path]]:
    """The sweep's folder and those of its runs, in a copy."""
    copied = shutil.copytree(swept, to / "copied")
    (sweep,) = copied.glob("*/sweeps/*")
    return sweep, sorted(copied.glob("*/finetune/*"))


@pytest.mark.parametrize("damage", ["{", "[]", "3", "logger: some", "\xff\x00", None])
def test_a_damaged_configuration_keeps_no_other_run_back_and_is_told(
    damage: str | None, swept: Path, tmp_path: Path, capsys
) -> None:
    _, runs = copy_of(swept, tmp_path)
    config = runs[0] / "config.yaml"
    text = damage or config.read_text().replace("timeout: 15", "timeout: soon")
    config.write_bytes(text.encode("latin-1"))
    assert report(["wandb", *map(str, runs)]) == 2
    told = capsys.readouterr().err
    assert str(config) in told
    assert "Traceback" not in told
    assert damage or "logger.wandb.timeout=soon must be a number" in told
    assert not (runs[0] / "wandb").exists()
    assert len(runs_in(runs[1])) == 1


def test_a_run_is_a_point_where_a_job_of_a_sweep_began_it(
    swept: Path, finished: Path, tmp_path: Path
) -> None:
    """Its own record says so, without the sweep. Older records do not: they are runs."""
    _, (run_, _) = copy_of(swept, tmp_path)
    shutil.rmtree(run_.parent.parent / "sweeps")
    alone = shutil.copytree(finished, tmp_path / "alone", ignore=shutil.ignore_patterns("wandb"))
    older = shutil.copytree(run_, tmp_path / "older")
    store, start = open_store(older)
    content = json.loads((store.save("run", start) and older / "run.json").read_text())
    del content["record"]["of_a_sweep"], content["crc"]
    (older / "run.json").write_text(json.dumps({**content, "crc": checksum(content)}))
    assert report(["wandb", *map(str, (run_, alone, older)), "--offline"]) == 0
    types = [runs_in(folder)[0].run.job_type for folder in (run_, alone, older)]
    assert types == ["point", "run", "run"]


def test_a_value_of_ones_own_that_is_no_number_is_no_point(tmp_path: Path) -> None:
    mine = {"train/mine": torch.tensor(0.5), "train/words": "two", "val/none": None, "epoch": 3}
    CSVLogger(tmp_path).log_metrics(mine, 4)
    assert list(Curves(tmp_path / "logs.csv").news()) == [{"batches": 4, "train/mine": 0.5}]


def test_report_of_no_run_says_what_to_give(tmp_path: Path, capsys) -> None:
    assert report(["wandb", str(tmp_path)]) == 2
    assert "Give folders of runs" in capsys.readouterr().err


def test_what_is_not_whole_yet_in_the_curves_comes_with_the_next_look(tmp_path: Path) -> None:
    path = tmp_path / "logs.csv"
    curves = Curves(path)
    assert list(curves.news()) == []
    path.write_text(
        "step,name,value\n0,task,0\n0,train/loss,0.5\n0,loss/lr=0.1,0.5\n0,val/best,0.2\n1,train/lo"
    )
    assert list(curves.news()) == [{"batches": 0, "train/loss": 0.5, "val/best": 0.2}]
    with path.open("a") as file:
        file.write("ss,0.25\n1,val/best,0.4\n1,task,1\n1,val/best,0.1\nbroken\n")
    assert list(curves.news()) == [
        {"batches": 1, "train/loss": 0.25, "val/best": 0.4},
        {"batches": 1, "val/best": 0.1},
    ]
    assert curves.read == path.stat().st_size, "nothing is read again"


# ---- online ------------------------------------------------------------------------------------------------


@pytest.fixture
def as_if_online(monkeypatch: pytest.MonkeyPatch) -> None:
    """W&B takes runs as online ones, and writes files."""
    begin = wandb.init
    monkeypatch.setattr(wandb, "setup", lambda settings: None)
    monkeypatch.setattr(wandb, "login", lambda **options: True)
    monkeypatch.setattr(wandb, "init", lambda mode, **options: begin(mode="offline", **options))

    def find(path: str) -> Any:
        raise ValueError("could not find the run")

    monkeypatch.setattr(wandb, "Api", lambda: SimpleNamespace(run=find))


@pytest.mark.usefixtures("as_if_online")
def test_a_resumed_run_online_begins_with_what_was_trained_before_and_has_each_point_once(
    tmp_path: Path, capsys
) -> None:
    fragile = (*FRAGILE, "logger.wandb.mode=online")
    dying.killed("block:7", partial(run, tmp_path, *fragile))
    folder = folder_of(configure(f"outputs={tmp_path}", *SMALL, *fragile))
    before = curves_in(folder)
    run(tmp_path, *fragile)
    live = runs_in(folder)[-1].points("batches")
    assert before
    assert Counter(live[: len(before)]) == Counter(before)
    assert Counter(live) == Counter(curves_in(folder))
    assert sum("W&B: " in line for line in capsys.readouterr().err.splitlines()) == 1


@pytest.mark.usefixtures("as_if_online")
@pytest.mark.parametrize("mode", ["online", "offline"])
def test_curves_come_while_a_task_is_learned_online_and_at_its_end_offline(
    mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[dict[str, Any]] = []
    seen: list[int] = []
    log, at_the_end = wandb.Run.log, loop.card_facts
    monkeypatch.setattr(wandb.Run, "log", lambda self, row: (sent.append(row), log(self, row)))

    def card_facts(*arguments: Any) -> dict[str, Any]:
        seen.append(sum("batches" in row for row in sent))
        return at_the_end(*arguments)

    monkeypatch.setattr(loop, "card_facts", card_facts)
    run(tmp_path, *OFFLINE, f"logger.wandb.mode={mode}", "trainer.log_every=1", "stream.tasks=2")
    assert (seen[0] > 0) == (mode == "online")
    assert seen[1] > 0, "the first task's are there when the second one is learned"


@pytest.mark.usefixtures("as_if_online")
def test_earlier_runs_of_a_folder_are_tagged_as_superseded(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied = shutil.copytree(finished, tmp_path / "run", ignore=shutil.ignore_patterns("wandb"))
    first, _ = new_attempt(copied, Account("elsewhere", entity="we"), ("gone",))
    server = {json.loads((copied / "wandb.json").read_text())[0]["id"]: SimpleNamespace(tags=["a"], saved=0)}
    for old in server.values():
        old.update = lambda old=old: setattr(old, "saved", old.saved + 1)
    asked = []

    def find(path: str) -> Any:
        asked.append(path)
        if path.rpartition("/")[2] not in server:
            raise ValueError("could not find the run")
        return server[path.rpartition("/")[2]]

    monkeypatch.setattr(wandb, "Api", lambda: SimpleNamespace(run=find))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            send_run(copied, Account("p"))
    (old,) = server.values()
    assert (old.tags, old.saved) == (["a", "superseded"], 1)
    assert asked[:2] == [f"cl_lightning/{next(iter(server))}", first.path]
    assert first.path.startswith("we/elsewhere/gone-")


@pytest.mark.usefixtures("as_if_online")
@pytest.mark.parametrize("broken", ["log", "finish"])
def test_a_network_that_dies_stops_no_run_and_is_told_once(
    broken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    whole = getattr(wandb.Run, broken)

    def dies(self: Any, *arguments: Any, **options: Any) -> Any:
        calls.append(broken)
        if broken == "finish" or len(calls) > 4:
            raise ConnectionError("the network is gone")
        return whole(self, *arguments, **options)

    monkeypatch.setattr(wandb.Run, broken, dies)
    with pytest.warns(UserWarning, match="network is gone.*report wandb") as told:
        found = run(tmp_path, *OFFLINE, "logger.wandb.mode=online", "trainer.log_every=1")
    assert len([each for each in told if "W&B" in str(each.message)]) == 1
    assert len(calls) == (1 if broken == "finish" else 5)
    assert found["finished"]


def test_without_a_login_it_goes_offline_with_one_line(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    copied = shutil.copytree(finished, tmp_path / "run", ignore=shutil.ignore_patterns("wandb"))
    asked = []
    monkeypatch.setattr(wandb, "login", lambda **options: asked.append(options["prompt"]))
    send_run(copied, Account("p"))
    (sent,) = runs_in(copied)
    assert asked == [False]
    assert capsys.readouterr().err.splitlines() == [
        "W&B: no credentials, so this run is logged offline. Send it later with: "
        f"wandb sync {sent.path.parent}"
    ]


def test_the_commands_that_are_printed_can_be_copied_where_a_path_has_a_space(tmp_path: Path, capsys) -> None:
    folder = tmp_path / "my run"
    folder.mkdir()
    service = Service(folder, Account("p", mode="offline"), Identity(("a",), "g", "run"))
    *_, wandb_sync, where = shlex.split(capsys.readouterr().err)
    assert (wandb_sync, Path(where).parent) == ("sync", folder / "wandb")
    with pytest.warns(UserWarning, match="report wandb") as told:
        service.give_up(ConnectionError())
    assert shlex.split(str(told[0].message).partition("later with: ")[2])[-1] == str(folder)
    service.finish(succeeded=False)


@pytest.mark.parametrize("network", ["there", "gone"])
def test_nothing_of_wandbs_is_open_when_a_run_has_ended(network: str, tmp_path: Path) -> None:
    """W&B ends its own process with the program's once no run is open; else the program waits for it."""
    before = wandb_setup.singleton().most_recent_active_run  # another test's, which could not end it
    service = Service(tmp_path, Account("p", mode="offline"), Identity(("a",), "g", "run"))
    assert wandb_setup.singleton().most_recent_active_run is service.run
    if network == "gone":
        with pytest.warns(UserWarning, match="W&B failed"):
            service.give_up(ConnectionError())
    service.finish(succeeded=False)
    assert wandb_setup.singleton().most_recent_active_run is before
    assert runs_in(tmp_path)[0].exit_code == 1


@pytest.mark.all
def test_without_a_network_it_goes_offline_with_one_line_never_waits_and_leaves_nothing_running(
    tmp_path: Path,
) -> None:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("WANDB_")} | {
        "HOME": str(tmp_path),
        "NETRC": str(tmp_path / "none"),
        "WANDB_BASE_URL": "http://127.0.0.1:9",
        "WANDB_API_KEY": "0" * 40,
    }
    overrides = [*SMALL, "stream.tasks=1", "logger=wandb", "logger.wandb.timeout=1", f"outputs={tmp_path}"]
    process = subprocess.Popen(
        [sys.executable, "-m", "cl_lightning", *overrides],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    _, err = process.communicate(timeout=120)  # ends when all that could write there have ended
    assert process.returncode == 0, err
    said = [line for line in err.splitlines() if "offline" in line]
    assert len(said) == 1
    assert "wandb sync" in said[0]
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)
    (folder,) = tmp_path.glob("quickstart/finetune/*")
    (sent,) = runs_in(folder)
    assert sent.exit_code == 0, "one run, not one a Trainer"
    assert (folder / "logs.csv").is_file()


def test_where_wandb_is_disabled_nothing_is_written_or_sent_and_one_line_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    monkeypatch.setenv("WANDB_MODE", "disabled")
    assert run(tmp_path, "logger=wandb", "stream.tasks=1", "selection=none")["finished"]
    said = "W&B: WANDB_MODE=disabled, so nothing is logged there."
    assert [line for line in capsys.readouterr().err.splitlines() if "W&B" in line] == [said]
    assert report(["wandb", str(tmp_path)]) == 2, "it was not sent"
    assert capsys.readouterr().err.splitlines() == [said]
    assert list(tmp_path.rglob("logs.csv"))
    assert not list(tmp_path.rglob("*wandb*"))


@pytest.mark.parametrize("point", ["opening", "first points", "last points"])
def test_a_signal_while_wandb_is_opened_or_closed_leaves_no_run_that_passes_for_finished(
    point: str, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied = shutil.copytree(finished, tmp_path / "run", ignore=shutil.ignore_patterns("wandb"))

    def ends(*_: Any) -> Any:
        raise SystemExit(143)

    begin = wandb.init
    if point == "opening":
        monkeypatch.setattr(wandb, "init", lambda **options: ends(begin(**options)))
    else:
        monkeypatch.setattr(
            *{"first points": (Projection, "news"), "last points": (WandbRun, "end")}[point], ends
        )
    with pytest.raises(SystemExit, match="143"):
        send_run(copied, Account("p", mode="offline"))
    (sent,) = runs_in(copied)
    assert sent.exit_code == 1


@pytest.mark.usefixtures("as_if_online")
def test_a_run_that_cannot_be_opened_online_is_opened_offline_as_another(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    """W&B knows the id of the one that failed, and would refuse it."""
    copied = shutil.copytree(finished, tmp_path / "run", ignore=shutil.ignore_patterns("wandb"))
    begin = wandb.init

    def fails_online(mode: str, **options: Any) -> Any:
        if mode == "online":
            raise TimeoutError("no answer")
        return begin(mode=mode, **options)

    monkeypatch.setattr(wandb, "init", fails_online)
    send_run(copied, Account("p"))
    (sent,) = runs_in(copied)
    assert sent.run.display_name.endswith("/3")
    assert sent.exit_code == 0
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith("W&B: no connection (TimeoutError), so this run is logged offline. Send it")


class Begun:
    """A run of W&B's, online, that takes everything."""

    url = "https://wandb.example/us/p/runs/1"

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The modes of the runs that are opened; W&B opens any."""
    modes: list[str] = []
    monkeypatch.setattr(wandb, "setup", lambda settings: None)
    monkeypatch.setattr(wandb, "login", lambda **options: True)
    monkeypatch.setattr(wandb, "init", lambda mode, **options: modes.append(mode) or Begun())
    return modes


def test_the_address_of_a_run_online_is_printed_beside_what_a_pipe_gets(
    begun: list[str], tmp_path: Path, capsys
) -> None:
    service = Service(tmp_path, Account("p"), Identity(("a",), "g", "run"))
    assert (begun, service.online) == (["online"], True)
    assert capsys.readouterr() == ("", f"W&B: {Begun.url}\n")


def test_a_line_that_cannot_be_printed_opens_no_second_run(
    begun: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nobody_reads(line: str) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(wandb_service, "say", nobody_reads)
    with pytest.raises(BrokenPipeError):
        Service(tmp_path, Account("p"), Identity(("a",), "g", "run"))
    assert begun == ["online"]


# ---- sweeps ------------------------------------------------------------------------------------------------


def test_a_sweep_of_finished_runs_says_what_sends_them(tmp_path: Path, capsys) -> None:
    sweep = ("--multirun", *SMALL, "stream.tasks=1", "seed=0,1", "selection=none", f"outputs={tmp_path}")
    assert command_line(sweep) == 0
    wandb_too = (*sweep, "logger=wandb", "logger.wandb.mode=offline", "logger.wandb.project=mine")
    capsys.readouterr()
    assert command_line(wandb_too) == 0
    lines = capsys.readouterr().err.splitlines()
    said = "  to send what was only shown to W&B (--project=NAME says where): "
    (command,) = (line.removeprefix(said) for line in lines if line.startswith(said))
    assert not list(tmp_path.rglob("wandb*")), "nothing is opened"
    runs = sorted(tmp_path.glob("*/finetune/*"))
    words = shlex.split(command)
    assert words == ["python", "-m", "cl_lightning.report", "wandb", *map(str, runs)]
    assert report([*words[3:], "--project=mine", "--offline"]) == 0
    assert {runs_in(run)[0].run.project for run in runs} == {"mine"}
    assert command_line(wandb_too) == 0
    assert "only shown" not in capsys.readouterr().err, "W&B has them"
    assert [len(runs_in(run)) for run in runs] == [1, 1]


class Server:
    """W&B's runs by the last part of their path, with their tags."""

    def __init__(self) -> None:
        self.tags: dict[str, list[str]] = {}

    def run(self, path: str) -> Any:
        run = SimpleNamespace(tags=self.tags.setdefault(path.rpartition("/")[2], []))
        run.update = lambda: self.tags.update({path.rpartition("/")[2]: run.tags})
        return run


@pytest.mark.usefixtures("as_if_online")
def test_the_run_that_a_search_chose_is_tagged_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server()
    monkeypatch.setattr(wandb, "Api", lambda: server)
    few = (*SMALL, "stream.tasks=1", "selection=stream_level", "logger=wandb", f"outputs={tmp_path}")
    sweep = (*few, "selection.stream={trainer.lr:[0.1,1e-9]}")
    assert command_line(list(sweep)) == 0
    (record,) = tmp_path.glob("*/sweeps/*/sweep.json")
    won, lost = (record.parent / job["run"] for job in json.loads(record.read_text())["jobs"])

    def newest(folder: Path) -> str:
        return json.loads((folder / "wandb.json").read_text())[-1]["id"]

    assert server.tags == {newest(won): ["chosen"]}
    mark_chosen("online", {won: False, lost: True})
    assert server.tags == {newest(won): [], newest(lost): ["chosen"]}
    assert report(["wandb", str(tmp_path)]) == 0
    sent = {folder: list(runs_in(folder)[-1].run.tags) for folder in (won, lost)}
    assert [folder for folder in sent if "chosen" in sent[folder]] == [won], "as the records have it"


def test_a_run_that_many_jobs_make_is_sent_once_when_it_is_finished(
    finished: Path, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setattr(wandb_run, "in_rounds", lambda: True)
    copied = shutil.copytree(finished, tmp_path / "run", ignore=shutil.ignore_patterns("wandb"))
    for status in ("failed", "failed", "success"):  # two rounds that end before the run does
        logger = open_wandb(copied, "p", None, "offline", [], 1, False)
        logger.log_metrics({"train/loss": 1.0}, 5)
        logger.close(status)
    (sent,) = runs_in(copied)
    assert sorted(at_boundaries(sent)) == [1, 2, 3]
    assert sent.exit_code == 0


# ---- attempts ----------------------------------------------------------------------------------------------


def test_tables_of_a_run_with_a_long_name_are_sent(tmp_path: Path) -> None:
    """W&B refuses artifacts with names of more than 128 characters, and makes one of each table."""
    long = Identity(("n" * 110, "ewc", "0a1b-s0", "token"), "group", "run")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        service = Service(tmp_path, Account("p", mode="offline"), long)
        for key in ("matrix/table", "card/table"):
            service.send({key: Sheet(["a"], [[1]])})
        service.finish(succeeded=True)
    (sent,) = runs_in(tmp_path)
    assert len([table for table in sent.of("artifact") if len(table.name) > 100]) == 2


def test_no_id_is_given_twice_also_not_to_copies_or_where_the_record_is_damaged_or_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def given(folder: Path) -> Attempt:
        return new_attempt(folder, Account("p"), ("a",))[0]

    mine = tmp_path / "mine"
    mine.mkdir()
    all_given = [given(mine)]
    copied = shutil.copytree(mine, tmp_path / "copied")
    all_given += [given(mine), given(copied)]
    assert [attempt.number for attempt in all_given] == ["1", "2", "2"]
    assert new_attempt(mine, Account("p"), ("a",))[1] == all_given[:2]
    (mine / "wandb.json").write_text("{")
    all_given += [given(mine), given(mine)]
    monkeypatch.setattr("cl_lightning.loggers.wandb_service.is_writable", lambda folder: False)
    before = (mine / "wandb.json").read_text()
    all_given += [given(mine), given(mine)]
    assert (mine / "wandb.json").read_text() == before
    assert len({attempt.id for attempt in all_given}) == len(all_given)
    assert Attempt("i", "p", None).path == "p/i"


def test_the_matrix_of_a_long_stream_is_drawn_at_ten_boundaries_and_at_its_end(finished: Path) -> None:
    """Each picture costs as much as hundreds of numbers."""
    for tasks, most in ((1, 1), (10, 10), (11, 10), (100, 10)):
        drawn = [learned for learned in range(1, tasks + 1) if is_drawn(learned, tasks)]
        assert len(drawn) == most
        assert drawn[-1] == tasks
    projection = Projection(finished)
    projection.start.stream.tasks[:] = projection.start.stream.tasks * 10
    drawn = [point["learned"] for point in projection.news() if "matrix/heat" in point]
    assert drawn == [3], "of thirty tasks the tenths are 3, 6, 9 and so on"


def test_a_projection_gives_out_what_is_new_alone(finished: Path) -> None:
    projection = Projection(finished)
    assert len(list(projection.news())) > 3
    assert list(projection.news()) == []
