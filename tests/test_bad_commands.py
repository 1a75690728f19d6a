"""Whatever is typed: a run, or a sentence of at most five lines and exit code 2. Never a traceback."""

from __future__ import annotations

import errno
import io
import os
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from cl_lightning.cli.command import main
from cl_lightning.cli.sentences import sentence
from cl_lightning.config.build import stream_of
from cl_lightning.config.trees import dotted
from cl_lightning.errors import Refusal
from tests.commands import SMALL, command, configure, process

LEAVES = list(dict(dotted(OmegaConf.to_container(configure()))))
KEYS = sorted({".".join(path.split(".")[:depth]) for path in LEAVES for depth in range(1, 5)})
VALUES = ["-1", "0", "1.5", "abc", "null", "true", "[]", "[1,-2]", "[a]", "{}", "{a: 1}", "nan", "inf",
    "-inf", "1e400", "''", "99999999999999999999",
          "${oc.env:NOWHERE}", "${nowhere}", "..", "a/b", "choice(1,2)", "1,2", "\u00e9", "'",
          "???"]  # fmt: skip
GROUPS = ["learner", "stream", "backbone", "data", "selection", "trainer", "logger", "+experiment"]
SAFE = ("outputs", "cache", "progress")  # where it may write is the test's business

overrides = st.one_of(
    st.builds("{}={}".format, st.sampled_from([k for k in KEYS if k not in SAFE]), st.sampled_from(VALUES)),
    st.builds(
        "+{}.{}={}".format,
        st.sampled_from(GROUPS[:-1]),
        st.sampled_from(["foo", "lr", "_target_", "name"]),
        st.sampled_from(VALUES),
    ),
    st.builds(
        "{}={}".format, st.sampled_from(GROUPS), st.sampled_from(["nope", "defualt", "", "null", "none", "3"])
    ),
    st.builds(
        "{}{}".format,
        st.sampled_from(["", "~", "+", "++", "--", "-"]),
        st.sampled_from([*KEYS, "learner", "foo", "=", "a=b=c", "[", "x=[1"]),
    ),
    st.text(max_size=8).filter(
        lambda text: (
            "\0" not in text
            and max(text or " ") < "\ud800"
            and text not in ("-h", "-m", "-p", "-i", "-c", "-cd", "-cp", "-cn")
        )
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
        assert "This is an error in the program itself" not in said, f"{arguments}\n{said}"


@pytest.mark.slow
@pytest.mark.parametrize("examples", [25, pytest.param(1000, marks=pytest.mark.all)])
def test_generated_command_lines_end_in_a_sentence_or_a_run(examples: int) -> None:
    many = settings(max_examples=examples, suppress_health_check=list(HealthCheck), derandomize=True)
    many(given(st.lists(overrides, min_size=1, max_size=2))(ends_in_a_sentence_or_a_run))()


@pytest.mark.all
def test_fifty_generated_command_lines_end_so_in_processes_of_their_own(tmp_path: Path) -> None:
    def ends(arguments: list[str]) -> None:
        own = [*SMALL, f"outputs={tmp_path}", "logger=none", "resume=false"]
        result = process(*own, *arguments, cwd=tmp_path, check=False, timeout=120)
        check(arguments, result.returncode, result.stderr)

    fifty = settings(max_examples=50, suppress_health_check=list(HealthCheck), derandomize=True)
    fifty(given(st.lists(overrides, min_size=1, max_size=2))(ends))()


def ends_in_a_sentence_or_a_run(arguments: list[str]) -> None:
    with tempfile.TemporaryDirectory() as outputs:
        check(arguments, *outcome(arguments, outputs))


REAL = ["learner=finetun", "trainer.max_epoch=3", "+trainer.foo=1", "+stream.foo=1", "stream.tasks=abc",
    "seed=-1", "seed=x", "trainer.lr=[1]",
        "learner._target_=nope.X", "learner._target_=json.dumps", "=3", "foo", "+experiment=nope",
        "outputs=/proc/x", "selection.grid=3", "~learner",
        "trainer.accelerator=gpu", "cache=/proc/y", "name=a/b", "+trainer.lightning.bogus=1",
        "logger._target_=x.y", "--bogus"]  # fmt: skip


@pytest.mark.parametrize("argument", REAL)
def test_what_is_often_mistyped_is_a_sentence(argument: str, tmp_path: Path) -> None:
    result = command(*SMALL, argument, cwd=tmp_path, check=False)
    assert result.returncode == 2
    check([argument], result.returncode, result.stderr)


@pytest.mark.slow
@pytest.mark.parametrize(
    "argument",
    [
        pytest.param(each, marks=[] if i % 18 == 0 else pytest.mark.all)
        for i, each in enumerate(REAL)
        if i % 3 == 0
    ],
)
def test_a_process_says_and_returns_the_same(argument: str, tmp_path: Path) -> None:
    result, here = (way(*SMALL, argument, cwd=tmp_path, check=False) for way in (process, command))
    assert (result.returncode, result.stderr) == (2, here.stderr)


@pytest.mark.parametrize(
    ("argument", "says"),
    [
        ("learner=finetun", "Did you mean finetune?"),
        ("trainer.max_epoch=3", "Did you mean trainer.max_epochs=3?"),
        ("+trainer.patienc=3", "Did you mean patience?"),
        ("+selection.grid.stregth=[1]", "Choose one of lr, weight_decay, momentum"),
        ("stream.source=mnst", "which is not among data.sources. Did you mean mnist"),
        ("trainer.lr='0.1'", 'trainer.lr="0.1" must be a number above 0'),
        ("trainer.max_epochs=0", "a whole number of at least 1"),
        ("seed=-1", "seed=-1 must be a whole number of at least 0"),
        ("stream.test_share=0", "stream.test_share=0 must be a number above 0 and at most 1, or null"),
        ("stream.test_share=1.5", "stream.test_share=1.5 must be a number above 0 and at most 1, or null"),
        ("selection.grid.lr=[null]", "selection.grid.lr=null must be a number above 0."),
        ("trainer.probe=losers", "trainer.probe=losers must be one of winner, all"),
        ("selection.grid.lr=[-1]", "selection.grid.lr=-1 must be a number above 0"),
        ("+trainer.build=3", "trainer.build is not a key here"),
        ("+learner.build=3", "learner.build is not a key here"),
        ("+backbone.head=3", "backbone.head is not a key here. Did you mean heads?"),
        ("+nam=x", "nam is not a key here. Did you mean name?"),
        ("+debug.tracebak=true", "debug.tracebak is not a key here. Did you mean traceback?"),
        ("~seed", "seed"),
        ("~figures", "figures is missing. It must be true or false"),
        ("~trainer.patience", "trainer.patience is missing. It must be a number of at least 1, or null"),
        ("~stream.tasks", "stream.tasks is missing. It must be a whole number of at least 1"),
        ("resume=maybe", "resume=maybe must be true or false, or one of anyway, retry"),
        ("grants=3", "grants=3 must be a mapping"),
        ("stream.show=3", "stream.show=3 must be a mapping"),
        ("data.sources.mnist=3", "each value a mapping"),
        (
            "data.sources.mnist.train=true",
            "data.sources.mnist.train=true must be a whole number of at least 1",
        ),
        (
            "data.sources.mnist._target_=null",
            "data.sources.mnist._target_=null must be a text that is not empty",
        ),
        (
            "trainer.threads=100000",
            "trainer.threads=100000 must be a whole number of at least 1 and at most 1024",
        ),
        ("trainer.lr=inf", "trainer.lr=inf must be a finite number"),
        ("seed=99999999999999999999", "seed=99999999999999999999 must be a whole number"),
        ("learner.name=a/b", "learner.name=a/b must be a name without / and :"),
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


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.ENOENT])
def test_disks_that_cannot_be_written_are_a_sentence(code: int, tmp_path: Path, monkeypatch) -> None:
    from cl_lightning.store.files import Store

    def full(self, *_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code), str(tmp_path / "x"))

    monkeypatch.setattr(Store, "save", full)
    exit_code, said = outcome([], str(tmp_path))
    assert exit_code == 2
    check([], exit_code, said)
    assert str(tmp_path / "x") in said


def test_what_was_computed_before_the_disk_was_full_is_kept(tmp_path: Path, monkeypatch) -> None:
    from cl_lightning.store.files import Store

    original = Store.save_tensors

    def full_at_last(self, name: str, tensors: object) -> object:
        if name == "tasks/001":
            raise OSError(errno.ENOSPC, "full", "x")
        return original(self, name, tensors)

    arguments = [*SMALL, f"outputs={tmp_path}", "logger=none"]
    with monkeypatch.context() as patch:
        patch.setattr(Store, "save_tensors", full_at_last)
        assert main(arguments) == 2
    assert [path.name for path in tmp_path.glob("*/*/*/tasks/*.json")] == ["000.json"]
    assert main(arguments) == 0


def test_an_error_from_within_is_two_lines_and_says_how_to_see_more() -> None:
    text = sentence(RuntimeError("a\nb\nc\nd"))
    assert text.startswith("RuntimeError: a")
    assert "debug.traceback=true" in text
    assert len(text.splitlines()) <= 5


OWN = "+data.sources.own={{_target_: {}}}"


@pytest.mark.parametrize(
    ("words", "must_be"),
    [
        ("backbone={_target_: collections.OrderedDict}", "OrderedDict takes no head"),
        ("stream={_target_: collections.OrderedDict,name: x}", "must make a cl_lightning.data.streams"),
        ("trainer.callbacks=[{_target_: collections.OrderedDict}]", "make a pytorch_lightning.Callback"),
        (f"trainer.callbacks=[{{_target_: {__name__}.runs}}]", "make a pytorch_lightning.Callback"),
        (f"+logger.own={{_target_: {__name__}.runs}}", "is not a logger"),
        (OWN.format(f"{__name__}.runs"), "make a cl_lightning.data.sources"),
        (OWN.format("logging.os.system, command: x"), "is blocklisted or is blacklisted"),
    ],
)
def test_what_a_target_makes_is_of_the_kind_that_is_asked_for(
    words: str, must_be: str, tmp_path: Path
) -> None:
    code, said = outcome([words, *["stream.source=own"] * ("own=" in words)], str(tmp_path))
    assert code == 2
    assert any(each in said for each in must_be.split(" or "))  # in the words of two versions of Hydra
    assert not RAN


def test_a_stream_is_made_by_what_takes_images() -> None:
    with pytest.raises(Refusal, match="runs takes no show, sources"):
        stream_of(OmegaConf.create({"stream": {"_target_": f"{__name__}.runs", "name": "x"}}))
    assert not RAN


RAN: list[str] = []


def runs() -> None:
    """What nobody should run who uses somebody else's configuration."""
    RAN.append("it ran")


@pytest.mark.parametrize(
    "where",
    [
        "learner: {memory: {_target_: tests.test_bad_commands.runs}}",
        "backbone: {dropout: [{_target_: tests.test_bad_commands.runs}]}",
        "stream: {seed: {deep: [[{_target_: tests.test_bad_commands.runs, _partial_: false}]]}}",
        "logger: {csv: {_recursive_: true, x: {_target_: tests.test_bad_commands.runs}}}",
        "data: {sources: {mnist: {seed: {_target_: tests.test_bad_commands.runs}}}}",
    ],
)
def test_a_file_of_somebody_elses_runs_nothing_below_plain_keys(
    where: str, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    (tmp_path / "best").mkdir()
    (tmp_path / "best" / "x.yaml").write_text(f"# @package _global_\n{where}\n")
    code = main(["--config-dir", str(tmp_path), "+best=x", *SMALL, f"outputs={tmp_path}"])
    said = capsys.readouterr().err
    assert code == 2
    assert "_target_=tests.test_bad_commands.runs is not made" in said
    assert "only files that you trust" in said
    assert not RAN


def test_control_characters_are_refused_in_names_and_never_printed(tmp_path: Path) -> None:
    for words in ("name='a\x1b[31mb'", "learner.name='a\x9bb'", "stream='a\x1bb'", "\x1b]0;x=1"):
        code, said = outcome([words], str(tmp_path))
        assert code == 2
        assert not set(said) & {"\x1b", "\x9b"}
