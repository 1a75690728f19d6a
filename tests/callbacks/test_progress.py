"""What a run says while it is made, and the time left."""

from __future__ import annotations

import io
import re
import time
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from cl_lightning.callbacks.pace import Pace
from cl_lightning.callbacks.progress import ProgressDisplay
from cl_lightning.learners.base import Phase
from tests import toys
from tests.toys import builder, learn, training


class ScoredOtherwise(toys.Finetune):
    def learn(self, task):
        best = yield Phase(self.candidates(task), score=lambda c, val: 2.5)
        self.adopt(best.candidate, task)


class Looking(ProgressDisplay):
    """Writes down what it would show after each block of mini-batches."""

    def __init__(self, terminal: bool) -> None:
        super().__init__(Console(file=io.StringIO(), force_terminal=terminal, width=140))
        self.seen: list[str] = []

    def on_train_batch_end(self, *_: Any) -> None:
        self.seen.append(self.of_task())


def watched(cls: type = toys.Finetune) -> Looking:
    """A display that has heard of one task of three."""
    display, s = Looking(terminal=False), toys.stream()
    display.on_stream_start("toy", len(s), 0)
    learner = cls(build=builder(s), head=s.head, grid=[{"lr": 0.01}, {"lr": 0.02}], seed=0)
    display.on_task_start(learner, s.task_without_data(0))
    learn(learner, s, training(patience=100), callbacks=[display])
    return display


def test_a_phase_is_told_with_its_mini_batches_candidates_and_best_accuracy() -> None:
    display = watched()
    said = r"task 0 of 0\.\.2, train: batch \d+ of at most \d+, 2 of 2 alive, best val 0\.\d{3}"
    assert re.match(said, display.seen[0])
    assert display.of_task() == "task 2 of 0..2, after train, for 0:00"
    display.on_task_end(None, SimpleNamespace(index=2))  # type: ignore[arg-type]
    assert display.of_task() == "task 2 of 0..2, testing, for 0:00"
    assert "best score 2.500" in watched(ScoredOtherwise).seen[-1]


def test_elsewhere_a_line_a_task_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("cl_lightning.callbacks.progress.monotonic", lambda: now[0])
    display = Looking(terminal=False)
    display.on_stream_start("toy", 10, learned=4)  # a resumed run
    display.on_evaluated(None, 4, [0.5] * 10)
    display.on_task_start(None, SimpleNamespace(index=4))  # type: ignore[arg-type]
    now[0] += 60
    display.on_evaluated(None, 5, [0.5] * 5 + [None] * 5)
    display.on_stream_end()
    lines = display.console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert lines == [
        "4 of 10 tasks learned, mean test accuracy on them 0.500",
        # 60 seconds for each of the five that are left, of which one is the open one, known to within a half:
        # 30 for that, and 30 * sqrt(4 + 4 * 4) for the sum of the others
        "5 of 10 tasks learned, mean test accuracy on them 0.500, 2:15 to 7:44 left",
    ]


def test_one_task_is_no_tasks() -> None:
    display = Looking(terminal=False)
    display.on_stream_start("toy", 1, learned=0)
    display.on_evaluated(None, 1, [0.5])
    display.on_stream_end()
    said = display.console.file.getvalue()  # type: ignore[attr-defined]
    assert said == "1 of 1 task learned, mean test accuracy on them 0.500\n"


