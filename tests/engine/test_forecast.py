"""What a long run says of its length: measured in its own mini-batches, near the truth."""

from __future__ import annotations

import re
from pathlib import Path
from time import process_time
from types import SimpleNamespace
from typing import Any

import pytest
from omegaconf import OmegaConf

from cl_lightning.data.stream import Stream
from cl_lightning.engine import forecast as module
from cl_lightning.engine.forecast import Forecast, Spent, scorings_until, work_of
from cl_lightning.engine.settings import Training
from cl_lightning.experiment import build_stream
from tests.commands import SMALL, configure, run

LOUD = "progress=true"
MANY = ("data.sources.mnist.train=6000", "stream.n_train=1000", "trainer.max_epochs=5", "trainer.batch_size=32", "trainer.patience=1000000")


def made(*overrides: str) -> tuple[Stream, Training]:
    cfg = configure(*SMALL, *overrides)
    plain: Any = OmegaConf.to_container(cfg.trainer, resolve=True)
    return build_stream(cfg), Training(**plain)


def said(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("Training of task")]


def test_a_short_run_says_nothing(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    run(tmp_path, *MANY, LOUD)
    assert not said(capsys.readouterr().err)


@pytest.mark.parametrize("learner", ["finetune", "mntdp_d", "independent"])
def test_the_forecast_is_near_what_training_takes(learner: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within a factor of three, where nothing stops early. Seconds are the processor's: others may be at work beside this test."""
    for clock in ("engine.lockstep.perf_counter", "metrics.costs.perf_counter"):
        monkeypatch.setattr(f"cl_lightning.{clock}", process_time)
    expected: dict[int, float] = {}
    monkeypatch.setattr(Forecast, "tell", lambda self, seconds: expected.__setitem__(self.task, seconds))
    costs = run(tmp_path, f"learner={learner}", *MANY, "backbone.sizes=[300,300]", LOUD)["costs"]
    seconds = [cost["seconds"]["train"] + cost["seconds"]["score"] for cost in costs]
    assert 1 / 3 < expected[1] / sum(seconds[1:]) < 3
    assert 1 / 3 < expected[2] / sum(seconds[2:]) < 3


def test_it_is_said_once_and_again_where_the_pace_differs(capsys: pytest.CaptureFixture) -> None:
    forecast = Forecast(*made())
    for task, seconds in enumerate((3600, 3000, 9000)):
        forecast.task = task
        forecast.tell(seconds)
    first, second = said(capsys.readouterr().err)
    assert first == "Training of task 0 to 2 takes about 1 h 0 min at this pace, less where candidates stop early."
    assert second == "Training of task 2 takes about 2 h 30 min at this pace, less where candidates stop early."


@pytest.mark.parametrize("overrides", [(), ("stream.n_train=130",), ("trainer.max_steps=3",), ("stream.n_train=20",)])
def test_work_is_what_is_done_where_nothing_stops_early(overrides: tuple, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    overrides = (*overrides, "trainer.patience=1000000", "selection=none")
    stream, settings = made(*overrides)
    scored: list[int] = []
    from cl_lightning.engine.lockstep import LockStep

    original = LockStep.accuracies
    monkeypatch.setattr(LockStep, "accuracies", lambda self: scored.append(len(self.val)) or original(self))
    costs = run(tmp_path, *overrides)["costs"]
    examples, images = zip(*(work_of(stream, settings, index, past_data=False) for index in range(3)))
    assert [cost["examples"] for cost in costs] == pytest.approx(examples, rel=0.1)
    assert sum(scored) == pytest.approx(sum(images), rel=0.2)


def test_seconds_go_by_examples_and_images() -> None:
    stream, settings = made("trainer.patience=100", "trainer.score_at=[]")
    forecast = Forecast(stream, settings)
    forecast.on_task_start(None, stream.closed(0))
    before, now = Spent(5.0, 64, 0.0, 0), Spent(7.0, 264, 3.0, 30)  # a hundredth of a second an example, a tenth an image
    assert forecast.seconds_left(before, now) == pytest.approx(3 * (200 * 0.01 + 2 * 30 * 0.1))
    forecast.on_task_start(None, stream.closed(2))
    assert forecast.seconds_left(before, now) == pytest.approx(200 * 0.01 + 2 * 30 * 0.1)


def test_who_trains_on_past_data_takes_more_each_task() -> None:
    stream, settings = made()
    assert [work_of(stream, settings, index, past_data=True)[0] for index in range(3)] == [200, 400, 600]


def test_sizes_of_a_very_long_stream_are_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    stream, settings = made("stream=permuted", "stream.tasks=1000")
    looked_at: set[int] = set()
    original = Stream.recipe
    monkeypatch.setattr(Stream, "recipe", lambda self, index: looked_at.add(index) or original(self, index))
    forecast = Forecast(stream, settings)
    forecast.on_task_start(None, stream.closed(0))
    seconds = forecast.seconds_left(Spent(0, 0, 0, 0), Spent(1.0, 100, 0, 0))
    assert seconds == pytest.approx(1000 * 200 / 100)
    assert len(looked_at) <= 100


def test_without_early_stopping_nothing_is_scored() -> None:
    assert scorings_until(100, Training(), every=10) == 0
    assert scorings_until(20, Training(patience=5.0, score_at=(0, 5, 10)), every=10) == 4


def an_engine(step: int, seconds: float, examples: int, candidates: int = 1, of: int = 1) -> SimpleNamespace:
    costs = SimpleNamespace(seconds={"train": seconds}, examples=examples)
    phase = SimpleNamespace(candidates=[None] * of)
    return SimpleNamespace(engine=SimpleNamespace(step=step, every=1, val=None, costs=costs, candidates=[None] * candidates, phase=phase))


def begun(*overrides: str) -> Forecast:
    stream, settings = made(*overrides)
    forecast = Forecast(stream, settings)
    forecast.on_task_start(None, stream.closed(0))
    return forecast


def test_a_phase_of_few_mini_batches_says_it_at_its_end(capsys: pytest.CaptureFixture) -> None:
    forecast = begun("trainer.patience=100")
    forecast.on_train_batch_end(None, an_engine(5, seconds=5.0, examples=50))
    forecast.on_train_batch_end(None, an_engine(9, seconds=13.0, examples=90))
    assert said(capsys.readouterr().err) == []
    forecast.on_train_end(None, an_engine(9, seconds=13.0, examples=90))  # 0.2 s an example behind the first block, 600 in all
    assert said(capsys.readouterr().err) == [
        "Training of task 0 to 2 takes about 2 minutes at this pace, less where candidates stop early."
    ]


def test_a_phase_of_one_block_is_measured_whole(capsys: pytest.CaptureFixture) -> None:
    forecast = begun("trainer.patience=100")
    forecast.on_train_batch_end(None, an_engine(5, seconds=5.0, examples=10))
    forecast.on_train_end(None, an_engine(5, seconds=5.0, examples=10))
    assert "about 5 minutes" in capsys.readouterr().err


def test_candidates_that_wait_for_their_share_are_counted(capsys: pytest.CaptureFixture) -> None:
    forecast = begun("trainer.patience=100")
    forecast.on_train_batch_end(None, an_engine(2, seconds=100.0, examples=100, candidates=8, of=40))
    assert "about 50 minutes" in capsys.readouterr().err


def test_where_mini_batches_take_long_the_first_block_is_enough(capsys: pytest.CaptureFixture) -> None:
    forecast = begun("trainer.patience=100")
    forecast.on_train_batch_end(None, an_engine(2, seconds=100.0, examples=100))
    assert said(capsys.readouterr().err) == [
        "Training of task 0 to 2 takes about 10 minutes at this pace, less where candidates stop early."
    ]


def test_minutes_and_hours_are_told() -> None:
    assert re.match(r"1 h 23 min", module.told(5000))
