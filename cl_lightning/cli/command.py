"""The command line: Hydra's, with errors that are sentences."""

from __future__ import annotations

import argparse
import os
import sys
import traceback
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

import cl_lightning.termination as termination
from cl_lightning.cli.help import LISTINGS, PLACE, help_page, listing, listing_as_json, user_folders
from cl_lightning.cli.names import first_of_a_sweep
from cl_lightning.cli.sentences import ARGUMENTS, did_you_mean, from_hydra, refuse_lists, sentence
from cl_lightning.config.resolvers import BEFORE_1_4, RULES, conf_dir
from cl_lightning.config.version import VERSION
from cl_lightning.errors import Refusal, plain
from cl_lightning.report.layout import new_console
from cl_lightning.selection.sweep import SUBMIT, as_override, in_a_sweep, tell_job

if TYPE_CHECKING:
    from cl_lightning.cli.jobs import Job

OF_SUBMIT = ("--submit", "--multirun", "-m")
PARSE = "parse_args" if BEFORE_1_4 else "parse_intermixed_args"  # what Hydra calls of argparse


@hydra.main(config_path=conf_dir(), config_name="config", **RULES)
def run_config(cfg: DictConfig) -> float | None:
    """A job of Hydra's."""
    try:
        from cl_lightning.cli.jobs import own_command
        from cl_lightning.parallel.starter import run

        value = run(cfg, own_command())
        tell_job(done=True, value=value)
        return value
    except Exception as error:
        termination.exit_if_requested()  # what was interrupted may fail in any way
        if OmegaConf.select(cfg, "debug.traceback") is True:
            traceback.print_exc()
        typed = [] if in_a_sweep() else sys.argv[1:]
        message = sentence(from_hydra(error, typed) if isinstance(error, OmegaConfBaseException) else error)
        if in_a_sweep():
            tell_job(failed=message)
            raise Refusal(message) from None
        print(message, file=sys.stderr)
        raise SystemExit(2) from None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line; returns the exit code."""
    if arguments is None:
        warnings.showwarning = lambda message, *_, **__: print(plain(f"Warning: {message}"), file=sys.stderr)
        arguments = sys.argv[1:]
    try:
        if "--submit" in arguments:  # also of a single run, which is then a sweep of one
            arguments = ["--multirun", SUBMIT, *(word for word in arguments if word not in OF_SUBMIT)]
        user_folders(arguments)  # refuses one that is not there
        refuse_lists(arguments)
        said = told(arguments)
    except Refusal as refusal:
        print(sentence(refusal), file=sys.stderr)
        return 2
    if said:
        print(said)
        return 0
    from unittest.mock import patch  # late, as the next: help is read from files alone

    from cl_lightning.cli.jobs import failures, new_sweep

    os.environ["HYDRA_FULL_ERROR"] = "1"  # else Hydra tells of errors in its own words
    jobs, parser, before = new_sweep(), argparse.ArgumentParser, HydraConfig.instance().cfg
    try:
        with (
            patch.object(sys, "argv", [sys.argv[0], *arguments]),
            patch.object(parser, "error", refuse),
            patch.object(parser, PARSE, parse),
            termination.handled(),
        ):
            code = ended(jobs, "debug.traceback=true" in arguments)
    finally:  # what comes next here is no job of Hydra's; a launcher may have made another instance
        HydraConfig.instance().cfg = before
    for line in failures(jobs):
        print(line, file=sys.stderr)
    return code or 2 * any(job.failure for job in jobs)


def told(arguments: Sequence[str]) -> str | None:
    """What is asked for about the program itself, without Hydra: help, listings, version."""
    width = new_console().width
    if {"--help", "-h"} & set(arguments):
        return help_page(arguments, width)
    if "--version" in arguments:
        return f"cl_lightning {VERSION}"
    for name, before in zip(arguments, ["", *arguments]):
        if name in LISTINGS and before not in PLACE:
            return (
                listing_as_json(name, arguments) if "--json" in arguments else listing(name, arguments, width)
            )
    return None


def ended(jobs: Sequence[Job], with_traceback: bool) -> int:
    """The exit code of Hydra's part, with a message where it was interrupted."""
    from cl_lightning.cli.jobs import begun

    broken_off = False
    try:
        return exit_code(jobs, with_traceback)
    except SystemExit as end:
        if broken_off := end.code in termination.EXIT_CODES:
            goes_on = "" if begun else " The same command goes on where it was."  # a sweep says more
            print(f"Interrupted.{goes_on}", file=sys.stderr)
        return end.code if isinstance(end.code, int) else 0 if end.code is None else 2
    finally:
        if begun:
            from cl_lightning.cli.sweeps import tell_state

            tell_state(*begun.pop(), broken_off)


