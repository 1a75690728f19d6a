"""The records of a run: typed facts, from which it resumes and from which its results are made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from cl_lightning.metrics.costs import Costs

FORMAT = 1  # the version of these records and of the files beside them; others are not read

Row = list[float | None]


@dataclass(frozen=True)
class Place:
    """Where a phase belongs: to the learning of task ``index``, to the predictors after ``index`` tasks, or
    to the reference of task ``index``, which learns from the same mini-batches as the task."""

    part: Literal["task", "predictors", "reference"]
    index: int
    phase: int = 0

    @property
    def name(self) -> str:
        """The name of the place in results."""
        return f"reference:task{self.index}" if self.part == "reference" else f"{self.part}{self.index}"

    @property
    def words(self) -> str:
        """The place in a sentence.

        >>> Place("task", 1).words, Place("reference", 4).words, Place("predictors", 2).words
        ('task 1', 'the reference on task 4', 'the predictors after task 1')
        """
        if self.part == "predictors":
            return f"the predictors after task {self.index - 1}"
        return f"{'the reference on ' * (self.part == 'reference')}task {self.index}"

    @property
    def learned(self) -> int:
        """How many tasks are learned before."""
        return self.index + (self.part == "reference")

    @property
    def draws(self) -> str:
        """What draws depend on: the reference draws as the task does."""
        return self.name.removeprefix("reference:")

    @property
    def key(self) -> str:
        """The beginning of the keys of its records in the store."""
        return f"work/{self.part}{self.index}-{self.phase}"


@dataclass(frozen=True)
class OwnPoint:
    """A number that a learner or callback logged."""

    name: str
    axis: Literal["learned", "batches"]
    at: int  # tasks learned, or mini-batches of the whole run
    value: float | None  # None: infinite or no number
    candidate: int | None = None  # of a phase in training: its number among those trained side by side


@dataclass(frozen=True)
class CandidateRecord:
    """The result of training a candidate."""

    name: str
    hparams: dict[str, Any]
    # The best; None without validation data, and where the phase has a score of its own.
    val_accuracy: float | None
    score: float | None  # the best of the phase's own score
    steps: int  # mini-batches trained
    steps_to_best: int
    diverged: bool = False  # its weights became infinite or no numbers

    @property
    def measure(self) -> float | None:
        """What it is compared by."""
        return self.val_accuracy if self.score is None else self.score


@dataclass(frozen=True)
class ProbeRecord:
    """A measurement on test data in the middle of a phase. ``candidate`` is named where all of them were
    measured."""

    task: int
    phase: int
    step: int
    candidate: str | None
    accuracies: Row
    own: list[OwnPoint] = field(default_factory=list)


@dataclass(frozen=True)
class GroupRecord:
    """Candidates that were trained side by side: all of a phase, or a share of them. The weights of the best
    lie beside it."""

    place: Place
    phase: str
    proposed: list[str]  # names of all candidates of the phase
    numbers: list[int]  # which of them these are
    candidates: list[CandidateRecord]
    best: int  # place of the best in this list
    mini_batches: int
    costs: Costs
    counts: list[dict[str, list[int]]]  # operations by candidate and kind of work, see engine/costs.py
    probes: list[ProbeRecord]  # of all of them, where all are probed
    own: list[OwnPoint] = field(default_factory=list)  # of the best, or of no candidate


@dataclass(frozen=True)
class InsideRecord:
    """Where the training of a group of candidates was when Lightning's checkpoint beside it was written."""

    place: Place
    phase: str
    proposed: list[str]
    numbers: list[int]  # which of these the group has
    step: int


@dataclass(frozen=True)
class PlanRecord:
    """A phase whose candidates are trained by several jobs: the numbers of each job's."""

    place: Place
    shares: list[list[int]]

    @property
    def by_name(self) -> dict[str, list[int]]:
        """The shares by the names that jobs are told, which no other phase of the run has."""
        return {f"{self.place.key}/{share[0]}": share for share in self.shares}


@dataclass(frozen=True)
class PhaseRecord:
    """A phase that is over."""

    place: Place
    name: str
    candidates: list[CandidateRecord]
    winner: int
    mini_batches: int
    costs: Costs
    foreign: int = 0  # examples in its training split that are not the task's
    auxiliary: bool = False  # not what the task was learned by
    own: list[OwnPoint] = field(default_factory=list)  # of the winner, or of no candidate

    @property
    def chosen(self) -> CandidateRecord:
        return self.candidates[self.winner]


@dataclass(frozen=True)
class ProbesRecord:
    """All measurements of one candidate in a phase."""

    probes: list[ProbeRecord]


@dataclass(frozen=True)
class OnceRecord:
    """Long work between phases; its result lies beside the record."""

    name: str
    flops: int


@dataclass(frozen=True)
class TaskRecord:
    """A task that is learned; the learner after it lies beside it."""

    task: int
    phases: list[PhaseRecord]
    probes: list[ProbeRecord]
    costs: Costs
    lent: list[int]  # tasks whose training data could be read
    copies: dict[str, int]  # examples found in the learner's checkpoint, by where
    held: dict[str, int]  # bytes that the learner keeps, by name
    published_memory: int | None
    checkpoint: int  # bytes of the file beside this record
    notes: dict[str, Any] = field(default_factory=dict)  # what the learner says that it did
    memory_at_test: int | None = None  # bytes of what a prediction reads; None: it cannot predict the task
    frozen: list[str] | None = None  # its parameters that get no gradient; None: an older record
    own: list[OwnPoint] = field(default_factory=list)  # between its phases


@dataclass(frozen=True)
class RowRecord:
    """Test accuracies after ``learned`` tasks, by predictor; the first is the learner's own."""

    learned: int
    rows: dict[str, Row]
    masks: bool  # whether some logits were so low that those outputs cannot be chosen
    phases: list[PhaseRecord]  # that predictors trained
    costs: Costs
    seconds: float
    measures: dict[str, dict[str, Row]] = field(default_factory=dict)  # by name, then by predictor
    own: list[OwnPoint] = field(default_factory=list)

    @property
    def first(self) -> Row:
        return next(iter(self.rows.values()))


@dataclass(frozen=True)
class ValidationRecord:
    """Accuracies on validation examples when all tasks were learned."""

    accuracies: Row


@dataclass(frozen=True)
class ReferenceRecord:
    """A fresh network that learned the last task alone, or (``joint``) both of two tasks."""

    task: int
    accuracy: float
    phases: list[PhaseRecord]
    joint: bool = False


@dataclass(frozen=True)
class StreamRecord:
    """The stream of a run."""

    name: str
    fingerprint: str
    images: dict[str, str]  # by source: a hash of every pixel and label
    tasks: list[dict[str, Any]]  # what each is made of, as in results
    prints: list[str]  # of each task: equal ones have equal examples
    head: str  # its mode
    permuted: bool  # whether pixels are permuted
    sources: list[str]  # the source of each task
    stand_ins: dict[str, str]  # images in the place of those that the stream names, by name


@dataclass(frozen=True)
class StartRecord:
    """What a run is: written first."""

    format: int
    version: dict[str, str]
    command: list[str]
    environment: dict[str, str]
    name: str
    config: dict[str, Any]
    fingerprint: str
    learner: str
    seed: int
    needs: dict[str, bool]
    stream: StreamRecord
    passes: int | None  # of a single pass: how often each example may be seen
    callbacks: list[str]  # of the user's own
    of_a_sweep: bool = False  # whether a job of a sweep began it; False, too, in older records


def mini_batches(phases: Sequence[PhaseRecord]) -> int:
    return sum(phase.mini_batches for phase in phases)
