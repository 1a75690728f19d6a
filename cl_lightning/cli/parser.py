"""Command lines that are not Hydra's: of reports and of data."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import NoReturn

from cl_lightning.config.suggestions import names_like
from cl_lightning.errors import Refusal
from cl_lightning.report.formats import FORMATS


class Parser(argparse.ArgumentParser):
    """A parser of arguments whose errors are sentences."""

    def error(self, message: str) -> NoReturn:
        raise Refusal(f"The command line cannot be read: {message}\nSee {self.prog} --help.")

    def add_formats(self) -> None:
        """``--markdown`` and so on: ``options.form`` names a format of ``report/formats.py``, or is None."""
        one = self.add_mutually_exclusive_group()
        for name in FORMATS:
            what = f"print the table as {name}{' (for booktabs)' * (name == 'latex')}"
            one.add_argument(f"--{name}", dest="form", action="store_const", const=name, help=what)

    def add_folders(self, what: str, *commands: str, needed: bool = False) -> None:
        """The folders of a command, each of which is there. One that is not may be meant for a word."""

        def folder(text: str) -> Path:
            if Path(text).is_dir():
                return Path(text)
            meant = f" Did you mean {near[0]}?" if (near := names_like(text, commands)) else ""
            raise Refusal(f"There is no folder {text}.{meant or f' See {self.prog} --help.'}")

        if needed:
            self.add_argument("folders", nargs="+", type=folder, help=what)
        else:
            help_ = f"{what} (default: outputs)"
            self.add_argument("folders", nargs="*", type=folder, default=[Path("outputs")], help=help_)


def parser_of_runs(command: str, what: str, needed: bool = False) -> Parser:
    """The parser of a command of reports that looks for runs in folders."""
    parser = Parser(prog=f"python -m cl_lightning.report {command}", description=what)
    parser.add_folders("folders to look for runs in", needed=needed)
    return parser
