"""Reports of damaged folders: a sentence, never a traceback, never a wrong number."""

from __future__ import annotations

import json
import random
import re
import shutil
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cl_lightning.cli.report import main as report
from cl_lightning.errors import Refusal
from cl_lightning.notebook import load
from cl_lightning.report.reading import runs_in
from cl_lightning.report.results import results_of, text_of
from cl_lightning.store.folder import learned_tasks, open_store
from tests.commands import but_what_may_differ, finished
from tests.report.whole import whole_results, write_whole_results

Damage = Callable[[bytes, random.Random], bytes]


def another_digit(content: bytes, rng: random.Random) -> bytes:
    places = [match.start() for match in re.finditer(rb"\d", content)]
    place = rng.choice(places)
    other = rng.choice([digit for digit in b"0123456789" if digit != content[place]])
    return content[:place] + bytes([other]) + content[place + 1 :]


def another_value(content: bytes, rng: random.Random) -> bytes:
    """One value of the JSON is another, or gone."""
    whole = json.loads(content)
    node, key = whole, rng.choice(list(whole))
    while isinstance(node[key], dict | list) and node[key] and rng.random() < 0.7:
        node = node[key]
        key = rng.choice(list(node) if isinstance(node, dict) else range(len(node)))
    if rng.random() < 0.3:
        del node[key]
    else:
        node[key] = rng.choice([None, -1, 3.5, "x", [], {}, {"a": [None]}, True, "1"])
    return json.dumps(whole, indent=1).encode()


