"""SIGTERM has one owner. While a phase is trained it waits for the end of the block, so that the phase can be saved."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

EXIT_CODE = 128 + 15
_state = {"requested": False, "deferred": False}


def claim() -> None:
    """Handle SIGTERM here, whoever handled it before."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _handle)


@contextmanager
def handled() -> Iterator[None]:
    """Own SIGTERM inside; give it back outside."""
    before: Any = signal.getsignal(signal.SIGTERM)
    _state.update(requested=False, deferred=False)
    claim()
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


@contextmanager
def deferred() -> Iterator[None]:
    """Inside, only ``exit_if_requested`` ends the program."""
    _state["deferred"] = True
    try:
        yield
    finally:
        _state["deferred"] = False
        exit_if_requested()


def requested() -> bool:
    return _state["requested"]


def exit_if_requested() -> None:
    if _state["requested"]:
        raise SystemExit(EXIT_CODE)


def _handle(number: int, frame: FrameType | None) -> None:
    _state["requested"] = True
    if not _state["deferred"]:
        raise SystemExit(EXIT_CODE)
