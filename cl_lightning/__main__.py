"""``python -m cl_lightning``."""

import sys

from cl_lightning import termination


def main() -> int:
    """The program, which handles SIGTERM and Ctrl-C before it imports anything that takes long."""
    termination.claim()
    from cl_lightning.cli.command import main as command

    return command()


if __name__ == "__main__":
    sys.exit(main())
