"""What the program says when something went wrong: at most five lines."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hydra.errors import (
    ConfigCompositionException,
    HydraException,
    MissingConfigException,
    OverrideParseException,
)
from omegaconf.errors import OmegaConfBaseException

from cl_lightning.cli.help import GROUPS, LISTINGS
from cl_lightning.config.suggestions import names_like, nearest
from cl_lightning.errors import DISK, Refusal, is_of_memory, is_of_the_disk, plain

LINES = 5
OUTER = (
    "{} is for selection=stream_level, which is a sweep of its own, without --multirun and without another "
    "selection beside it. Say selection=stream_level, or leave {} out."
)
ONE_SWEEPER = (
    "A sweep has one sweeper and one launcher, and goes through neither: selection=stream_level, which is a "
    "sweep of its own, is without another selection beside it."
)
ARGUMENTS = "Arguments are group=choice or key=value; see --help."
WRITTEN = (
    "arguments are group=choice or key=value, without spaces; see --help.\n"
    """A value with spaces, brackets or quotes goes in quotes: 'name="a b"', 'trainer.probe_at=[1,2]'."""
)
OPEN = (  # what a new key may be added to
    "selection.grid.", "selection.default.", "logger.", "data.sources.", "data.substitute.", "tuned.",
    "trainer.lightning.", "hydra.",
)  # fmt: skip
OF_A_CHOICE = {  # keys that are there with one choice alone
    "best": "best is a choice of a sweep that chose: --config-dir <folder of the sweep> +best=...",
    "selection.stream": OUTER.format(*["selection.stream"] * 2),
    "selection.over_seeds": OUTER.format(*["selection.over_seeds"] * 2),
}


def sentence(error: BaseException) -> str:
    """What went wrong, in at most five lines."""
    if isinstance(error, Refusal):
        text = str(error)
    elif isinstance(error, OSError) and is_of_the_disk(error):
        name = error.filename or "A file"
        text = (
            f"{name} cannot be written: {DISK[error.errno or 0]}.\n"
            "The same command then goes on where it was."
        )
    elif is_of_memory(error):
        text = (
            f"The memory is too small: {(str(error).strip() or 'no message').splitlines()[0]}\n"
            "What was computed is kept. Fewer candidates at once (trainer.candidates_at_once) and fewer "
            "images at once in tests (trainer.eval_batch_size) take less; other programs may hold the rest."
        )
    elif isinstance(error, OSError) and error.filename:
        text = f"{error.filename}: {error.strerror}. Choose another folder with outputs= or cache=."
    else:
        words = (str(error).strip() or "no message").splitlines()
        text = "\n".join([f"{type(error).__name__}: {words[0]}", *words[1:3]])
        text += "\nThis is an error in the program itself. debug.traceback=true shows where; what was "
        text += "computed is kept, and the same command goes on."
    return plain("\n".join(text.splitlines()[:LINES]))


def from_hydra(error: Exception, arguments: Sequence[str] = ()) -> Exception:
    """Hydra's errors, in words that say what was meant by these arguments."""
    words = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        return missing_choice(error)
    if isinstance(error, ConfigCompositionException) and (named := named_by_hydra(words)):
        return wrong_name(named, words, arguments)
    if "before the sweep starts" in words:
        return Refusal(ONE_SWEEPER)
    if isinstance(error, OverrideParseException) and error.override in arguments:
        first, second = WRITTEN.splitlines()
        said = did_you_mean(error.override, arguments) or f"\n{second}"
        return Refusal(f"{error.override!r} cannot be read: {first}{said}")
    if (several := several_values(words)) and several in arguments:
        said = "names several values: that is a sweep, and this is a single run. A sweep needs --multirun."
        return Refusal(f"{several} {said}")
    if isinstance(
        error,
        HydraException | OmegaConfBaseException | ValueError | TypeError | AttributeError | AssertionError,
    ):
        return Refusal(f"The command line cannot be turned into a configuration: {words}\n{ARGUMENTS}")
    return error


