"""The schemas of configuration files say to editors what the program would say."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator
from referencing import Registry, Resource

from cl_lightning.config.checking import fits, keyword_parameters
from cl_lightning.config.settings import Training
from tests.commands import configure
from tests.docs import blocks, page
from tests.schemas import CONF, LINE, files

SCHEMAS = {path.name: json.loads(path.read_text()) for path in (CONF / "schema").glob("*.json")}
FOUND = Registry().with_resources((name, Resource.from_contents(schema)) for name, schema in SCHEMAS.items())


def valid(name: str, content: Any) -> bool:
    return Draft7Validator(SCHEMAS[name], registry=FOUND).is_valid(content)


def named_by(path: Path) -> str:
    """The schema that the first line of a file names."""
    (named,) = re.findall(rf"^{re.escape(LINE)}(.*)$", path.read_text(), re.MULTILINE)
    assert (path.parent / named).is_file()
    return Path(named).name


@pytest.mark.parametrize("path", files(), ids=lambda path: path.relative_to(CONF).as_posix())
def test_a_file_is_as_its_schema_says(path: Path) -> None:
    content = yaml.safe_load(path.read_text())
    errors = list(Draft7Validator(SCHEMAS[named_by(path)], registry=FOUND).iter_errors(content))
    assert not errors


EWC = {"_target_": "cl_lightning.learners.EWC", "name": "ewc"}


@pytest.mark.parametrize(
    ("schema", "content", "whether"),
    [
        ("learner.json", EWC | {"strength": 3.0}, True),
        ("learner.json", EWC | {"strength": "${oc.select:tuned.ewc.strength,100.0}"}, True),
        ("learner.json", EWC | {"strength": "much"}, False),
        ("learner.json", EWC | {"strengt": 3.0}, False),
        ("learner.json", EWC | {"seed": 3}, False),  # the program gives it
        ("learner.json", {"_target_": "my_learners.Mine", "anything": 3}, True),
        ("stream.json", {"_target_": "cl_lightning.data.streams.split", "tasks": 0}, False),
        ("logger.json", {"wandb": {"_target_": "cl_lightning.loggers.open_wandb", "mode": "onlin"}}, False),
        ("config.json", {"trainer": {"schedule": {"by": 2, "at": [3]}}, "learner": EWC}, True),
        ("config.json", {"trainer": {"max_epoch": 3}}, False),
        ("config.json", {"learner": EWC | {"strengt": 3.0}}, False),
        ("config.json", {"grants": {"past_datas": True}}, False),
        ("data.json", {"sources": {"mnist": {"_target_": "cl_lightning.data.sources.ParquetImages", "x": 1}}},
            False),
    ],
)  # fmt: skip
def test_an_editor_marks_what_the_program_would_refuse(schema: str, content: Any, whether: bool) -> None:
    assert valid(schema, content) == whether


VALUES: list[Any] = [None, True, 0, 1, -1, 0.5, 2.5, "adam", "x", [], [1], [0.9, 0.99], {}, {"by": 0.5}]


@pytest.mark.parametrize("key", keyword_parameters(Training)[0])
def test_schema_and_check_agree_on_every_key_of_the_trainer(key: str) -> None:
    annotation = keyword_parameters(Training)[0][key].annotation
    for value in VALUES:
        if key not in ("measures", "schedule") or value == "x":  # conditions that a schema has no word for
            assert valid("trainer.json", {key: value}) == fits(annotation, value), value


def test_a_description_is_the_comment_of_the_file() -> None:
    described = SCHEMAS["trainer.json"]["properties"]["threads"]["description"]
    assert described
    assert described in re.sub(r"\n +# ", " ", (CONF / "trainer" / "default.yaml").read_text())
    assert configure().trainer.threads == 1


def test_the_page_for_users_names_a_schema_that_is_there() -> None:
    (line,) = (
        line for block in blocks(page("learners"), "yaml") for line in block.splitlines() if LINE in line
    )
    assert Path(line.partition(LINE)[2]).name in SCHEMAS
