"""What a run shows."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from cl_lightning.callbacks.progress import ProgressDisplay
from cl_lightning.learners import Phase
from cl_lightning.metrics.table import metrics_of
from cl_lightning.report.tables import show
from tests import toys
from tests.commands import run
from tests.report.whole import stream_of, task, task_costs, write_whole_results
from tests.toys import builder, learn, training


def shown(folder: Path, width: int = 120, **options: object) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    show(json.loads((folder / "results.json").read_text()), folder, console=console, **options)
    return console.file.getvalue()


def test_matrix_metrics_costs_and_place_are_shown(tmp_path: Path) -> None:
    results = run(tmp_path)
    text = shown(next(tmp_path.glob("*/*/*/results.json")).parent)
    for value in results["accuracy_matrix"][-1]:
        assert f"{value:.3f}" in text
    for word in (
        "validation accuracy at the end",
        "average accuracy",
        "average incremental accuracy",
        "backward transfer",
        "forward transfer",
        "forgetting from best",
        "held",
        "flops",
        "executed",
        "results.json",
    ):
        assert word in text
    assert results["selected"][0]["candidate"] in text


def fake(folder: Path, tasks: int, **parts: Any) -> Path:
    matrix = [[None] * tasks, *([[0.25] * tasks] * tasks)]
    made = {"stream": stream_of(*[task()] * tasks), "accuracy_matrix": matrix, "costs": []}
    write_whole_results(folder, **{**made, "metrics": metrics_of(matrix), **parts})
    return folder


@pytest.mark.parametrize("tasks", [1, 20, 21, 100])
def test_any_number_of_tasks_fits_and_missing_values_are_dashes(tmp_path: Path, tasks: int) -> None:
    text = shown(fake(tmp_path, tasks))
    assert "0.250" in text
    assert "-" in text
    assert max(map(len, text.splitlines())) <= 200


def metric_shown(name: str, text: str) -> str:
    return re.search(rf"│ {name} +│ +(\S+) +│", text)[1]


def test_forgetting_is_positive_where_something_was_forgotten_by_every_definition(tmp_path: Path) -> None:
    matrix = [[0.0] * 3, [0.5, 0.0, 0.0], [0.9, 0.8, 0.0], [0.4, 0.6, 0.7]]
    assert metrics_of(matrix)["forgetting"] == pytest.approx((0.1 + 0.2) / 2)
    text = shown(fake(tmp_path, 3, accuracy_matrix=matrix, metrics=metrics_of(matrix)))
    assert metric_shown("backward transfer", text) == "-0.1500"
    assert metric_shown("forgetting", text) == "+0.1500"
    assert metric_shown("forgetting from best", text) == "+0.3500"  # (0.5 + 0.2) / 2


@pytest.mark.parametrize(("mean", "cell"), [(0.125, "0.1250"), (None, "-")])
def test_validation_at_the_end_is_shown_and_a_dash_without_validation_data(
    mean: float | None, cell: str, tmp_path: Path
) -> None:
    text = shown(fake(tmp_path, 2, validation_at_end={"accuracies": [mean] * 2, "mean": mean}))
    assert metric_shown("validation accuracy at the end", text) == cell


@pytest.mark.parametrize(
    ("tasks", "parts", "why"),
    [
        (1, {}, "there is one task"),
        (2, {}, "a task could not be predicted"),
        (2, {"finished": False}, "the run is not finished"),
        (2, {"config": {"trainer": {"evaluate": "seen"}, "stream": {}}}, "trainer.evaluate=seen does not"),
    ],
)
def test_a_metric_that_is_undefined_says_why(tasks: int, parts: dict, why: str, tmp_path: Path) -> None:
    text = shown(fake(tmp_path, tasks, **parts))
    (line,) = [line for line in text.splitlines() if line.startswith("No ") and "forward transfer" in line]
    assert f": {why}" in line


def test_a_score_that_is_no_accuracy_is_called_a_score(tmp_path: Path) -> None:
    chosen = {
        "where": "task0",
        "candidate": "default",
        "val_accuracy": None,
        "score": -2.5,
        "steps": 3,
        "steps_to_best": 1,
    }
    one = {"costs": [{**task_costs(0), "held": {"parameters": 8}, "published_memory": 8}]}
    assert "score -2.500" in shown(fake(tmp_path, 1, selected=[chosen], **one))
    del chosen["score"]
    text = shown(fake(tmp_path, 1, selected=[{**chosen, "val_accuracy": 0.75}], **one))
    assert "0.750" in text
    assert not re.search(r"score [-\d]", text)


def test_a_note_is_shown(tmp_path: Path) -> None:
    assert "made with torch 1" in shown(fake(tmp_path, 2), note="it was made with torch 1.")


def cells_of(task: int, text: str) -> list[str]:
    """A row of the table of paths."""
    paths = text[text.index("Modules re-used") : text.index("Choices, by task")]
    row = next(line for line in paths.splitlines() if re.match(rf"│ +{task} │", line))
    return [cell.strip() for cell in row.strip("│").split("│")]


def test_of_modular_learners_it_is_said_what_each_task_re_used_and_of_others_nothing(tmp_path: Path) -> None:
    results = run(
        tmp_path, "learner=mntdp_d", "stream.on_shortage=shrink", "stream.n_train=600", "trainer.max_epochs=1"
    )
    paths, sources = ([note[key] for note in results["notes"]] for key in ("path", "sources"))
    text = shown(next(tmp_path.glob("*/*/*/results.json")).parent, width=80)
    for index, (path, note) in enumerate(zip(paths, results["notes"])):
        count = len(set(path) & {module for earlier in paths[:index] for module in earlier})
        assert note["reused"] == count
        *cells, nearest = cells_of(index, text)
        assert cells == [str(index), "2", str(count), str(sources[index][0]) if count else "-"]
        near = sorted(enumerate(note["scores"]), key=lambda pair: -pair[1])
        assert nearest == ", ".join(f"{j}: {score:.3f}" for j, score in near)
    assert any(note["reused"] for note in results["notes"])
    assert "re-used" not in shown(fake(tmp_path, 2))


class ScoredOtherwise(toys.Finetune):
    def learn(self, task):
        best = yield Phase(self.candidates(task), score=lambda c, val: 2.5)
        self.adopt(best.candidate, task)


def watched(
    terminal: bool, cls: type = toys.Finetune, state: str = "train: 2 of 2 alive, best val 0."
) -> str:
    console = Console(file=io.StringIO(), force_terminal=terminal, width=140)
    display, s = ProgressDisplay(console), toys.stream()
    display.on_stream_start("toy", len(s), 0)
    learner = cls(build=builder(s), head=s.head, grid=[{"lr": 0.01}, {"lr": 0.02}], seed=0)
    display.on_task_start(learner, s.task_without_data(0))
    learn(learner, s, training(patience=100), callbacks=[display])
    assert display.line is None or re.match(
        rf"task 2 of 0\.\.2, \d+:\d\d left, {re.escape(state)}", display.line.tasks[0].fields["state"]
    )
    display.on_evaluated(learner, 1, [0.5])
    if display.line:
        display.line.refresh()
    display.on_stream_end()
    return console.file.getvalue()


def test_progress_shows_task_phase_candidates_accuracy_and_time_left_on_a_terminal() -> None:
    assert re.search(r"1 of 3 tasks learned and tested, \d+:\d\d left", watched(terminal=True))
    watched(terminal=True, cls=ScoredOtherwise, state="train: 2 of 2 alive, best score 2.500")


def test_progress_is_a_line_a_task_elsewhere() -> None:
    lines = watched(terminal=False).splitlines()
    assert len(lines) == 1
    assert re.fullmatch(r"1 of 3 tasks learned, mean test accuracy on them 0\.500, \d+:\d\d left", lines[0])


def test_one_task_is_no_tasks() -> None:
    console = Console(file=io.StringIO(), width=120)
    display = ProgressDisplay(console)
    display.on_stream_start("toy", 1, learned=0)
    display.on_evaluated(None, 1, [0.5])
    assert console.file.getvalue() == "1 of 1 task learned, mean test accuracy on them 0.500\n"


def test_elsewhere_a_line_a_minute_says_where_training_is(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("cl_lightning.callbacks.progress.monotonic", lambda: now[0])
    console = Console(file=io.StringIO(), width=120)
    display = ProgressDisplay(console)
    display.on_stream_start("toy", 2, 0)
    run = SimpleNamespace(
        task=SimpleNamespace(index=0), step=50, blocks=SimpleNamespace(steps=100), best_accuracy=0.5,
        phase=SimpleNamespace(name="train", score=None), active=[1], candidates=range(3),
    )  # fmt: skip
    for _ in range(130):
        now[0] += 1
        display.on_train_batch_end(None, SimpleNamespace(phase_run=run))  # type: ignore[arg-type]
    lines = console.file.getvalue().splitlines()
    alive = "train: 1 of 3 alive, best val 0.500, batch 50/100"
    assert lines == [f"task 0 of 0..1, {left} left, {alive}" for left in ("3:00", "6:00")]


def test_the_time_left_is_that_of_as_many_tasks_at_the_pace_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("cl_lightning.callbacks.progress.monotonic", lambda: now[0])
    console = Console(file=io.StringIO(), width=120)
    display = ProgressDisplay(console)
    display.on_stream_start("toy", 10, learned=4)  # a resumed run
    now[0] += 60
    display.on_evaluated(None, 6, [0.5] * 6 + [None] * 4)
    assert console.file.getvalue() == "6 of 10 tasks learned, mean test accuracy on them 0.500, 2:00 left\n"


@pytest.mark.parametrize(
    ("mode", "last", "said"),
    [
        ("single", [0.0, 0.001, 0.9], True),
        ("single", [0.0, 0.2, 0.9], False),
        ("single", [None, 0.0, 0.9], False),
        ("multi_test", [0.0, 0.0, 0.9], False),
    ],
)
def test_a_run_that_ends_at_0_under_one_output_layer_says_that_the_protocol_shows_this(
    tmp_path: Path, mode: str, last: list[float | None], said: bool
) -> None:
    tasks = [{**task(), "head": {"mode": mode, "outputs": [2 * j, 2 * j + 1]}} for j in range(3)]
    matrix = [*[[0.5] * 3] * 3, last]
    text = shown(fake(tmp_path, 3, stream=stream_of(*tasks), accuracy_matrix=matrix))
    assert ("Old tasks end at 0: with one output layer for all classes" in text) == said
