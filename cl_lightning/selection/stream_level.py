"""Stream-level selection: whole streams are learned, one a point of an outer grid, and the best at the end is
chosen.

Veniat et al. 2021 choose the strength of EWC so: the run with the highest mean validation accuracy over all
tasks at the end of the stream. Past and future tasks have their part in such a choice; test data have none,
unless ``selection.by=test`` says so, as Lopez-Paz and Ranzato 2017 choose.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from cl_lightning.errors import Refusal
from cl_lightning.selection.grid import grid_points
from cl_lightning.selection.rules import best_point

T = TypeVar("T")
Point = dict[str, Any]  # values by dotted key


def outer_points(grid: Any) -> list[Point]:
    """All points of an outer grid: of a mapping every combination, the last key varying fastest, of values as
    in the inner grid; of a list its points.

    >>> outer_points({"learner": {"strength": [1, 10]}, "trainer.lr": [0.1]})
    [{'learner.strength': 1, 'trainer.lr': 0.1}, {'learner.strength': 10, 'trainer.lr': 0.1}]
    >>> outer_points([{"learner": {"k": 1}, "trainer.lr": 0.1}, {"learner.k": 2, "trainer.lr": 0.2}])
    [{'learner.k': 1, 'trainer.lr': 0.1}, {'learner.k': 2, 'trainer.lr': 0.2}]
    """
    points = [] if grid == {} else grid_points(grid, "selection.stream")
    if points and "seed" in points[0]:
        raise Refusal(
            "selection.stream: the best of several seeds is luck, and no choice of a value. Sweep over them, "
            "as in seed=0,1,2: each then chooses for itself."
        )
    return points


@dataclass(frozen=True)
class Scored:
    """A job of a search: a point, for one seed and one combination of what else the sweep varies."""

    # Overrides that are neither the point's nor the seed's: each combination chooses for itself.
    others: tuple[str, ...]
    seed: int
    number: int  # of the point in the grid
    score: float | None  # the mean validation accuracy at the end of the stream; None: it did not get there


@dataclass(frozen=True)
class Choice:
    """The point that was chosen for some seeds."""

    others: tuple[str, ...]
    seeds: tuple[int, ...]
    number: int
    score: float


@dataclass(frozen=True)
class Chosen:
    """What the winner's file of a search says of it: which run won, among what, and at what cost."""

    fingerprint: str  # of the winner's runs
    seeds: list[int]  # that chose together
    points: int  # of the outer grid
    scored: int  # points with a score for each of these seeds
    score: float  # the mean validation accuracy over all tasks at the end, and over these seeds;
    # or, by=test, test accuracy
    flops: int  # operations of all runs of the search for these seeds; of unfinished ones, of whole tasks
    seconds: float  # the processor's
    sweep: str  # its name
    by: str = "validation"  # data whose accuracy chose; test: as in Lopez-Paz and Ranzato 2017
    deleted: dict[str, Any] = field(default_factory=dict)  # keys that its command took out, and what took
    # their place; null: nothing


def choose(jobs: Sequence[Scored], over_seeds: bool) -> list[Choice]:
    """The best point of each combination, for each seed by itself or for all seeds together."""
    choices = []
    for others in dict.fromkeys(job.others for job in jobs):
        scores = {(job.number, job.seed): job.score for job in jobs if job.others == others}
        numbers, seeds = (tuple(dict.fromkeys(each)) for each in zip(*scores))
        for together in [seeds] if over_seeds else [(seed,) for seed in seeds]:
            best = best_point({n: [scores.get((n, seed)) for seed in together] for n in numbers})
            if best is not None:
                choices.append(Choice(others, together, *best))
    return choices


def is_for(choice: Choice, job: Scored) -> bool:
    """True where a job is one of those that a choice is among."""
    return job.others == choice.others and job.seed in choice.seeds


def winning(choice: Choice, jobs: Sequence[T], scored: Sequence[Scored]) -> list[T]:
    """The jobs of the point that was chosen: one a seed."""
    return [job for job, each in zip(jobs, scored) if is_for(choice, each) and each.number == choice.number]
