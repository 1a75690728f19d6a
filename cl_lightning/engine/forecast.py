"""How long a run still takes, measured in its own first mini-batches: a line for runs that take minutes."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import pytorch_lightning as pl

from cl_lightning.callbacks import StreamCallback
from cl_lightning.data.stream import Stream
from cl_lightning.data.task import Task
from cl_lightning.engine.settings import Training

WORTH_SAYING = 120  # seconds
MEASURED = 20  # mini-batches that are measured behind the first block, in which memory is found and operations are counted
SLOW = 10  # seconds of a first block that tells enough
LOOKED_AT = 100  # tasks of a long stream whose sizes are looked up, at most
OTHERWISE = 1.5  # how much later tasks may differ before it is said again


@dataclass(frozen=True)
class Spent:
    """Seconds of training and of scoring so far, and on how many examples and images."""

    training: float
    examples: int
    scoring: float
    images: int


NOTHING = Spent(0.0, 0, 0.0, 0)


class Forecast(StreamCallback):
    """Says once, and again where a later task's pace differs, how long training takes at most.

    Pace is that of all candidates of a task together, those that wait for their share of the machine included. Of learners that have
    more of them from the second task on, the first tells too little.
    """

    def __init__(self, stream: Stream, settings: Training, past_data: bool = False) -> None:
        self.stream, self.settings, self.past_data = stream, settings, past_data
        self.task, self.step, self.said, self.looks = 0, 0, 0.0, True
        self.first: Spent | None = None  # at the end of the open task's first block
        self.work: dict[int, tuple[int, int]] = {}  # of some tasks: looked up before training, in which nobody may ask the stream
        self.apart = 1

    def on_task_start(self, learner: Any, task: Task) -> None:
        self.task, self.first, self.looks = task.index, None, True
        if not self.work:
            self.apart = -(-(len(self.stream) - task.index) // LOOKED_AT)
            some = range(task.index, len(self.stream), self.apart)
            self.work = {index: work_of(self.stream, self.settings, index, self.past_data) for index in some}

    def on_fit_start(self, *_: Any) -> None:
        self.first = None  # each phase counts from its own beginning

    def on_task_end(self, learner: Any, task: Task) -> None:
        self.looks = False  # what trains between tasks is not the stream's

    def on_train_batch_end(self, trainer: pl.Trainer, learner: Any, *_: Any) -> None:
        run = learner.phase_run
        if not self.looks or run is None:
            return
        spent = self.spent(run)
        if self.first is None and spent.training < SLOW:
            self.first, self.step = spent, run.step
        elif self.first is None or run.step >= self.step + MEASURED:
            self.measured(run, self.first or NOTHING, spent)

    def on_train_end(self, trainer: pl.Trainer, learner: Any) -> None:
        """Of phases that are shorter than what is measured."""
        run = learner.phase_run
        if self.looks and run is not None and run.step:
            self.measured(run, self.first if self.first and run.step > self.step else NOTHING, self.spent(run))

    def measured(self, run: Any, before: Spent, now: Spent) -> None:
        self.looks = False
        shares = len(run.phase.candidates) / len(run.candidates)
        self.tell(shares * self.seconds_left(before, now))

    def spent(self, run: Any) -> Spent:
        """Of the phase in training."""
        seconds, scorings = run.costs.seconds, scorings_until(run.step, self.settings, run.score_every)
        images = scorings * len(run.val) if run.val is not None else 0
        return Spent(seconds.get("train", 0.0), run.costs.examples, seconds.get("score", 0.0), images)

    def seconds_left(self, before: Spent, now: Spent) -> float:
        """From the open task on, if every task is trained to its end at this pace."""
        a_training = (now.training - before.training) / max(1, now.examples - before.examples)
        a_scoring = now.scoring / max(1, now.images)
        work = [of_task for index, of_task in self.work.items() if index >= self.task]
        return self.apart * sum(examples * a_training + images * a_scoring for examples, images in work)

    def tell(self, seconds: float) -> None:
        differs = not self.said or not 1 / OTHERWISE < seconds / self.said < OTHERWISE
        if seconds < WORTH_SAYING or not differs:
            return
        self.said = seconds
        least = "" if self.settings.patience is None else ", less where candidates stop early"
        last = f"to {len(self.stream) - 1} " if self.task < len(self.stream) - 1 else ""
        print(f"Training of task {self.task} {last}takes about {told(seconds)} at this pace{least}.", file=sys.stderr, flush=True)


def scorings_until(step: int, settings: Training, every: int) -> int:
    if settings.patience is None:
        return 0
    return len({at for at in settings.score_at if at <= step} | set(range(every, step + 1, every)))


def work_of(stream: Stream, settings: Training, index: int, past_data: bool) -> tuple[int, int]:
    """Examples in mini-batches and images scored of one task, at most; with past data, as if earlier tasks had its size."""
    recipe = stream.recipe(index)
    lent = len(recipe.train) * (index + 1 if past_data else 1)
    every = -(-lent // settings.batch_size)
    steps = settings.max_epochs * every
    if settings.max_steps is not None and settings.max_steps < steps:
        examples, steps = lent * settings.max_steps // max(1, every), settings.max_steps
    else:
        examples = settings.max_epochs * lent
    images = len(recipe.val) * (1 + stream.show.val_copies)
    return examples, images * scorings_until(steps, settings, settings.score_every or every)


def told(seconds: float) -> str:
    """
    >>> told(130), told(5000)
    ('2 minutes', '1 h 23 min')
    """
    minutes = round(seconds / 60)
    return f"{minutes} minutes" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
