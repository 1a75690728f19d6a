"""What is said before a long run: measured, near the truth, and without a trace in the run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from cl_lightning import forecast as module
from cl_lightning.data.stream import Stream
from cl_lightning.engine.settings import Training
from cl_lightning.experiment import build_learner, build_stream
from cl_lightning.forecast import Pace, forecast, images_scored, steps_of
from tests.commands import SMALL, but_what_may_differ, configure, run

LOUD = "progress=true"


def made(*overrides: str) -> tuple[Any, Stream, Training]:
    cfg = configure(*SMALL, *overrides)
    stream = build_stream(cfg)
    plain: Any = OmegaConf.to_container(cfg.trainer, resolve=True)
    return build_learner(cfg, stream), stream, Training(**plain)


@pytest.fixture
def every_run_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LONG", 0)
    monkeypatch.setattr(module, "WORTH_SAYING", 0)


def test_a_short_run_is_not_tried_and_says_nothing(tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch) -> None:
    monkeypatch.setattr(module, "tried", lambda *_: pytest.fail("a short run was tried"))
    run(tmp_path, LOUD)
    assert "Training takes" not in capsys.readouterr().err


@pytest.mark.parametrize("learner", ["mntdp_d", "joint", "gem"])
def test_a_long_run_says_how_long_and_ends_with_the_same_results(
    learner: str, tmp_path: Path, capsys: pytest.CaptureFixture, every_run_is_long: None
) -> None:
    once = ["trainer=single_pass", "stream.n_val=0", "selection=none"] if learner == "gem" else []
    told = run(tmp_path / "told", f"learner={learner}", *once, LOUD)
    assert "Training takes about 0 minutes at most" in capsys.readouterr().err
    quiet = run(tmp_path / "quiet", f"learner={learner}", *once)
    assert "Training takes" not in capsys.readouterr().err
    assert but_what_may_differ(told) == but_what_may_differ(quiet)


def test_the_forecast_is_near_what_the_run_takes(tmp_path: Path) -> None:
    """Within a factor of three on a busy machine, where nothing stops early."""
    overrides = (
        "learner=mntdp_d",
        "data.sources.mnist.train=6000",
        "stream.n_train=600",
        "backbone.sizes=[300,300]",
        "trainer.patience=100000",
        "trainer.max_epochs=5",
    )
    learner, stream, settings = made(*overrides)
    first, later = module.tried(learner, stream, settings)
    steps = [steps_of(stream, settings, index, past=False) for index in range(3)]
    expected = sum(
        count * pace.step + images_scored(stream, settings, index, count) * pace.scored_image
        for index, (count, pace) in enumerate(zip(steps, (first, later, later)))
    )
    seconds = [cost["seconds"] for cost in run(tmp_path, *overrides)["costs"]]
    assert 1 / 3 < expected / sum(each["train"] + each["score"] for each in seconds) < 3


def test_mini_batches_are_those_that_are_taken(tmp_path: Path) -> None:
    _, stream, settings = made("trainer.patience=100000", "stream.n_train=130")
    taken = [row["steps"] for row in run(tmp_path, "trainer.patience=100000", "stream.n_train=130")["selected"]]
    assert taken == [steps_of(stream, settings, index, past=False) for index in range(3)] == [6, 6, 6]


def test_who_trains_on_past_data_takes_more_each_task() -> None:
    _, stream, settings = made("learner=joint")
    assert [steps_of(stream, settings, index, past=True) for index in range(3)] == [4, 8, 10]


def test_a_resumed_run_counts_the_tasks_that_are_left(monkeypatch: pytest.MonkeyPatch, every_run_is_long: None) -> None:
    learner, stream, settings = made()
    monkeypatch.setattr(module, "tried", lambda *_: [Pace(1.0, 0.0), Pace(1000.0, 0.0)])
    assert "8 mini-batches in 2 tasks" in (forecast(learner, stream, settings, first=1) or "")
    assert "12 mini-batches in 3 tasks" in (forecast(learner, stream, settings) or "")


def test_sizes_of_a_very_long_stream_are_sampled(monkeypatch: pytest.MonkeyPatch, every_run_is_long: None) -> None:
    learner, stream, settings = made("stream=permuted", "stream.tasks=1000")
    monkeypatch.setattr(module, "tried", lambda *_: [Pace(0.0, 0.0), Pace(0.0, 0.0)])
    looked_at: list[int] = []
    original = Stream.recipe
    monkeypatch.setattr(Stream, "recipe", lambda self, index: looked_at.append(index) or original(self, index))
    assert "4,000 mini-batches in 1000 tasks" in (forecast(learner, stream, settings) or "")
    assert len(set(looked_at)) <= 100
