"""Ends a program at the n-th time that it comes to a point: as a kill would, or as a request to end."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytorch_lightning as pl

from cl_lightning.engine import phases, scoring
from cl_lightning.engine.phases import Phases
from cl_lightning.evaluation.evaluator import Evaluator
from cl_lightning.report import results
from cl_lightning.runs import loop
from cl_lightning.store import atomic as whole
from cl_lightning.store import files

# Where it ends: before (False) or after (True) a call.
POINTS: dict[str, tuple[Any, str, bool]] = {
    "block": (phases, "train_block", False),
    "score": (scoring, "score", False),
    "tensors written": (files, "write_tensors", True),  # and not renamed yet
    "before a record": (files, "checksum", False),
    "after a rename": (whole, "sync_folder", False),
    "record written": (files.Store, "save", True),
    "phase done": (Phases, "recall_or_train", True),
    "task end": (loop, "card_facts", False),
    "test": (Evaluator, "measure", False),
    "results": (results, "text_of", True),
}


def dying(fault: str, function: Callable[[], object]) -> object:
    """Call a function that is ended at a point: ``block:3`` kills it in the third block, ``block:3:term``
    asks it to end."""
    point, count, *how = fault.split(":")
    owner, name, after = POINTS[point]
    number = (
        {"term": signal.SIGTERM, "int": signal.SIGINT}.get(*how, signal.SIGKILL) if how else signal.SIGKILL
    )
    original, left = getattr(owner, name), [int(count)]

    def counted(*arguments: Any, **options: Any) -> Any:
        found = original(*arguments, **options) if after else None
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), number)
        return found if after else original(*arguments, **options)

    with patch.object(owner, name, counted):
        return function()


class DiesOnce(pl.Callback):
    """Kills the process of a run with this rate, if no other was killed before."""

    def __init__(self, where: str, lr: float, at: float) -> None:
        if lr == at and not Path(where).exists():
            Path(where).touch()
            os.kill(os.getpid(), signal.SIGKILL)


def forked(function: Callable[[], object]) -> BaseProcess:
    """A process that starts where this one is, with all that it has imported."""
    child = multiprocessing.get_context("fork").Process(target=function)
    child.start()
    return child


def in_a_child(function: Callable[[], object]) -> int:
    """Exit code of a process that starts where this one is: negative where a signal ended it."""
    child = forked(function)
    child.join(600)
    assert child.exitcode is not None, "still running"
    return child.exitcode


def killed(fault: str, function: Callable[[], object]) -> None:
    """A child that was killed where it was to be."""
    assert in_a_child(lambda: dying(fault, function)) == -signal.SIGKILL, "the point was not reached"
