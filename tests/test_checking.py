"""What is given to a function or class is held to the annotations of its signature, and to nothing else."""

from __future__ import annotations

import subprocess
import sys
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import pytest
import torch.nn as nn
from pydantic import Field

from cl_lightning.config.checking import (
    Count,
    FolderName,
    NotNegative,
    Positive,
    Rate,
    Share,
    Size,
    Text,
    check,
    check_arguments,
    check_value,
    resolve_target,
    words_of,
)
from cl_lightning.data.sources.synthetic import Digits
from cl_lightning.data.streams.recipes import permuted, split
from cl_lightning.errors import Refusal
from cl_lightning.learners import AGEM, ER, EWC, GEM, MNTDP, Finetune, Independent, Joint, NewHead
from tests.commands import run

if TYPE_CHECKING:
    from cl_lightning.nowhere import Unknown


# ---- values ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("annotation", "good", "bad", "words"),
    [
        (Count, [1, 7], [0, -1, True, 1.0, "1", None, [1], 2**63], "a whole number of at least 1"),
        (Size, [0], [-1, False], "a whole number of at least 0"),
        (Positive, [1, 1e-9], [0, True, "1", None], "a number above 0"),
        (NotNegative, [0], [-1e-9], "a number of at least 0"),
        (Rate, [0, 0.5], [1, -0.1], "a number of at least 0 and below 1"),
        (Share, [0, 1], [1.1], "a number of at least 0 and at most 1"),
        (bool, [True, False], [0, 1, "true", None], "true or false"),
        (Text, ["a b"], ["", "  ", "a\0", 3, None], "a text that is not empty"),
        (FolderName, ["a-b 1.5"], ["a/b", "a\\b", "c:", ".a", "", "a\0"], "a name without / and :"),
        (Literal["a", "b"], ["a"], ["c", None, 1], "one of a, b"),
        (Literal[32, "32", "bf16"], [32, "32"], [32.0, True, 16], "one of 32, bf16"),
        (Literal[0, 1], [0, 1], [True, False, 1.0], "one of 0, 1"),
        (Count | Literal["all"], [3, "all"], [0, "some"], "a whole number of at least 1, or all"),
        (Count | None, [1, None], [0], "a whole number of at least 1, or null"),
        (Sequence[Count], [[], [1, 2], (1,)], [[0], 1, "1", None],
        "a list, each value a whole number of at least 1"),
        (tuple[str, ...], [["a"], ("a",)], [[1], "a"], "a list, each value a text"),
        (Annotated[Sequence[Text], Field(min_length=1)], [["a"]], [[], [""]],
        "a list of length at least 1, each value a text that is not empty"),
        (Mapping[str, Count], [{}, {"a": 1}], [{"a": 0}, [1], None],
        "a mapping, each value a whole number of at least 1"),
        # No annotation for YAML.
        (nn.Module, [1, "a"], [], "of the type <class 'torch.nn.modules.module.Module'>"),
    ],
)  # fmt: skip
def test_a_value_is_what_its_annotation_says(annotation: Any, good: list, bad: list, words: str) -> None:
    assert words_of(annotation) == words
    for value in good:
        check(annotation, value, "key")
    for value in bad:
        with pytest.raises(Refusal) as refusal:
            check(annotation, value, "key")
        assert str(refusal.value).startswith("key=")
        assert str(refusal.value).endswith(f" must be {words}.")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("annotation", [Positive, NotNegative, float, float | None, Any])
def test_numbers_are_finite_whoever_takes_them(annotation: Any, value: float) -> None:
    with pytest.raises(Refusal, match="must be a finite number"):
        check(annotation, value, "key")
    with pytest.raises(Refusal, match="each value a number"):
        check(Sequence[float], [0.5, value], "key")


def test_objects_that_a_target_within_makes_are_taken_as_they_are() -> None:
    check(Literal["a"], nn.Linear(1, 1), "key")


def test_a_long_value_is_cut_in_the_sentence() -> None:
    with pytest.raises(Refusal) as refusal:
        check(Count, list(range(1000)), "key")
    assert len(str(refusal.value)) < 300


# ---- signatures --------------------------------------------------------------------------------------------


class Base:
    def __init__(self, build, depth: Count = 1) -> None: ...


class Middle(Base):
    def __init__(self, *, width: Count = 1, **base: Any) -> None: ...


class Leaf(Middle):
    """Its own ``width`` may be 0; ``depth`` is the base's."""

    def __init__(self, *, width: Size, **middle: Any) -> None: ...


class Stops(Middle):
    def __init__(self, *, height: Count = 1) -> None: ...


def takes_any(width: Count, **anything: Any) -> None: ...


class Loose(Finetune):
    """Keys that other learners declare otherwise, and that are nobody's business here."""

    def __init__(self, *, prior, start=0, size=(), **base) -> None: ...


