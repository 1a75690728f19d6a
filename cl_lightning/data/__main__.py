"""``python -m cl_lightning.data``."""

import sys

from cl_lightning.cli.data import main

if __name__ == "__main__":
    sys.exit(main())
