"""Figures show what results.json holds, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from cl_lightning.report.figures import draw
from cl_lightning.report.parts.accuracy import heat
from cl_lightning.report.parts.curves import curves_of
from cl_lightning.report.parts.curves import figure as curves
from cl_lightning.report.parts.over_tasks import figure as over_tasks
from cl_lightning.report.parts.over_tasks import mean_so_far
from cl_lightning.report.parts.paths import path_graph

RESULTS = {
    "learner": "mntdp_d",
    "stream": {"name": "toy", "tasks": [{"name": "one"}, {"name": "two"}, {"name": "three"}]},
    "accuracy_matrix": [[None, None, None], [0.8, None, None], [0.6, 1.0, None], [0.5, 0.9, 0.7]],
    "costs": [
        {"held": {"parameters": 4_000_000, "memory.x": 1_000_000}, "published_memory": 4_000_000},
        {"held": {"parameters": 6_000_000, "memory.x": 2_000_000}, "published_memory": 6_000_000},
        {"held": {"parameters": 6_000_000, "memory.x": 3_500_000}, "published_memory": 6_000_000},
    ],
    "notes": [{"kind": "module_paths", "path": path} for path in ([0, 1], [0, 2], [0, 2])],
    "schema": 5,
}


def test_accuracy_is_the_mean_over_the_tasks_so_far() -> None:
    assert [mean_so_far(RESULTS["accuracy_matrix"], i) for i in (1, 2, 3)] == pytest.approx([0.8, 0.8, 0.7])
    each, accuracy, _ = over_tasks(RESULTS).axes
    assert accuracy.lines[0].get_ydata() == pytest.approx([0.8, 0.8, 0.7])
    shown = {line.get_label(): (list(line.get_xdata()), list(line.get_ydata())) for line in each.lines}
    assert shown == {"0": ([1, 2, 3], [0.8, 0.6, 0.5]), "1": ([2, 3], [1.0, 0.9]), "2": ([3], [0.7])}


def test_learning_curves_are_what_probes_saw_of_what_was_chosen_on_the_task_being_learned() -> None:
    def look(task: int, phase: int, step: int, accuracy: float, **candidate: str) -> dict:
        return {"task": task, "phase": phase, "step": step, "accuracies": [accuracy] * 2, **candidate}

    looks = [look(0, 0, 0, 0.1), look(0, 0, 5, 0.2), look(0, 1, 0, 0.3), look(0, 1, 9, 0.4)]
    looks += [look(1, 0, 2, 0.5, candidate="a"), look(1, 0, 2, 0.6, candidate="b")]
    run = {"probes": looks, "selected": [{"task": 1, "candidate": "b"}]}
    assert curves_of(run) == {0: {0: 0.3, 9: 0.4}, 1: {2: 0.6}}  # of task 0 its second phase
    (axes,) = curves(run).axes
    shown = {line.get_label(): (list(line.get_xdata()), list(line.get_ydata())) for line in axes.lines}
    assert shown == {"0": ([0, 9], [0.3, 0.4]), "1": ([2], [0.6])}
    assert curves({"probes": [], "selected": []}) is None


def drawn(results: dict) -> dict[str, list[float]]:
    """What the panel of memory shows, by the words of its legend."""
    memory = over_tasks(results).axes[2]
    assert all(list(line.get_xdata()) == [1, 2, 3] for line in memory.lines)
    return {line.get_label(): list(line.get_ydata()) for line in memory.lines}


@pytest.mark.parametrize("published", ["none is counted", "the same"])
def test_memory_is_all_that_is_held_and_where_it_differs_also_as_papers_count(published: str) -> None:
    held = {"all that is held": [5, 8, 9.5]}
    assert drawn(RESULTS) == {**held, "as Veniat et al. 2021": [4, 6, 6]}
    costs = [  # of learners with a memory, no number of any task is counted as papers do
        {**cost, "published_memory": None if published != "the same" else sum(cost["held"].values())}
        for cost in RESULTS["costs"]
    ]
    assert drawn({**RESULTS, "costs": costs}) == held


@pytest.mark.parametrize("tasks", [1, 2, 3, 5, 20, 100])
def test_ticks_are_at_whole_tasks_and_points_at_the_edges_are_whole(tasks: int) -> None:
    row = [1.0] * tasks
    figure = over_tasks(
        {**RESULTS, "accuracy_matrix": [row] * (tasks + 1), "costs": RESULTS["costs"][:1] * tasks}
    )
    for axes in (*figure.axes, heat([row] * (tasks + 1)).axes[0]):
        low, high = axes.get_xlim()
        ticks = [tick for tick in axes.get_xticks() if low <= tick <= high]
        assert ticks
        assert all(tick == round(tick) for tick in ticks)
    for axes in figure.axes:
        assert (axes.get_xlim()[0] < 1, axes.get_xlim()[1] > tasks) == (True, True)
        assert not any(line.get_clip_on() for line in axes.lines)


def test_the_heat_map_has_a_row_a_count_of_tasks_learned_and_a_column_a_task() -> None:
    """A matrix that is neither square nor symmetric: transposed, mirrored or turned it is another."""
    matrix = [[0.1, 0.2, 0.3], [0.9, 0.25, 0.35], [0.6, 0.85, None], [0.5, 0.7, 0.95]]
    axes, bar = heat(matrix).axes
    (image,) = axes.images
    values, mask = image.get_array().filled(-1).tolist(), image.get_array().mask
    assert values == [[-1 if value is None else value for value in row] for row in matrix]
    assert [tuple(map(int, place)) for place in zip(*mask.nonzero())] == [(2, 2)]
    assert [*image.get_extent()] == [-0.5, 2.5, 3.5, -0.5]  # the first row on top, task 0 left
    assert (axes.get_ylim(), axes.get_xlim()) == ((3.5, -0.5), (-0.5, 2.5))
    assert (axes.get_xlabel(), axes.get_ylabel(), bar.get_ylabel()) == (
        "task",
        "tasks learned",
        "test accuracy",
    )
    assert image.get_clim() == (0, 1)


def test_a_path_is_a_row_and_tells_new_modules_from_re_used_ones() -> None:
    (axes,) = path_graph([note["path"] for note in RESULTS["notes"]], ["one", "two", "three"]).axes
    (image,) = axes.images
    assert image.get_array().tolist() == [[1, 1], [0, 1], [0, 0]]  # new: 1
    texts = {(text.get_position()): text.get_text() for text in axes.texts}
    assert texts == {(0, 1): "0", (0, 2): "0", (1, 2): "1"}  # the task that brought it
    assert [label.get_text() for label in axes.get_yticklabels()] == ["0: one", "1: two", "2: three"]
    hundred = path_graph([[0, i] for i in range(1, 101)], [str(i) for i in range(100)])
    assert hundred.axes[0].images[0].get_array().shape == (100, 2)
    assert hundred.get_figheight() < 10


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
