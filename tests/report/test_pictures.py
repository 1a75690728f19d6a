"""The pictures of the docs: a script draws each of them again."""

from __future__ import annotations

import json
import re
from statistics import fmean

import pytest

from cl_lightning.report.parts.over_tasks import figure as over_tasks
from cl_lightning.report.style import styled
from tests.docs import PAGES, ROOT
from tests.pictures import DRAWN, IMAGES, robust_ranks
from tests.report.drawn_runs import run


def test_each_picture_is_one_that_the_script_draws_and_that_a_page_shows() -> None:
    there = {path.relative_to(IMAGES).with_suffix("").as_posix() for path in IMAGES.rglob("*.png")}
    assert {name for name in there if name not in DRAWN and not name.startswith("dashboard/")} == set()
    assert set(DRAWN) - {"dashboard"} <= there
    shown = {found for page in PAGES for found in re.findall(r"images/([\w/]+)\.png\)", page.read_text())}
    assert shown == there


def test_the_figure_of_ranks_has_the_numbers_of_the_pages_extract() -> None:
    rows = json.loads((ROOT / "docs" / "results" / "robust.json").read_text())
    (axes,) = robust_ranks()["robust_ranks"].axes
    drawn = {line.get_label(): line.lines[0].get_ydata() for line in axes.containers}
    shown = {("robust_split_mnist", 6), ("robust_permuted", 3)}
    for learner in ("ewc", "coreset_only"):
        means = {
            row["settings"].get("stream.head"): fmean(row["values"]["average_accuracy"])
            for row in rows
            if row["learner"] == learner and (row["experiment"], len(row["seeds"])) in shown
            and row["settings"].get("stream.head") != "multi_test"
        }  # fmt: skip
        assert sorted(drawn[learner.replace("_", " ")]) == pytest.approx(sorted(means.values()))


def test_panels_of_a_hundred_tasks_are_as_wide_as_those_of_five() -> None:
    """Names of tasks above a panel take no room from it."""

    def width(tasks: int) -> float:
        with styled():
            figure = over_tasks(run("finetune", 0, tasks=tasks))
            figure.draw_without_rendering()
        return figure.axes[0].get_position().width

    assert width(100) == pytest.approx(width(5), abs=0.05)
