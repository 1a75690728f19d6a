"""Texts that the program prints, in files beside the tests (``tests/golden``).

A change of what is printed is renewed, and then read, with

    CL_LIGHTNING_RENEW=1 pytest -n 0 tests/test_terminal.py && git diff tests/golden
"""

from __future__ import annotations

import io
import os
from pathlib import Path

from rich.console import Console

FOLDER = Path(__file__).parent / "golden"
WIDTHS = (80, 120)


def new_console(width: int, terminal: bool = False) -> Console:
    """A console of this width that writes into memory, whatever the terminal, the locale and the variables of
    whoever runs the tests."""
    return Console(
        file=io.StringIO(), width=width, height=40, force_terminal=terminal, color_system=None, _environ={}
    )


def printed(console: Console) -> str:
    return console.file.getvalue()  # type: ignore[attr-defined]


def assert_golden(text: str, name: str, width: int) -> None:
    """The text is that of its file, and no line of it is wider than the terminal; lines that are meant to be
    copied, which begin with a word and a colon, may be."""
    lines = [line.rstrip() for line in text.splitlines()]
    assert not [line for line in lines if len(line) > width and line[:1] in "┏┃┡│├└"]
    path = FOLDER / f"{name}-{width}.txt"
    text = "\n".join(lines) + "\n"
    if os.environ.get("CL_LIGHTNING_RENEW"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")
