"""What the program says when it will not go on."""

from __future__ import annotations

import errno
import re


def plain(text: str) -> str:
    """A text without control characters, which a terminal would obey: names and results may be anybody's."""
    return re.sub("[\x00-\x08\x0b-\x1f\x7f-\x9f]", "?", text)


class Refusal(Exception):
    """What was asked for cannot work. The message says what was asked, why it cannot work and what to do; no
    traceback, exit code 2."""

    def __str__(self) -> str:
        return plain(super().__str__())


class Diverged(Refusal):
    """All candidates of a task were dropped, because their weights were no numbers any more: a result, and
    not tried again unless that is asked for."""


class InUse(Refusal):
    """Another process holds the run."""


class RoundOver(Exception):
    """A job of ``hydra/sweeper=cl_task_level`` has done its part: what comes next is for other jobs."""


DISK = {
    errno.ENOSPC: "the disk is full. Free some space",
    errno.EDQUOT: "your quota is used up. Free some space",
    errno.EFBIG: "a file may not be as large there. Raise the limit (ulimit -f)",
    errno.EIO: "the disk reports an error. Choose another folder with outputs= or cache=",
    errno.EEXIST: "a file is where a folder belongs. Move it away",
    errno.EISDIR: "a folder is where a file belongs. Move it away",
    errno.EROFS: "the file system is read-only. Choose another folder with outputs= or cache=",
    errno.EACCES: "writing there is not permitted. Choose another folder with outputs= or cache=",
    errno.EPERM: "writing there is not permitted. Choose another folder with outputs= or cache=",
    errno.ENOTDIR: "a part of the path is a file. Choose another folder with outputs= or cache=",
    errno.ENAMETOOLONG: "the name is too long. Choose another folder with outputs= or cache=",
}


NO_MEMORY = ("allocate memory", "out of memory", "STATUS_ALLOC_FAILED")  # words of torch, MPS and cuBLAS


def is_of_memory(error: BaseException) -> bool:
    """Whether an error says that the memory of a device, or of the machine, is used up."""
    of_torch = isinstance(error, RuntimeError) and any(words in str(error) for words in NO_MEMORY)
    return of_torch or isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"


def is_of_the_disk(error: BaseException) -> bool:
    """Whether an error is the disk's: it is full or cannot be written to."""
    return isinstance(error, OSError) and error.errno in DISK
