"""The page of runs: one file by itself, which a browser shows without a complaint."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from cl_lightning.cli.report import main
from cl_lightning.report.results import sealed, text_of
from tests.report.drawn_runs import run, several

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = (
    "--headless", "--no-sandbox", "--enable-logging=stderr", "--disable-gpu", "--disable-quic",
    "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip


def page(tmp_path: Path, runs: list) -> str:
    for number, one in enumerate(runs):
        folder = tmp_path / "runs" / str(number)
        folder.mkdir(parents=True)
        (folder / "results.json").write_text(text_of(one))
    assert main([str(tmp_path / "runs"), "--html", str(tmp_path / "page.html")]) == 0
    return (tmp_path / "page.html").read_text()


def test_the_page_needs_nothing_but_itself_and_escapes_names(tmp_path: Path) -> None:
    evil = sealed({**run("gem", 0), "learner": "<b>gem</b>", "name": "a & b"})  # type: ignore[typeddict-item]
    names = ("_x", "$\\frac{", "--><script>alert(1)</script>", "a\nb", "忘", "w" * 90)
    others = [sealed({**run("gem", i), "learner": n}) for i, n in enumerate(names)]  # type: ignore[typeddict-item]
    text = page(tmp_path, [evil, run("modular", 0), *others])
    assert "<b>gem" not in text
    assert "&lt;b&gt;gem" in text
    assert "validation &lt;data&gt; &amp; no test data" in text
    assert "<script" not in text
    assert all(
        link.startswith(("#", "data:image/png")) for link in re.findall(r'(?:src|href)="([^"]*)"', text)
    )
    assert "@import" not in text
    assert "prefers-color-scheme: dark" in text


def test_the_page_shows_the_numbers_of_every_run(tmp_path: Path) -> None:
    runs = several()[:4]
    text = page(tmp_path, runs)
    for one in runs:
        assert f"{one['metrics']['average_accuracy']:.4f}" in text
        for row in one["accuracy_matrix"]:
            assert all(f">{value:.3f}</td>" in text for value in row)
        assert f"python -m cl_lightning {' '.join(one['command'])}" in text


def test_the_page_shows_every_table_of_a_run_and_the_candidates_with_their_scores(tmp_path: Path) -> None:
    one = run("modular", 0)
    compared = [
        {"candidate": name, "hparams": {}, "val_accuracy": val, "steps": 9, "steps_to_best": 7}
        for name, val in (("reuse=0", 0.75), ("reuse=2", 0.875))
    ]
    phase = {**compared[1], "task": 1, "where": "task1", "phase": "p", "candidates": 2, "compared": compared}
    notes = [{**note, "scores": [0.5 + 0.01 * j for j in range(i)]} for i, note in enumerate(one["notes"])]
    looks = [{"task": 1, "phase": 0, "step": s, "accuracies": [0.1 * s] * 5} for s in (0, 1, 5)]
    metrics = {**one["metrics"], "forward_transfer": None}
    parts = {
        "selected": [phase],
        "notes": notes,
        "probes": looks,
        "metrics": metrics,
        "command": ["a=[1, 2]"],
    }
    text = page(tmp_path, [sealed({**one, **parts})])  # type: ignore[typeddict-item]
    assert re.search(r">reuse=0</td><td class=\"text\"></td><td>0\.750</td><td>-</td><td>9<", text)
    assert re.search(r">reuse=2</td><td class=\"text\">yes</td><td>0\.875</td>", text)
    assert ">3: 0.530, 2: 0.520, 1: 0.510</td>" in text  # the last task's nearest
    assert "No forward transfer: a task could not be predicted." in text
    assert "python -m cl_lightning &#x27;a=[1, 2]&#x27;</pre>" in text
    for head in ("Metrics", "Modules re-used", "Costs, by task", "Card: what this", "Candidates"):
        assert f"<h4>{head}" in text
    for figure in ("over_tasks", "paths", "curves"):
        assert f'<figure data-name="{figure}">' in text


@pytest.mark.all
def test_two_hundred_runs_make_a_page_in_less_than_ten_seconds(tmp_path: Path) -> None:
    runs = [run(f"learner{i % 10}", i // 10) for i in range(200)]
    for number, one in enumerate(runs):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "results.json").write_text(text_of(one))
    start = time.process_time()
    assert main([str(tmp_path), "--html", str(tmp_path / "page.html")]) == 0
    assert time.process_time() - start < 10
    assert (tmp_path / "page.html").read_text().count("<details><summary>") == 400


MEASURE = """<script>window.onload = () => {
  const boxes = [...document.querySelectorAll("body > figure")].map(f => f.getBoundingClientRect().width);
  const wide = document.documentElement.scrollWidth;
  const count = what => document.querySelectorAll(what).length;
  document.title = JSON.stringify({wide: wide, seen: innerWidth, boxes: boxes,
    points: count('[id="point"] use'), bars: count('[id="bar"]'), heat: count('td[style^="background"]')});
}; window.onerror = e => { document.title = "error " + e; };</script>"""


@pytest.mark.all
@pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine: apt-get install chromium")
def test_a_browser_shows_the_page_without_sideways_scroll_on_a_phone(tmp_path: Path) -> None:
    runs = several()
    text = page(tmp_path, runs)
    inner = tmp_path / "inner.html"
    inner.write_text(text.replace("</head>", f"{MEASURE}</head>"))
    frame = tmp_path / "phone.html"  # a window of Chromium is at least 500 wide, a frame is not
    listen = "f.onload = () => setTimeout(() => { document.body.append(f.contentDocument.title); }, 50)"
    frame.write_text(
        f'<body><iframe id="f" width="360" height="800" src="inner.html"></iframe><script>{listen}</script>'
    )
    shown = subprocess.run(
        [str(BROWSER), *FLAGS, "--allow-file-access-from-files", f"--user-data-dir={tmp_path / 'profile'}",
         "--virtual-time-budget=5000", "--dump-dom", f"file://{frame}"],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    found = re.search(r"\{\"wide\".*?\}", shown.stdout)
    assert found, shown.stdout[-500:]
    measured = json.loads(found[0])
    assert measured["wide"] <= measured["seen"] <= 360
    assert len(measured["boxes"]) == 8
    assert min(measured["boxes"]) > 100
    learners_and_streams = len({(one["learner"], one["name"]) for one in runs})
    assert measured["points"] == 3 * learners_and_streams  # against memory, operations and time
    assert measured["bars"] == 3 * learners_and_streams  # ACC, BWT, FWT
    assert measured["heat"] == sum(len(row) for one in runs for row in one["accuracy_matrix"])
    assert "CONSOLE" not in shown.stderr
