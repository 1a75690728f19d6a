"""What a run shows."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest
from rich.console import Console

from cl_lightning.engine.progress import ProgressDisplay
from cl_lightning.report.results import metrics_of
from cl_lightning.report.tables import show
from tests import toys
from tests.commands import run
from tests.toys import builder, learn, training


def shown(folder: Path, width: int = 120, **options: object) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    show(folder, console=console, **options)
    return console.file.getvalue()


def test_matrix_metrics_costs_and_place_are_shown(tmp_path: Path) -> None:
    results = run(tmp_path)
    text = shown(next(tmp_path.glob("*/*/*/results.json")).parent)
    for value in results["accuracy_matrix"][-1]:
        assert f"{value:.3f}" in text
    for word in (
        "average accuracy",
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


def fake(folder: Path, tasks: int) -> Path:
    matrix = [[None] * tasks, *([[0.25] * tasks] * tasks)]
    results = {
        "learner": "x", "seed": 0, "stream": {"name": "s", "tasks": [{}] * tasks}, "accuracy_matrix": matrix, "metrics": metrics_of(matrix),
        "selected": [], "costs": [],
    }  # fmt: skip
    (folder / "results.json").write_text(json.dumps(results))
    return folder


@pytest.mark.parametrize("tasks", [1, 20, 21, 100])
def test_any_number_of_tasks_fits_and_missing_values_are_dashes(tmp_path: Path, tasks: int) -> None:
    text = shown(fake(tmp_path, tasks))
    assert "0.250" in text
    assert "-" in text
    assert max(map(len, text.splitlines())) <= 200


def test_a_note_is_shown(tmp_path: Path) -> None:
    assert "made with torch 1" in shown(fake(tmp_path, 2), note="it was made with torch 1.")


def cells_of(task: int, text: str) -> list[str]:
    """A row of the table of paths."""
    paths = text[text.index("Modules re-used") : text.index("Costs and choices")]
    row = next(line for line in paths.splitlines() if re.match(rf"│ +{task} │", line))
    return [cell.strip() for cell in row.strip("│").split("│")]


def test_of_modular_learners_it_is_said_what_each_task_re_used_and_of_others_nothing(tmp_path: Path) -> None:
    results = run(tmp_path, "learner=mntdp_d", "stream.on_shortage=shrink", "stream.n_train=600", "trainer.max_epochs=1")
    paths, sources = ([note[key] for note in results["notes"]] for key in ("path", "sources"))
    text = shown(next(tmp_path.glob("*/*/*/results.json")).parent, width=80)
    for task, (path, note) in enumerate(zip(paths, results["notes"])):
        count = len(set(path) & {module for earlier in paths[:task] for module in earlier})
        assert note["reused"] == count
        assert cells_of(task, text) == [str(task), "2", str(count), str(sources[task][0]) if count else "-"]
    assert any(note["reused"] for note in results["notes"])
    assert "re-used" not in shown(fake(tmp_path, 2))


def watched(terminal: bool) -> str:
    console = Console(file=io.StringIO(), force_terminal=terminal, width=140)
    display, s = ProgressDisplay(console), toys.stream()
    display.on_stream_start("toy", len(s), 0)
    learner = toys.Finetune(build=builder(s), head=s.head, grid=[{"lr": 0.01}, {"lr": 0.02}], seed=0)
    display.on_task_start(learner, s.closed(0))
    learn(learner, s, training(patience=100), callbacks=[display])
    assert display.line is None or "alive 2/2" in display.line.tasks[0].fields["state"]
    display.on_evaluated(learner, 1, [0.5])
    if display.line:
        display.line.refresh()
    display.on_stream_end()
    return console.file.getvalue()


def test_progress_shows_stream_task_candidates_accuracy_and_time_left_on_a_terminal() -> None:
    text = watched(terminal=True)
    for part in ("toy", "left"):
        assert part in text


def test_progress_is_silent_elsewhere() -> None:
    assert watched(terminal=False) == ""
