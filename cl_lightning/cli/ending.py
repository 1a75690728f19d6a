"""The end of a program: its exit code, also where its output cannot be written."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import NoReturn


def exit_with(command: Callable[[], int]) -> NoReturn:
    """Run a command, and leave with its exit code: 0 where nobody reads its output to the end (``| head``), 2
    with a sentence where that cannot be written."""
    try:
        try:
            code = command()
        finally:
            sys.stdout.flush()
    except OSError as error:
        from cl_lightning.cli.sentences import sentence  # late: what it imports takes long
        from cl_lightning.report.layout import throw_output_away

        throw_output_away()  # Python would try to write it again
        if isinstance(error, BrokenPipeError):
            sys.exit(0)
        print(sentence(error), file=sys.stderr)
        sys.exit(2)
    sys.exit(code)