DAMAGES: dict[str, Damage] = {
    "another digit": another_digit,
    "another value": another_value,
    "cut": lambda content, rng: content[: rng.randrange(len(content))],
    "a byte": lambda content, rng: bytes(b ^ (i == len(content) // 2) * 255 for i, b in enumerate(content)),
    "nothing": lambda content, rng: b"",
    "other JSON": lambda content, rng: rng.choice([b"[1]", b"{}", b"null", b'"x"', b"NaN", b'{"name": "x"}']),
    "deep": lambda content, rng: b"[" * 100_000,
    "binary": lambda content, rng: rng.randbytes(300),
}


@cache
def three_tasks(folder: Path) -> dict:
    return finished(folder, "learner=finetune", "trainer.max_epochs=1")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    three_tasks(folder)
    (path,) = folder.glob("*/*/*/run.json")
    return path.parent


def right_or_left_out(folder: Path, whole: Path, capsys: pytest.CaptureFixture) -> bool:
    """Whether a report of the folder shows the run, as it was; else it has a sentence."""
    runs = runs_in([folder])
    expected = results_of(*open_store(whole))
    for results in runs.results:
        if results["finished"]:
            assert but_what_may_differ(results) == but_what_may_differ(expected)
    capsys.readouterr()
    for arguments in ([], ["--markdown"], ["--validation"]):
        ended = report([str(folder), *arguments])
        out, err = capsys.readouterr()
        assert ended == 0 or ("No finished run" in err and len(err.splitlines()) == 1 + len(runs.said))
        assert "Traceback" not in out + err
    assert report(["status", str(folder)]) == 0
    shown = any(results["finished"] for results in runs.results)
    assert shown or runs.said or runs.results, "nothing is lost without a word"
    return shown and not runs.said


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(kind=st.sampled_from(sorted(DAMAGES)), seed=st.integers(0, 10**6), alone=st.booleans())
def test_whatever_file_of_a_run_is_damaged_a_report_shows_its_numbers_or_says_why_not(
    kind: str, seed: int, alone: bool, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    rng = random.Random(seed)
    folder = tmp_path / f"{kind}-{seed}-{alone}"
    shutil.rmtree(folder, ignore_errors=True)
    run = folder / "quickstart" / "finetune" / whole.name
    if alone:
        run.mkdir(parents=True)
        shutil.copy(whole / "results.json", run)
    else:
        shutil.copytree(whole, run, ignore=shutil.ignore_patterns("*.pt"))
    path = rng.choice(sorted(run.rglob("*.json")))
    content = path.read_bytes()
    path.write_bytes(DAMAGES[kind](content, rng))
    same = json_of(path) == json.loads(content)
    unharmed = right_or_left_out(folder, whole, capsys)
    if path.name != "status.json":
        assert same or not unharmed, path
    shutil.rmtree(folder)


IMAGES = torch.linspace(0, 1, 3 * 28 * 28).reshape(3, 1, 28, 28)


@pytest.mark.parametrize("damages", [6, pytest.param(200, marks=pytest.mark.all)])
def test_whatever_of_a_folder_is_damaged_a_page_and_python_say_what_was_or_refuse(
    damages: int, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    """Tensors and YAML, too."""
    matrix = load(whole).results["accuracy_matrix"]
    predicted = [load(whole).predict(IMAGES, 0, after).tolist() for after in range(4)]
    refused = 0
    for seed in range(damages):
        rng = random.Random(seed)
        run = shutil.copytree(whole, tmp_path / f"{seed}" / "quickstart" / "finetune" / whole.name)
        path = rng.choice(sorted(path for path in run.rglob("*") if path.is_file() and path.stat().st_size))
        kind = rng.choice(sorted(DAMAGES)) if path.suffix == ".json" else "binary"
        path.write_bytes(rng.choice([DAMAGES[kind], DAMAGES["cut"]])(path.read_bytes(), rng))
        page = tmp_path / f"{seed}.html"
        if seed % 3 == 0:  # it takes longest
            assert (
                report([str(run), "--html", str(page)]) == 0 or "No finished run" in capsys.readouterr().err
            )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that records are damaged
            try:
                again = load(run)
                rows, learned = again.results["accuracy_matrix"], learned_tasks(again.store)
                assert all(new in (was, [None] * 3) for new, was in zip(rows, matrix)), path
                assert again.predict(IMAGES, 0).tolist() == predicted[learned], path
            except Refusal:
                refused += 1
        shutil.rmtree(tmp_path / f"{seed}")
    assert 0 < refused < damages


def json_of(path: Path) -> object:
    try:
        return json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        return None


@pytest.mark.parametrize("gone", ["run.json", "results.json", "validation.json", "rows/002.json", "tasks"])
def test_whatever_of_a_run_is_gone_a_report_shows_its_numbers_or_says_why_not(
    gone: str, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    run = shutil.copytree(whole, tmp_path / "a" / "b" / "c")
    path = run / gone
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    unharmed = right_or_left_out(tmp_path, whole, capsys)
    assert unharmed == (gone in ("run.json", "results.json"))
    path.mkdir()  # a folder of that name is no better
    right_or_left_out(tmp_path, whole, capsys)


def test_results_of_another_run_do_not_pass_for_those_of_the_records(whole: Path, tmp_path: Path) -> None:
    run = shutil.copytree(whole, tmp_path / "a" / "b" / "c")
    (run / "results.json").write_text(text_of(whole_results(seed=7)))
    runs = runs_in([tmp_path])
    assert [results["seed"] for results in runs.results] == [0]
    (said,) = runs.said
    assert "results.json is not what the records beside it say of" in said


def test_words_of_the_card_that_another_version_chose_are_no_damage(whole: Path, tmp_path: Path) -> None:
    run = shutil.copytree(whole, tmp_path / "a" / "b" / "c")
    results = json.loads((run / "results.json").read_text())
    results["card"][0]["evidence"] = "in other words"
    (run / "results.json").write_text(text_of(whole_results(**results)))
    assert runs_in([tmp_path]).said == []


@pytest.mark.parametrize(
    "content", ["{", "chosen: 3", "\nchosen:\n  points: x\n", "\nchosen:\n  - [\n", "\x00"]
)
def test_a_damaged_file_of_a_winner_is_a_sentence(content: str, tmp_path: Path) -> None:
    write_whole_results(tmp_path / "e" / "gem" / "f-s0")
    best = tmp_path / "e" / "sweeps" / "0123" / "best" / "gem-s0.yaml"
    best.parent.mkdir(parents=True)
    best.write_text(content)
    runs = runs_in([tmp_path])
    assert len(runs.results) == 1
    assert all(f"{best} is damaged" in line for line in runs.said)
    assert bool(runs.said) == ("\nchosen:\n" in content)