def exit_code(jobs: Sequence[Job], with_traceback: bool) -> int:
    try:
        run_config()
    except Exception as error:
        termination.exit_if_requested()
        if with_traceback:
            traceback.print_exc()
        said = error if jobs else from_hydra(error, sys.argv[1:])  # no job: Hydra made no configuration
        print(sentence(said), file=sys.stderr)
        return 2
    return 0


def parse(parser: argparse.ArgumentParser, *arguments: Any, **options: Any) -> Any:
    """Options by their whole names alone, also between arguments: ``--experiment`` would be Hydra's
    ``--experimental-rerun``."""
    parser.allow_abbrev = False
    parsed, unknown = parser.parse_known_intermixed_args(*arguments, **options)
    if unknown:
        parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    parsed.overrides = [with_its_group(one, parsed.overrides) for one in parsed.overrides]
    if not (BEFORE_1_4 or any(one.startswith("hydra.mode=") for one in parsed.overrides)):
        parsed.overrides.append(f"hydra.mode={mode_of_command(parsed)}")
    return parsed


def mode_of_command(parsed: argparse.Namespace) -> str:
    """MULTIRUN where the command, or a file that it chooses, asks for a sweep. Hydra 1.3 finds that out by
    itself; 1.4 wants it said."""
    if parsed.multirun:
        return "MULTIRUN"
    from cl_lightning.config.compose import compose_config  # late: help is read from files alone

    plain_values = [one for one in parsed.overrides if first_of_a_sweep(one) == one]
    folders = [f"file://{Path(parsed.config_dir).resolve()}"] if parsed.config_dir else []
    for one in plain_values:
        if one.startswith("hydra.searchpath="):
            folders += map(str, OverridesParser.create().parse_override(one).value())  # type: ignore[arg-type]
    searched = [f"hydra.searchpath={as_override(folders)}"] if folders else []
    try:
        mode = compose_config(*plain_values, *searched, with_hydra=True).hydra.mode
    except Exception:  # Hydra says why
        return "RUN"
    return mode.name if mode else "RUN"


def with_its_group(argument: str, others: Sequence[str]) -> str:
    """A key of a choice that a sweep varies, as a sweep of one value: Hydra sets plain values before it knows
    the choice.

    >>> with_its_group("learner.memories=5", ["learner=gem,agem", "learner.memories=5"])
    'learner.memories=choice(5)'
    """
    key, _, value = argument.partition("=")
    group, dot, _ = key.partition(".")
    varied = dot and any(one.startswith(f"{group}=") and first_of_a_sweep(one) != one for one in others)
    plain_value = first_of_a_sweep(argument) == argument
    return f"{key}=choice({value})" if varied and plain_value else argument


def refuse(parser: argparse.ArgumentParser, message: str) -> NoReturn:
    """Raise a sentence in place of argparse's page of usage."""
    _, _, wrong = message.partition("unrecognized arguments: ")
    near = did_you_mean(wrong.split()[0], sys.argv[1:]) if wrong else ""
    said = f"The command line cannot be read: {message}"
    raise Refusal(f"{said}.{near}" if near else f"{said}\n{ARGUMENTS}")
