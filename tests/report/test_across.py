"""Figures of several runs show what their results say."""

from __future__ import annotations

import math
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pytest

from cl_lightning.cli.report import main
from cl_lightning.report import across
from cl_lightning.report.across import (
    bars,
    by_learner,
    first_task,
    logged,
    matrices,
    radar,
    ranks,
    so_far,
    tradeoff,
)
from cl_lightning.report.across import paths as across_paths
from cl_lightning.report.figures import save
from cl_lightning.report.parts import found
from cl_lightning.report.results import sealed, text_of
from cl_lightning.report.style import COLOURS, WIDTH, styled
from tests.report.drawn_runs import run, several

RUNS = several()
LEARNERS = by_learner(RUNS)


def of(learner: str, stream: str) -> list[Any]:
    return [run for run in RUNS if (run["learner"], run["name"]) == (learner, stream)]


def lines(axes: Any) -> dict[str, list[float]]:
    return {line.get_label(): list(line.get_ydata()) for line in axes.lines if line.get_label()[0] != "_"}


def test_runs_are_shown_by_learner_and_apart_where_a_learner_has_several_on_a_stream() -> None:
    assert {name: len(runs) for name, runs in LEARNERS.items()} == {"finetune": 6, "gem": 6, "modular": 6}
    other = sealed({**run("gem", 0), "fingerprint": "another"})  # type: ignore[typeddict-item]
    unfinished = {**run("er", 0), "finished": False}
    apart = by_learner([*RUNS, other, unfinished])
    assert {name: len(runs) for name, runs in apart.items() if "gem" in name} == {
        "gem anothe": 1,
        "gem gemper": 3,
        "gem gemrot": 3,
    }
    assert "er" not in apart
    ten, twenty = (
        sealed({**run("er", 0), "fingerprint": str(size), "config": {"learner": {"size": size}}})  # type: ignore[typeddict-item]
        for size in (10, 20)
    )
    assert list(by_learner([ten, twenty])) == ["er size=10", "er size=20"]


def test_curves_are_means_over_seeds_in_bands_of_a_deviation() -> None:
    axes = first_task.figure(LEARNERS).axes
    for panel, stream in zip(axes, ("permutations", "rotations")):
        for name, shown in lines(panel).items():
            seeds = [[row[0] for row in run["accuracy_matrix"][1:]] for run in of(name, stream)]
            assert shown == pytest.approx([fmean(column) for column in zip(*seeds)])
        band = panel.collections[0].get_paths()[0].vertices[:, 1]
        seeds = [[row[0] for row in run["accuracy_matrix"][1:]] for run in of("finetune", stream)]
        tops = [fmean(column) + stdev(column) for column in zip(*seeds)]
        assert all(any(abs(top - y) < 1e-9 for y in band) for top in tops)


def test_accuracy_so_far_and_memory_are_those_of_the_results() -> None:
    axes = so_far.figure(LEARNERS).axes
    for column, stream in enumerate(("permutations", "rotations")):
        accuracy, memory = lines(axes[column]), lines(axes[2 + column])
        for name in LEARNERS:
            runs = of(name, stream)
            means = [fmean(fmean(r["accuracy_matrix"][i][:i]) for r in runs) for i in range(1, 6)]
            held = [fmean(sum(r["costs"][i]["held"].values()) / 1e6 for r in runs) for i in range(5)]
            assert memory[name] == pytest.approx(held)
            assert accuracy[name] == pytest.approx(means)


def test_ranks_are_those_of_mean_accuracies_in_each_experiment() -> None:
    (panel,) = ranks.figure(LEARNERS).axes
    assert [tick.get_text() for tick in panel.get_xticklabels()] == [
        "permutations\ndomain",
        "rotations\ndomain",
    ]
    for container in panel.containers:
        expected = [
            fmean(r["metrics"]["average_accuracy"] for r in of(container.get_label(), stream))
            for stream in ("permutations", "rotations")
        ]
        assert list(container.lines[0].get_ydata()) == pytest.approx(expected)
    assert len(panel.containers) == 3
    assert ranks.figure({"gem": [*RUNS, {**of("gem", "rotations")[0], "fingerprint": "other"}]}) is None


