"""Every table of the report command in every format, of runs that a script makes."""

from __future__ import annotations

from pathlib import Path

import pytest

from cl_lightning.cli.report import main
from cl_lightning.report.formats import FORMATS
from cl_lightning.report.results import text_of
from tests.docs import ROOT
from tests.golden import WIDTHS, assert_golden
from tests.report.drawn_runs import several
from tests.report.test_compare import result

TABLES = {
    "report_compared": ["compared", "runs", "--against", "finetune"],
    "report_diff": ["diff", "gem/gem", "gem/ewc"],
    "report_paper": ["paper=gem", "gem"],
    "report_runs": ["runs"],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of three learners on two streams, and of two learners with all settings of a paper."""
    top = tmp_path_factory.mktemp("runs")
    for number, run in enumerate(several()):
        (top / "runs" / str(number)).mkdir(parents=True)
        (top / "runs" / str(number) / "results.json").write_text(text_of(run))
    for learner, height in (("gem", 0.8), ("ewc", 0.5)):
        for seed in range(6):
            result(top / "gem", learner, seed, height + 0.01 * seed, bwt=None if learner == "ewc" else 0.01)
    return top


def told(folder: Path, name: str, capsys: pytest.CaptureFixture[str], *more: str) -> str:
    words = [str(folder / word) if (folder / word).exists() else word for word in TABLES[name]]
    assert main([*words, *more]) == 0
    return capsys.readouterr().out.replace(str(folder), "FOLDER")


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", TABLES)
def test_a_table_in_the_terminal(
    name: str, width: int, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    assert_golden(told(folder, name, capsys), name, width)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("name", TABLES)
def test_a_table_for_other_programs(
    name: str, form: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert_golden(told(folder, name, capsys, f"--{form}"), f"{name}_{form}", 0)


@pytest.mark.parametrize("width", [60, pytest.param(100, marks=pytest.mark.all), 200])
def test_the_widest_table_of_a_paper_uses_the_whole_terminal_and_no_more(
    width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    assert main(["paper=mntdp", str(ROOT / "docs" / "results" / "mntdp.json")]) == 0
    lines = [len(line) for line in capsys.readouterr().out.splitlines() if line[:1] in tuple("┏┃┡│├└")]
    assert max(lines) == width
