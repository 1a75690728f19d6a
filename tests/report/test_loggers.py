"""Curves: by mini-batches and by tasks, nothing a step unless asked."""

from __future__ import annotations

import csv
import re
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import torch
import yaml
from omegaconf import OmegaConf

from cl_lightning.config.build import check_targets
from cl_lightning.engine.phase_run import PhaseRun
from cl_lightning.errors import Refusal
from cl_lightning.loggers import CSVLogger, TensorBoard
from cl_lightning.loggers.base import loggers_of, opened, opened_loggers
from tests.commands import configure, run


def rows(folder: Path) -> list[dict]:
    with next(folder.glob("*/*/*/logs.csv")).open() as file:
        return list(csv.DictReader(file))


def test_values_go_by_mini_batches_of_the_whole_run(tmp_path: Path) -> None:
    results = run(tmp_path)
    logged = rows(tmp_path)
    names = {row["name"] for row in logged}
    assert {"val/alive", "val/best", "task", "learned", "test/mean_learned", "test/task/0"} <= names
    steps = [int(row["step"]) for row in logged]
    assert steps == sorted(steps)
    assert max(steps) == sum(max(s["steps"] for s in results["selected"] if s["task"] == t) for t in range(3))


def test_the_mean_over_tasks_is_that_of_the_tasks_learned_so_far(tmp_path: Path) -> None:
    matrix = run(tmp_path)["accuracy_matrix"]
    assert None not in matrix[1], "tasks that were not learned are tested, too"
    means = [float(row["value"]) for row in rows(tmp_path) if row["name"] == "test/mean_learned"]
    assert means == pytest.approx([matrix[1][0], (matrix[2][0] + matrix[2][1]) / 2, sum(matrix[3]) / 3])


def test_losses_are_logged_only_when_asked(tmp_path: Path) -> None:
    run(tmp_path / "quiet")
    run(tmp_path / "asked", "trainer.log_every=1", "selection=none")
    assert not any(row["name"].startswith("loss/") for row in rows(tmp_path / "quiet"))
    losses = [float(row["value"]) for row in rows(tmp_path / "asked") if row["name"] == "loss/default"]
    assert len(losses) == 3 * 2 * 2
    assert losses[0] > losses[3] > 0


def test_a_logger_opened_again_appends(tmp_path: Path) -> None:
    for step in range(2):
        logger = CSVLogger(tmp_path)
        logger.log_metrics({"a": 1}, step)
        logger.finalize("success")
    assert (tmp_path / "logs.csv").read_text().splitlines() == ["step,name,value", "0,a,1", "1,a,1"]


def test_a_kill_in_the_middle_of_a_line_loses_that_line_and_what_is_logged_again_stands_there_once(
    tmp_path: Path,
) -> None:
    first = CSVLogger(tmp_path)
    for step in range(5):
        first.log_metrics({"loss/lr=0.1,decay=0": step / 3, "task": 0}, step)
    path = tmp_path / "logs.csv"
    whole = path.read_text()
    path.write_text(whole[:-5])  # the last line is cut
    again = CSVLogger(tmp_path)
    for step in range(2, 6):
        again.log_metrics({"loss/lr=0.1,decay=0": step / 3, "task": 0}, step)
    assert path.read_text() == whole + f'5,"loss/lr=0.1,decay=0",{5 / 3}\n5,task,0\n'


def test_no_logger_writes_no_curves(tmp_path: Path) -> None:
    run(tmp_path, "logger=none")
    assert not list(tmp_path.glob("**/logs.csv"))


class Told(CSVLogger):
    def __init__(self, folder: Path, run: dict) -> None:
        super().__init__(folder)
        self.run = run


