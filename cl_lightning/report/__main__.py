"""``python -m cl_lightning.report``."""

from cl_lightning.cli.ending import exit_with
from cl_lightning.cli.report import main

if __name__ == "__main__":
    exit_with(main)
