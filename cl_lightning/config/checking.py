"""Checks of a configuration: a signature declares its keys, and its annotations what they may be."""

from __future__ import annotations

import inspect
import json
import math
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, is_dataclass
from functools import cache, partial
from types import SimpleNamespace
from typing import Annotated, Any, get_type_hints

import yaml
from annotated_types import GroupedMetadata, Predicate
from omegaconf import DictConfig, OmegaConf
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError

from cl_lightning.config.suggestions import nearest
from cl_lightning.config.trees import leaves
from cl_lightning.errors import Refusal
from cl_lightning.protocol import place_in

# ---- annotations for keys ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fulfils(GroupedMetadata):
    """A condition in an annotation that pydantic's ``Field`` has no word for, and the words for it."""

    condition: Callable[[Any], bool]
    words: str

    def __iter__(self) -> Iterator[object]:
        yield from (Predicate(self.condition), Field(description=self.words))


MOST = 2**63  # whole numbers are below: no tensor holds greater ones
Count = Annotated[int, Field(ge=1, lt=MOST)]
Size = Annotated[int, Field(ge=0, lt=MOST)]
Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
Rate = Annotated[float, Field(ge=0, lt=1)]  # of dropout, of momentum
Share = Annotated[float, Field(ge=0, le=1)]
Text = Annotated[
    str, Fulfils(lambda text: text.strip() != "" and "\0" not in text, "a text that is not empty")
]
Names = Annotated[Sequence[Text], Field(min_length=1)]
NOT_IN_NAMES = set('/\\:*?"<>|')
FolderName = Annotated[
    Text,
    Fulfils(
        lambda name: name[0] != "." and name.isprintable() and not set(name) & NOT_IN_NAMES,
        "a name without / and :",
    ),
]


# ---- checks ------------------------------------------------------------------------------------------------


def resolve_target(node: Mapping[str, Any] | DictConfig, path: str, *provided: str) -> partial:
    """The class or function that ``_target_`` names, with the other keys as its arguments, all of them
    checked.

    It waits to be called with what the program has ``provided``: so it raises its own errors, and gets
    objects as they are. A configuration names nothing else that is made: no ``_target_`` below other keys.
    """
    from hydra.errors import InstantiationException
    from hydra.utils import instantiate

    keys: Any = OmegaConf.to_container(node, resolve=True) if isinstance(node, DictConfig) else node
    check_value(target_of, "_target_", keys.get("_target_"), f"{path}._target_")
    for key, value in keys.items():
        refuse_targets(value, f"{path}.{key}")
    try:
        made = instantiate(keys, _partial_=True, _recursive_=False, _convert_="all")
    except InstantiationException as reason:
        raise not_imported(keys["_target_"], path, reason) from reason
    check_arguments(made.func, made.keywords, path, provided)
    return made


def refuse_targets(value: Any, path: str) -> None:
    """Refuse a ``_target_`` where the configuration has no place for one: nothing else is made, or run."""
    for inner, part in leaves(value, path):
        if "_target_" in inner.removeprefix(path).split("."):
            raise Refusal(
                f"{inner}={part} is not made: only what a learner, stream, backbone, data set, "
                "logger or callback itself names is.\nGive plain values, and make the object of them in "
                "your own class. Use only files that you trust."
            )


def made_by(make: partial) -> type:
    """The class of what a target makes, known before it is called: a function's annotation says it."""
    made = make.func if isinstance(make.func, type) else hints_of(make.func).get("return")
    return made if isinstance(made, type) else object


def not_imported(target: str, path: str, reason: BaseException) -> Refusal:
    """Why a target cannot be imported: it is not there, or its module does not run through."""
    root = reason
    while root.__cause__ is not None:
        root = root.__cause__
    if isinstance(root, Refusal):
        return root
    said = f"{path}._target_={target} cannot be imported"
    missing = root.name if isinstance(root, ModuleNotFoundError) else None
    if missing is not None and f"{target}.".startswith(f"{missing}."):
        return Refusal(
            f"{said}: there is no {missing}.\nCheck its spelling, and run the command where Python finds the "
            "module (python -m adds the current folder)."
        )
    words = (str(root).strip() or "no message").splitlines()[0]
    return Refusal("\n".join(filter(None, (f"{said}: {type(root).__name__}: {words}", place_in(root)))))


def target_of(_target_: Text, name: FolderName = "", **keys: Any) -> None:
    """The keys of a learner, stream or backbone that the program reads before it is imported; all others are
    its own."""


def check_arguments(
    target: Callable, given: Mapping[str, Any], path: str = "", provided: Collection[str] = ()
) -> None:
    """Refuse unknown and missing arguments of a function or class, and values that its annotations rule out.

    What the program has ``provided`` is not to be given.
    """
    parameters, takes_any = keyword_parameters(target)
    known = {name: parameter for name, parameter in parameters.items() if name not in provided}
    paths = {name: f"{path}.{name}" if path else str(name) for name in (*given, *known)}
    for name, value in given.items():
        if name not in known and (name in provided or not takes_any):
            raise Refusal(f"{paths[name]} is not a key here.{nearest(str(name), known)}")
        check(known[name].annotation if name in known else Any, value, paths[name])
    for name, parameter in known.items():
        if name not in given and parameter.default is parameter.empty:
            raise Refusal(f"{paths[name]} is missing. It must be {words_of(parameter.annotation)}.")


def check_value(target: Callable, name: str, value: Any, path: str) -> None:
    """Refuse what the annotation of one parameter rules out."""
    parameters, _ = keyword_parameters(target)
    check(parameters[name].annotation if name in parameters else Any, value, path)


