"""Numbers of one's own: what a learner or a callback logs, on which axis, and where it is kept."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from torch import Tensor

from cl_lightning.engine.logs import call_loggers
from cl_lightning.errors import Refusal
from cl_lightning.protocol import ProtocolError, innermost
from cl_lightning.store.records import OwnPoint

if TYPE_CHECKING:
    from cl_lightning.engine.phase_run import PhaseRun
    from cl_lightning.learners.base import Candidate

AT_TEST = ("forward", "samples", "predicts")  # called for each batch of test images, of copies


class Own:
    """What ``learner.log`` and a callback's ``self.log`` do in a run. A number is told to all loggers and
    kept: in the next record, where it goes by tasks learned; in its phase, where it goes by mini-batches."""

    def __init__(self, loggers: Sequence[Any], batches: Callable[[], int]) -> None:
        self.loggers, self.batches = loggers, batches  # mini-batches of the whole run
        self.learned = 0  # tasks, the open one among them
        self.run: PhaseRun | None = None  # the phase in training
        self.probed: int | None = None  # mini-batches of the run, where a copy of then is probed
        self.points: list[OwnPoint] = []  # since the last record
        self.of_probe: list[OwnPoint] = []  # of the last one

    def log(self, name: str, value: Any) -> None:
        guard, number = innermost(), number_in(name, value)
        hook = guard.hook if guard else ""
        if hook in AT_TEST:
            raise ProtocolError(
                f"{name!r} was logged, and tests call this hook as often as they have batches.",
                "Log in on_task_end, or in on_evaluated of a StreamCallback.",
            )
        if self.probed is not None:
            if hook == "on_probe":
                self.add(OwnPoint(name, "batches", self.probed, number), self.points)
        elif self.run is None:
            learned = self.learned - (hook == "on_task_start")
            self.add(OwnPoint(name, "learned", learned, number), self.points)
        else:
            run, i = self.run, self.number_of(guard.handed[0] if guard and guard.handed else None)
            point = OwnPoint(name, "batches", run.first_step + run.step, number, i)
            self.add(point, run.own, tells=i in (None, run.leading(run.active)))

    def add(self, point: OwnPoint, points: list[OwnPoint], tells: bool = True) -> None:
        """Loggers have a place for the leading candidate alone, as for losses."""
        points.append(point)
        if tells:
            by_task = point.axis == "learned"
            metrics: dict[str, Any] = {"learned": point.at} if by_task else {}
            metrics[f"{'' if by_task else 'train/'}own/{point.name}"] = point.value
            step = self.batches() if by_task else point.at
            call_loggers(self.loggers, "log_metrics", metrics, step=step)

    def taken(self) -> list[OwnPoint]:
        """What was logged since the last call, for a record."""
        found, self.points = self.points, []
        return found

    @contextmanager
    def probing(self, step: int, c: Candidate) -> Iterator[None]:
        """What is logged inside belongs to a probe of a candidate after so many mini-batches of the run."""
        before, self.points, self.probed = self.points, [], step
        try:
            yield
        finally:
            self.of_probe, self.points, self.probed = self.points, before, None
        if self.run is not None:
            i = self.number_of(c)
            self.run.own += [replace(point, candidate=i) for point in self.of_probe]

    def number_of(self, c: object) -> int | None:
        """The number of a candidate in training; None where it is something else."""
        candidates = self.run.candidates if self.run else []
        return next((i for i, each in enumerate(candidates) if each is c), None)


def number_in(name: str, value: Any) -> float | None:
    """A number as results can hold it: None where it is infinite or no number."""
    try:
        number = float(value.detach() if isinstance(value, Tensor) else value)
    except (TypeError, ValueError, RuntimeError) as reason:
        raise Refusal(f"{name!r} was logged as a {type(value).__name__}. Give one number.") from reason
    return number if math.isfinite(number) else None
