"""Whatever is typed: a run, or a sentence of at most five lines and exit code 2. Never a traceback."""

from __future__ import annotations

import errno
import io
import os
import subprocess
import sys
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from cl_lightning.command import main
from cl_lightning.errors import sentence
from cl_lightning.ranges import leaves, range_of
from cl_lightning.runs import conf_dir
from tests.commands import SMALL, configure

KEYS = [path for path, _ in leaves(OmegaConf.to_container(configure()))]
VALUES = ["-1", "0", "1.5", "abc", "null", "true", "[]", "[1,-2]", "[a]", "{}", "{a: 1}", "nan", "inf", "-inf", "1e400", "''", "99999999999999999999",
          "${oc.env:NOWHERE}", "${nowhere}", "..", "a/b", "choice(1,2)", "1,2", "\u00e9", "'", "???"]  # fmt: skip
GROUPS = ["learner", "stream", "backbone", "data", "selection", "trainer", "logger", "+experiment"]
SAFE = ("outputs", "cache", "progress")  # where it may write is the test's business

overrides = st.one_of(
    st.builds("{}={}".format, st.sampled_from([k for k in KEYS if k not in SAFE]), st.sampled_from(VALUES)),
    st.builds(
        "+{}.{}={}".format, st.sampled_from(GROUPS[:-1]), st.sampled_from(["foo", "lr", "_target_", "name"]), st.sampled_from(VALUES)
    ),
    st.builds("{}={}".format, st.sampled_from(GROUPS), st.sampled_from(["nope", "defualt", "", "null", "none", "3"])),
    st.builds(
        "{}{}".format,
        st.sampled_from(["", "~", "+", "++", "--", "-"]),
        st.sampled_from([*KEYS, "learner", "foo", "=", "a=b=c", "[", "x=[1"]),
    ),
    st.text(max_size=8).filter(
        lambda text: "\0" not in text and max(text or " ") < "\ud800" and text not in ("-h", "-m", "-p", "-i", "-c", "-cd", "-cp", "-cn")
    ),
)


def outcome(arguments: list[str], outputs: str) -> tuple[int, str]:
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main([*SMALL, f"outputs={outputs}", "logger=none", "resume=false", *arguments])
    return code, err.getvalue()


def check(arguments: list[str], code: int, said: str) -> None:
    assert code in (0, 2), f"{arguments}: exit code {code}\n{said}"
    assert "Traceback" not in said, f"{arguments}\n{said}"
    if code == 2:
        lines = said.strip().splitlines()
        assert 1 <= len(lines) <= 5, f"{arguments}\n{said}"
        assert "This comes from within" not in said, f"{arguments}\n{said}"


@pytest.mark.slow
@given(st.lists(overrides, min_size=1, max_size=2))
@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
def test_generated_command_lines_end_in_a_sentence_or_a_run(arguments: list[str]) -> None:
    with tempfile.TemporaryDirectory() as outputs:
        check(arguments, *outcome(arguments, outputs))


REAL = ["learner=finetun", "trainer.max_epoch=3", "+trainer.foo=1", "+stream.foo=1", "stream.tasks=abc", "seed=-1", "seed=x", "trainer.lr=[1]",
        "learner._target_=nope.X", "learner._target_=json.dumps", "=3", "foo", "+experiment=nope", "outputs=/proc/x", "selection.grid=3", "~learner",
        "trainer.accelerator=gpu", "cache=/proc/y", "name=a/b", "+trainer.lightning.bogus=1", "logger._target_=x.y", "--bogus"]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("argument", REAL)
def test_as_a_real_process(argument: str, tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "cl_lightning", *SMALL, argument], capture_output=True, text=True, cwd=tmp_path, timeout=60
    )
    assert result.returncode == 2
    check([argument], result.returncode, result.stderr)


@pytest.mark.parametrize(
    ("argument", "says"),
    [
        ("learner=finetun", "Did you mean finetune?"),
        ("trainer.max_epoch=3", "Did you mean trainer.max_epochs"),
        ("+trainer.patienc=3", "Did you mean patience?"),
        ("+selection.grid.stregth=[1]", "It knows lr, weight_decay, momentum"),
        ("stream.source=mnst", "which is not among data.sources. Did you mean mnist"),
        ("trainer.max_epochs=0", "a whole number of at least 1"),
        ("seed=-1", "seed=-1 must be a whole number of at least 0"),
        ("stream.test_share=0", "stream.test_share=0 must be a number greater than 0 and at most 1, or null"),
        ("stream.test_share=1.5", "stream.test_share=1.5 must be a number greater than 0 and at most 1, or null"),
        ("selection.grid.lr=[-1]", "selection.grid.lr=-1 must be a positive number"),
    ],
)
def test_errors_say_what_would_work(argument: str, says: str, tmp_path: Path) -> None:
    code, said = outcome([argument], str(tmp_path))
    assert code == 2
    assert says in said


def test_the_traceback_is_there_for_those_who_ask(tmp_path: Path) -> None:
    code, said = outcome(["trainer.max_epochs=0", "debug.traceback=true"], str(tmp_path))
    assert code == 2
    assert "Traceback" in said


def test_every_key_has_its_range() -> None:
    for path in sorted(Path(conf_dir()).rglob("*.yaml")):
        if path.parent.name in ("experiment", Path(conf_dir()).name):
            continue
        groups = [*path.parent.relative_to(conf_dir()).parts, *([path.stem] if path.parent.name == "sources" else [])]
        content = {k: v for k, v in OmegaConf.to_container(OmegaConf.load(path)).items() if k != "defaults"}
        for group in reversed(groups):
            content = {group: content}
        for key, _ in leaves(content):
            known = range_of(key) is not None or key.split(".")[-2] in (
                "splits",
                "counts",
                "at_most",
                "held_out",
            )  # which are checked whole
            assert known or key.endswith("._target_"), f"{key} in {path} may be anything"


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.ENOENT])
def test_disks_that_cannot_be_written_are_a_sentence(code: int, tmp_path: Path, monkeypatch) -> None:
    from cl_lightning.journal import Journal

    def full(self, *_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code), str(tmp_path / "x"))

    monkeypatch.setattr(Journal, "save", full)
    exit_code, said = outcome([], str(tmp_path))
    assert exit_code == 2
    check([], exit_code, said)
    assert str(tmp_path / "x") in said


def test_what_was_computed_before_the_disk_was_full_is_kept(tmp_path: Path, monkeypatch) -> None:
    from cl_lightning.journal import Journal

    original, calls = Journal.save, []

    def full_at_last(self, *arguments: object) -> dict:
        calls.append(1)
        if len(calls) > 3:
            raise OSError(errno.ENOSPC, "full", "x")
        return original(self, *arguments)

    arguments = [*SMALL, f"outputs={tmp_path}", "logger=none"]
    with monkeypatch.context() as patch:
        patch.setattr(Journal, "save", full_at_last)
        assert main(arguments) == 2
    learned = [row for row in Journal(next(tmp_path.glob("*/*/*"))).rows if row["event"] == "boundary"]
    assert len(learned) == 1
    assert main(arguments) == 0


def test_an_error_from_within_is_two_lines_and_says_how_to_see_more() -> None:
    text = sentence(RuntimeError("a\nb\nc\nd"))
    assert text.startswith("RuntimeError: a")
    assert "debug.traceback=true" in text
    assert len(text.splitlines()) <= 5
