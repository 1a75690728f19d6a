"""SIGTERM and Ctrl-C have one owner. While a phase is trained they wait for the end of the block, so that the
phase can be saved."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGTERM, signal.SIGINT)
EXIT_CODES = tuple(128 + number for number in SIGNALS)
_state: dict[str, Any] = {"requested": None, "deferred": False}


def claim() -> None:
    """Handle both signals here, whoever handled them before."""
    if threading.current_thread() is threading.main_thread():
        for number in SIGNALS:
            signal.signal(number, _handle)


@contextmanager
def handled() -> Iterator[None]:
    """Own both signals inside; give them back outside."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    _state.update(requested=None, deferred=False)
    claim()
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            for number, handler in before.items():
                signal.signal(number, handler)


@contextmanager
def deferred() -> Iterator[None]:
    """Inside, only ``exit_if_requested`` ends the program; a second Ctrl-C does not wait."""
    _state["deferred"] = True
    try:
        yield
    finally:
        _state["deferred"] = False
    exit_if_requested()


def requested() -> bool:
    return _state["requested"] is not None


def is_interruption(error: BaseException) -> bool:
    """Whether an exception ends the program because a signal asked for it."""
    return isinstance(error, KeyboardInterrupt) or (
        isinstance(error, SystemExit) and error.code in EXIT_CODES
    )


def withdraw() -> None:
    """Take back a request to end: what ends the program says so itself."""
    _state["requested"] = None


def exit_if_requested() -> None:
    """End the program if a signal came, also one whose exception was swallowed (Python does so in
    destructors)."""
    if requested():
        raise SystemExit(128 + _state["requested"])


def _handle(number: int, frame: FrameType | None) -> None:
    again = requested() and number == signal.SIGINT
    _state["requested"] = number
    if not _state["deferred"] or again:
        raise SystemExit(128 + number)