def with_logs() -> list[Any]:
    """Runs that logged three numbers each: 0, 1 and 2 and their seed."""
    logs = [{"batches": {"gradient": [[40 + i, float(i + run["seed"])] for i in range(3)]}} for run in RUNS]
    return [{**run, "own": {"learned": {}, **own}} for run, own in zip(RUNS, logs)]


def test_what_was_logged_is_shown_as_means_over_seeds_by_learner_and_stream() -> None:
    (panel,) = logged.figure(by_learner(with_logs())).axes
    shown = lines(panel)
    assert set(shown) == {
        f"{name}, {stream}" for name in LEARNERS for stream in ("rotations", "permutations")
    }
    assert shown["gem, rotations"] == [1.0, 2.0, 3.0], "of seeds 0, 1 and 2"
    assert panel.get_title() == "gradient"
    assert logged.figure(LEARNERS) is None


def test_bars_are_as_high_as_the_metrics() -> None:
    figure = bars.figure(LEARNERS)
    for panel, stream in zip(figure.axes, ("permutations", "rotations")):
        heights = [patch.get_height() for patch in panel.patches]
        expected = [
            fmean(r["metrics"][metric] for r in of(name, stream))
            for name in LEARNERS
            for metric in bars.SHOWN
        ]
        assert heights == pytest.approx(expected)


def test_accuracy_stands_against_what_is_held_and_computed() -> None:
    points = {}
    for panel in tradeoff.figure(LEARNERS).axes:
        for container in panel.containers:
            x, y = container[0].get_xdata()[0], container[0].get_ydata()[0]
            points[panel.get_xlabel(), container.get_label(), round(float(y), 9)] = float(x)
    for name in LEARNERS:
        for stream in ("permutations", "rotations"):
            acc = round(fmean(r["metrics"]["average_accuracy"] for r in of(name, stream)), 9)
            last = of(name, stream)[0]["costs"][-1]["held"]
            assert points["memory, MB", name, acc] == pytest.approx(sum(last.values()) / 1e6)
            assert points["operations, Tflop", name, acc] == pytest.approx(15)  # 1 + 2 + .. + 5
            assert points["processor, s", name, acc] == pytest.approx(5)  # one a task


def test_the_radars_best_learner_of_an_axis_stands_on_the_circle() -> None:
    panel = radar.figure(LEARNERS).axes[0]
    heads = [label.get_text() for label in panel.get_xticklabels()]
    assert heads == ["A", "F", "memory", "operations", "LCA", "T permutations", "T rotations"]
    shown = lines(panel)
    for place, head in enumerate(heads):
        values = {
            name: radar.numbers(runs, ["permutations", "rotations"])[head] for name, runs in LEARNERS.items()
        }
        best = max(values, key=values.__getitem__)
        assert shown[best][place] == pytest.approx(1)
        if len(set(values.values())) > 1:
            worst = min(values, key=values.__getitem__)
            assert shown[worst][place] == pytest.approx(0.1)
    transfers = [r["reference"]["transfer"] for r in of("gem", "rotations")]
    assert radar.numbers(LEARNERS["gem"], ["rotations"])["T rotations"] == pytest.approx(fmean(transfers))
    last = sum(of("gem", "rotations")[0]["costs"][-1]["held"].values()) / 1e6
    assert radar.numbers(LEARNERS["gem"], [])["memory"] == pytest.approx(-math.log10(last))
    assert radar.figure({"gem": LEARNERS["gem"]}) is None


def test_matrices_are_means_entry_by_entry() -> None:
    figure = matrices.figure(LEARNERS)
    shown = {axes.get_title(): axes.images[0].get_array() for axes in figure.axes if axes.get_title()}
    assert len(shown) == 6
    for name in LEARNERS:
        cells = [r["accuracy_matrix"][3][1] for r in of(name, "rotations")]
        assert shown[f"{name}\nrotations"][3][1] == pytest.approx(fmean(cells))


