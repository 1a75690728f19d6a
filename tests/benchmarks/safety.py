"""The default run, with a clock on everything that is there for safety. Takes the program's own arguments."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import wraps
from typing import Any

import torch  # noqa: F401  # its import is not the run's doing

from cl_lightning.cli.command import main
from cl_lightning.data import copies
from cl_lightning.data.lease import Lease
from cl_lightning.engine import restartable as kept
from cl_lightning.store.files import Store

spent = 0.0
open_clocks = 0


def clocked(function: Callable) -> Callable:
    @wraps(function)
    def inside(*arguments: Any, **options: Any) -> Any:
        global spent, open_clocks
        open_clocks += 1
        began = time.perf_counter()
        try:
            return function(*arguments, **options)
        finally:
            open_clocks -= 1
            if not open_clocks:  # the outermost alone
                spent += time.perf_counter() - began

    return inside


if __name__ == "__main__":
    for cls, names in (
        (Store, ("save", "save_tensors", "load", "saved", "tensors", "drop")),
        (Lease, ("lend", "end")),
    ):
        for name in names:
            setattr(cls, name, clocked(getattr(cls, name)))
    copies.copies_in, kept.check_kept = clocked(copies.copies_in), clocked(kept.check_kept)
    began = time.perf_counter()
    code = main(sys.argv[1:])
    print(f"share {spent / (time.perf_counter() - began):.5f}")
    sys.exit(code)
