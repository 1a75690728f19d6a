"""The rules of continual learning, enforced: while a learner's code runs, it can read only the data that were
lent to it."""

from __future__ import annotations

import copy
import inspect
import linecache
import os
import random
import sysconfig
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from operator import is_
from types import FunctionType, TracebackType
from typing import Any

from cl_lightning.errors import Refusal, is_of_memory, is_of_the_disk


class ProtocolError(Refusal):
    """A learner looked at what it may not see. Names the learner, the hook it was in, and the remedy."""

    def __init__(self, what: str, remedy: str) -> None:
        inside = _running[-1] if _running else None
        told = f"{inside.name}: {what}" if inside else what[0].upper() + what[1:]
        super().__init__(f"{told}\n{remedy}")


class LearnerError(Refusal):
    """A mistake in a learner's own code, with the place in its file."""


class running:
    """A guard around every call of a learner's code. Test data and closed tasks raise an error when they are
    read; exceptions carry the names of class and hook; tensors that were handed over must be as they were.

    ``learner`` may also be what makes one; ``function`` is what is called in the hook's place; ``once`` is
    what ``Learner.once`` does inside.
    """

    names_learner = True
    __slots__ = ("before", "function", "handed", "hook", "learner", "once", "tensors")

    def __init__(
        self,
        learner: object,
        hook: str,
        handed: Sequence[object] = (),
        once: Callable[..., Any] | None = None,
        function: Callable[..., Any] | None = None,
    ) -> None:
        self.learner, self.hook, self.handed, self.once, self.function = learner, hook, handed, once, function

    @property
    def cls(self) -> Any:
        made_by = self.learner
        while isinstance(made_by, partial):
            made_by = made_by.func
        return made_by if isinstance(made_by, type | FunctionType) else type(made_by)

    @property
    def name(self) -> str:
        return f"{self.cls.__name__}.{self.hook}"

    def __enter__(self) -> None:
        _running.append(self)
        self.tensors = handed_tensors(self.handed)
        self.before = versions(self.tensors)

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if error is None:
                self.check()
            elif (
                self.names_learner
                and isinstance(error, Exception)
                and not (isinstance(error, Refusal) or is_of_the_disk(error) or is_of_memory(error))
            ):
                function = getattr(self.cls, self.hook, None) if self.function is None else self.function
                raise LearnerError(describe_error(self.name, error, function)) from error
        finally:
            _running.pop()

    def check(self) -> None:
        """Refuse what the code has done without an exception."""
        now = handed_tensors(self.handed)
        if versions(self.tensors) != self.before or not all(map(is_, now, self.tensors)):
            raise ProtocolError(
                "a tensor that was handed to it was changed in place or replaced; other candidates and later "
                "tests use the same.",
                "Make a new one: x = batch.x + noise, or for another hook dataclasses.replace(batch, x=...), "
                "not batch.x.add_(noise). The first layer of a network must not work in place.",
            )


class running_first(running):
    """A guard in the first mini-batch of a phase. It also sees draws from generators that are not seeded
    there: a look at these takes too long for each mini-batch."""

    __slots__ = ("states",)

    def __enter__(self) -> None:
        super().__enter__()
        self.states = unseeded_generators()

    def check(self) -> None:
        super().check()
        now = unseeded_generators()
        drawn = [name for name, state in self.states.items() if now[name] != state]
        if drawn:
            raise ProtocolError(
                f"it drew from the global generator of {' and '.join(drawn)}, which is not seeded for each "
                "hook: what a candidate draws would depend on its company.",
                "Draw with torch, which is seeded before each hook (torch.randperm(n)), or from a generator "
                "of the mini-batch: numpy.random.default_rng(batch.rng('noise').initial_seed()).",
            )


class training(running):
    """A guard around Lightning's loop. Hooks inside have guards of their own; any other exception there is
    not the learner's."""

    __slots__ = ()
    names_learner = False


def copied(learner: Any) -> Any:
    """A copy of a learner, to be tested or probed. What cannot be copied is named."""
    try:
        return copy.deepcopy(learner)
    except Exception as error:
        if is_of_memory(error):
            raise
        kept = [f"self.{name}" for name, value in vars(learner).items() if not copies(value)]
        raise LearnerError(
            f"{type(learner).__name__} keeps in {', '.join(kept) or 'an attribute'} what cannot be copied: "
            f"{str(error).splitlines()[0]}\n"
            "Tests are made with copies of a learner. Keep plain values, and tensors without their graph: "
            "tensor.detach()."
        ) from error