def test_the_points_that_no_other_has_beaten_are_joined() -> None:
    panel = tradeoff.figure(LEARNERS).axes[0]
    x, y = next((line.get_xdata(), line.get_ydata()) for line in panel.lines if line.get_linestyle() == ":")
    means = {
        name: fmean(r["metrics"]["average_accuracy"] for r in of(name, "permutations")) for name in LEARNERS
    }
    assert means["finetune"] < means["gem"] < means["modular"]  # the first two hold the same
    held = [
        sum(of(name, "permutations")[0]["costs"][-1]["held"].values()) / 1e6 for name in ("gem", "modular")
    ]
    assert list(x) == pytest.approx(held)
    assert list(y) == pytest.approx([means["gem"], means["modular"]])


def test_paths_stand_beside_each_other() -> None:
    figure = across_paths.figure(LEARNERS)
    for panel, stream in zip(figure.axes, ("permutations", "rotations")):
        assert panel.get_title() == f"modular\n{stream}, seed 0"
        assert panel.images[0].get_array().tolist() == [[1, 1, 1, 1], *[[0, 1, 1, 1]] * 4]
    assert across_paths.figure({"gem": LEARNERS["gem"]}) is None


@pytest.mark.parametrize("name", sorted(found("figure", across)))
def test_figures_are_a_column_wide_have_whole_ticks_and_letters_of_eight_points(name: str) -> None:
    with styled():
        rotations = (run for run in with_logs() if run["name"] == "rotations")
        figure = found("figure", across)[name](by_learner(rotations))
        figure.canvas.draw()
    assert figure.get_figwidth() <= 2 * WIDTH
    for axes in figure.axes:
        labels = [*axes.get_xticklabels(), *axes.get_yticklabels(), axes.title, axes.xaxis.label]
        assert all(label.get_fontsize() >= 8 for label in labels)
        if axes.get_xlabel() in ("task", "tasks learned"):
            assert all(tick == round(tick) for tick in axes.get_xticks())
    assert len(set(COLOURS)) == 8


def test_all_figures_are_saved_in_three_formats_by_a_command(tmp_path: Path) -> None:
    few = [RUNS[0], RUNS[3]]
    for one in few:
        folder = tmp_path / "runs" / f"{one['learner']}{one['seed']}"
        folder.mkdir(parents=True)
        (folder / "results.json").write_text(text_of(one))
    assert main(["figures", str(tmp_path / "runs"), "--to", str(tmp_path / "to")]) == 0
    saved = {file.name for file in (tmp_path / "to").iterdir()}
    assert saved >= {f"bars.{kind}" for kind in ("png", "svg", "pdf")}
    assert {name.partition(".")[0] for name in saved} <= set(found("figure", across))
    again = tmp_path / "again"
    again.mkdir()
    with styled():
        save({"bars": bars.figure(by_learner(few))}, again, ["svg"])
    assert (again / "bars.svg").read_bytes() == (tmp_path / "to" / "bars.svg").read_bytes()
    assert main(["figures", str(again)]) == 2


def test_where_probes_looked_the_first_tasks_curve_goes_through_them() -> None:
    """Of three tasks with two mini-batches each, two seeds; a learner without probes has whole numbers."""

    def probed(run: Any, more: float) -> Any:
        places = [(0, 2), (1, 1), (1, 2), (2, 1), (2, 2)]
        rows = [{"task": task, "phase": 0, "step": step} for task, step in places]
        values = [0.9, 0.8, 0.6, 0.4, 0.2]
        return {**run, "probes": [{**r, "accuracies": [v + more, 0.5]} for r, v in zip(rows, values)]}

    runs = [probed(run, more) for run, more in zip(of("gem", "rotations"), (0.0, 0.1))]
    (panel,) = first_task.figure({"gem": runs, "finetune": of("finetune", "rotations")}).axes
    (gem, finetune) = panel.lines
    assert list(gem.get_xdata()) == [1.5, 2.0, 2.5, 3.0]
    assert list(gem.get_ydata()) == pytest.approx([0.85, 0.65, 0.45, 0.25])
    assert list(finetune.get_xdata()) == [1, 2, 3, 4, 5]
