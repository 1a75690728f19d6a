"""What was meant by an argument with a wrong name: the nearest of the choices and keys that there are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import OmegaConf

from cl_lightning.cli.help import GROUPS, LISTINGS, choices_of, default_choices, folders_of
from cl_lightning.config.suggestions import LIKE, likeness, names_like
from cl_lightning.config.trees import dotted

EVERYWHERE = ("none", "default")  # choices that say nothing of their group
OPTIONS = ("--multirun", "--config-dir", "--cfg", "--help", "--hydra-help", "--version")
FIRST = ("trainer", "learner", "stream", "backbone", "selection.grid")  # sections where a key is sought


def meant(argument: str, others: Sequence[str]) -> str:
    """The argument that was meant by a wrong one, beside all others of its command line; empty where
    nothing is near."""
    name, equals, value = argument.partition("=")
    if argument.startswith("--") and not equals:  # --lr 0.1
        behind = [other for other in others if "=" not in other and not other.startswith("-")]
        name, equals, value = argument, "=" * bool(behind), "".join(behind[:1])
        argument = f"{name}{equals}{value}"
    key = name.strip("+~- ")
    if argument.startswith("--") and (near := names_like(name, OPTIONS)):
        return f"{near[0]}{equals}{value}"
    listing = names_like(key, LISTINGS) if not equals and not others else []
    return as_choice(key, value.strip(), others) or next(iter(listing), "") or as_key(argument, others)


def as_choice(key: str, value: str, others: Sequence[str]) -> str:
    """``experiment=ctrl_long`` without its plus, ``strem=split``, ``model=ewc``, ``ewc``. A group that is
    chosen already is not meant."""
    given = {other.lstrip("+").partition("=")[0] for other in others}
    folders, names = folders_of(others), value.split(",") if value else [key]
    near = names_like(key, GROUPS)[:1] if value else []
    for group in near or sorted(GROUPS, key=("dnn", "row", "experiment").__contains__):  # which come last
        files = choices_of(group, folders)
        found = [next(iter(names_like(name, files) if near else []), name) for name in names]
        if {*found} <= {*files} - ({*EVERYWHERE} if not near else set()):
            plus = "" if group in default_choices(folders[0]) or "/" in group else "+"
            return "" if group in given else f"{plus}{group}={','.join(found)}"
    return ""


def as_key(argument: str, others: Sequence[str]) -> str:
    """``lr=0.1``, ``trainer.max_epoch=3``, ``lr=[0.1,0.2]``, which is a grid."""
    name, equals, value = argument.partition("=")
    key, mark = name.strip("+~- "), "~" * name.startswith("~")
    if key in GROUPS or not (equals or mark):
        return ""
    if key == "device" and not value.isdigit():  # cuda is no number of devices
        key = "accelerator"
    sections = ("selection.grid", *FIRST) if value.startswith("[") else FIRST

    def place(path: str) -> int:
        return next((i for i, s in enumerate(sections) if path.startswith(f"{s}.")), 9 if "." in path else -1)

    known = [path for path in keys_beside(others) if "." in key or not path.startswith("data.")]
    nearest = max(sorted(known, key=place), key=lambda path: likeness(key, path))
    return f"{mark}{nearest}{equals}{value}" if likeness(key, nearest) >= LIKE else ""


def keys_beside(others: Sequence[str]) -> list[str]:
    """All keys of the configuration that these other arguments make; of the default one if they are wrong,
    too."""
    from cl_lightning.config.compose import compose_config  # late: --help reads files alone

    folders = [f"file://{folder.resolve()}" for folder in folders_of(others)[1:]]
    overrides = [first_of_a_sweep(other) for other in others if "=" in other and not other.startswith("-")]
    try:
        cfg = compose_config(*overrides, *[f"hydra.searchpath=[{','.join(folders)}]"] * bool(folders))
    except Exception:  # it is about another argument
        cfg = compose_config()
    settings: Any = OmegaConf.to_container(cfg)
    return [path for path, _ in dotted(settings)]


def first_of_a_sweep(override: str) -> str:
    """
    >>> first_of_a_sweep("seed=0,1"), first_of_a_sweep("learner=ewc"), first_of_a_sweep("not=[one")
    ('seed=0', 'learner=ewc', 'not=[one')
    >>> first_of_a_sweep("learner.strength=tag(log,interval(1,1000))")  # as Optuna has them
    'learner.strength=1.0'
    """
    try:
        parsed = OverridesParser.create().parse_override(override)
    except HydraException:
        return override
    if not parsed.is_sweep_override():
        return override
    is_interval = not parsed.is_discrete_sweep()
    first = parsed.value().start if is_interval else next(parsed.sweep_string_iterator())  # type: ignore[union-attr]
    return f"{override.partition('=')[0]}={first}"