def test_a_logger_is_told_what_is_trained_and_not_what_stands_for_it(tmp_path: Path) -> None:
    as_they_are = OmegaConf.create({"_target_": "tests.report.test_loggers.Told"})
    with opened_loggers(as_they_are, tmp_path, configure("trainer.lr=0.1")) as (told,):
        pass
    assert (told.run["trainer"]["lr"], told.run["trainer"]["weight_decay"]) == (0.1, "grid")
    assert told.run["selection"] == {"grid": {"weight_decay": [0.0, 1e-5, 1e-4]}}


def test_a_flipped_byte_that_is_no_text_any_more_keeps_no_run_from_going_on(tmp_path: Path) -> None:
    CSVLogger(tmp_path).log_metrics({"a": 1}, 0)
    path = tmp_path / "logs.csv"
    path.write_bytes(path.read_bytes().replace(b"0,a", b"0,\xff"))
    CSVLogger(tmp_path).log_metrics({"a": 1}, 0)
    assert path.read_bytes().endswith(b"0,a,1\n")


def test_values_that_are_no_floats_of_pythons_stand_there_as_numbers(tmp_path: Path) -> None:
    """A tensor written as text is no number: reports and W&B could not read it."""
    logger = CSVLogger(tmp_path)
    values = [torch.tensor(0.1), np.float32(0.1), np.float64(0.5), torch.tensor([0.25]), 0.1, 3, True, "no"]
    logger.log_metrics({f"train/{i}": value for i, value in enumerate(values)}, 0)
    tenth = 0.10000000149011612  # as float32 has it
    written = ["0.1", "3", "True", "no"]
    lines = (tmp_path / "logs.csv").read_text().splitlines()[1:]
    assert [line.rpartition(",")[2] for line in lines] == [str(tenth), str(tenth), "0.5", "0.25", *written]


# ---- several, and Lightning's ------------------------------------------------------------------------------


def test_every_logger_of_a_list_gets_the_same_values_and_lightnings_own_are_loggers(tmp_path: Path) -> None:
    """Lightning's logger has its own arguments, and no names of candidates as keys."""
    own = "+logger.mine={_target_:pytorch_lightning.loggers.CSVLogger,name:own}"
    results = run(tmp_path, own, "trainer.log_every=1")
    (theirs,) = tmp_path.glob("*/*/*/own/version_0")
    with (theirs / "metrics.csv").open() as file:
        lines = list(csv.DictReader(file))
    found = {(int(line["step"]), name, float(value)) for line in lines for name, value in line.items()
             if value and name != "step"}  # fmt: skip
    ours = {(int(row["step"]), row["name"], float(row["value"])) for row in rows(tmp_path)}
    assert found == {each for each in ours if not each[1].startswith("loss/")}
    assert found < ours
    settings = yaml.safe_load((theirs / "hparams.yaml").read_text())
    assert settings["learner"]["name"] == results["learner"]


def test_a_list_of_choices_uses_all_of_them_and_none_adds_nothing() -> None:
    def chosen(choice: str) -> list[str]:
        return [make.func.__name__ for make in loggers_of(configure(f"logger={choice}").logger)]

    assert chosen("[csv,wandb]") == chosen("[wandb,none]") == chosen("wandb") == ["CSVLogger", "open_wandb"]
    assert chosen("csv") == ["CSVLogger"]
    assert chosen("none") == []


