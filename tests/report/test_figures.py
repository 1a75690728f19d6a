"""Figures show what results.json holds, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from cl_lightning.report.figures import draw, mean_so_far, over_tasks, path_graph

RESULTS = {
    "learner": "mntdp_d",
    "stream": {"name": "toy", "tasks": [{"name": "one"}, {"name": "two"}, {"name": "three"}]},
    "accuracy_matrix": [[None, None, None], [0.8, None, None], [0.6, 1.0, None], [0.5, 0.9, 0.7]],
    "costs": [
        {"published_memory": 4_000_000},
        {"published_memory": 6_000_000},
        {"published_memory": 6_000_000},
    ],
    "notes": [{"kind": "module_paths", "path": path} for path in ([0, 1], [0, 2], [0, 2])],
    "schema": 5,
}


def test_accuracy_is_the_mean_over_the_tasks_so_far() -> None:
    assert [mean_so_far(RESULTS["accuracy_matrix"], i) for i in (1, 2, 3)] == pytest.approx([0.8, 0.8, 0.7])
    accuracy, memory = over_tasks(RESULTS).axes
    assert accuracy.lines[0].get_ydata() == pytest.approx([0.8, 0.8, 0.7])
    assert list(memory.lines[0].get_ydata()) == [4, 6, 6]


def test_a_path_goes_through_the_rows_of_the_tasks_that_brought_its_modules() -> None:
    (axes,) = path_graph([note["path"] for note in RESULTS["notes"]], ["one", "two", "three"]).axes
    lines = [line for line in axes.lines if len(line.get_ydata()) > 1]
    assert [[round(y) for y in line.get_ydata()] for line in lines] == [
        [0, 0, 0, 0],
        [1, 0, 1, 1],
        [2, 0, 1, 2],
    ]
    squares = [
        (line.get_xdata()[0], line.get_ydata()[0]) for line in axes.lines if len(line.get_ydata()) == 1
    ]
    assert sorted(squares) == [(1, 0), (2, 0), (2, 1)]


def test_both_figures_are_drawn_in_both_formats(tmp_path: Path) -> None:
    files = draw(RESULTS, tmp_path)
    assert sorted(file.name for file in files) == [
        "over_tasks.png",
        "over_tasks.svg",
        "paths.png",
        "paths.svg",
    ]
    assert all(file.stat().st_size > 1000 for file in files)


def test_figures_are_there_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from matplotlib.figure import Figure

    with monkeypatch.context() as patch:
        patch.setattr(
            Figure, "savefig", lambda self, path, **_: path.write_text("") if path.suffix == ".png" else 1 / 0
        )
        with pytest.raises(ZeroDivisionError):
            draw(RESULTS, tmp_path)
    assert not (tmp_path / "figures").exists()
    assert len(draw(RESULTS, tmp_path)) == 4
    assert sorted(file.name for file in tmp_path.iterdir()) == ["figures"]


def test_a_learner_without_paths_has_no_path_graph(tmp_path: Path) -> None:
    assert {file.stem for file in draw({**RESULTS, "notes": [{"path": "of my own"}] * 3}, tmp_path)} == {
        "over_tasks"
    }
