"""The rules of continual learning, enforced: while a learner's code runs, nothing may be looked at but what it was lent."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from cl_lightning.errors import Refusal

_running: list[tuple[str, str]] = []  # learner and hook, the innermost last


class ProtocolError(Refusal):
    """A learner looked at what it may not see. Names the learner, the hook it was in, and the remedy."""

    def __init__(self, what: str, remedy: str) -> None:
        learner, hook = _running[-1] if _running else ("Code outside of a learner", "")
        super().__init__(f"{learner}{'.' * bool(hook)}{hook}: {what}\n{remedy}")


@contextmanager
def running(learner: object, hook: str) -> Iterator[None]:
    """Inside, code of a learner runs."""
    _running.append((type(learner).__name__, hook))
    try:
        yield
    finally:
        _running.pop()


def not_for_learners(split: str, task: int | None = None) -> None:
    """Streams make examples for the data module and the evaluator, not for a learner that found its way to one."""
    if _running and split == "test":
        raise ProtocolError(
            f"the test data of task {task} were asked for.",
            "Only the evaluator sees test data. Choose by task.val; the evaluator reports.",
        )
    if _running:
        raise ProtocolError(
            "the pool of all images was asked for." if task is None else f"the data of task {task} were asked for from the stream.",
            "Use the task that was handed to the hook; keep what you need of past tasks in self.memory, where it is counted.",
        )


@dataclass(frozen=True)
class Grants:
    """What an experiment gives to learners that declare the need: ``grants`` in the configuration."""

    task_id_at_test: bool = True
    past_data: bool = True

    def check(self, learner: Any) -> None:
        """Refuse a learner that needs what is not given."""
        for need, words in (("task_id_at_test", "the task's number at test"), ("past_data", "the data of past tasks")):
            if getattr(learner.needs, need) and not getattr(self, need):
                raise Refusal(
                    f"{type(learner).__name__} declares that it needs {words}, which this experiment does not give (grants.{need}=false).\n"
                    f"Choose another learner or backbone, or set grants.{need}=true: the card will say so."
                )
