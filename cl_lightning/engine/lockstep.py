"""Lock-step: all candidates of a phase on the same mini-batches, each as if it were alone."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from time import perf_counter, process_time
from typing import Any

import torch
from pytorch_lightning.core.optimizer import LightningOptimizer
from torch import Tensor

from cl_lightning import faults
from cl_lightning.data.task import Batch, Blocks, Split, Task
from cl_lightning.engine.moments import begin_momentum, carry_on, moments_of
from cl_lightning.engine.settings import Training
from cl_lightning.engine.stack import Stack, stackable
from cl_lightning.errors import Refusal
from cl_lightning.learners.base import Candidate, Learner, Phase
from cl_lightning.metrics.accuracy_matrix import predicted
from cl_lightning.metrics.costs import Costs
from cl_lightning.metrics.flops import Calls
from cl_lightning.randomness import Key, seed_default_generators, seed_of


@dataclass
class Standing:
    """How far a candidate has come. ``weights`` are its best so far; None: the latest are."""

    accuracy: float | None = None
    step: int = 0  # of the best accuracy
    steps: int = 0  # trained
    weights: dict[str, Tensor] | None = None
    moments: dict[str, dict] | None = None  # of the optimizer, at the same step
    lost: bool = False  # its weights are no numbers any more: it cannot win

    def plain(self, own_score: bool) -> dict:
        """``own_score``: what it was scored by is the phase's own, and no accuracy."""
        best = {"val_accuracy": None, "score": self.accuracy} if own_score else {"val_accuracy": self.accuracy}
        to_best = self.steps if self.accuracy is None else self.step
        return {**best, "steps": self.steps, "steps_to_best": to_best}


@dataclass
class Work:
    """Operations of one mini-batch of a given shape, or of one scoring: counted when first met, then multiplied."""

    shared: int = 0
    own: dict[int, int] = field(default_factory=dict)  # by candidate
    parts: dict[int, float] = field(default_factory=dict)  # by candidate: of what is shared, what it would need alone


