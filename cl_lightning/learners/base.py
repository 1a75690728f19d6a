"""The contract of a learner: override what your paper talks about, leave the rest."""

from __future__ import annotations

import copy
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import torch
import torch.nn as nn
import torch.nn.functional as F

from cl_lightning.data.task import Batch, Head, Split, Task
from cl_lightning.errors import Refusal
from cl_lightning.learners.parts.class_rules import check_attribute, check_class
from cl_lightning.learners.parts.stored import Point
from cl_lightning.learners.parts.under_lightning import UnderLightning
from cl_lightning.metrics.costs import numbers_in
from cl_lightning.protocol import ProtocolError, log, once
from cl_lightning.randomness import seeded

if TYPE_CHECKING:
    from cl_lightning.learners.parts.notes import ModulePaths


@dataclass(frozen=True)
class Needs:
    """What a learner cannot do without. It is given nothing that it does not declare."""

    task_id_at_test: bool = False  # forward gets the task's number
    past_data: bool = (
        False  # task.past: breaks the rules of continual learning; in results.json under `needs`
    )


@dataclass(eq=False)
class Candidate:
    """One way of learning the current task: a network of its own and hyper-parameters. Trained side by side
    with the others. After its phase the winner alone has its network still, unless the phase keeps all."""

    network: nn.Module = field(repr=False)  # all that it trains; nothing of another candidate
    hparams: dict[str, Any] = field(default_factory=dict)  # read-only
    name: str = ""  # unique in its phase and the same after a restart; left out: its hyper-parameters
    # What it trains with, once it is proposed: the trainer's values, the phase's and its hyper-parameters.
    settings: Mapping[str, Any] = field(default_factory=Point, init=False, repr=False)

    def __post_init__(self) -> None:
        self.hparams = copy.deepcopy(Point(self.hparams))
        self.name = self.name or name_of(self.hparams)

    if not TYPE_CHECKING:  # which would believe that a candidate has any attribute

        def __getattr__(self, name: str) -> Any:
            if name != "network":
                raise AttributeError(f"A candidate has no attribute {name!r}.")
            raise ProtocolError(
                f"the candidate {self.name} lost its phase and has no network any more: after a kill, or on "
                "another device, only the winner's weights are there.",
                'Use outcome.candidate; Phase(keep="all") keeps all networks.',
            )

    @cached_property
    def parameters(self) -> list[nn.Parameter]:
        """All that it trains, in the network's order."""
        return [p for p in self.network.parameters() if p.requires_grad]

    def groups(self) -> list[dict]:
        """Parameter groups for the optimizer: its hyper-parameters win over the trainer's."""
        options = {
            key: self.hparams[key] for key in ("lr", "weight_decay", "momentum") if key in self.hparams
        }
        return [{"params": self.parameters, **options}] if self.parameters else []


@dataclass
class Phase:
    """One training of a set of candidates. What is None comes from the task or from the trainer's
    configuration.

    ``score`` gives any finite number, the higher the better; results call it a score, and not an accuracy.
    """

    candidates: list[Candidate]  # their order breaks ties: the first maximum wins
    name: str = "train"
    # None: the open task's training split; else a half of it, a coreset ... Several come in turn: batch.part.
    train: Split | Sequence[Split] | None = None
    val: Split | None = None  # None: the open task's validation split
    loss: Callable[[Candidate, Batch], torch.Tensor] | None = None  # None: learner.loss
    score: Callable[[Candidate, Any], float] | None = None  # None: accuracy on the validation split
    epochs: int | None = None
    patience: float | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)  # keys of the trainer, for this phase alone
    keep: Literal["winner", "all"] = "winner"  # whose networks are there after the phase
    auxiliary: bool = False  # a generator, a coreset: no data of the task's but what it names, last weights


@dataclass
class Outcome:
    """The outcome of a phase: the winner, restored to its best weights."""

    candidate: Candidate
    score: float | None  # its validation accuracy, or the phase's own score; None without validation data
    steps: int  # mini-batches trained
    steps_to_best: int
    kept: list[Candidate]  # the winner; or all, in their order, where the phase keeps all


