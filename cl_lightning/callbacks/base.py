"""Lightning callbacks that also hear of tasks."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytorch_lightning as pl

from cl_lightning.config.suggestions import nearest
from cl_lightning.errors import Refusal
from cl_lightning.protocol import log, running

if TYPE_CHECKING:
    from cl_lightning.data.task import Task
    from cl_lightning.learners.base import Learner


class StreamCallback(pl.Callback):
    """A Lightning callback with hooks for tasks. Batch hooks go by blocks of mini-batches;
    ``learner.phase_run.step`` counts them one by one."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        known = [hook for base in cls.__bases__ for hook in dir(base)]
        for name in vars(cls):
            if name.startswith("on_") and name not in known:
                raise Refusal(f"{cls.__name__}.{name} would never run: it is no hook.{nearest(name, known)}")

    def on_stream_start(self, name: str, tasks: int, learned: int) -> None:
        """Called before the first task of this start; ``learned`` tasks were learned in earlier ones."""

    def on_task_start(self, learner: Learner, task: Task) -> None: ...

    def on_task_end(self, learner: Learner, task: Task) -> None: ...

    def on_probe(self, learner: Learner, task: Task, step: int, accuracies: list[float | None]) -> None:
        """Called after a measurement on test data in the middle of a task (``trainer.probe_every``):
        ``learner`` is a copy, as it was then."""

    def on_evaluated(self, learner: Learner, learned: int, accuracies: list[float | None]) -> None:
        """Called after a row of the accuracy matrix: test accuracy on every task, None where it cannot
        predict."""

    def on_stream_end(self) -> None: ...

    def log(self, name: str, value: Any) -> None:
        """As a learner's ``log``: a number for all loggers and results.json, from any hook above but
        ``on_stream_end``, and from Lightning's."""
        log(name, value)


HOOKS = [name for name in dir(StreamCallback) if name.startswith("on_") or name in ("setup", "teardown")]


def guarded(callback: pl.Callback) -> pl.Callback:
    """The callback, each of its hooks held to the rules that learners are held to; its mistakes are told with
    its name."""
    for name in HOOKS:
        hook = getattr(callback, name, None)
        if hook is not None and getattr(type(callback), name) is not getattr(pl.Callback, name, None):
            setattr(callback, name, partial(call, callback, name, hook))
    return callback


def call(callback: pl.Callback, name: str, hook: Any, *arguments: Any, **named: Any) -> Any:
    with running(callback, name, arguments):
        return hook(*arguments, **named)
