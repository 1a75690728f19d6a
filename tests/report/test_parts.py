"""A table or a figure of a report is one file, which is found where it lies."""

from __future__ import annotations

from pathlib import Path

import pytest

from cl_lightning.report import parts
from cl_lightning.report.figures import draw
from cl_lightning.report.tables import show
from tests.golden import new_console, printed
from tests.report.whole import whole_results

A_PART = '''
"""The worst task."""

ORDER = 1.5

def worst(results):
    return min(results["accuracy_matrix"][-1])

def table(results, width):
    return [f"the worst task has {worst(results)}"]

def figure(results):
    from matplotlib.figure import Figure
    drawn = Figure()
    drawn.subplots().bar([0], [worst(results)])
    return drawn
'''


def test_a_file_among_the_parts_is_shown_at_the_end_of_a_run_and_drawn_into_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "worst.py").write_text(A_PART)
    monkeypatch.setattr(parts, "__path__", [*parts.__path__, str(own)])
    console = new_console(80)
    show(whole_results(), tmp_path, console=console)
    text = printed(console)
    assert text.index("Metrics") < text.index("the worst task has 0.5") < text.index("Costs, by task")
    assert "worst.png" in {path.name for path in draw(whole_results(), tmp_path)}


def test_parts_come_in_their_order() -> None:
    tables = ["accuracy", "metrics", "measures", "predictors", "paths", "choices", "costs", "card"]
    assert [name for name in parts.found("table") if name in tables] == tables
