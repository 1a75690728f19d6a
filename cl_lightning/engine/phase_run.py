"""A phase in training, as plain data: what ``engine/training.py`` works on, and what a checkpoint inside the
phase holds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from cl_lightning.config.settings import Training
from cl_lightning.data.task import Batch, Block, Blocks, Split, Task
from cl_lightning.engine.costs import Meter
from cl_lightning.engine.logs import call_loggers
from cl_lightning.engine.optimizer import Moments, make_optimizer
from cl_lightning.engine.proposals import val_of
from cl_lightning.engine.stack import Shapes, Stack
from cl_lightning.learners.base import Candidate, Learner, Phase
from cl_lightning.metrics.costs import Costs
from cl_lightning.randomness import Key
from cl_lightning.selection.rules import goes_back_to_best
from cl_lightning.store.records import CandidateRecord, OwnPoint, Row

CHECKED_EPOCHS = 3
CHECKED_EVERY = 499  # mini-batches: a prime number


@dataclass
class CandidateState:
    """How far a candidate has come. ``weights`` are its best so far; None: the latest are."""

    accuracy: float | None = None  # the best on validation data, or of the phase's own score
    step: int = 0  # of the best accuracy
    steps: int = 0  # trained
    weights: dict[str, Tensor] | None = None
    moments: dict[str, dict] | None = None  # of the optimizer, at the same step
    diverged: bool = False  # its weights are no numbers any more: it cannot win


@dataclass
class PhaseRun:
    """One training of a phase's candidates, or of a group of them."""

    phase: Phase
    candidates: list[Candidate]
    task: Task
    settings: Training
    blocks: Blocks  # its mini-batches
    hooks: frozenset[str]  # those that the learner has of its own
    train_block: Callable[[Learner, PhaseRun, Block], None]  # what happens to a block of mini-batches
    first_step: int = 0  # mini-batches of the whole run before this phase: what loggers go by
    carried: Moments = field(default_factory=dict)  # moments of earlier phases
    step: int = 0  # mini-batches trained on
    scored_at: int = -1  # step of the last scoring
    before: dict[str, Any] = field(default_factory=dict)  # what may not change; empty until it begins
    active: list[int] = field(default_factory=list)  # candidates that have not left
    standings: list[CandidateState] = field(default_factory=list)
    # Measures a candidate as it is now; or, where the winner alone of several is probed, writes down its
    # weights, for nobody knows yet who that is.
    probe: Callable[[Candidate, int], Row] | None = None
    keep: Callable[[int, dict[str, Tensor]], object] | None = None
    probes: list[dict[int, Row]] = field(default_factory=list)  # what was measured, by candidate and step
    probing: tuple[float, float] = (0.0, 0.0)  # seconds that this took, and the processor's
    costs: Costs = field(default_factory=Costs)
    optimizer: Optimizer | None = None
    shapes: list[Shapes] = field(default_factory=list)  # of candidates that may be stacked; empty: none may
    stacks: list[Stack] = field(default_factory=list)
    own: list[OwnPoint] = field(default_factory=list)  # what was logged besides losses
    warned: set[int] = field(default_factory=set)  # candidates whose NaN logits were warned of
    asking: Any = None  # the first argument of the hook that runs: where it goes by candidates, this
    seeded: tuple[tuple, int] = ((), 0)  # the last key of a hook, and its seed

    def __post_init__(self) -> None:
        self.active = list(range(len(self.candidates)))
        self.standings = [CandidateState() for _ in self.candidates]
        self.probes = [{} for _ in self.candidates]
        self.meter = Meter(len(self.candidates))
        self.parameters = [p for c in self.candidates for p in c.network.parameters()]

    @property
    def key(self) -> Key:
        """(seed, task, phase)."""
        return self.blocks.key

    @property
    def val(self) -> Split | None:
        return val_of(self.phase, self.task)

    @property
    def is_scored(self) -> bool:
        return self.val is not None or self.phase.score is not None

    @property
    def patience(self) -> float | None:
        return self.settings.patience if self.phase.patience is None else self.phase.patience

    def keeps_best(self, i: int) -> bool:
        """True where a candidate ends with its best weights, and not with its last."""
        restore = self.candidates[i].hparams.get("restore", self.settings.restore)
        return goes_back_to_best(restore, self.patience)

    @property
    def keep_best(self) -> bool:
        """True where any candidate ends with its best weights."""
        return any(map(self.keeps_best, range(len(self.candidates))))

    @property
    def score_every(self) -> int:
        return self.settings.score_every or self.blocks.per_epoch

    @property
    def trainable(self) -> list[int]:
        """The active candidates that have something to train: pure re-use waits to be scored."""
        return [i for i in self.active if self.candidates[i].parameters]

    @property
    def best_accuracy(self) -> float | None:
        return max((s.accuracy for s in self.standings if s.accuracy is not None), default=None)

    def checks(self, batch: Batch) -> bool:
        """Operations are counted again in this mini-batch, if a learner has hooks of its own and does not say
        whether its work changes: in the first and the last mini-batch of each of the next epochs, and in
        every 499th."""
        silent = bool(self.hooks or self.phase.loss) and "kind" not in self.hooks
        ends = batch.index_in_epoch in (0, batch.batches_per_epoch - 1) and 0 < batch.epoch <= CHECKED_EPOCHS
        return silent and (ends or self.step % CHECKED_EVERY == CHECKED_EVERY - 1)

    def living(self) -> list[Candidate]:
        return [self.candidates[i] for i in self.active]

    def steps_of(self, i: int) -> int:
        """Mini-batches that an active candidate has been trained on."""
        return self.step if self.candidates[i].parameters else 0

    def records(self) -> list[CandidateRecord]:
        """The result of each candidate."""
        return [self.record(c, standing) for c, standing in zip(self.candidates, self.standings)]

    def record(self, c: Candidate, s: CandidateState) -> CandidateRecord:
        accuracy, score = (s.accuracy, None) if self.phase.score is None else (None, s.accuracy)
        return CandidateRecord(
            c.name, c.hparams, accuracy, score, s.steps, s.steps if s.accuracy is None else s.step, s.diverged
        )

    def train(self, learner: Learner, block: Block) -> None:
        """One Lightning step."""
        self.train_block(learner, self, block)

    def make_optimizer(self, device: torch.device) -> Optimizer:
        self.optimizer = make_optimizer(self.candidates, self.settings, self.carried, device)
        return self.optimizer

    def release(self) -> None:
        """Free gradients and moments. Lightning's Trainer holds the optimizer in a cycle, and the memory of a
        device does not wait for Python's garbage collector."""
        for p in self.parameters:
            p.grad = None
        if self.optimizer is not None:
            self.optimizer.state.clear()
            self.optimizer.param_groups.clear()
        self.parameters.clear()

    def leading(self, among: Iterable[int]) -> int:
        """The best of these candidates by validation data; of equals the first. -1 where there are none."""
        known = {i: -math.inf if (a := self.standings[i].accuracy) is None else a for i in among}
        return max(known, key=known.__getitem__, default=-1)

    def log(self, learner: Learner, metrics: dict[str, Any]) -> None:
        values = {"task": self.task.index, **metrics}
        call_loggers(learner.loggers, "log_metrics", values, step=self.first_step + self.step)

    def log_losses(self, learner: Learner, losses: Mapping[int, float]) -> None:
        """The loss of the candidate that leads by validation data among those that train; and the loss of
        each, for loggers that have a place for names of candidates."""
        if not losses:
            return
        self.log(learner, {"train/loss": losses[self.leading(losses)]})
        named = {self.candidates[i].name: loss for i, loss in losses.items()}
        call_loggers(learner.loggers, "log_candidates", named, self.first_step + self.step)

    def state(self) -> dict:
        """All that is not weights, optimizer or learner, as it is between two blocks."""
        return {
            "step": self.step,
            "scored_at": self.scored_at,
            "active": list(self.active),
            "standings": [{**vars(standing)} for standing in self.standings],
            "probes": self.probes,
            "costs": asdict(self.costs),
            "meter": self.meter.rows,
            "own": [vars(point) for point in self.own],
        }

    def restore(self, state: dict) -> None:
        self.step, self.scored_at, self.active = state["step"], state["scored_at"], list(state["active"])
        self.standings = [CandidateState(**standing) for standing in state["standings"]]
        self.probes = state["probes"]
        self.costs = Costs(**state["costs"])
        self.meter.rows = state["meter"]
        self.own = [OwnPoint(**point) for point in state["own"]]