def wrong_name(name: str, words: str, arguments: Sequence[str]) -> Refusal:
    """A group or key that is not there, is there already, or is chosen twice: Hydra's words say which."""
    if name in OF_A_CHOICE:
        return Refusal(OF_A_CHOICE[name])
    about = arguments_of(name, arguments)
    if words.startswith("Multiple values") and len(about) > 1:
        return Refusal(f"{' and '.join(about)}: {name} is chosen twice. Leave one out.")
    if f"{name}." in OPEN and about:
        return Refusal(f"{about[0]} has keys that are new. They are added with a plus: '+{about[0]}'")
    if "already at" in words:
        return Refusal(f"{name} has a value already: to change it takes no plus.")
    more = " --cfg job shows all keys."
    if name.startswith(OPEN):
        more += f" A new one is added with a plus: +{name}=..."
    if listed := listed_by(name):
        return Refusal(f"{' '.join(about) or name} is not there.{did_you_mean(name, arguments) or listed}")
    return Refusal(f"{name} is not a key here.{did_you_mean(name, arguments) or more}")


def missing_choice(error: MissingConfigException) -> Refusal:
    group, _, choice = str(error.missing_cfg_file).rpartition("/")
    near, options = nearest(choice, error.options or []), error.options or []
    listed = "" if names_like(choice, options) else listed_by(group)
    return Refusal(f"{group or 'config'}={choice} is not there.{listed or near}")


def refuse_lists(arguments: Sequence[str]) -> None:
    """Refuse several choices of a group of which a run has one: Hydra would take them, one over the other."""
    for argument in arguments:
        key, _, value = argument.partition("=")
        if is_list_of_choices(argument):
            choices = [choice.strip() for choice in value.strip(" []").split(",")]
            sweep = "--multirun " * (len(choices) > 1)
            raise Refusal(
                f"{argument} is a list, and a run has one {key.lstrip('+')}. "
                f"Did you mean {sweep}{key}={','.join(choices)}?"
            )


def is_list_of_choices(argument: str) -> bool:
    """Whether it names several choices of a group of which a run has one.

    >>> [is_list_of_choices(a) for a in ("+experiment=[a,b]", "logger=[csv,wandb]", "backbone.sizes=[1,2]")]
    [True, False, False]
    """
    key, _, value = argument.lstrip("+").partition("=")
    return value.strip().startswith("[") and key in {*GROUPS} - {"logger"}


def listed_by(group: str) -> str:
    """Which command lists the choices of a group, where one does."""
    return next(
        (f" python -m cl_lightning {name} lists what is." for name, of in LISTINGS.items() if of == group), ""
    )


def named_by_hydra(words: str) -> str | None:
    """The name that Hydra's sentence is about.

    >>> named_by_hydra("Could not override 'lr'."), named_by_hydra("Multiple values for learner. To override")
    ('lr', 'learner')
    """
    found = re.match(
        r"Could not override '(.+?)'|Could not delete .*? '(.+?)'|Multiple values for (\S+)\.|"
        r"Could not append to config. An item is already at '(.+?)'",
        words,
    )
    return next(filter(None, found.groups())) if found else None


def several_values(words: str) -> str | None:
    """The argument that Hydra's sentence calls a sweep.

    >>> several_values("Sweep parameters 'seed=range(3)' requires --multirun")
    'seed=range(3)'
    """
    found = re.match(r"(?:Ambiguous value for argument|Sweep parameters) '(.+)'", words)
    return found[1] if found else None


def arguments_of(name: str, arguments: Sequence[str]) -> list[str]:
    """The arguments that are about a key or group."""
    return [a for a in arguments if a.lstrip("+~").partition("=")[0].partition("@")[0] == name]


def did_you_mean(wrong: str, arguments: Sequence[str]) -> str:
    """A question for the argument that was meant by a wrong one, or by the one about a wrong name; empty
    where nothing is near."""
    from cl_lightning.cli.names import meant  # late: --help reads files alone

    argument = wrong if wrong in arguments else next(reversed(arguments_of(wrong, arguments)), "")
    right = meant(argument, [each for each in arguments if each != argument]) if argument else ""
    return f" Did you mean {right}?" if right not in ("", argument) else ""
