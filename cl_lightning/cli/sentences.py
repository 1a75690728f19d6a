"""What the program says when something went wrong: at most five lines."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from hydra.errors import (
    ConfigCompositionException,
    HydraException,
    MissingConfigException,
    OverrideParseException,
)
from omegaconf.errors import OmegaConfBaseException

from cl_lightning.cli.help import LISTINGS
from cl_lightning.errors import DISK, Refusal, UnknownKey, is_of_memory, is_of_the_disk, nearest

LINES = 5
OUTER = (
    "{} is for selection=stream_level, which is a sweep of its own, without --multirun and without another "
    "selection beside it. Say selection=stream_level, or leave {} out."
)
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
        text += (
            "\nThis is an error in the program itself. debug.traceback=true shows where; what was computed "
            "is "
            "kept, and the same command goes on."
        )
    return "\n".join(text.splitlines()[:LINES])


def from_hydra(error: Exception, arguments: Sequence[str] = ()) -> Exception:
    """Hydra's errors, and keys that nothing reads, in words that say what was meant by these arguments."""
    words = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    if isinstance(error, UnknownKey):
        wrong = argument_of(error.path, arguments)
        said = f"{error.path} is not a key here."
        return did_you_mean(said, wrong, arguments, otherwise=error) if wrong else error
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        return missing_choice(error, arguments)
    if isinstance(error, ConfigCompositionException) and (named := named_by_hydra(words[0])):
        if named in OF_A_CHOICE:
            return Refusal(OF_A_CHOICE[named])
        wrong = argument_of(named, arguments) or named
        said = f"{named} is not a key here."
        more = Refusal(
            f"{wrong} is not there.{listed_by(named)}"
            if listed_by(named)
            else f"{said} --cfg job shows all keys; a new one is added with a plus: +{named}=..."
        )
        return did_you_mean(said, wrong, arguments, otherwise=more)
    if isinstance(error, OverrideParseException) and error.override in arguments:
        said = f"{error.override!r} cannot be read: arguments are group=choice or key=value; see --help."
        return did_you_mean(said, error.override, arguments, otherwise=Refusal(f"{said}\n{words[0]}"))
    if (
        words[0].startswith("Ambiguous value for argument")
        and (several := words[0].split("'")[1]) in arguments
    ):
        command = shlex.join(["--multirun", *arguments])
        return Refusal(
            f"{several} names several values: that is a sweep, and this is a single run. Did you mean "
            f"--multirun?\n  python -m cl_lightning {command}"
        )
    if isinstance(
        error,
        HydraException | OmegaConfBaseException | ValueError | TypeError | AttributeError | AssertionError,
    ):
        return Refusal(
            f"The command line cannot be turned into a configuration: {words[0]}\n"
            "Arguments are group=choice or key=value; see --help."
        )
    return error


def missing_choice(error: MissingConfigException, arguments: Sequence[str]) -> Refusal:
    group, _, choice = str(error.missing_cfg_file).rpartition("/")
    said = f"{group or 'config'}={choice} is not there."
    choices = nearest(choice, error.options or [])
    more = Refusal(f"{said}{listed_by(group) or choices}")
    wrong = argument_of(group, arguments)
    return did_you_mean(said, wrong, arguments, more, choice) if wrong else Refusal(f"{said}{choices}")


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
        r"Could not override '(.+?)'|Could not delete .*? '(.+?)'|Multiple values for (\S+)\.", words
    )
    return next(filter(None, found.groups())) if found else None


def argument_of(name: str, arguments: Sequence[str]) -> str | None:
    """The argument that is about a key or group."""
    return next((a for a in arguments if a.lstrip("+~").partition("=")[0].partition("@")[0] == name), None)


def did_you_mean(
    said: str, wrong: str, arguments: Sequence[str], otherwise: Refusal, choice: str | None = None
) -> Refusal:
    """The one thing that was meant, and the whole command with it. ``choice``: the wrong one of several, of a
    list or of those that a sweep goes through."""
    from cl_lightning.cli.names import meant  # late: --help reads files alone

    key, _, value = wrong.partition("=")
    single = f"{key}={choice}" if choice else wrong
    right = meant(single, [argument for argument in arguments if argument != wrong])
    if not right:
        return otherwise
    if "=" not in wrong:  # the key alone was wrong, and is all that is known
        right = [*right[:-1], right[-1].removesuffix("=")]
    if choice:
        named, _, instead = right[-1].partition("=")
        parts = [instead if part == choice else part for part in re.split(r"([,\[\] ]+)", value)]
        right = [*right[:-1], f"{named}={''.join(parts)}"]
    whole = [part for argument in arguments for part in (right if argument == wrong else [argument])]
    command = f"\n  python -m cl_lightning {shlex.join(whole)}" if wrong in arguments else ""
    return Refusal(f"{said} Did you mean {' '.join(right)}?{command}")
