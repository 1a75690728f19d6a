"""Lightning callbacks that also hear of tasks."""

from __future__ import annotations

from collections.abc import Sequence
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
            if name.startswith(("on_validation_", "on_test_", "on_predict_", "on_sanity_check_")):
                raise Refusal(
                    f"{cls.__name__}.{name} would never run: Lightning's own validation and tests do not. "
                    "Use on_evaluated or on_probe."
                )

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
    before = what_is_not_its_own(arguments)
    with running(callback, name, arguments):
        value = hook(*arguments, **named)
    if what_is_not_its_own(arguments) != before:
        raise Refusal(
            f"{type(callback).__name__}.{name} changed weights, learning rates or where training ends. "
            "Callbacks look on.\nWrite to weights in hooks of a learner (after_step, on_task_end); rates "
            "are in hparams or in trainer.schedule, and trainer.patience or max_steps end a phase."
        )
    return value


def what_is_not_its_own(arguments: Sequence[Any]) -> list:
    """What a callback is not to change of what it is handed: weights (their versions), rates, the end."""
    found: list = []
    for each in arguments:
        if isinstance(each, pl.LightningModule):
            in_training = getattr(getattr(each, "phase_run", None), "parameters", ())
            found += [p._version for p in (*each.parameters(), *in_training)]  # private: counts writes
        elif isinstance(each, pl.Trainer):
            rates = [group["lr"] for optimizer in each.optimizers for group in optimizer.param_groups]
            found += [each.should_stop, *rates]
    return found