class HalfKnown(Finetune):
    """An annotation that exists for type checkers alone."""

    def __init__(
        self, *, best: Unknown | None = None, rate: Rate = 0.5, worst: Unknown = 1, **base: Any
    ) -> None: ...


@dataclass
class Inside:
    deep: Count
    note: str = ""


def nests(inside: Inside, x: int = 0) -> None: ...


def test_names_are_those_of_the_signature_and_of_bases_while_arguments_pass_on() -> None:
    check_arguments(Leaf, {"width": 0, "depth": 2}, "learner", ["build"])
    with pytest.raises(Refusal, match=r"learner\.depth=0 must be a whole number of at least 1"):
        check_arguments(Leaf, {"width": 0, "depth": 0}, "learner", ["build"])
    with pytest.raises(Refusal, match=r"learner\.dept is not a key here\. Did you mean depth\?"):
        check_arguments(Leaf, {"width": 0, "dept": 0}, "learner", ["build"])
    with pytest.raises(Refusal, match=r"learner\.width is missing\. It must be a whole number of at least 0"):
        check_arguments(Leaf, {}, "learner", ["build"])
    with pytest.raises(Refusal, match=r"learner\.width is not a key here\. Choose one of height\."):
        check_arguments(Stops, {"width": 1}, "learner")
    with pytest.raises(Refusal, match=r"learner\.build is missing\. It must be given"):
        check_arguments(Leaf, {"width": 1}, "learner")


def test_who_takes_any_name_is_given_any() -> None:
    check_arguments(takes_any, {"width": 1, "other": "x"}, "key")
    with pytest.raises(Refusal, match=r"key\.width=0"):
        check_arguments(takes_any, {"width": 0}, "key")


def test_what_the_program_provides_is_not_the_users_to_give_and_never_proposed() -> None:
    for name in ("build", "buld"):
        with pytest.raises(Refusal, match=rf"key\.{name} is not a key here\. Choose one of depth\."):
            check_arguments(Base, {name: 1}, "key", ["build"])
    with pytest.raises(Refusal, match=r"key\.build is not a key here"):
        check_arguments(takes_any, {"width": 1, "build": 1}, "key", ["build"])


def test_keys_without_annotations_are_nobodys_business() -> None:
    check_arguments(Loose, {"prior": "mine", "start": -1, "size": True}, "learner", ["build", "head"])
    with pytest.raises(Refusal, match=r"learner\.prior is missing"):
        check_arguments(Loose, {}, "learner", ["build", "head"])


def test_an_annotation_that_cannot_be_evaluated_spoils_no_other() -> None:
    check_arguments(HalfKnown, {"best": object, "worst": "?"}, "learner", ["build", "head"])
    with pytest.raises(Refusal, match=r"learner\.rate=1 must be a number of at least 0 and below 1"):
        check_arguments(HalfKnown, {"best": 3, "rate": 1}, "learner", ["build", "head"])


def test_a_dataclass_is_checked_key_by_key() -> None:
    check_arguments(nests, {"inside": {"deep": 1}})
    check_arguments(nests, {"inside": Inside(0)})  # made by a target of its own
    for given, says in (
        ({"deep": 0}, r"^inside\.deep=0 must"),
        ({"dep": 1}, r"^inside\.dep is not .* deep"),
        ({}, r"^inside\.deep is miss"),
    ):
        with pytest.raises(Refusal, match=says):
            check_arguments(nests, {"inside": given})
    with pytest.raises(Refusal, match=r"^inside=3 must be a mapping"):
        check_arguments(nests, {"inside": 3})


def test_annotations_that_a_dataclass_inherits_are_those_of_its_bases_module() -> None:
    with pytest.raises(Refusal, match=r"data\.sources\.mnist\.seed=-1 must be a whole number of at least 0"):
        check_arguments(Digits, {"seed": -1}, "data.sources.mnist")


