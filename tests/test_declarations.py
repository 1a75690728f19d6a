"""A key is declared once, by the annotation in the signature that reads it: the YAML files agree with it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import pytest
from hydra.utils import get_object
from omegaconf import OmegaConf

from cl_lightning.backbones.initialisers import INITIALISERS, Init
from cl_lightning.config.checking import as_yaml, check_arguments, fits, keyword_parameters
from cl_lightning.config.compose import Data, Selection, Settings
from cl_lightning.config.resolvers import conf_dir
from cl_lightning.config.settings import Training
from cl_lightning.data.streams.sequence import TaskSpec
from cl_lightning.data.streams.show import Show
from cl_lightning.protocol import Grants
from tests.commands import configure

CONF = Path(conf_dir())
FILES = sorted(path for path in CONF.rglob("*.yaml") if path.parent.name not in ("experiment", "dnn", "row"))
READERS = {
    ".": Settings,
    "data": Data,
    "selection": Selection,
    "trainer": Training,
    "stream/show": Show,
}  # of others: their _target_
PROVIDED = {  # by the program, and which keys it reads itself
    "learner": (("build", "head", "grid", "seed"), ("name",)),
    "stream": (("images", "sources", "show"), ("name", "source", "show")),
    "backbone": (("input_shape", "head"), ()),
    "logger": (("folder", "run"), ()),
}


@dataclass
class Choice:
    """A file: all keys of the choice that it stands for, and who reads them."""

    path: Path

    @property
    def group(self) -> str:
        return self.path.parent.relative_to(CONF).as_posix()

    @cached_property
    def config(self) -> dict[str, Any]:
        if self.group == ".":
            cfg = configure()
        elif self.group == "data/sources":
            cfg = configure("data=real").data.sources[self.path.stem]
        else:
            cfg = OmegaConf.select(configure(f"{self.group}={self.path.stem}"), self.group.replace("/", "."))
            cfg = cfg.get(self.path.stem, cfg) if self.group == "logger" else cfg
        return OmegaConf.to_container(cfg, resolve=True)

    @property
    def reader(self) -> Any:
        target = self.config.get("_target_")
        return READERS.get(self.group) or (get_object(target) if target else lambda: None)

    @property
    def given(self) -> dict[str, Any]:
        """What the reader is given from the file."""
        _, by_program = PROVIDED.get(self.group, ((), ()))
        return {key: value for key, value in self.config.items() if key not in ("_target_", *by_program)}

    @cached_property
    def parameters(self) -> dict[str, Parameter]:
        found, _ = keyword_parameters(self.reader)
        return found

    def own(self) -> Iterator[tuple[str, str]]:
        """The keys that stand in the file itself, and their comments, which may go over several lines."""
        for line in re.sub(r"\n +# ", " ", self.path.read_text()).splitlines():
            inside = "  " if self.group == "logger" else ""  # each logger has a key of its own
            if (found := re.match(rf"{inside}(\w+): .*?# (.*)", line)) and found[1] in self.parameters:
                yield found[1], found[2]


@cache
def choice(path: Path) -> Choice:
    return Choice(path)


every_file = pytest.mark.parametrize(
    "path", FILES, ids=lambda path: path.relative_to(CONF).with_suffix("").as_posix()
)


@every_file
def test_every_key_is_annotated_and_has_a_value_that_it_may_have(path: Path) -> None:
    one = choice(path)
    provided, _ = PROVIDED.get(one.group, ((), ()))
    check_arguments(one.reader, one.given, path.stem, provided)
    loose = [key for key in one.given if one.parameters[key].annotation is Any]
    assert not loose


def test_every_synthetic_source_is_declared_too() -> None:
    for name, source in OmegaConf.to_container(configure().data.sources).items():
        target = get_object(source.pop("_target_"))
        check_arguments(target, source, name)
        assert not fits(keyword_parameters(target)[0]["seed"].annotation, -1), (
            f"{name}: `seed` comes from another module"
        )


# ---- defaults ----------------------------------------------------------------------------------------------


def default_files() -> list[Path]:
    """Those that name their class or function themselves; others are variants. A source is no default of
    anything."""
    return [
        p
        for p in FILES
        if re.search("^_target_: [^n]|^(csv|wandb):", p.read_text(), re.M) and p.parent.name != "sources"
    ] + [CONF / "stream/show/plain.yaml"]


@pytest.mark.parametrize("path", default_files(), ids=lambda path: path.stem)
def test_a_default_in_a_signature_is_that_of_the_file(path: Path) -> None:
    one = choice(path)
    own = {key: one.config[key] for key, _ in one.own() if one.parameters[key].default is not Parameter.empty}
    assert own == {key: tuple_as_list(one.parameters[key].default) for key in own}


def test_what_is_granted_by_default_is_what_the_file_grants() -> None:
    assert Grants(**configure().grants) == Grants()


def tuple_as_list(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


# ---- comments ----------------------------------------------------------------------------------------------


def words_to_choose_from(annotation: Any) -> list[str]:
    """The values that an annotation names one by one."""
    if get_origin(annotation) is Literal:
        return list(dict.fromkeys(map(as_yaml, get_args(annotation))))
    parts = get_args(annotation) if get_origin(annotation) not in (None, Annotated) else ()
    return [word for part in parts if get_origin(part) is Literal for word in words_to_choose_from(part)]


def mentions(comment: str, word: str) -> bool:
    return re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", comment) is not None


@every_file
def test_a_comment_that_states_choices_states_those_of_the_annotation(path: Path) -> None:
    one = choice(path)
    for key, comment in one.own():
        words = words_to_choose_from(one.parameters[key].annotation)
        others = [word for word in words if word != as_yaml(one.config[key])]
        if any(mentions(comment, word) for word in others):
            missing = [word for word in others if not mentions(comment, word)]
            assert not missing, f"{key}: the comment leaves out {missing}"
        for part in comment.split(" | ") if words and " | " in comment else ():
            assert any(mentions(part, word) for word in words) or "list" in part, (
                f"{key}: {part} is no choice"
            )


@pytest.mark.parametrize(
    "path",
    [*default_files(), CONF / "trainer/default.yaml", CONF / "config.yaml"],
    ids=lambda path: path.stem,
)
def test_a_key_with_several_values_to_choose_from_is_explained_where_its_default_stands(path: Path) -> None:
    one = choice(path)
    for key, comment in one.own():
        words = words_to_choose_from(one.parameters[key].annotation)
        assert all(mentions(f"{comment} {as_yaml(one.config[key])}", word) for word in words), (
            f"{key}: {words}"
        )


@every_file
def test_a_comment_says_what_null_means_only_where_null_is_allowed(path: Path) -> None:
    one = choice(path)
    for key, comment in one.own():
        if mentions(comment, "null"):
            assert fits(one.parameters[key].annotation, None), key


def test_the_comment_on_tasks_of_a_sequence_names_all_their_keys() -> None:
    text = (CONF / "stream/sequence.yaml").read_text().partition("# A task:")[2].partition("\ntasks:")[0]
    parameters, _ = keyword_parameters(TaskSpec)
    for key in set(parameters) - {"asked_by"}:
        assert mentions(text, key), key
    for word in words_to_choose_from(parameters["labels"].annotation):
        assert mentions(text, word), word


def test_every_initialisation_that_may_be_chosen_is_there() -> None:
    assert set(INITIALISERS) == set(get_args(Init))