def copies(value: object) -> bool:
    try:
        copy.deepcopy(value)
    except Exception:
        return False
    return True


_running: list[running] = []  # the innermost last


def handed_tensors(handed: Sequence[Any]) -> list[Any]:
    """The tensors of examples that were handed over."""
    return [
        tensor for each in handed if hasattr(type(each), "handed_tensors") for tensor in each.handed_tensors
    ]


@contextmanager
def apart() -> Iterator[None]:
    """The program's own work in the middle of a learner's: test data can be read."""
    inside = _running[:]
    _running.clear()
    try:
        yield
    finally:
        _running[:] = inside


def also_handed(tensors: Sequence[Any]) -> None:
    """Tensors that a hook was handed while it ran: they stay as they are, too."""
    if _running:
        _running[-1].tensors += tensors
        _running[-1].before += versions(tensors)


def versions(tensors: Sequence[Any]) -> list[int]:
    """How often each was changed in place, as torch counts it."""
    return [tensor._version for tensor in tensors]  # private: torch has no public count


def unseeded_generators() -> dict[str, Any]:
    """The states of global generators that are seeded between phases, and not for each hook."""
    import numpy as np  # late: a command that trains nothing would wait for it

    kind, words, *rest = np.random.get_state()  # noqa: NPY002
    return {"random": random.getstate(), "numpy.random": (kind, np.asarray(words).tobytes(), *rest)}


def once() -> Callable[..., Any] | None:
    """What ``Learner.once`` is to do here; None outside of a run."""
    return _running[-1].once if _running else None


def innermost() -> running | None:
    """The guard around the code that runs now."""
    return _running[-1] if _running else None


_logs: list[Callable[[str, Any], None]] = []  # of the run in this process


@contextmanager
def logged_by(log: Callable[[str, Any], None]) -> Iterator[None]:
    """What learners and callbacks log inside goes there."""
    _logs.append(log)
    try:
        yield
    finally:
        _logs.remove(log)


def log(name: str, value: Any) -> None:
    """Log a number of one's own; outside of a run there is no place for it."""
    if _logs:
        _logs[-1](name, value)


def describe_error(name: str, error: Exception, function: Callable[..., Any] | None) -> str:
    """An exception's words, and the line of the learner's that it came from; where none is its own, the line
    where the hook is written."""
    words = (str(error).strip() or "no message").splitlines()
    place = place_in(error) or place_of(function)
    lines = [f"{name} raised {type(error).__name__}: {words[0]}", *words[1:2], *([place] if place else [])]
    return "\n".join([*lines, "What was computed is kept. debug.traceback=true shows all calls."])


PACKAGE = os.path.dirname(__file__)
LIBRARY, MACHINERY, SHIPPED, OWN = range(4)


def nearness(filename: str) -> int:
    """How near a file is to whoever wrote the learner."""
    if filename.startswith(PACKAGE + os.sep):
        room = os.path.relpath(filename, PACKAGE).partition(os.sep)[0]
        return SHIPPED if room in ("learners", "backbones") else MACHINERY
    installed = "site-packages" in filename or "dist-packages" in filename
    library = installed or filename.startswith((sysconfig.get_path("stdlib"), "<frozen"))
    return LIBRARY if library else OWN


def place_in(error: BaseException) -> str | None:
    """The deepest line of an author's that an exception came through: of code of their own; else of a learner
    or network that ships."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if nearness(f.filename) >= SHIPPED]
    if not frames:
        return None
    deepest = max(reversed(frames), key=lambda frame: nearness(frame.filename))
    return f"at {deepest.filename}, line {deepest.lineno}: {deepest.line}"


def place_of(function: Callable[..., Any] | None) -> str | None:
    """Where a function is written; None where there is no file of it."""
    code = getattr(inspect.unwrap(function), "__code__", None) if function is not None else None
    if code is None:
        return None
    line = linecache.getline(code.co_filename, code.co_firstlineno).strip()
    return f"at {code.co_filename}, line {code.co_firstlineno}: {line}"


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
    boundaries: bool = True  # where tasks begin and end: hooks, and ids in training

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
