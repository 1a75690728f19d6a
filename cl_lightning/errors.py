"""What the program says when it will not go on."""

from __future__ import annotations

import difflib
import errno
from collections.abc import Iterable

LINES = 5


class Refusal(Exception):
    """What was asked for cannot work. The message says what was asked, why it cannot work and what to do; no traceback, exit code 2."""


def nearest(name: str, known: Iterable[str]) -> str:
    """
    >>> nearest("finetun", ["finetune", "joint"]), nearest("x", ["finetune", "joint"])
    (' Did you mean finetune?', ' Choose one of finetune, joint.')
    """
    known = list(known)
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.6)
    return f" Did you mean {' or '.join(close)}?" if close else f" Choose one of {', '.join(known)}." if known else ""


DISK = {
    errno.ENOSPC: "the disk is full. Free some space",
    errno.EDQUOT: "your quota is used up. Free some space",
    errno.EROFS: "the file system is read-only. Choose another folder with outputs= or cache=",
    errno.EACCES: "writing there is not permitted. Choose another folder with outputs= or cache=",
    errno.EPERM: "writing there is not permitted. Choose another folder with outputs= or cache=",
    errno.ENOTDIR: "a part of the path is a file. Choose another folder with outputs= or cache=",
    errno.ENAMETOOLONG: "the name is too long. Choose another folder with outputs= or cache=",
}


def is_of_the_disk(error: BaseException) -> bool:
    """Whether the disk would not take what was written, whoever wrote it."""
    return isinstance(error, OSError) and error.errno in DISK


def sentence(error: BaseException) -> str:
    """At most five lines for what went wrong."""
    if isinstance(error, Refusal):
        text = str(error)
    elif isinstance(error, OSError) and is_of_the_disk(error):
        text = f"{error.filename or 'A file'} cannot be written: {DISK[error.errno or 0]}.\nThe same command then goes on where it was."
    elif isinstance(error, OSError) and error.filename:
        text = f"{error.filename}: {error.strerror}. Choose another folder with outputs= or cache=."
    else:
        words = (str(error).strip() or "no message").splitlines()
        text = "\n".join([f"{type(error).__name__}: {words[0]}", *words[1:3]])
        text += "\nThis comes from within. debug.traceback=true shows where; what was computed is kept, and the same command goes on."
    return "\n".join(text.splitlines()[:LINES])
