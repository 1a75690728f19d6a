"""The rules of continual learning, enforced: while a learner's code runs, it can read only the data that were
lent to it."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from cl_lightning.errors import Refusal, is_of_memory, is_of_the_disk


class ProtocolError(Refusal):
    """A learner looked at what it may not see. Names the learner, the hook it was in, and the remedy."""

    def __init__(self, what: str, remedy: str) -> None:
        inside = _running[-1] if _running else None
        told = f"{inside.name}: {what}" if inside else what[0].upper() + what[1:]
        super().__init__(f"{told}\n{remedy}")


class LearnerError(Refusal):
    """An exception that a learner's own code raised, with the place in its file."""


class running:
    """A guard around every call of a learner's code. Test data and closed tasks raise an error when they are
    read; exceptions carry the learner's name; tensors that were handed over must not have changed. ``once``
    is what ``Learner.once`` does inside."""

    names_learner = True
    __slots__ = ("before", "handed", "learner", "name", "once")

    def __init__(
        self,
        learner: object,
        hook: str,
        handed: Sequence[object] = (),
        once: Callable[..., Any] | None = None,
    ) -> None:
        self.learner, self.name, self.handed, self.once = (
            learner,
            f"{type(learner).__name__}.{hook}",
            handed,
            once,
        )

    def __enter__(self) -> None:
        _running.append(self)
        self.before = versions(self.handed)

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if error is None and versions(self.handed) != self.before:
                raise ProtocolError(
                    "a tensor that was handed to it was changed in place; other candidates and later tests "
                    "use the same.",
                    "Make a new one: x = batch.x + noise, not batch.x.add_(noise). The first layer of a "
                    "network must not work in place.",
                )
            if (
                self.names_learner
                and isinstance(error, Exception)
                and not (isinstance(error, Refusal) or is_of_the_disk(error) or is_of_memory(error))
            ):
                raise LearnerError(describe_error(self.name, error)) from error
        finally:
            _running.pop()


class training(running):
    """A guard around Lightning's loop. Hooks inside have guards of their own; any other exception there is
    not the learner's."""

    __slots__ = ()
    names_learner = False


_running: list[running] = []  # the innermost last


def versions(handed: Sequence[object]) -> list[int]:
    """How often each tensor of examples that was handed over was changed in place, as torch counts it."""
    # Private: torch has no public count of changes in place.
    return [tensor._version for each in handed for tensor in getattr(each, "handed_tensors", ())]


def once() -> Callable[..., Any] | None:
    """What ``Learner.once`` is to do here; None outside of a run."""
    return _running[-1].once if _running else None


def describe_error(name: str, error: Exception) -> str:
    """An exception's words, and the deepest line outside of libraries that it came from."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "site-packages" not in frame.filename and frame.filename != __file__]
    place = own[-1] if own else frames[-1]
    words = (str(error).strip() or "no message").splitlines()
    lines = [
        f"{name} raised {type(error).__name__}: {words[0]}",
        *words[1:2],
        f"at {place.filename}, line {place.lineno}: {place.line}",
    ]
    return "\n".join([*lines, "What was computed is kept. debug.traceback=true shows all calls."])


def not_for_learners(split: str, task: int) -> None:
    """Streams make examples for the data module and the evaluator, not for a learner that found its way to
    one."""
    if _running:
        raise ProtocolError(
            f"the {split} data of task {task} were asked for from the stream.",
            "Use the task that was handed to the hook and choose by task.val; keep what you need of past "
            "tasks in self.memory.",
        )


@dataclass(frozen=True)
class Grants:
    """What an experiment gives to learners that declare the need: ``grants`` in the configuration."""

    task_id_at_test: bool = True
    past_data: bool = True

    def check(self, learner: Any) -> None:
        """Refuse a learner that needs what is not given."""
        for need, words in (
            ("task_id_at_test", "the task's number at test"),
            ("past_data", "the data of past tasks"),
        ):
            if getattr(learner.needs, need) and not getattr(self, need):
                raise Refusal(
                    f"{type(learner).__name__} declares that it needs {words}, which this experiment does "
                    f"not give (grants.{need}=false).\n"
                    f"Choose another learner or backbone, or set grants.{need}=true: the card will say so."
                )