Phases = Generator[Phase, Outcome, Any]


class Learner(UnderLightning):
    """Learns a stream, task after task.

    Hooks with ``c`` run for each candidate still training and each mini-batch; the others once for each
    mini-batch. A candidate owns every tensor it trains, and nobody writes to a mini-batch. What candidates
    share (past modules, importances, memory) is read-only between ``on_task_start`` and ``on_task_end``;
    ``adopt`` and these two hooks are the only writers.

    Draws: ``rng(key)`` or ``batch.rng(purpose)`` explicitly, or torch's default generator, which the engine
    seeds before each hook of a candidate. Keys name neither the learner nor a neighbour.
    """

    needs = Needs()
    # Hyper-parameters of its own that a grid may name, besides the optimizer's.
    grid_keys: tuple[str, ...] = ()
    # True: predictions for a task never change once it is learned; checked at the end, and saves time.
    frozen_predictions = False

    # What ``python -m cl_lightning.contract`` asks.
    # Arguments that name a small network and stream, or less work; empty: an MLP on permuted images will do.
    contract: tuple[str, ...] = ()
    without_strength: Mapping[str, Any] | None = (
        None  # keys that make it finetune to the bit; None: no such keys
    )
    first_as_finetune = True  # whether it learns the first task as finetune does, to the bit
    starts_anew = False  # whether each task begins with other weights than the last one ended with

    def __init__(
        self, build: Callable[..., nn.Module], head: Head, grid: Sequence = ({},), seed: int = 0
    ) -> None:
        super().__init__()
        if not isinstance(self.needs, Needs):
            raise Refusal(
                f"{type(self).__name__}.needs is a {type(self.needs).__name__}. Write "
                "needs = Needs(task_id_at_test=True)."
            )
        self.build, self.head, self.seed = build, head, seed
        self.stages = [[*grid]] if not grid or isinstance(grid[0], Mapping) else [[*each] for each in grid]
        self.grid = self.stages[0]  # the points of the open task, each for a candidate
        self.network: Any = self.fresh(0)  # None in a learner that keeps its networks elsewhere
        if getattr(self.network, "needs_task", False):
            self.needs = replace(self.needs, task_id_at_test=True)
        self.memory: dict[str, Any] = {}  # what it stores of past tasks: tensors and plain values
        self.notes: ModulePaths | dict[str, Any] = {}  # what ``account`` says of the task
        self.of_base = frozenset(vars(self)) | {"of_base"}  # attributes that every learner has

    # ---- what papers are about -----------------------------------------------------------------------------

    def on_task_start(self, task: Task) -> None: ...

    def learn(self, task: Task) -> Phases:
        """One phase a yield. Code between yields runs again after a kill: it may depend only on the learner
        at the task's start, the open task, earlier outcomes and ``rng(key)``."""
        best = yield Phase(self.candidates(task))
        self.adopt(best.candidate, task)

    def candidates(self, task: Task) -> list[Candidate]:
        return [Candidate(self.starting_network(point), point) for point in self.grid]

    def extend(self, batch: Batch) -> Batch:
        """Add replayed examples to a mini-batch. Called in training only."""
        return batch

    def shared(self, batch: Batch, candidates: Sequence[Candidate]) -> Any:
        """What these candidates all use, computed without gradient when one of them first reads
        ``batch.shared``: a frozen trunk, old columns, old logits."""
        return None

    def logits(self, c: Candidate, batch: Batch) -> torch.Tensor:
        return c.network(batch.x, batch.task)

    def loss(self, c: Candidate, batch: Batch) -> torch.Tensor:
        return F.cross_entropy(self.masked(self.logits(c, batch), batch), batch.y)

    def set_mode(self, c: Candidate, training: bool) -> None:
        """Before it trains on, and before it is scored: batch normalisation that stays as it was, frozen
        parts."""
        c.network.train(training)

    def kind(self, c: Candidate, batch: Batch) -> str | int | None:
        """Which kind of work a mini-batch is, where its operations depend on more than its shape: the first
        of each kind is counted."""
        return None

    def after_backward(self, c: Candidate, batch: Batch) -> None:
        """``.grad`` is final for the loss and may be changed: project, mask, accumulate."""

    def after_step(self, c: Candidate, batch: Batch) -> None:
        """Weights have moved: clamp, soft-threshold, path integrals."""

    def adopt(self, c: Candidate, task: Task) -> None:
        self.network = c.network

    def on_task_end(self, task: Task) -> None:
        """The task's data are still open: Fisher information, herding, memory."""

    def predictors(self, seen: int) -> Generator[Phase, Outcome, Predictors]:
        """Named predictors for testing after ``seen`` tasks, or functions that make them one by one; the
        first is the one that counts. May train phases; is thrown away."""
        return {"": self}
        yield

    def predicts(self, task: int) -> bool:
        """Whether it can predict this task already."""
        return True

    def forward(self, x: torch.Tensor, task: int | None) -> torch.Tensor:
        """Logits (n, outputs) at test. ``task`` is None unless ``needs.task_id_at_test`` is declared."""
        return self.network(x, task)

    def samples(self, x: torch.Tensor, task: int | None) -> torch.Tensor:
        """Logits (draws, n, outputs) at test, of which the probabilities are averaged: of a Bayesian network
        several draws. One is ``forward``."""
        return self(x, task)[None]

    def account(self) -> ModulePaths | dict[str, Any]:
        """What it did in the task that it has just learned, for ``results.json``: plain values of its own by
        name, or notes that reports know (``learners/parts/notes.py``)."""
        return self.notes

    def published_memory(self, learned: int) -> int:
        """Bytes after so many tasks, as its paper counts them; here as Veniat et al. 2021 do, 4 for each
        number in parameters, buffers and stored tensors."""
        return 4 * numbers_in(self.parameters(), self.buffers(), self.memory)

    # ---- for use in the above ------------------------------------------------------------------------------

    def fresh(self, *key: object, **options: object) -> nn.Module:
        """A newly initialised network; the same key gives the same weights, whatever the learner."""
        with seeded(self.seed, "init", *key):
            network = self.build(**{"head": self.head, **options})
        if not isinstance(network, nn.Module):
            raise Refusal(
                f"backbone._target_ made a {type(network).__name__}, and must make a torch.nn.Module."
            )
        return network

    def starting_network(self, point: Mapping[str, Any]) -> nn.Module:
        """What a point of the grid begins with: a copy of ``self.network``, or, where it names another
        topology, a new network of that."""
        topology = {key: value for key, value in point.items() if key.startswith("backbone.")}
        if not topology:
            return copy.deepcopy(self.network)
        network: Any = self.fresh(0, **{key.partition(".")[2]: value for key, value in topology.items()})
        network.topology = topology  # kept with it: a checkpoint makes such a network again
        return network

    def once(self, name: str, work: Callable[[], Any]) -> Any:
        """The result of long work between phases (a search, a statistic), done once a task: after a kill it
        is read back.

        ``work`` returns tensors and plain values, and changes nothing. Draws inside depend on the task and
        ``name``.
        """
        keep = once()
        return work() if keep is None else keep(name, work)

    def log(self, name: str, value: Any, *_: Any, **__: Any) -> None:
        """A number of your own, for all loggers and results.json: by mini-batches while a phase trains, else
        by tasks learned. Lightning's options change nothing."""
        log(name, value)

    def masked(self, logits: torch.Tensor, batch: Batch) -> torch.Tensor:
        """The logits that the loss may see in this stream's head mode."""
        return self.head.mask(logits, batch.task) if self.head.masks_training else logits

    # ---- what a class or an attribute may not be -----------------------------------------------------------

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        check_class(cls, Learner)

    def __setattr__(self, name: str, value: Any) -> None:
        check_attribute(self, name, value)
        super().__setattr__(name, value)


Predictors = Mapping[str, Learner | Callable[[], Learner]]


def name_of(point: dict) -> str:
    """The name of a grid point.

    >>> name_of({"lr": 0.1, "weight_decay": 0}), name_of({})
    ('lr=0.1,weight_decay=0', 'default')
    """
    return ",".join(f"{key}={value}" for key, value in point.items()) or "default"