def test_elsewhere_a_line_a_minute_comes_also_while_no_hook_is_called(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("cl_lightning.callbacks.progress.MINUTE", 0.05)
    display = Looking(terminal=False)
    display.on_stream_start("toy", 2, 0)
    end = time.monotonic() + 20
    while (said := display.console.file.getvalue()).count("\n") < 2 and time.monotonic() < end:  # type: ignore[attr-defined]
        time.sleep(0.01)
    display.on_stream_end()
    assert said.splitlines()[:2] == ["preparing, for 0:00; 0 of 2 tasks learned"] * 2


class Ticks:
    """A clock that goes on only while it is waited for, and ends after so many seconds."""

    def __init__(self, seconds: float) -> None:
        self.now, self.end = 100.0, 100.0 + seconds

    def wait(self, seconds: float) -> bool:
        self.now += seconds
        return self.now > self.end


def test_elsewhere_a_long_phase_is_told_each_minute_with_its_mini_batches_and_the_time_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Ticks(seconds=150)
    monkeypatch.setattr("cl_lightning.callbacks.progress.monotonic", lambda: clock.now)
    monkeypatch.setattr("cl_lightning.callbacks.progress.Thread", lambda **_: SimpleNamespace(start=int))
    display = Looking(terminal=False)
    display.on_stream_start("toy", 2, 0)
    display.on_task_start(None, SimpleNamespace(index=0))  # type: ignore[arg-type]
    run: Any = SimpleNamespace(
        **vars(of_a_phase(0, 1600, None, best=0)), best_accuracy=0.5, candidates=[0, 1, 2],
        task=SimpleNamespace(index=0), phase=SimpleNamespace(name="train", score=None),
    )  # fmt: skip
    display.on_train_start(None, SimpleNamespace(phase_run=run))  # type: ignore[arg-type]
    run.step, display.over = 400, clock  # type: ignore[assignment]
    display.say_each_minute()
    lines = display.console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    phase = "task 0 of 0..1, train: batch 400 of at most 1600, 2 of 3 alive, best val 0.500"
    # 400 mini-batches in 60 and in 120 seconds: 1200 are left. The second task may take as long as the first.
    assert lines[0].startswith(f"{phase}, 3:00 left; 0 of 2 tasks learned")
    assert lines[1].startswith(f"{phase}, 6:00 left; 0 of 2 tasks learned")
    assert len(lines) == 2


# ---- the time left -----------------------------------------------------------------------------------------


def of_a_phase(step: int, steps: int, patience: float | None, best: int) -> Any:
    return SimpleNamespace(
        step=step, blocks=SimpleNamespace(steps=steps), patience=patience, is_scored=True, active=[0, 1],
        standings=[SimpleNamespace(step=best), SimpleNamespace(step=best - 20)],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("patience", "seconds"),
    [
        (None, (90.0, 90.0)),  # 900 mini-batches of a tenth of a second
        (50, (3.0, 90.0)),  # or 30, if the last candidate was at its best 20 ago and never is again
        (10, (0.0, 90.0)),
    ],
)
def test_a_phase_lasts_until_the_last_candidate_may_stop_or_all_its_mini_batches(
    patience: float | None, seconds: tuple[float, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr("cl_lightning.callbacks.progress.monotonic", lambda: now[0])
    display, run = Looking(terminal=False), of_a_phase(600, 1600, patience, best=680)
    display.on_train_start(None, SimpleNamespace(phase_run=run))  # type: ignore[arg-type]
    run.step, now[0] = 700, 110.0
    assert display.of_phase() == pytest.approx(seconds)


def test_a_task_with_more_examples_takes_longer_but_not_in_proportion() -> None:
    """Of 0 and 200 examples, 100 in the mean: the second takes three times as long."""
    pace = Pace([0, 200])
    pace.learned(0, 10)
    low, high = pace.of_stream(1, 0.0, None)  # type: ignore[misc]
    assert (low + high) / 2 == pytest.approx(30)


def test_the_time_left_is_as_sure_as_tasks_are_alike() -> None:
    def wide(seconds: list[float]) -> float:
        pace = Pace([10] * 20)
        for task, each in enumerate(seconds):
            pace.learned(task, each)
        low, high = pace.of_stream(len(seconds), 0.0, None)  # type: ignore[misc]
        assert low <= (20 - len(seconds)) * sum(seconds) / len(seconds) <= high
        return (high - low) / (20 - len(seconds))

    assert wide([60] * 10) < wide([60] * 3) < wide([60])
    assert wide([60] * 10) < wide([30, 90] * 5)


def test_a_machine_that_gets_busy_moves_the_time_left_as_far_as_it_must_and_not_by_three() -> None:
    """Five tasks of 20 take a minute each; then the machine is three times as slow. The fraction of its
    mini-batches that a phase of 1000 uses is a tenth, as early stopping has it."""
    pace, told = Pace([10] * 20), []
    for task in range(8):
        slow = 3 if task >= 5 else 1
        for step in range(10, 101, 10):
            each = 0.6 * slow
            own = each * max(50 - step, 0), each * (1000 - step)
            low, high = pace.of_stream(task, step * each, own)  # type: ignore[misc]
            if task >= 4:
                told.append((low + high) / 2)
        pace.learned(task, 60 * slow)
    assert told[0] == pytest.approx(60 * 16, rel=0.05)
    assert max(told) < 2 * told[0]
    assert all(after < 1.4 * before for before, after in pairwise(told))
