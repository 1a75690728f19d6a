"""The files in docs/examples run in a minute or two each, from any folder, and come to what they say."""

from __future__ import annotations

import json
import os
import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.commands import command, results_in
from tests.docs import ROOT, page

EXAMPLES = ROOT / "docs" / "examples"


@pytest.fixture
def said_by(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> Callable[[str], str]:
    """What an example prints, started in a folder of its own."""

    def said(name: str) -> str:
        monkeypatch.chdir(tmp_path)
        monkeypatch.syspath_prepend(str(EXAMPLES))
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        return capsys.readouterr().out

    return said


def test_these_are_all() -> None:
    names = {path.name for path in EXAMPLES.iterdir() if path.is_file()}
    assert names - {"index.md"} == {
        "first_day.sh",
        "own_learner.py",
        "own_network.py",
        "own_stream.py",
        "own_metric.py",
        "compare.ipynb",
    }


def test_a_learner_of_ones_own_forgets_less_with_a_pull(said_by) -> None:
    without, held = map(float, re.findall(r"forgetting (-?[0-9.]+)", said_by("own_learner.py")))
    assert held < without


def test_a_network_of_ones_own_learns(said_by) -> None:
    (accuracy,) = re.findall(r"average accuracy ([0-9.]+)", said_by("own_network.py"))
    assert float(accuracy) > 0.6


def test_a_stream_comes_from_a_folder(said_by) -> None:
    assert "['classes disc frame', 'classes ring square']" in said_by("own_stream.py")


def test_a_number_of_ones_own_is_there_for_each_task(said_by) -> None:
    rows = re.findall(r"worst +learned +([0-9.]+) +([0-9.]+)", said_by("own_metric.py"))
    assert [float(at) for at, _ in rows] == [1, 2, 3]


@pytest.mark.all
@pytest.mark.slow
def test_a_newcomers_five_tasks_run_from_any_folder_and_come_to_what_they_say(tmp_path: Path) -> None:
    if shutil.which("bash") is None:
        pytest.skip("there is no bash")
    without_data = {key: value for key, value in os.environ.items() if key != "CL_LIGHTNING_DATA"}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = {**without_data, "PATH": path, "PYTHONPATH": str(ROOT)}
    script = ["bash", str(EXAMPLES / "first_day.sh")]
    ended = subprocess.run(script, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr

    table = (tmp_path / "compared.tex").read_text()
    means = dict(re.findall(r"^(er|finetune) & \$[0-9.]+ .*?\$ & \$([0-9.]+)", table, re.MULTILINE))
    assert float(means["er"]) > float(means["finetune"]), "replay forgets less"
    own_data, own_network, own_metric = (
        results_in(tmp_path / "outputs" / name) for name in ("own_data", "own_network", "own_metric")
    )
    assert own_data["metrics"]["average_accuracy"] > 0.9
    assert [task["source"] for task in own_data["stream"]["tasks"]] == ["own", "own"]
    assert own_network["config"]["backbone"]["_target_"] == "first_network.Small"
    weights = 4 * (784 * 16 + 16 + 16 * 10 + 10)
    assert own_network["costs"][0]["held"]["parameters"] == weights
    rows = own_metric["accuracy_matrix"]
    worst = [[learned, pytest.approx(min(rows[learned][:learned]))] for learned in (1, 2, 3)]
    assert own_metric["own"]["learned"]["worst"] == worst
    assert list(tmp_path.glob("outputs/own_metric/*/*/wandb/offline-run-*/run-*.wandb"))
    assert "| single | 0.53 → 0.528" in (tmp_path / "published.md").read_text()


@pytest.mark.all
def test_the_notebooks_cells_run_in_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    scope: dict = {}
    for cell in json.loads((EXAMPLES / "compare.ipynb").read_text())["cells"]:
        assert not cell.get("outputs")
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), scope)
    means = scope["means"]["average_accuracy"]["mean"]
    assert means["joint"] > means["finetune"]
    assert "\\begin{tabular}" in capsys.readouterr().out


def test_the_questions_begin_with_words_that_the_program_says() -> None:
    headings = re.findall(r"^## (.*)$", page("faq"), re.MULTILINE)
    assert len(headings) >= 15
    code = "".join(path.read_text() for path in (ROOT / "cl_lightning").rglob("*.py"))
    literals = re.sub(r"{[^{}]*}", "...", re.sub(r'"\n *f?"', "", code))
    quoted = [words for heading in headings for words in re.findall(r'^"([^"]+)"', heading)]
    for words in quoted:
        parts = [part.strip(" ,") for part in re.split(r"\.\.\.|\b\d+\b|path_modules|numpy.random", words)]
        assert all(part in literals for part in parts), words
    assert len(quoted) >= 10


def test_the_page_for_programs_links_to_pages_that_are_there() -> None:
    links = re.findall(r"\]\(([^)]+)\)", (ROOT / "docs" / "llms.txt").read_text())
    assert len(links) > 10
    assert all((ROOT / "docs" / link).is_file() for link in links)


@pytest.mark.parametrize(
    ("listing", "argument"), [("learners", "learner=ewc"), ("experiments", "+experiment=gem_rotations")]
)
def test_listings_are_there_for_programs(listing: str, argument: str) -> None:
    rows = json.loads(command(listing, "--json").stdout)
    (row,) = (row for row in rows if row["argument"] == argument)
    assert row["what"]
    assert Path(row["file"]).is_file()
    assert sum(row["default"] for row in rows) == (listing == "learners")
