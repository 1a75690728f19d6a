"""What a run shows."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from cl_lightning.metrics.table import metrics_of
from cl_lightning.report.tables import show
from tests.commands import run
from tests.report.whole import stream_of, task, task_costs, write_whole_results


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
