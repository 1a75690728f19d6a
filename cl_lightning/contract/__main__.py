"""``python -m cl_lightning.contract``."""

from cl_lightning.cli.ending import exit_with
from cl_lightning.contract.command import main

if __name__ == "__main__":
    exit_with(main)