class LockStep:
    """Trains candidates of one phase: one data pass, ``shared`` once, one optimizer, each candidate's backward at once after its loss.

    Every candidate is scored, restored to its best and dismissed by itself, and ends with the same bits as alone: what it
    draws depends on (seed, task, phase, step, hook) only, and no tensor is written by two of them.
    """

    def __init__(self, learner: Learner, phase: Phase, candidates: list[Candidate], task: Task, settings: Training, blocks: Blocks) -> None:
        self.learner, self.phase, self.candidates, self.task, self.settings = learner, phase, candidates, task, settings
        self.head = task.head
        self.step = 0  # mini-batches taken
        self.begun = False  # in this process
        self.scored_at = -1
        self.first_step = 0  # of the run, before this phase: what loggers go by
        self.stacks = settings.stack and settings.precision == "32" and stackable(learner, phase)
        self.stack: Stack | None = None
        self.carries = settings.optimizer_state == "carry"
        self.optimizer: torch.optim.Optimizer | None = None
        self.autocast = settings.precision == "bf16-mixed"
        self.standings = [Standing() for _ in candidates]
        self.snapshots: list[dict[int, dict[str, Tensor]]] = [{} for _ in candidates]  # by step: for probes, read when the winner is known
        self.alive = list(range(len(candidates)))
        self.patience = phase.patience if phase.patience is not None else settings.patience
        self.val: Split | None = phase.val or task.val
        self.every = settings.score_every or blocks.per_epoch
        self.key = blocks.key  # (seed, task, phase)
        self.loss: Callable[[Candidate, Batch], Tensor] = phase.loss or learner.loss
        self.extends, self.shares, self.edits, self.follows = (
            getattr(type(learner), name) is not getattr(Learner, name) for name in ("extend", "shared", "after_backward", "after_step")
        )
        self.costs = Costs()
        self._work: dict[tuple, Work] = {}
        self._taken: Counter = Counter()
        self._agreed: dict[tuple, bool] = {}  # by shape of mini-batch: whether the stack has the bits of separate networks
        self._seed: tuple[tuple, int] = ((), 0)
        self.warned: set[int] = set()  # of NaN
        self._scoring: Work | None = None
        self.parameters = [p for c in candidates for p in c.network.parameters()]

    @property
    def trains(self) -> bool:
        """Whether any candidate has something to train."""
        return any(c.groups() for c in self.candidates)

    def score_untrained(self) -> None:
        """For candidates without parameters to train: pure re-use of what is there."""
        if self.val is not None:
            self.score()

    # ---- what Lightning calls through the learner ------------------------------------------------------------

    def new_optimizer(self) -> torch.optim.Optimizer:
        """One optimizer for all. Candidates with equal hyper-parameters share a group: the same bits, fewer calls."""
        merged: dict[str, dict] = {}
        for group in (group for c in self.candidates for group in c.groups()):
            options = {key: value for key, value in group.items() if key != "params"}
            merged.setdefault(repr(sorted(options.items())), {"params": [], **options})["params"] += group["params"]
        s, fused = self.settings, self.learner.device.type in ("cpu", "cuda")
        common: dict[str, Any] = {"lr": s.lr, "weight_decay": s.weight_decay, "fused": fused}
        groups = list(merged.values())
        adam = s.optimizer == "adam"
        self.optimizer = torch.optim.Adam(groups, **common) if adam else torch.optim.SGD(groups, momentum=s.momentum, **common)
        begin_momentum(self.optimizer)
        if self.carries:
            carry_on(self.optimizer, self.candidates, self.learner.optimizer_moments)
        return self.optimizer

    def moments_of(self, i: int) -> dict[str, dict] | None:
        """Of a candidate, where they are carried."""
        return moments_of(self.optimizer, self.candidates[i].network) if self.carries and self.optimizer is not None else None

    def walk(self, block: list[Batch]) -> None:
        """One Lightning step: a block of mini-batches."""
        faults.reached("block")
        trainer, wrapped = self.learner.trainer, self.learner.optimizers()
        assert isinstance(wrapped, LightningOptimizer)
        if not self.begun:
            self.begun = True
            self.set_mode(training=True)
            if self.step == 0:
                self.snapshot_if_due()
                self.score_if_due()
        began, began_cpu, scored = perf_counter(), process_time(), self.costs.seconds.get("score", 0.0)
        for batch in block:
            if not self.alive:
                break
            self.take(batch, wrapped.optimizer)
            self.step += 1
            self.snapshot_if_due()
            self.score_if_due()
        self.costs.spend("train", perf_counter() - began - (self.costs.seconds.get("score", 0.0) - scored))
        self.costs.spend("cpu", process_time() - began_cpu)
        wrapped._on_before_step()  # Lightning's global_step counts blocks
        wrapped._on_after_step()
        if not self.alive:
            trainer.should_stop = True

    def snapshot_if_due(self) -> None:
        every = self.settings.probe_every
        if self.step in self.settings.probe_at or (every and self.step and self.step % every == 0):
            for i in self.alive:
                weights = self.candidates[i].network.state_dict().items()
                self.snapshots[i][self.step] = {name: value.detach().cpu().clone() for name, value in weights}

    def state(self) -> dict:
        """Between blocks: all that is not weights, optimizer or learner."""
        self.settle()
        standings = [{**vars(standing)} for standing in self.standings]
        return {
            "step": self.step,
            "scored_at": self.scored_at,
            "alive": list(self.alive),
            "standings": standings,
            "snapshots": self.snapshots,
            "costs": self.costs.plain(),
        }

    def restore(self, state: dict) -> None:
        self.step, self.scored_at, self.alive = state["step"], state["scored_at"], list(state["alive"])
        self.standings = [Standing(**standing) for standing in state["standings"]]
        self.snapshots = state["snapshots"]
        self.costs = Costs(**state["costs"])

    # ---- one mini-batch --------------------------------------------------------------------------------------

    def take(self, batch: Batch, optimizer: torch.optim.Optimizer) -> None:
        learner, living, lent = self.learner, [self.candidates[i] for i in self.in_training], len(batch)
        if self.extends:
            self.seed(batch.key, "extend")
            batch = learner.extend(batch)
        self.costs.examples += lent
        self.costs.replayed += len(batch) - lent
        self.costs.candidate_examples += lent * len(living)
        for p in self.parameters:
            p.grad = None  # None, not 0: who has left or has no share in this batch is neither stepped nor decayed
        new = batch.x.shape not in self._work
        if new:
            self.take_and_count(batch, living)
        else:
            if self.shares:
                self.share(batch)
            self.learn_all(living, batch)
        self._taken[batch.x.shape] += 1
        if self.settings.clip is not None:
            for c in living:
                torch.nn.utils.clip_grad_norm_(c.network.parameters(), self.settings.clip)
        optimizer.step()
        if self.follows:
            with torch.no_grad():
                for c in living:
                    self.seed(batch.key, "after_step")
                    learner.after_step(c, batch)

    @property
    def in_training(self) -> list[int]:
        """The living candidates that have something to train: pure re-use waits to be scored."""
        return [i for i in self.alive if self.candidates[i].parameters]

    def share(self, batch: Batch) -> None:
        self.seed(batch.key, "shared")
        with torch.no_grad():
            batch.shared = self.computed(self.learner.shared, batch)

    def learn_all(self, living: list[Candidate], batch: Batch) -> None:
        if not self.stacks:
            for c in living:
                self.learn_from(c, batch)
        elif batch.x.shape not in self._agreed:
            for c in living:
                self.differentiate(c, batch)
            self.stack = self.stack or Stack(living)
            self._agreed[batch.x.shape] = self.stack.agrees(batch.x, batch.y, self.masked(batch))
            for c in living:
                self.edit(c, batch)
        elif self._agreed[batch.x.shape] and self.stack is not None:
            log_p = self.stack.learn_from(batch.x, batch.y, self.masked(batch))
            for k, c in enumerate(living):
                if self.logs_losses:
                    self.log_loss(c, torch.nn.functional.nll_loss(log_p[k], batch.y))
                self.edit(c, batch)
        else:
            for c in living:
                self.learn_from(c, batch)

    def masked(self, batch: Batch) -> Callable[[Tensor], Tensor]:
        return lambda logits: self.learner.in_training(logits, batch)

    def learn_from(self, c: Candidate, batch: Batch) -> None:
        self.differentiate(c, batch)
        self.edit(c, batch)

    def differentiate(self, c: Candidate, batch: Batch) -> None:
        self.seed(batch.key, "loss")
        loss = self.computed(self.loss, c, batch)
        if loss.requires_grad:
            loss.backward()
        if self.logs_losses:
            self.log_loss(c, loss)

    @property
    def logs_losses(self) -> bool:
        return self.settings.log_every > 0 and self.step % self.settings.log_every == 0

    def log_loss(self, c: Candidate, loss: Tensor) -> None:
        self.log({f"loss/{c.name}": loss.item()})

    def edit(self, c: Candidate, batch: Batch) -> None:
        if self.edits:
            self.seed(batch.key, "after_backward")
            self.learner.after_backward(c, batch)

    def computed(self, hook: Callable, *arguments: object) -> Any:
        """Only loss, logits and shared run under autocast. Leaving it each time drops its copies of the weights, which change each step:
        hence the engine casts, not Lightning's precision plugin, which wraps a whole block."""
        if not self.autocast:
            return hook(*arguments)
        with torch.autocast(self.learner.device.type, dtype=torch.bfloat16):
            return hook(*arguments)

    def seed(self, key: Key, hook: str) -> None:
        """Before each hook: the same for all candidates."""
        if self._seed[0] != (full := (*key, hook)):
            self._seed = full, seed_of(*full)
        seed_default_generators(self._seed[1], self.learner.device)

    # ---- scoring on validation data --------------------------------------------------------------------------

    def score_if_due(self) -> None:
        if self.val is None or self.patience is None:
            return
        if self.step in self.settings.score_at or (self.step and self.step % self.every == 0):
            self.score()

    def score(self) -> None:
        """Who improved keeps a copy of its weights; who has not for ``patience`` mini-batches leaves. The untrained candidate counts."""
        faults.reached("score")
        self.scored_at = self.step
        self.drop_lost()
        if not self.alive:
            return
        with self.costs.timed("score"):
            for i, accuracy in zip(list(self.alive), self.accuracies()):
                standing, patience = self.standings[i], math.inf if self.patience is None else self.patience
                if not self.candidates[i].parameters:  # pure re-use: it will not change
                    self.standings[i] = Standing(accuracy)
                    self.dismiss(i)
                elif standing.accuracy is None or accuracy > standing.accuracy:
                    weights = {name: value.clone() for name, value in self.candidates[i].network.state_dict().items()}
                    self.standings[i] = Standing(accuracy, self.step, self.step, weights, self.moments_of(i))
                elif self.step - standing.step >= patience:
                    self.dismiss(i)
            best = "best_val_accuracy" if self.phase.score is None else "best_score"
            self.log({"alive": len(self.alive), best: self.best_accuracy})

    @torch.no_grad()
    def accuracies(self) -> list[float]:
        """Of the living candidates, in evaluation mode."""
        assert self.val is not None
        self.set_mode(training=False)
        if self._scoring is None:  # the validation split stays the same: what scoring costs is counted once
            self._scoring = Work()
            with Calls() as calls:
                scores = self.score_all(self.val, calls)
        else:
            scores = self.score_all(self.val, None)
        self.count(self._scoring, 1)
        self.set_mode(training=True)
        return scores

    def score_all(self, val: Split, calls: Calls | None) -> list[float]:
        right = {i: torch.zeros((), dtype=torch.int64, device=self.learner.device) for i in self.alive}
        lost = {i: right[i].clone() for i in self.alive}
        work = self._scoring if calls else None
        if self.phase.score is not None:
            scores = []
            for i in self.alive:
                self.seed((*self.key, self.step), "score")
                scores.append(self.finite(self.phase.score(self.candidates[i], val), self.candidates[i]))
                if calls and work:
                    work.own[i] = calls.take()
            return scores
        for batch in val.batches(self.settings.eval_batch_size):
            batch = batch.to(self.learner.device)
            batch.key = (*self.key, self.step, *batch.key)
            if self.shares:
                if calls and work and not work.parts:
                    work.parts = self.parts_of_shared(batch, calls)
                self.share(batch)
                if calls and work:
                    work.shared += calls.take()
            for i in self.alive:
                self.seed(batch.key, "logits")
                logits = self.computed(self.learner.logits, self.candidates[i], batch)
                if self.head.masks_test:
                    logits = self.head.mask(logits, batch.task)
                numbers = predicted(logits)
                right[i] += (numbers == batch.y).sum()
                lost[i] += (numbers < 0).sum()
                if calls and work:
                    work.own[i] = work.own.get(i, 0) + calls.take()
        self.warn_of_nan({i: int(count) for i, count in lost.items()}, len(val))
        return [right[i].item() / len(val) for i in self.alive]

    def finite(self, score: float, c: Candidate) -> float:
        """Of a phase's own ``score``; what cannot be compared is refused."""
        if math.isfinite(score):
            return score
        raise Refusal(
            f"The score of {c.name} in phase {self.phase.name!r} of task {self.task.index} is {score} after {self.step} "
            "mini-batches, which cannot be compared. A phase's own score must give a finite number."
        )

    def warn_of_nan(self, lost: dict[int, int], images: int) -> None:
        """Once a candidate: scoring comes often."""
        for i, count in lost.items():
            if count and i not in self.warned:
                self.warned.add(i)
                warnings.warn(
                    f"{self.candidates[i].name} gave NaN logits for {count} of {images} validation images of task "
                    f"{self.task.index} after {self.step} mini-batches. Such images count as wrong at every scoring.",
                    stacklevel=2,
                )

    def log(self, metrics: dict[str, Any]) -> None:
        for logger in self.learner.loggers:
            logger.log_metrics({"task": self.task.index, **metrics}, step=self.first_step + self.step)

    def set_mode(self, training: bool) -> None:
        for i in self.alive:
            self.candidates[i].network.train(training)

    def drop_lost(self) -> None:
        """Looked for when candidates are scored: in every step it would hold up an accelerator."""
        for i in list(self.alive):
            if not all(p.isfinite().all() for p in self.candidates[i].network.parameters()):
                warnings.warn(
                    f"{self.candidates[i].name} is dropped after {self.step} mini-batches of task {self.task.index}: its weights are not "
                    "finite. A lower learning rate or trainer.clip may help.",
                    stacklevel=2,
                )
                self.standings[i].lost = True
                self.dismiss(i)

    def dismiss(self, i: int) -> None:
        self.settle()
        self.unstack()
        self.standings[i].steps = self.steps_of(i)
        self.alive.remove(i)
        if self.shares:  # what is shared may be less now: counted again
            self._work.clear()
            self._scoring = None
        for p in self.candidates[i].network.parameters():
            p.grad = None

    def unstack(self) -> None:
        """The stack holds the living; whoever is left makes a new one."""
        if self.stack is not None:
            self.stack.release()
            self.stack = None
            self._agreed.clear()

    # ---- the end ---------------------------------------------------------------------------------------------

    def score_last(self) -> None:
        """At the end of training, while Lightning still has everything on its device: whoever was not scored at this step is."""
        self.settle()
        self.unstack()
        self.drop_lost()
        if self.val is None or not self.alive or self.scored_at == self.step:
            return
        if self.patience is not None:
            self.score()
            return
        for i, accuracy in zip(self.alive, self.accuracies()):  # without early stopping the last weights stay
            self.standings[i] = Standing(accuracy, self.steps_of(i), self.steps_of(i))

    def steps_of(self, i: int) -> int:
        """Mini-batches that a living candidate has been trained on."""
        return self.step if self.candidates[i].parameters else 0

    def finish(self) -> list[Standing]:
        """Restore every candidate to its best weights."""
        for i in self.alive:
            self.standings[i].steps = self.steps_of(i)
            if self.standings[i].moments is None:
                self.standings[i].moments = self.moments_of(i)
        for c, standing in zip(self.candidates, self.standings):
            if standing.weights is not None:
                c.network.load_state_dict(standing.weights)
                standing.weights = None
            c.network.eval()
        return self.standings

    @property
    def best_accuracy(self) -> float | None:
        return max((s.accuracy for s in self.standings if s.accuracy is not None), default=None)

    # ---- floating-point operations ---------------------------------------------------------------------------

    def take_and_count(self, batch: Batch, living: list[Candidate]) -> None:
        """The same as without counting, and notes which modules are called with which shapes."""
        seen = self._work[batch.x.shape] = Work()
        with Calls() as calls:
            if self.shares:
                seen.parts = self.parts_of_shared(batch, calls)
                self.share(batch)
                seen.shared = calls.take()
            for i, c in zip(self.in_training, living):
                self.learn_from(c, batch)
                seen.own[i] = calls.take()

    def parts_of_shared(self, batch: Batch, calls: Calls) -> dict[int, float]:
        """By candidate: the part of ``shared`` that it would need alone, tried with one example."""
        living, one = self.alive, replace(batch, x=batch.x[:1], y=batch.y[:1], task=batch.task[:1])
        needed = {}
        for i in living:
            self.alive = [i]
            self.share(one)
            needed[i] = calls.take()
        self.alive = living
        self.share(one)
        whole = calls.take()
        return {i: part / whole if whole else 1.0 for i, part in needed.items()}

    def settle(self) -> None:
        """Multiply what each shape costs by how often it was taken since the set of living candidates last changed."""
        for shape, times in self._taken.items():
            self.costs.step_flops += self.count(self._work[shape], times)
        self._taken.clear()

    def count(self, work: Work, times: int) -> int:
        members = [i for i in self.alive if i in work.own]
        own = sum(work.own[i] for i in members)
        alone = times * (own + round(work.shared * sum(work.parts.get(i, 1.0) for i in members)))
        self.costs.count(alone, times * (own + work.shared))
        return alone
