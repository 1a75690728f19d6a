"""Numbers that learners and callbacks log: where they go, and that nothing changes them."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import pytorch_lightning as pl
import torch

from cl_lightning.callbacks import StreamCallback
from cl_lightning.errors import Refusal
from cl_lightning.learners import Finetune
from cl_lightning.notebook import Run
from cl_lightning.protocol import LearnerError, ProtocolError
from cl_lightning.report.__main__ import main as report
from cl_lightning.report.projection import Projection
from cl_lightning.report.schema import schema
from tests import docs
from tests.commands import but_what_may_differ, run
from tests.dying import killed
from tests.ranks import on_ranks
from tests.report.test_tables import shown

HERE = "tests.engine.test_own"


class Logs(Finetune):
    def on_task_start(self, task):
        self.log("begins", task.index)

    def loss(self, c, batch):
        loss = super().loss(c, batch)
        self.log("own_lr", c.hparams["lr"], prog_bar=True)
        return loss

    def adopt(self, c, task):
        super().adopt(c, task)
        self.log("adopted", c.hparams["lr"])

    def on_task_end(self, task):
        self.log("norm", next(self.network.parameters()).norm())


class Hears(StreamCallback):
    def on_task_start(self, learner, task):
        self.log("heard_start", task.index)

    def on_train_batch_end(self, trainer, learner, *_):
        learner.log("alive", len(learner.phase_run.active))

    def on_probe(self, learner, task, step, accuracies):
        learner.log("probed", accuracies[task.index])

    def on_task_end(self, learner, task):
        self.log("heard_end", task.index)

    def on_evaluated(self, learner, learned, accuracies):
        self.log("best", max(accuracies))


class OfLightning(pl.Callback):
    def on_train_batch_end(self, trainer, learner, *_):
        learner.log("of_lightning", trainer.global_step)


CALLBACKS = f"trainer.callbacks=[{{_target_: {HERE}.Hears}},{{_target_: {HERE}.OfLightning}}]"
OPTIONS = (
    f"learner._target_={HERE}.Logs", CALLBACKS, "selection.grid={lr:[0.01,0.0001]}", "logger=csv",
    "trainer.probe_every=4", "trainer.checkpoint_minutes=0", "trainer.batch_size=20", "trainer.block=2",
)  # fmt: skip


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    top = tmp_path_factory.mktemp("own")
    results = run(top, *OPTIONS)
    return next(top.glob("*/*/*/results.json")).parent, results


def test_each_hook_logs_at_its_place_on_its_axis(logged: tuple) -> None:
    _, results = logged
    jsonschema.validate(results, schema())
    learned, batches = results["own"]["learned"], results["own"]["batches"]
    per_task = [selected["steps"] for selected in results["selected"]]
    steps = max(per_task)  # the same for all tasks: 100 examples, 2 epochs
    assert steps == 10
    winners = [selected["hparams"]["lr"] for selected in results["selected"]]
    assert learned["begins"] == learned["heard_start"] == [[0, 0], [1, 1], [2, 2]]
    assert learned["heard_end"] == [[1, 0], [2, 1], [3, 2]]
    assert learned["adopted"] == [[task + 1, lr] for task, lr in enumerate(winners)]
    assert [at for at, _ in learned["norm"]] == [1, 2, 3]
    assert learned["best"] == [[i, max(row)] for i, row in enumerate(results["accuracy_matrix"])]
    assert batches["own_lr"] == [[at, winners[at // steps]] for at in range(3 * steps)]
    assert [at for at, _ in batches["alive"]] == [at for at, _ in batches["of_lightning"]]
    assert len(batches["alive"]) == 3 * steps // 2, "a point each block"
    probes = [[p["task"] * steps + p["step"], p["accuracies"][p["task"]]] for p in results["probes"]]
    assert batches["probed"] == probes


def test_all_loggers_are_told_on_the_right_axis_and_reports_show_it(logged: tuple, capsys) -> None:
    folder, results = logged
    rows = list(csv.reader((folder / "logs.csv").read_text().splitlines()[1:]))
    told = {(int(step), name): float(value) for step, name, value in rows}
    assert {
        (at, "train/own/alive"): v for at, v in results["own"]["batches"]["alive"]
    }.items() <= told.items()
    ends = {10 * learned: value for learned, value in results["own"]["learned"]["best"]}
    assert {(step, "own/best"): value for step, value in ends.items()}.items() <= told.items()
    points = [point for point in Projection(folder).news() if "learned" in point]
    for name, curve in results["own"]["learned"].items():
        assert [[p["learned"], p[f"own/{name}"]] for p in points if f"own/{name}" in p] == curve
    line = next(line for line in shown(folder).splitlines() if "norm" in line)
    assert f"{results['own']['learned']['norm'][-1][1]:.4g}" in line
    frame = Run(folder).own
    assert frame[frame["name"] == "best"]["value"].tolist() == list(ends.values())
    capsys.readouterr()
    assert report(["--markdown", str(folder)]) == 0
    head, _, row = capsys.readouterr().out.splitlines()[:3]
    cells = dict(zip(head.split(" | "), row.split(" | ")))
    assert cells["own best"] == f"{results['own']['learned']['best'][-1][1]:.3f}"


@pytest.mark.parametrize(
    "fault",
    [
        "block:7",
        "task end:2",
        *(pytest.param(f, marks=pytest.mark.all) for f in ("record written:4", "test:3")),
    ],
)
def test_a_kill_changes_nothing_of_it(fault: str, logged: tuple, tmp_path: Path) -> None:
    killed(fault, lambda: run(tmp_path, *OPTIONS))
    results = run(tmp_path, *OPTIONS)
    assert but_what_may_differ(results) == but_what_may_differ(logged[1])
    lines = next(tmp_path.glob("*/*/*/logs.csv")).read_text().splitlines()
    whole = (logged[0] / "logs.csv").read_text().splitlines()
    assert sorted(line for line in lines if "own" in line) == sorted(line for line in whole if "own" in line)


@pytest.mark.slow
def test_two_ranks_log_what_one_does(tmp_path: Path) -> None:
    options = [option for option in OPTIONS if option != CALLBACKS]  # which are rank 0's alone
    assert on_ranks(2, tmp_path / "two", *options) == [0, 0]
    one, two = run(tmp_path / "one", *options), run(tmp_path / "two", *options)
    assert one["own"] == two["own"]


class LogsAtTest(Finetune):
    def forward(self, x, task):
        self.log("seen", len(x))
        return super().forward(x, task)


class LogsWords(Finetune):
    def on_task_end(self, task):
        self.log("said", "much")


class LogsNaN(Finetune):
    def on_task_end(self, task):
        self.log("nan", torch.tensor(torch.nan))


def test_what_tests_call_and_what_is_no_number_is_refused_and_nan_is_null(tmp_path: Path) -> None:
    with pytest.raises(ProtocolError, match=r"LogsAtTest\.forward: 'seen' was logged"):
        run(tmp_path, f"learner._target_={HERE}.LogsAtTest", "selection=none")
    with pytest.raises((Refusal, LearnerError), match=r"'said' was logged as a str. Give one number"):
        run(tmp_path, f"learner._target_={HERE}.LogsWords", "selection=none")
    results = run(tmp_path, f"learner._target_={HERE}.LogsNaN", "selection=none")
    assert results["own"]["learned"]["nan"] == [[1, None], [2, None], [3, None]]


def test_the_example_of_the_docs_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    example = next(code for code in docs.blocks(docs.page("learners"), "python") if "class Watched" in code)
    (tmp_path / "watched_example.py").write_text(example)
    monkeypatch.syspath_prepend(tmp_path)
    results = run(
        tmp_path, "learner._target_=watched_example.Watched", "selection=none",
        "trainer.callbacks=[{_target_: watched_example.Best}]",
    )  # fmt: skip
    assert len(results["own"]["batches"]["loss"]) > 1
    assert [at for at, _ in results["own"]["learned"]["weight_norm"]] == [1, 2, 3]
    matrix = results["accuracy_matrix"]
    assert results["own"]["learned"]["best"] == [[i, max(matrix[i][:i], default=0.0)] for i in range(4)]
