"""What was meant by an argument with a wrong name: the nearest choice or key, as an argument that works."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from cl_lightning.cli.help import GROUPS, LISTINGS, choices_of, default_choices, folders_of
from cl_lightning.conf_dir import conf_dir
from cl_lightning.errors import Refusal
from cl_lightning.likeness import LIKE, likeness

EVERYWHERE = ("none", "default")  # choices that say nothing of their group
OPTIONS = ("--multirun", "--config-dir", "--cfg", "--help", "--hydra-help", "--version")
WITH_A_VALUE = ("--config-dir", "--cfg")
FIRST = (
    "trainer",
    "learner",
    "stream",
    "backbone",
    "selection.grid",
)  # where a key without a group is sought


def meant(argument: str, others: Sequence[str]) -> list[str]:
    """The arguments that were meant by a wrong one, beside all others of its command line: the likeliest that
    work; [] where nothing is near. Where a name is right without its group and the value is not, a refusal
    of the value."""
    base, settings = composed(others)
    for score, answer in sorted(guesses(argument, others, settings), key=lambda guess: -guess[0]):
        if score < LIKE:
            break
        try:
            try_out(answer, base)
            return answer
        except Refusal:
            if score == 1:
                raise
        except Exception:  # Hydra cannot read it
            continue
    return []


Guess = tuple[float, list[str]]  # how likely, and the arguments


def guesses(argument: str, others: Sequence[str], settings: Mapping[str, Any]) -> list[Guess]:
    mark = "~" if argument.startswith("~") else ""
    key, equals, value = (part.strip() for part in argument.lstrip("+~-").partition("="))
    found = [
        *(as_option(argument) if argument.startswith("--") else []),
        *(as_listing(argument) if not others and not equals else []),
        *as_choice(key, value, folders_of(others)),
        *as_source(value, settings),
    ]
    if key not in GROUPS and (equals or mark):
        found += as_key(key, value, settings, mark)
        found += as_key_of_another_choice(key, value, settings, others)
    return found


def try_out(answer: Sequence[str], base: Sequence[str]) -> None:
    """Raise what a run with these arguments is refused for, as far as that is known without Lightning."""
    from cl_lightning.cli.sentences import refuse_lists
    from cl_lightning.config import check_config, compose_config  # late: --help reads files alone

    if answer[0].startswith("--") or answer[0] in LISTINGS:
        return
    refuse_lists(answer)
    cfg = compose_config(*base, *map(first_of_a_sweep, answer))
    check_config(cfg)
    if any(part.startswith("stream") for part in answer):
        from cl_lightning.build import stream_of

        stream_of(cfg)


def as_option(argument: str) -> Iterator[Guess]:
    """``--multirn``, ``--cofig-dir=mine``."""
    name, equals, value = argument.partition("=")
    for option in OPTIONS:
        if bool(value) == (option in WITH_A_VALUE):
            yield likeness(name, option), [f"{option}{equals}{value}"]


def as_listing(argument: str) -> Iterator[Guess]:
    """``leaners``."""
    for name in LISTINGS:
        yield likeness(argument, name), [name]


def as_choice(key: str, value: str, folders: Sequence[Path]) -> Iterator[Guess]:
    """``strem=split``, ``experiment=ctrl_long`` without its plus, ``model=ewc``, ``ewc``; of several choices
    each."""
    chosen_by_default = default_choices(folders[0])
    parts = re.split(r"([,\[\] ]+)", value or key)  # names, and what is between them
    if not any(parts[::2]):
        return
    groups = [key] if key in GROUPS else sorted(GROUPS, key="experiment".__eq__)
    for group in groups:  # a stream before an experiment of that name
        files = choices_of(group, folders)
        near = [near_choice(part, files) if part else (1.0, part) for part in parts[::2]]
        of_group, of_choice = likeness(key, group.replace("/", ".")), min(score for score, _ in near)
        chosen = "".join(choice + between for (_, choice), between in zip(near, [*parts[1::2], ""]))
        several = group == "logger" and "," in chosen and not chosen.startswith("[")  # of one run
        plus = "" if group in chosen_by_default or "/" in group else "+"
        answer = [f"{plus}{group}={f'[{chosen}]' if several else chosen}"]
        if value and of_group >= LIKE and of_choice >= 0.6:
            yield (of_group + of_choice) / 2, answer
        elif of_choice == 1 and not any(choice in EVERYWHERE for _, choice in near):
            yield 0.9, answer
        elif not value:
            yield 0.8 * of_choice, answer


def near_choice(name: str, choices: Collection[str]) -> tuple[float, str]:
    """How much the choice that is most like a name is like it, and the choice. The only one that begins with
    it is very much; where several do, none is meant."""
    begun = [choice for choice in choices if choice.startswith(name)]
    if len(begun) > 1 and name not in choices:
        return 0.0, name
    alike = max((likeness(name, choice), choice) for choice in choices)
    return max(alike, (0.9, begun[0])) if begun and len(name) > 2 else alike


def as_source(value: str, settings: Mapping[str, Any]) -> Iterator[Guess]:
    """``dataset=mnist``."""
    if value in settings["data"]["sources"]:
        stream = [] if "source" in settings["stream"] else ["stream=split"]
        yield 0.75, [*stream, f"stream.source={value}"]


def as_key(key: str, value: str, settings: Mapping[str, Any], mark: str) -> Iterator[Guess]:
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
) -> Iterator[Guess]:
    """``learner.fisher=exact`` where the learner has none: EWC's; ``logger.wandb.project=x`` where the logger
    is another. The shortest name first."""
    import yaml

    from cl_lightning.config import key_paths  # late, as above

    given = {other.lstrip("+").partition("=")[0] for other in others}
    for group in (group for group in ("learner", "stream", "backbone", "logger") if group not in given):
        files = choices_of(group, [Path(conf_dir())])
        for choice in sorted(files, key=len):
            own = set(key_paths(yaml.safe_load(files[choice].read_text())))
            for name in sorted(own - set(key_paths(settings[group])) - {"defaults", ""}):
                alike = likeness(key, f"{group}.{name}")
                if "." in key or alike == 1:  # a name alone may be meant for anything
                    yield 0.99 * alike, [f"{group}={choice}", f"{group}.{name}={value}"]


def composed(others: Sequence[str]) -> tuple[list[str], dict[str, Any]]:
    """A command without its wrong argument, and all its keys; the shortest command there is, if the rest of
    it is wrong, too."""
    from cl_lightning.config import compose_config

    folders = [f"file://{folder.resolve()}" for folder in folders_of(others)[1:]]
    places = [f"hydra.searchpath=[{','.join(folders)}]"] if folders else []
    overrides = [other for other in others if "=" in other and not other.startswith("-")]
    for tried in ([*map(first_of_a_sweep, overrides), *places], places, []):
        try:
            made: Any = OmegaConf.to_container(compose_config(*tried))
            return tried, made
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
