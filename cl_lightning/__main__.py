"""``python -m cl_lightning``."""

import sys

from cl_lightning.command import main

if __name__ == "__main__":
    sys.exit(main())