@pytest.mark.parametrize(
    ("target", "name", "value", "says"),
    [
        (MNTDP, "k", "some", "a whole number of at least 1, or all"),
        (MNTDP, "prior", "best", "one of nearest, random"),
        (MNTDP, "allow_head_reuse", 1, "true or false"),
        (MNTDP, "neighbours", 0, "a whole number of at least 1"),
        (MNTDP, "searched", 0.5, "a whole number of at least 1"),
        (NewHead, "trunk", "thaw", "one of freeze, finetune"),
        (Independent, "start", "warm", "one of random, clone"),
        (Independent, "split_width", "yes", "true or false"),
        (Joint, "at", "never", "one of every_task, last_task"),
        (Joint, "restart", None, "true or false"),
        (GEM, "memories", 0, "a whole number of at least 1"),
        (GEM, "total", 0, "a whole number of at least 1, or null"),
        (GEM, "margin", -1, "a number of at least 0"),
        (GEM, "memory_precision", 16, "one of 32, bf16"),
        (AGEM, "reference_batch", 0, "a whole number of at least 1"),
        (ER, "policy", "fifo", "one of reservoir, ring, single_pass"),
        (ER, "size", -1, "a whole number of at least 0"),
        (EWC, "strength", -5, "a number of at least 0"),
        (EWC, "penalty", "none", "one of separate, huszar, online, veniat"),
        (EWC, "fisher", "true", "one of exact, sample, empirical, predicted, batch_squared"),
        (EWC, "examples", 0, "a whole number of at least 1, or null"),
        (EWC, "gamma", 1.1, "a number of at least 0 and at most 1"),
        (permuted, "tasks", 0, "a whole number of at least 1"),
        (permuted, "n_train", 0, "a whole number of at least 1, or null"),
        (permuted, "n_val", -1, "a whole number of at least 0"),
        (split, "n_test", 0, "a whole number of at least 1, or null"),
        (split, "classes_per_task", 0, "a whole number of at least 1"),
        (split, "on_shortage", "ignore", "one of error, shrink"),
        (split, "class_order", "alphabetic",
        "one of native, frequency, random, or a list, each value a whole number of at least 0"),
    ],
)  # fmt: skip
def test_what_learners_and_streams_refuse_in_words(target: Any, name: str, value: object, says: str) -> None:
    with pytest.raises(Refusal, match=rf"\.{name}=.* must be {says}\.$"):
        check_value(target, name, value, f"group.{name}")


# ---- where it happens --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "target", "words"),
    [
        (
            "from cl_lightning.learners import EWC, ER\nclass Two(EWC, ER): pass",
            "{}.Two",
            r"^Two joins EWC and ER, which both override on_task_end",
        ),
        ("class X\n    pass", "{}.X", r"cannot be imported: SyntaxError: expected ':' \(.*line 1\)$"),
        ("import no_such_package", "{}.X", r"ModuleNotFoundError: .*no_such_package'\nat .*, line 1: import"),
        ("x = 1 // 0", "{}.X", r"ZeroDivisionError: .*\nat .*, line 1: x = 1 // 0$"),
        ("", "{}.Nope", r"there is no \w+\.Nope\.\nCheck its spelling"),
        ("", "no_{}.X", r"there is no no_\w+\.\nCheck its spelling"),
    ],
)
def test_a_target_that_cannot_be_imported_says_why(
    text: str, target: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"own_{zlib.crc32(text.encode())}"
    (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(Refusal, match=words):
        resolve_target({"_target_": target.format(name)}, "learner")


def test_a_target_is_checked_when_it_is_imported_and_called_later() -> None:
    keys = {"_target_": "cl_lightning.learners.ER", "policy": "fifo", "size": 5}
    with pytest.raises(Refusal, match=r"learner\.policy=fifo must be one of reservoir, ring"):
        resolve_target(keys, "learner", "build", "head")
    assert resolve_target({**keys, "policy": "ring"}, "learner", "build", "head").keywords == {
        "policy": "ring",
        "size": 5,
    }


@pytest.mark.parametrize(
    "bad",
    [
        "+learner.pollicy=1",
        "backbone.dropout=2",
        "stream.tasks=0",
        "stream.show.fit=x",
        "+selection.grid.foo=[1]",
    ],
)
def test_nothing_is_made_for_a_learner_stream_or_network_that_cannot_be(
    bad: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "cl_lightning.data.sources.cache.open_images", lambda *_: pytest.fail("images were decoded")
    )
    with pytest.raises(Refusal):
        run(tmp_path, "learner=er", bad)
    assert not list(tmp_path.iterdir())


BAD = (
    "trainer.lr=0", "trainer.momentum=0.9", "+trainer.lrr=1", "seed=-1", "+sed=1", "+debug.falt=x",
    "learner.name=a/b", "data.root=''", "+selection.gird={}",
)  # fmt: skip
EACH_IN_TURN = f"""
import sys
from cl_lightning.cli.command import main
for bad in {BAD}:
    assert main([bad]) == 2, bad
    assert "torch" not in sys.modules, bad
    print("----", file=sys.stderr)
"""


def test_the_programs_own_keys_are_checked_before_torch_is_imported() -> None:
    said = subprocess.run([sys.executable, "-c", EACH_IN_TURN], capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr
    for bad, sentence in zip(BAD, said.stderr.split("----\n")[:-1], strict=True):
        assert bad.lstrip("+").partition("=")[0] in sentence


def test_the_help_page_is_read_from_the_files_alone() -> None:
    code = (
        "import sys; from cl_lightning.cli.command import main; main(['--help']); "
        "print(*{'torch', 'pydantic'} & set(sys.modules), file=sys.stderr)"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stderr.strip()
        == ""
    )
