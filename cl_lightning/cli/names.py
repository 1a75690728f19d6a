"""What was meant by an argument with a wrong name: the nearest choice or key, as an argument that works."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from cl_lightning.cli.help import GROUPS, LISTINGS, choices_of, default_choices, folders_of
from cl_lightning.conf_dir import conf_dir

LIKE = 0.7  # how alike two names are at least, of which one may be meant for the other
EVERYWHERE = ("none", "default")  # choices that say nothing of their group
OPTIONS = ("--multirun", "--config-dir", "--cfg", "--help", "--hydra-help", "--version")
FIRST = (
    "trainer",
    "learner",
    "stream",
    "backbone",
    "selection.grid",
)  # where a key without a group is sought


def meant(argument: str, others: Sequence[str]) -> list[str]:
    """The arguments that were meant by a wrong one, beside all others of its command line; [] where nothing
    is near."""
    mark = "~" if argument.startswith("~") else ""
    key, _, value = (part.strip() for part in argument.lstrip("+~-").partition("="))
    settings = composed(others)
    found = [
        *(as_option(argument) if argument.startswith("--") else []),
        *(as_listing(argument) if not others and "=" not in argument else []),
        *as_choice(key, value, folders_of(others)),
        *as_source(value, settings),
    ]
    if key not in GROUPS:
        found += as_key(key, value, settings, mark)
        found += as_key_of_another_choice(key, value, settings, others)
    score, best = max(found, key=lambda each: each[0], default=(0.0, []))  # the first of equals
    return best if score >= LIKE else []


Scored = tuple[float, list[str]]  # how likely, and the arguments


def as_option(argument: str) -> Iterator[Scored]:
    """``--multirn``."""
    for option in OPTIONS:
        yield likeness(argument, option), [option]


def as_listing(argument: str) -> Iterator[Scored]:
    """``leaners``. What is listed says the first argument."""
    for name in LISTINGS:
        yield likeness(argument, name), [name]


def as_choice(key: str, value: str, folders: Sequence[Path]) -> Iterator[Scored]:
    """``strem=split``, ``experiment=ctrl_long`` without its plus, ``model=ewc``, ``ewc``."""
    chosen_by_default = default_choices(folders[0])
    for group in sorted(GROUPS, key="experiment".__eq__):  # a stream before an experiment of that name
        plus = "" if group in chosen_by_default or "/" in group else "+"
        for choice in choices_of(group, folders):
            of_group, of_choice = likeness(key, group.replace("/", ".")), likeness(value or key, choice)
            if value and of_group >= LIKE and of_choice >= 0.6:
                yield (of_group + of_choice) / 2, [f"{plus}{group}={choice}"]
            elif of_choice == 1 and choice not in EVERYWHERE:
                yield 0.9, [f"{plus}{group}={choice}"]
            elif not value:
                yield 0.8 * of_choice, [f"{plus}{group}={choice}"]


def as_source(value: str, settings: Mapping[str, Any]) -> Iterator[Scored]:
    """``dataset=mnist``."""
    if value in settings["data"]["sources"]:
        stream = [] if "source" in settings["stream"] else ["stream=split"]
        yield 0.75, [*stream, f"stream.source={value}"]


def as_key(key: str, value: str, settings: Mapping[str, Any], mark: str) -> Iterator[Scored]:
    """``lr=0.1``, ``trainer.max_epoch=3``, ``selection.grid.stregth=[1]``."""
    from cl_lightning.config import key_paths  # late: --help reads files alone

    known = [path for path in key_paths(settings) if "." in key or not path.startswith("data.")]
    listed = value.startswith("[")
    sections = ("selection.grid", *FIRST) if listed else FIRST

    def place(path: str) -> int:
        return next((i for i, s in enumerate(sections) if path.startswith(f"{s}.")), 9 if "." in path else -1)

    known.sort(key=place)
    equals = "=" if value or not mark else ""
    for path in known:
        yield likeness(key, path), [f"{mark}{path}{equals}{value}"]
    if key.startswith("selection.grid."):
        for path in known:  # what a grid may have, but this one has not
            if path.startswith(("learner.", "trainer.")):
                own = f"selection.grid.{path.rpartition('.')[2]}"
                yield 0.99 * likeness(key, own), [f"+{own}={value}"]


def as_key_of_another_choice(
    key: str, value: str, settings: Mapping[str, Any], others: Sequence[str]
) -> Iterator[Scored]:
    """``learner.strength=3`` where the learner has none: EWC's; ``logger.wandb.project=x`` where the logger
    is another. The shortest name first."""
    import yaml

    from cl_lightning.config import key_paths  # late, as above

    given = {other.lstrip("+").partition("=")[0] for other in others}
    for group in (group for group in ("learner", "stream", "backbone", "logger") if group not in given):
        files = choices_of(group, [Path(conf_dir())])
        for choice in sorted(files, key=len):
            own = set(key_paths(yaml.safe_load(files[choice].read_text())))
            for name in sorted(own - set(key_paths(settings[group])) - {"defaults", ""}):
                arguments = [f"{group}={choice}", f"{group}.{name}={value}"]
                yield 0.99 * likeness(key, f"{group}.{name}"), arguments


def nearest_key(key: str, settings: Mapping[str, Any]) -> str | None:
    """The key that was meant by a wrong one, if any is near."""
    from cl_lightning.config import key_paths  # late: --help reads files alone

    score, near = max((likeness(key, path), path) for path in key_paths(settings))
    return near if score >= LIKE else None


def likeness(typed: str, known: str) -> float:
    """A number from 0 to 1, where both are the same. What is typed may leave out the first parts of a key;
    all that it has must be alike.

    >>> likeness("lr", "trainer.lr"), likeness("a.lr", "trainer.lr") < 0.5
    (1.0, True)
    """
    parts, of_known = typed.lower().split("."), known.lower().split(".")
    if len(parts) > len(of_known):
        return 0.0
    return min(map(likeness_of_parts, reversed(parts), reversed(of_known)))


def likeness_of_parts(one: str, other: str) -> float:
    """
    >>> likeness_of_parts("seed", "seed"), likeness_of_parts("learning_rate", "lr")
    (1.0, 0.9)
    """
    of_initials = one in initials(other) or other in initials(one)
    return max(SequenceMatcher(None, one, other).ratio(), 0.9 * of_initials)


def initials(name: str) -> list[str]:
    """
    >>> initials("learning_rate"), initials("seed")
    (['lr'], [])
    """
    words = [word for word in name.split("_") if word]
    return ["".join(word[0] for word in words)] if len(words) > 1 else []


def composed(others: Sequence[str]) -> dict[str, Any]:
    """All keys of a command without its wrong argument; of the shortest command there is, if the rest of it
    is wrong, too."""
    from cl_lightning.config import compose_config

    folders = [f"file://{folder.resolve()}" for folder in folders_of(others)[1:]]
    places = [f"hydra.searchpath=[{','.join(folders)}]"] if folders else []
    overrides = [other for other in others if "=" in other and not other.startswith("-")]
    for tried in ([*map(first_of_a_sweep, overrides), *places], places, []):
        try:
            made: Any = OmegaConf.to_container(compose_config(*tried))
            return made
        except Exception:  # it is about another argument
            continue
    raise AssertionError("the shipped configuration composes")


def first_of_a_sweep(override: str) -> str:
    """
    >>> first_of_a_sweep("seed=0,1"), first_of_a_sweep("learner=ewc"), first_of_a_sweep("not=[one")
    ('seed=0', 'learner=ewc', 'not=[one')
    """
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        parsed = OverridesParser.create().parse_override(override)
    except HydraException:
        return override
    key = override.partition("=")[0]
    return f"{key}={next(parsed.sweep_string_iterator())}" if parsed.is_sweep_override() else override
