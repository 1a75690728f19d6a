"""``python -m cl_lightning.report``."""

import sys

from cl_lightning.cli.report import main

if __name__ == "__main__":
    sys.exit(main())