def check(annotation: Any, value: Any, path: str) -> None:
    """Refuse a value that an annotation rules out; a dataclass stands for a mapping with its fields."""
    if isinstance(annotation, type) and is_dataclass(annotation) and not isinstance(value, annotation):
        check(Mapping, value, path)
        check_arguments(annotation, value, path)
        return
    if isinstance(value, float) and not math.isfinite(value):
        raise Refusal(f"{path}={value} must be a finite number: results could not hold it.")
    if not fits(annotation, value):
        raise Refusal(f"{path}={quoted(value)} must be {words_of(annotation)}.")


def fits(annotation: Any, value: Any) -> bool:
    """Whether a value is as its annotation says: as JSON, which has YAML's types. So a list may become a
    tuple, but True is no 1, and 1.0 no whole number."""
    try:
        found = adapter_of(annotation).validate_json(json.dumps(value))
    except ValidationError:
        return False
    # The value is an object, not of YAML's; or the annotation says nothing of values, as nn.Module.
    except Exception:
        return True
    return not isinstance(value, bool | float) or type(found) is type(value)  # literals are compared by ==


@cache
def adapter_of(annotation: Any) -> TypeAdapter:
    return TypeAdapter(annotation, config=ConfigDict(strict=True, allow_inf_nan=False))


@cache
def keyword_parameters(target: Callable) -> tuple[dict[str, inspect.Parameter], bool]:
    """The parameters that a function takes by name, or a class and, while ``**kwargs`` pass on the rest, its
    bases; and whether it takes any other name, too. Annotations are evaluated; one that cannot be is
    ``Any``."""
    found: dict[str, inspect.Parameter] = {}
    takes_any = False
    for owner in target.__mro__[:-1] if isinstance(target, type) else (target,):
        function = vars(owner).get("__init__") if isinstance(target, type) else owner
        if function is None:
            continue
        parameters, hints = inspect.signature(function).parameters.values(), hints_of(function)
        if isinstance(owner, type) and is_dataclass(owner):  # inherited annotations are of its bases' modules
            hints |= {name: hint for base in reversed(owner.__mro__) for name, hint in hints_of(base).items()}
        for p in parameters:
            if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY) and p.name != "self":
                found.setdefault(p.name, p.replace(annotation=hints.get(p.name, Any)))
        takes_any = any(p.kind == p.VAR_KEYWORD for p in parameters)
        if not takes_any:
            break
    return found, takes_any


def hints_of(owner: Any) -> dict[str, Any]:
    """The annotations of a function, or those in a class itself; without any that cannot be evaluated."""
    found = {}
    for name, annotation in inspect.get_annotations(owner).items():
        with suppress(Exception):
            scope = getattr(inspect.unwrap(owner), "__globals__", None) or vars(sys.modules[owner.__module__])
            found[name] = get_type_hints(
                SimpleNamespace(__annotations__={name: annotation}), scope, include_extras=True
            )[name]
    return found


# ---- words -------------------------------------------------------------------------------------------------

TYPES = {
    "integer": "a whole number", "number": "a number", "string": "a text", "boolean": "true or false",
    "null": "null",
    "array": "a list", "object": "a mapping",
}  # fmt: skip
BOUNDS = {
    "minimum": "of at least", "exclusiveMinimum": "above", "maximum": "at most", "exclusiveMaximum": "below",
    "minItems": "of length at least", "maxItems": "at most",
}  # fmt: skip


def words_of(annotation: Any) -> str:
    """What a value may be, in a sentence after "must be".

    >>> words_of(Count | None), words_of(Rate)
    ('a whole number of at least 1, or null', 'a number of at least 0 and below 1')
    """
    if annotation is Any or is_dataclass(annotation):
        return "given" if annotation is Any else "a mapping"
    try:
        return words(adapter_of(annotation).json_schema())
    except PydanticUserError:  # a type that has no values in YAML
        return f"of the type {annotation}"


def words(schema: Mapping[str, Any]) -> str:
    """The same for a JSON schema.

    >>> words({"type": "array", "minItems": 1, "items": {"enum": ["a", "b"]}})
    'a list of length at least 1, each value one of a, b'
    """
    if "description" in schema:
        return schema["description"]
    if "anyOf" in schema:
        return ", or ".join(dict.fromkeys(map(words, schema["anyOf"])))
    if "const" in schema or "enum" in schema:
        choices = list(dict.fromkeys(map(as_yaml, schema.get("enum", [schema.get("const")]))))
        return f"{'one of ' * (len(choices) > 1)}{', '.join(choices)}"
    bounds = " and ".join(
        f"{word} {schema[key]}" for key, word in BOUNDS.items() if schema.get(key, MOST) < MOST
    )
    inner = schema.get("items") or schema.get("additionalProperties")
    each = f", each value {words(inner)}" if isinstance(inner, Mapping) else ""
    return f"{TYPES.get(schema.get('type', ''), 'as its annotation says')} {bounds}".strip() + each


def quoted(value: Any) -> str:
    """A value as YAML, in quotes where it is a text that would be read as something else.

    >>> quoted("0.1"), quoted("adam"), quoted(0.1)
    ('"0.1"', 'adam', '0.1')
    """
    with suppress(yaml.YAMLError):
        if isinstance(value, str) and not isinstance(yaml.safe_load(value), str):
            return f'"{as_yaml(value)}"'
    return as_yaml(value)


def as_yaml(value: Any, most: int = 200) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= most else f"{text[:most]}..."
