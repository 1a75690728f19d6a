"""How long a run will take: a learner that is thrown away trains a few mini-batches of the first two tasks."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import pytorch_lightning as pl

from cl_lightning.data.module import StreamDataModule
from cl_lightning.data.stream import Stream
from cl_lightning.engine.phases import Engine
from cl_lightning.engine.settings import Training
from cl_lightning.journal import Journal
from cl_lightning.learners.base import Learner

LONG = 3000  # mini-batches of a run that is worth a trial
WORTH_SAYING = 120  # seconds
LOOKED_AT = 100  # tasks of a long stream whose sizes are looked up, at most
BLOCKS, BLOCK = 5, 4  # of mini-batches that are tried in a phase


@dataclass(frozen=True)
class Pace:
    """Of one task's training: seconds a mini-batch, and an image in scoring, for all its candidates together."""

    step: float
    scored_image: float


def forecast(learner: Learner, stream: Stream, settings: Training, first: int = 0) -> str | None:
    """A sentence for runs that may take minutes. ``learner`` is fresh, and of no more use afterwards; ``first`` is the next task."""
    apart = -(-(len(stream) - first) // LOOKED_AT) or 1
    looked_at = range(first, len(stream), apart)
    steps = {index: steps_of(stream, settings, index, learner.needs.past_data) for index in looked_at}
    if apart * sum(steps.values()) < LONG:
        return None
    paces = tried(learner, stream, settings)
    seconds = 0.0
    for index, count in steps.items():
        pace = paces[min(index, 1)]
        scored = images_scored(stream, settings, index, count)
        seconds += apart * (count * pace.step + scored * pace.scored_image)
    if seconds < WORTH_SAYING:
        return None
    measured = " and ".join(f"{1000 * pace.step:.0f} ms" for pace in paces)
    return (
        f"Training takes about {told(seconds)} at most: {apart * sum(steps.values()):,} mini-batches in {len(stream) - first} tasks, "
        f"at {measured} with all of a task's candidates, measured in the first {len(paces)}. Early stopping makes it less. "
        "Interrupt it whenever you like; the same command goes on."
    )


def tried(learner: Learner, stream: Stream, settings: Training) -> list[Pace]:
    """In a journal of its own: nothing of it reaches the run."""
    brief = replace(
        settings, max_steps=BLOCKS * BLOCK, block=BLOCK, score_at=(), score_every=10**9, probe_at=(), probe_every=None, log_every=0
    )
    clock, paces = Clock(), []
    with TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = StreamDataModule(stream, passes=settings.max_epochs if settings.single_pass else None)
        engine = Engine(data, Journal(Path(folder)), brief, callbacks=[clock])
        for index in range(min(2, len(stream))):
            clock.fits.clear()
            with data.open(index, past=learner.needs.past_data, to=learner) as task:
                engine.learn(learner, task)
                scored = len(task.val) if task.val is not None else 0
            spent = engine.settle().seconds
            paces.append(Pace(sum(map(seconds_a_step, clock.fits)), spent.get("score", 0.0) / max(scored, 1)))
    return paces


class Clock(pl.Callback):
    """When each block of mini-batches ended, one list a phase."""

    def __init__(self) -> None:
        self.fits: list[list[float]] = []

    def on_fit_start(self, *_: Any) -> None:
        self.fits.append([])

    def on_train_batch_end(self, *_: Any) -> None:
        self.fits[-1].append(perf_counter())


def seconds_a_step(ends: Sequence[float]) -> float:
    """Without the first block, in which memory is found and operations are counted.

    >>> seconds_a_step([5.0, 5.4, 5.8, 9.0])
    0.1
    """
    taken = [later - earlier for earlier, later in pairwise(ends)]
    return round(median(taken) / BLOCK, 6) if taken else 0.0


def steps_of(stream: Stream, settings: Training, index: int, past: bool) -> int:
    """Mini-batches of a task, at most."""
    examples = sum(len(stream.recipe(i).train) for i in range(0 if past else index, index + 1))
    steps = settings.max_epochs * -(-examples // settings.batch_size)
    return steps if settings.max_steps is None else min(steps, settings.max_steps)


def images_scored(stream: Stream, settings: Training, index: int, steps: int) -> int:
    """Over all scorings of a task, at most."""
    if settings.patience is None:
        return 0
    recipe = stream.recipe(index)
    every = settings.score_every or -(-len(recipe.train) // settings.batch_size)
    return (len(settings.score_at) + steps // every) * len(recipe.val) * (1 + stream.show.val_copies)


def told(seconds: float) -> str:
    """
    >>> told(130), told(5000)
    ('2 minutes', '1 h 23 min')
    """
    minutes = round(seconds / 60)
    return f"{minutes} minutes" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
