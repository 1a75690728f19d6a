"""The page about the dashboard names the panels and keys that there are, and shows a picture of each."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

from cl_lightning.report import panels
from cl_lightning.report.panels import PANELS, drawn_panel, labels
from cl_lightning.report.projection import Projection
from tests import docs

PAGE = docs.page("dashboard")
POINTS = {
    "one": [{"learned": 1, "cl/ACC": 0.5, "cl/AIA": 0.5}, {"learned": 2, "cl/ACC": 0.25}],
    "other": [{"learned": 1, "cl/ACC": 0.75}, {"batches": 3, "train/loss": 1.0}],
}
ACC = panels.Panel("acc", "ACC", "learned", ("cl/ACC",))
BOTH = panels.Panel("both", "ACC and AIA", "learned", ("cl/A*",))


def lines(panel: panels.Panel) -> dict[str, list[tuple[float, float]]]:
    (axes,) = drawn_panel(panel, POINTS).axes
    return {line.get_label(): list(zip(line.get_xdata(), line.get_ydata())) for line in axes.lines}


def test_a_panel_has_a_line_a_run_and_key_with_its_points() -> None:
    assert lines(ACC) == {"one": [(1, 0.5), (2, 0.25)], "other": [(1, 0.75)]}
    assert lines(BOTH) == {
        "one cl/ACC": [(1, 0.5), (2, 0.25)],
        "one cl/AIA": [(1, 0.5)],
        "other cl/ACC": [(1, 0.75)],
    }


def test_runs_are_named_by_what_tells_them_apart() -> None:
    def run_of(learner: str, seed: int, folder: str) -> Projection:
        return SimpleNamespace(  # type: ignore[return-value]
            start=SimpleNamespace(learner=learner, seed=seed), folder=Path(folder)
        )

    first = run_of("ewc", 0, "a/x-s0")
    assert labels([first, run_of("gem", 0, "b/y-s0")]) == ["ewc", "gem"]
    assert labels([first, run_of("ewc", 1, "a/x-s1")]) == ["ewc s0", "ewc s1"]
    assert labels([first, run_of("ewc", 0, "a/y-s0")]) == ["ewc x-s0", "ewc y-s0"]
    assert labels([first, run_of("ewc", 0, "b/x-s0")]) == ["a/x-s0", "b/x-s0"]


def test_the_table_on_the_page_has_the_panels_that_are_drawn() -> None:
    rows = re.findall(r"^\| \[(\w+)\]\(#panel-\w+\) \| (.*) \| `(\w+)` \| (\w+) \|$", PAGE, re.MULTILINE)
    assert [(name, tuple(re.findall("`(.*?)`", keys)), axis, scale) for name, keys, axis, scale in rows] == [
        (panel.name, panel.keys, panel.axis, panel.scale) for panel in PANELS
    ]


def test_each_panel_has_its_picture_on_the_page_and_no_other_picture_is_there() -> None:
    pictures = {path.stem for path in (docs.ROOT / "docs/images/dashboard").iterdir()}
    assert pictures == {panel.name for panel in PANELS} | {"matrix"}
    assert set(re.findall(r"\(images/dashboard/(\w+)\.png\)", PAGE)) == pictures
