"""Named points at which a test may end the program: ``debug.fault=block:3`` kills it in the third block, ``block:3:term`` asks it to."""

from __future__ import annotations

import os
import signal

from cl_lightning.errors import Refusal

POINTS = ("block", "score", "checkpoint.write", "journal.append", "adopt", "task_end", "evaluate", "results.write")
SIGNALS = {"kill": getattr(signal, "SIGKILL", signal.SIGTERM), "term": signal.SIGTERM}
_left: dict[str, int] = {}
_signal = signal.SIGTERM


def arm(fault: str | None) -> None:
    """Prepare to die at the n-th time that a point is reached; None disarms."""
    global _signal
    _left.clear()
    if fault:
        given = str(fault).split(":")
        point, count, name, *more = [*given, *("", "1", "kill")[len(given) :]]
        if point not in POINTS or not count.isdigit() or name not in SIGNALS or more:
            raise Refusal(
                f"debug.fault={fault} is not a point, a count, and kill or term. Points are {', '.join(POINTS)}; for example "
                "debug.fault=block:3 or debug.fault=block:3:term."
            )
        _left[point], _signal = int(count), SIGNALS[name]


def reached(point: str) -> None:
    """SIGKILL, after which nothing can be tidied up, or SIGTERM, if this is the time and the place."""
    if point in _left:
        _left[point] -= 1
        if _left[point] == 0:
            os.kill(os.getpid(), _signal)
