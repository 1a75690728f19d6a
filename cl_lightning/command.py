"""The command line: Hydra's, with errors that are sentences."""

from __future__ import annotations

import argparse
import os
import sys
import traceback
import warnings
from collections.abc import Sequence
from typing import NoReturn
from unittest.mock import patch

import hydra
from hydra.errors import ConfigCompositionException, HydraException, MissingConfigException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from cl_lightning import termination
from cl_lightning.errors import Refusal, nearest, sentence
from cl_lightning.runs import conf_dir, in_a_sweep
from cl_lightning.sweeps import Job, failures, own_command, told


@hydra.main(version_base="1.3", config_path=conf_dir(), config_name="config")
def run_config(cfg: DictConfig) -> float | None:
    """A job of Hydra's."""
    try:
        from cl_lightning.experiment import run

        return run(cfg, own_command())
    except Exception as error:
        if OmegaConf.select(cfg, "debug.traceback") is True:
            traceback.print_exc()
        said = sentence(explained(error) if isinstance(error, OmegaConfBaseException) else error)
        print(said, file=sys.stderr)
        if in_a_sweep():
            raise Refusal(said) from None
        raise SystemExit(2) from None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line; returns the exit code."""
    if arguments is None:
        warnings.showwarning = lambda message, *_, **__: print(f"Warning: {message}", file=sys.stderr)
        arguments = sys.argv[1:]
    arguments = sorted(arguments, key=lambda argument: argument not in ("-m", "--multirun"))  # argparse wants it before all others
    if {"--help", "-h"} & set(arguments):
        from cl_lightning.report.help import help_page

        print(help_page(arguments))
        return 0
    hydras = (
        patch.object(sys, "argv", [sys.argv[0], *arguments]),
        patch.dict(os.environ, HYDRA_FULL_ERROR="1"),
        patch.object(argparse.ArgumentParser, "error", refuse),
    )
    with hydras[0], hydras[1], hydras[2], termination.handled(), told() as jobs:
        code = ended(jobs, "debug.traceback=true" in arguments)
    for line in failures(jobs):
        print(line, file=sys.stderr)
    return code or 2 * any(job.failure for job in jobs)


def ended(jobs: Sequence[Job], with_traceback: bool) -> int:
    """The exit code of Hydra's part, which tells of its jobs."""
    try:
        run_config()
    except KeyboardInterrupt:
        print("Interrupted. The same command goes on where it was.", file=sys.stderr)
        return 130
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0 if end.code is None else 2
    except Exception as error:
        if with_traceback:
            traceback.print_exc()
        print(sentence(error if jobs else explained(error)), file=sys.stderr)  # no job: Hydra could not make a configuration
        return 2
    return 0


def refuse(parser: argparse.ArgumentParser, message: str) -> NoReturn:
    """In place of argparse's page of usage."""
    raise Refusal(f"The command line cannot be read: {message}\nArguments are group=choice or key=value; see --help.")


def explained(error: Exception) -> Exception:
    """Hydra's errors in words that say what to do."""
    from cl_lightning.config import compose_config, key_paths

    words = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        group, _, choice = error.missing_cfg_file.rpartition("/")
        return Refusal(f"{group or 'config'}={choice} is not there.{nearest(choice, error.options or [])}")
    if isinstance(error, ConfigCompositionException) and words[0].startswith("Could not override"):
        key, known = words[0].split("'")[1], key_paths(OmegaConf.to_container(compose_config()))
        if key in known:
            return Refusal(f"{key} has no such key inside. Add it with a plus, as in +stream.held_out.mnist=10.")
        return Refusal(f"{key} is not a key.{nearest(key, known)}\nSee them all with --cfg job; a new one is added with +{key}=...")
    if isinstance(error, HydraException | OmegaConfBaseException | ValueError | TypeError | AttributeError | AssertionError):
        return Refusal(f"The command line makes no configuration: {words[0]}\nArguments are group=choice or key=value; see --help.")
    return error
