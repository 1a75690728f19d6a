"""``python -m cl_lightning``."""

from typing import NoReturn

import cl_lightning.termination as termination
from cl_lightning.cli.ending import exit_with


def main() -> NoReturn:
    """The program, which handles SIGTERM and Ctrl-C before it imports anything that takes long."""
    termination.claim()
    from cl_lightning.cli.command import main as command

    exit_with(command)


if __name__ == "__main__":
    main()
