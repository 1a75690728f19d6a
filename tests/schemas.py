"""JSON schemas of the files in ``conf``, for editors: ``conf/schema/<group>.json``, made from the signatures
by which the program checks the same keys, with the comments of the files as descriptions.

``python -m tests.tables`` writes them, and puts the line that editors read above each file; with ``--check``
it tells which are not as they should be.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

from hydra.utils import get_object
from pydantic.errors import PydanticUserError

from cl_lightning.config.checking import adapter_of, keyword_parameters
from cl_lightning.config.compose import Data, Selection, Settings
from cl_lightning.config.resolvers import conf_dir
from cl_lightning.config.settings import Training
from cl_lightning.data.streams.show import Show

CONF = Path(conf_dir())
DRAFT = "http://json-schema.org/draft-07/schema#"
LINE = "# yaml-language-server: $schema="
READERS: dict[str, Any] = {  # of groups without a _target_
    "config": Settings, "selection": Selection, "trainer": Training, "stream/show": Show, "data": Data,
}  # fmt: skip
TARGETS = ("learner", "stream", "backbone", "data/sources", "logger")
PROVIDED = {  # by the program, and what it reads itself
    "learner": (("build", "head", "grid", "seed"), ("name",)),
    "stream": (("images", "sources", "show"), ("name", "source", "show")),
    "backbone": (("input_shape", "head"), ()),
    "logger": (("folder", "run"), ()),
}
INTERPOLATION = {"type": "string", "pattern": r"^\$\{|^\?\?\?$"}
OTHERS = {"config": ("hydra",), "stream/show": ()}  # keys besides those of the reader


def group_of(path: Path) -> str:
    group = path.parent.relative_to(CONF).as_posix()
    return "config" if group == "." or is_global(path) else group


def is_global(path: Path) -> bool:
    """Whether it has keys of the whole configuration."""
    return "# @package _global_\n" in path.read_text()


def file_of(group: str) -> Path:
    return CONF / "schema" / f"{group.replace('/', '_')}.json"


def files() -> list[Path]:
    return sorted(CONF.rglob("*.yaml"))


def comments(path: Path) -> dict[str, str]:
    """What a file says of its keys, also where it goes over several lines."""
    text = re.sub(r"\n +# ", " ", path.read_text())
    return dict(re.findall(r"^ {0,2}(\w+): [^#\n]*# (.*)$", text, re.MULTILINE))


def value_of(annotation: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    """What a key may be; nothing is said where an annotation is no value of YAML's."""
    try:
        made = dict(adapter_of(annotation).json_schema(ref_template="#/definitions/{model}"))
    except PydanticUserError:
        return {}
    definitions |= made.pop("$defs", {})
    return made


def keys_of(reader: Callable, said: Mapping[str, str], definitions: dict[str, Any]) -> dict[str, Any]:
    """The keys of a reader: each a value as annotated, or an interpolation of OmegaConf's."""
    found = {}
    for name, parameter in keyword_parameters(reader)[0].items():
        own = parameter.annotation
        value = (
            {"type": "object", "properties": keys_of(own, {}, definitions), "additionalProperties": False}
            if isinstance(own, type) and is_dataclass(own)
            else value_of(own, definitions)
        )
        found[name] = {"description": said.get(name, ""), "anyOf": [value, INTERPOLATION]} if value else {}
    return found


def of_target(group: str) -> dict[str, Any]:
    """A mapping with the keys of the class or function that its ``_target_`` names. Those of classes that are
    not the program's are not known here."""
    provided, more = PROVIDED.get(group, ((), ()))
    definitions: dict[str, Any] = {}
    rules = []
    for target, said in sorted(targets(group).items()):
        _, takes_any = keyword_parameters(get_object(target))
        keys = {
            name: value
            for name, value in keys_of(get_object(target), said, definitions).items()
            if name not in provided
        }
        keys |= {name: {} for name in ("defaults", "_target_", *more)}
        closed = {} if takes_any else {"additionalProperties": False}
        names_it = {"properties": {"_target_": {"const": target}}, "required": ["_target_"]}
        rules.append({"if": names_it, "then": {"properties": keys, **closed}})
    return {
        "type": "object",
        "properties": {"_target_": {"type": "string", "examples": sorted(targets(group))}},
        "allOf": rules,
        "definitions": definitions,
    }


def targets(group: str) -> dict[str, dict[str, str]]:
    """All that files of a group name, with what the first of them says of the keys."""
    found: dict[str, dict[str, str]] = {}
    places = [CONF / "data" / "synthetic.yaml", *files()] if group == "data/sources" else files()
    for path in places:
        if group_of(path) in (group, "data" if group == "data/sources" else group):
            for target in re.findall(r"^ *_target_: ([\w.]+)", path.read_text(), re.MULTILINE):
                found.setdefault(target, comments(path))
    return found


def of_reader(group: str) -> dict[str, Any]:
    """A mapping with some of the keys of the program's own."""
    said: dict[str, str] = {}
    for path in files():
        if group_of(path) == group and not is_global(path):
            said = comments(path) | said
    definitions: dict[str, Any] = {}
    keys = keys_of(READERS[group], said, definitions)
    keys |= {name: {} for name in ("defaults", *OTHERS.get(group, ()))}
    if group == "data":
        each = {"$ref": file_of("data/sources").name}
        keys["sources"] = {"type": "object", "additionalProperties": each}
    if group == "config":
        for name in keys:
            if name in (*READERS, *TARGETS):
                keys[name] = {"$ref": file_of(name).name}
    return {"type": "object", "properties": keys, "additionalProperties": False, "definitions": definitions}


def schema(group: str) -> dict[str, Any]:
    if group in READERS:
        made = of_reader(group)
    elif group == "logger":  # each has a key of its own
        one = of_target(group)
        definitions = one.pop("definitions")
        properties = {"defaults": {"type": "array"}}
        made = {"type": "object", "properties": properties, "additionalProperties": one}
        made["definitions"] = definitions
    else:
        made = of_target(group)
    return {"$schema": DRAFT, "title": f"conf/{group}", **made}


def wanted() -> Iterator[tuple[Path, str]]:
    """Each schema, and each file with the line that names its schema."""
    for group in (*READERS, *TARGETS):
        yield file_of(group), json.dumps(schema(group), indent=1, ensure_ascii=False) + "\n"
    for path in files():
        place = Path(os.path.relpath(file_of(group_of(path)), path.parent)).as_posix()
        text = re.sub(rf"^{re.escape(LINE)}.*\n", "", path.read_text(), flags=re.MULTILINE)
        header, body = re.fullmatch(r"(# @package [^\n]*\n)?(.*)", text, re.DOTALL).groups("")
        yield path, f"{header}{LINE}{place}\n{body}"  # Hydra reads its header from the first line alone


def renew(check: bool) -> list[str]:
    """Write what is not as it should be, unless it is only to be checked; returns its names."""
    other = [(path, text) for path, text in wanted() if not path.is_file() or path.read_text() != text]
    for path, text in () if check else other:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return [path.relative_to(CONF.parent).as_posix() for path, _ in other]