def test_lightnings_logger_for_tensorboard_gets_the_same_values(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run(tmp_path, "+logger.tb._target_=pytorch_lightning.loggers.TensorBoardLogger", "trainer.log_every=1")
    (folder,) = tmp_path.glob("*/*/*/lightning_logs/version_0")
    read = EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()
    found = {(each.step, name, each.value) for name in read.Tags()["scalars"] for each in read.Scalars(name)}
    ours = [(int(row["step"]), row["name"], np.float32(row["value"])) for row in rows(tmp_path)]
    wanted = {each for each in ours if not each[1].startswith("loss/")}
    assert wanted <= found
    assert found <= wanted, "and no metric of -1 for hyper-parameters"


# ---- TensorBoard -------------------------------------------------------------------------------------------


def on_tensorboard(folder: Path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    sizes = dict.fromkeys(("scalars", "images", "tensors"), 0)  # all of them
    return EventAccumulator(str(folder / "tensorboard"), size_guidance=sizes).Reload()


def curve(read, name: str) -> np.ndarray:
    """(points, 2): step and value."""
    return np.array([(each.step, each.value) for each in read.Scalars(name)])


@pytest.fixture(scope="module")
def on_board(tmp_path_factory: pytest.TempPathFactory):
    """A run's results, its folder, and what TensorBoard reads of it."""
    top = tmp_path_factory.mktemp("board")
    results = run(top, "logger=tensorboard", "figures=true", "stream.tasks=2")
    (folder,) = (path.parent for path in top.glob("*/*/*/run.json"))
    return results, folder, on_tensorboard(folder)


def test_tensorboard_has_the_matrix_over_tasks_learned_and_the_curves_over_mini_batches(on_board) -> None:
    results, folder, read = on_board
    matrix = results["accuracy_matrix"]
    for task in range(2):
        wanted = [(learned, row[task]) for learned, row in enumerate(matrix) if row[task] is not None]
        assert curve(read, f"test/task/{task}") == pytest.approx(np.array(wanted))
    assert curve(read, "cl/BWT")[-1] == pytest.approx([2, matrix[2][0] - matrix[1][0]])
    assert curve(read, "cl/ACC")[-1] == pytest.approx([2, sum(matrix[2]) / 2])
    with (folder / "logs.csv").open() as file:
        logged = [(int(row["step"]), float(row["value"])) for row in csv.DictReader(file)
                  if row["name"] == "val/best"]  # fmt: skip
    assert curve(read, "val/best") == pytest.approx(np.array(logged))
    assert len(logged) > 3


def test_tensorboard_has_pictures_tables_and_hyper_parameters_with_what_they_came_to(on_board) -> None:
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    results, _, read = on_board
    tags = read.Tags()
    assert {"matrix/heat", "figures/over_tasks"} <= {*tags["images"]}
    assert {"matrix/table/text_summary", "card/table/text_summary"} <= {*tags["tensors"]}
    assert curve(read, "final/ACC") == pytest.approx(np.array([[2, results["metrics"]["average_accuracy"]]]))
    assert not [name for name in tags["scalars"] if "hp_metric" in name]
    contents = read._plugin_to_tag_to_content["hparams"]
    of_table = HParamsPluginData.FromString(contents["_hparams_/session_start_info"]).session_start_info
    assert of_table.hparams["stream.n_train"].number_value == 100
    assert of_table.hparams["learner.name"].string_value == "finetune"
    columns = HParamsPluginData.FromString(contents["_hparams_/experiment"]).experiment.metric_infos
    assert {"final/ACC", "final/BWT"} <= {column.name.tag for column in columns}


def test_what_is_written_for_tensorboard_again_stands_there_once(on_board) -> None:
    _, folder, first = on_board
    TensorBoard(folder).close("success")
    second = on_tensorboard(folder)
    assert {*second.Tags()["scalars"]} == {*first.Tags()["scalars"]}
    for name in second.Tags()["scalars"]:
        assert np.array_equal(curve(second, name), curve(first, name))


class Fragile(Told):
    """Fails at a key, or in the method of that name."""

    def __init__(self, folder: Path, run: dict, at: str) -> None:
        super().__init__(folder, run)
        self.at, self.closed = at, False

    def log_metrics(self, metrics: dict, step: int | None = None) -> None:
        if self.at in metrics:
            raise ValueError("no place for\nthis")

    def boundary(self) -> None:
        if self.at == "boundary":
            raise KeyError

    def close(self, status: str) -> None:
        if self.at == "close":
            raise RuntimeError("gone")


@pytest.mark.parametrize(
    ("at", "said"),
    [
        ("val/best", "in log_metrics: ValueError: no place for"),
        ("learned", "in log_metrics: ValueError: no place for"),
        ("boundary", "in boundary: KeyError: no message"),
        ("close", "in close: RuntimeError: gone"),
    ],
)
def test_a_logger_that_fails_is_named_and_what_was_trained_is_kept(
    at: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[str] = []
    monkeypatch.setattr(Told, "close", lambda self, status: closed.append(status))
    own = f"+logger.own={{_target_:tests.report.test_loggers.Fragile,at:{at}}}"
    others = ("+logger.other={_target_:tests.report.test_loggers.Told}", own)
    with pytest.raises(Refusal) as refused:
        run(tmp_path, *others)
    first, *_ = str(refused.value).splitlines()
    assert first == f"The logger Fragile failed {said}"
    assert closed == ["success" if at == "close" else "failed"], "the other one is closed all the same"
    assert run(tmp_path)["finished"]


@pytest.mark.parametrize(
    ("override", "said"),
    [
        (
            "+logger.wandb.id=3",
            "logger.wandb.id is not a key here. "
            "Choose one of project, entity, mode, tags, timeout, checkpoints.",
        ),
        ("+logger.own._target_=builtins.dict", "logger.own._target_=builtins.dict is not a logger"),
        ("logger.csv=3", "logger.csv=3 is not a logger"),
        ("+logger.csv.every=2", "logger.csv.every is not a key here"),
        ("+logger.own._target_=pytorch_lightning.loggers.CSVLoger", "cannot be imported"),
    ],
)
def test_what_is_no_logger_is_refused_before_anything_is_made(override: str, said: str) -> None:
    with pytest.raises(Refusal, match=re.escape(said)):
        check_targets(configure("logger=[csv,wandb]", override))


@pytest.mark.parametrize(
    ("choice", "without"),
    [("wandb", "logger.csv=null"), ("wandb", "~logger.csv"), ("tensorboard", "~logger.csv")],
)
def test_loggers_without_the_file_that_their_curves_come_from_are_refused(choice: str, without: str) -> None:
    with pytest.raises(Refusal, match=rf"none of these loggers writes it\.\nChoose logger={choice}"):
        check_targets(configure(f"logger={choice}", without))


def test_wandb_goes_with_a_class_of_ones_own_that_writes_the_file(tmp_path: Path) -> None:
    check_targets(configure("logger=wandb", "logger.csv._target_=tests.report.test_loggers.Told"))


def test_a_logger_whose_package_is_not_there_is_refused_with_its_name(tmp_path: Path) -> None:
    def needs_more(folder: Path) -> None:
        raise ModuleNotFoundError("No module named 'tensorboard'\nmore")

    with pytest.raises(Refusal, match="needs_more cannot be made: No module named 'tensorboard'\nInstall"):
        opened(partial(needs_more), {"folder": tmp_path})


def test_the_loss_of_training_is_that_of_the_candidate_that_leads_among_those_that_train() -> None:
    logged: list[dict] = []
    logger = Mock(log_metrics=lambda metrics, step: logged.append(metrics))
    run_ = Mock(standings=[Mock(accuracy=a) for a in (0.2, 0.9, 0.5, None, 0.5)], first_step=0, step=0)
    run_.candidates = [Mock() for _ in run_.standings]
    run_.log = lambda learner, metrics: PhaseRun.log(run_, learner, metrics)
    run_.leading = lambda among: PhaseRun.leading(run_, among)
    for losses in ({0: 1.0, 1: 2.0, 2: 3.0}, {0: 1.0, 2: 3.0, 4: 4.0}, {3: 5.0, 0: 1.0}, {3: 5.0}, {}):
        PhaseRun.log_losses(run_, Mock(loggers=[logger]), losses)
    assert [metrics["train/loss"] for metrics in logged] == [2.0, 3.0, 1.0, 5.0]
