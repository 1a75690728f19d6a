"""``python -m cl_lightning.data``."""

from cl_lightning.cli.data import main
from cl_lightning.cli.ending import exit_with

if __name__ == "__main__":
    exit_with(main)
