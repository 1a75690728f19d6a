"""Named points at which a test may have the program killed: ``debug.fault=block:3`` is the third block."""

from __future__ import annotations

import os
import signal

from cl_lightning.errors import Refusal

POINTS = ("block", "score", "checkpoint.write", "journal.append", "adopt", "task_end", "evaluate", "results.write")
_left: dict[str, int] = {}


def arm(fault: str | None) -> None:
    """Prepare to die at the n-th time that a point is reached; None disarms."""
    _left.clear()
    if fault:
        point, _, count = str(fault).partition(":")
        if point not in POINTS or not (count or "1").isdigit():
            raise Refusal(
                f"debug.fault={fault} is not a point and a count. Points are {', '.join(POINTS)}; for example debug.fault=block:3."
            )
        _left[point] = int(count or 1)


def reached(point: str) -> None:
    """SIGKILL, if this is the time and the place: nothing can be tidied up."""
    if point in _left:
        _left[point] -= 1
        if _left[point] == 0:
            os.kill(os.getpid(), getattr(signal, "SIGKILL", signal.SIGTERM))
