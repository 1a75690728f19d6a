"""What happens between two task boundaries: a learner's generators are run, their phases trained, and phases
that are finished read from the store."""

from __future__ import annotations

import copy
import itertools
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from time import monotonic
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.loggers import Logger

from cl_lightning import termination
from cl_lightning.data.module import StreamDataModule
from cl_lightning.data.task import Blocks, Task
from cl_lightning.engine.costs import alone, executed
from cl_lightning.engine.hooks import hooks_of
from cl_lightning.engine.optimizer import weights_key
from cl_lightning.engine.phase_run import PhaseRun
from cl_lightning.engine.proposals import check_phase, state_versions
from cl_lightning.engine.scoring import restore_best, score_if_due, score_last
from cl_lightning.engine.settings import Training
from cl_lightning.engine.stack import stackable
from cl_lightning.engine.trainer import new_trainer
from cl_lightning.errors import Diverged, Refusal
from cl_lightning.learners.base import Candidate, Learner, Outcome, Phase, check_storable
from cl_lightning.metrics.costs import Costs
from cl_lightning.metrics.flops import Flops
from cl_lightning.protocol import ProtocolError, running, training
from cl_lightning.randomness import Key, seeded
from cl_lightning.store.files import Store
from cl_lightning.store.records import (
    CandidateRecord,
    GroupRecord,
    InsideRecord,
    OnceRecord,
    PhaseRecord,
    Place,
    ProbeRecord,
    ProbesRecord,
)

INSIDE = "work/inside/phase"  # the record of Lightning's checkpoint inside a phase


@dataclass
class Work:
    """What was done since the last boundary or test."""

    costs: Costs = field(default_factory=Costs)
    phases: list[PhaseRecord] = field(default_factory=list)
    probes: list[ProbeRecord] = field(default_factory=list)


class Phases:
    """Runs the generators of a learner, trains their phases with Lightning and records what was done."""

    def __init__(
        self,
        data: StreamDataModule,
        store: Store,
        settings: Training,
        loggers: Sequence[Logger] = (),
        callbacks: Sequence[pl.Callback] = (),
        probe: Callable[[Learner, Task, int], list[float | None]] | None = None,
    ) -> None:
        # Measures a learner as it was at a step of the open task, and gives nothing back to it.
        self.probe = probe
        self.data, self.store, self.settings = data, store, settings
        self.loggers, self.callbacks = list(loggers), list(callbacks)
        self.work = Work()
        # The optimizer's moments of the last phase's winner, and a key of the weights that they belong to;
        # empty unless the next task goes on with them.
        self.moments: dict[str, Any] = {}
        self.step = 0  # mini-batches of the whole run: what loggers go by

    def collect_work(self) -> Work:
        """What was done since the last call."""
        done, self.work = self.work, Work()
        return done

    # ---- a task --------------------------------------------------------------------------------------------

    def learn(self, learner: Learner, task: Task, reference: bool = False) -> None:
        """Learn one task. After a kill it begins anew, and what was done before is read from the store."""
        place = Place("reference" if reference else "task", task.index)
        once = Once(self.store, self.work.costs, learner.seed, place)
        with self.between_phases(learner, (task.index, "on_task_start"), once, task):
            learner.on_task_start(task)
        self.run_phases(learner.learn(task), learner, task, place, once)
        with self.between_phases(learner, (task.index, "on_task_end"), once, task):
            learner.on_task_end(task)

    def predictors(self, learner: Learner, seen: int, task: Task) -> dict[str, Learner]:
        """The learner's predictors after ``seen`` tasks; ``task`` is the last of them, without data. They may
        train phases."""
        moments, before = self.moments, state_versions(learner)
        place = Place("predictors", seen)
        once = Once(self.store, self.work.costs, learner.seed, place)
        try:
            found = self.run_phases(learner.predictors(seen), learner, task, place, once)
        finally:
            self.moments = moments  # what is trained for testing does not change the learner
        if state_versions(learner) != before:
            raise ProtocolError(
                f"{type(learner).__name__}.predictors changed the learner itself, which goes on learning.",
                "Change copies: copied = copy.deepcopy(self); train copied.network, and return {'': copied}.",
            )
        return found

    @contextmanager
    def between_phases(self, learner: Learner, key: Key, once: Once, *handed: object) -> Iterator[None]:
        """Runs the learner's code between two phases: guarded, seeded by ``key``, its costs counted."""
        termination.exit_if_requested()
        learner.eval()  # whether it was trained, restored or answered from the store before
        name = key[-1] if isinstance(key[-1], str) else "learn"
        with (
            self.work.costs.measured("hooks"),
            seeded(learner.seed, *key),
            running(learner, name, handed, once),
        ):
            yield

    def run_phases(
        self, phases: Generator[Phase, Outcome, Any], learner: Learner, task: Task, place: Place, once: Once
    ) -> Any:
        """Run a generator of phases to its end and return what it returns."""
        outcome: Any = None
        for index in itertools.count():
            with self.between_phases(learner, (place.name, index), once, task):
                try:
                    phase = phases.send(outcome)
                except StopIteration as end:
                    return end.value
            outcome = self.recall_or_train(learner, phase, task, replace(place, phase=index))

    def recall_or_train(self, learner: Learner, phase: Phase, task: Task, place: Place) -> Outcome:
        """The outcome of a phase, read from the store as far as it was trained before. Its winner gets its
        best weights."""
        check_phase(learner, phase, task, self.settings)
        size = self.settings.candidates_at_once or len(phase.candidates)
        firsts = range(0, len(phase.candidates), size)
        groups = [self.group(learner, phase, task, place, first, size) for first in firsts]
        record = merged(phase, task, place, groups)
        self.work.phases.append(record)
        self.work.costs.add(**asdict(record.costs))
        winner, kept = (
            phase.candidates[record.winner],
            self.store.tensors(group_key(place, firsts[record.winner // size])),
        )
        winner.network.load_state_dict(kept["weights"])
        winner.network.eval()
        if kept["moments"] is not None:
            self.moments = {"moments": kept["moments"], "weights": weights_key(winner.network)}
        if self.settings.probe == "winner":
            self.work.probes += self.look(learner, winner, kept["snapshots"], task, place)
        chosen = record.chosen
        return Outcome(winner, chosen.measure, chosen.steps, chosen.steps_to_best)

    def look(
        self,
        learner: Learner,
        c: Candidate,
        snapshots: dict[int, dict],
        task: Task,
        place: Place,
        number: int | None = None,
    ) -> list[ProbeRecord]:
        """Probe copies of the learner that adopt a candidate as it was at each step. ``number``: of one among
        all candidates."""
        probe = self.probe
        if probe is None or not snapshots or place.part != "task":
            return []

        def looked() -> tuple[ProbesRecord, None]:
            found = []
            for step, weights in snapshots.items():
                copied, then = copy.deepcopy(learner), copy.deepcopy(c)
                then.network.load_state_dict(weights)
                with seeded(learner.seed, task.index, "probe", step), running(copied, "adopt"):
                    copied.adopt(then, task)
                name = None if number is None else c.name
                found.append(ProbeRecord(task.index, place.phase, step, name, probe(copied, task, step)))
            return ProbesRecord(found), None

        return self.store.once(probes_key(place, number), ProbesRecord, looked).probes

    # ---- a phase -------------------------------------------------------------------------------------------

    def group(
        self, learner: Learner, phase: Phase, task: Task, place: Place, first: int, size: int
    ) -> GroupRecord:
        """The results of the candidates ``first`` .. ``first + size - 1`` of a phase, with the weights of the
        best of them."""
        candidates = phase.candidates[first : first + size]
        record = self.store.once(
            group_key(place, first),
            GroupRecord,
            lambda: self.train_group(learner, phase, candidates, task, place, first),
        )
        refuse_other(learner, phase, record)
        self.step += record.mini_batches
        if self.settings.probe == "all":
            for number in range(first, first + len(candidates)):
                known = self.store.load(probes_key(place, number), ProbesRecord)
                self.work.probes += known.probes if known else []
        return record

    def train_group(
        self,
        learner: Learner,
        phase: Phase,
        candidates: list[Candidate],
        task: Task,
        place: Place,
        first: int,
    ) -> tuple[GroupRecord, dict[str, Any]]:
        with torch.random.fork_rng(devices=[]):
            run = self.fit(learner, phase, candidates, task, place, first)
        if self.settings.probe == "all":
            for number, (c, snapshots) in enumerate(zip(candidates, run.snapshots), start=first):
                self.look(learner, c, snapshots, task, place, number)
        records = run.records()
        best = best_of(records)
        kept = {
            "weights": candidates[best].network.state_dict(),
            "moments": run.standings[best].moments,
            "snapshots": run.snapshots[best] if self.settings.probe == "winner" else {},
        }
        names = [c.name for c in phase.candidates]
        return GroupRecord(
            place, phase.name, names, records, best, run.step, run.costs, run.meter.counts()
        ), kept

    def fit(
        self,
        learner: Learner,
        phase: Phase,
        candidates: list[Candidate],
        task: Task,
        place: Place,
        first: int,
    ) -> PhaseRun:
        """Train a group of candidates through ``Trainer.fit``, from the beginning or from where an earlier
        start was interrupted."""
        s, key = self.settings, (learner.seed, place.draws, place.phase)
        split = task.train if phase.train is None else phase.train
        blocks = Blocks(
            split, key, s.batch_size, phase.epochs or s.max_epochs, s.block, task.index, max_steps=s.max_steps
        )
        run = PhaseRun(phase, candidates, task, s, blocks, hooks_of(learner), self.step, carried=self.moments)
        run.stacks = s.stack and s.precision == "32" and stackable(learner, phase)
        learner.phase_run = run
        if not run.trainable:  # pure re-use of what is there
            score_if_due(learner, run)
            score_last(learner, run)
        else:
            start = InsideRecord(place, first, phase.name, [c.name for c in phase.candidates], 0)
            checkpoint = self.interrupted(learner, phase, start)
            if checkpoint is not None:
                blocks.start_step, file = checkpoint
                step = blocks.start_step
                print(f"resumed at step {step} of {place.name}, phase {place.phase}", file=sys.stderr)
            self.data.prepare(blocks.split)
            with running(learner, "learn"):
                self.data.replay(blocks, place.phase)
            saving = InsideCheckpoints(self.store, start, s.checkpoint_minutes)
            trainer = new_trainer(s, self.loggers, [*self.callbacks, saving])
            path = self.store.folder / file if checkpoint is not None else None
            with termination.deferred(), training(learner, "training"):
                trainer.fit(learner, datamodule=self.data, ckpt_path=path, weights_only=True)
            self.data.blocks = self.data.trainer = None
            learner.trainer = None
        restore_best(run)
        learner.phase_run = None
        return run

    def interrupted(self, learner: Learner, phase: Phase, start: InsideRecord) -> tuple[int, str] | None:
        """The step and the file of this group's checkpoint, where an earlier start wrote one."""
        record = self.store.load(INSIDE, InsideRecord)
        if record is None or (record.place, record.first) != (start.place, start.first):
            return None
        refuse_other(learner, phase, record)
        saved = self.store.saved(INSIDE)
        return None if saved is None else (record.step, saved.file)


def group_key(place: Place, first: int) -> str:
    return f"{place.key}-{first}"


def probes_key(place: Place, number: int | None) -> str:
    return f"{place.key}-probes" + ("" if number is None else f"-{number}")


def refuse_other(learner: Learner, phase: Phase, before: GroupRecord | InsideRecord) -> None:
    """Refuse a learner that proposes something else after a restart."""
    names = [c.name for c in phase.candidates]
    if [before.phase, *before.proposed] != [phase.name, *names]:
        raise Refusal(
            f"{type(learner).__name__}.learn proposed {names} in phase {phase.name!r} of "
            f"{before.place.name}; before the restart it was "
            f"{before.proposed} in {before.phase!r}.\nWhat it does between yields may depend only on the "
            "learner at the task's "
            "start, the task, earlier outcomes and rng(key). Start afresh with resume=false."
        )


def merged(phase: Phase, task: Task, place: Place, groups: Sequence[GroupRecord]) -> PhaseRecord:
    """The record of a phase, made of the records of its groups of candidates."""
    candidates = [candidate for group in groups for candidate in group.candidates]
    winner = best_of(candidates)
    if candidates[winner].diverged:
        raise Diverged(
            f"All candidates of task {task.index} were dropped, because their weights became infinite or no "
            "numbers: "
            f"{', '.join(c.name for c in candidates)}.\n"
            "What was learned before is kept. Lower trainer.lr or the grid's, or set trainer.clip; "
            "resume=retry tries the same again."
        )
    steps = sum(group.mini_batches for group in groups)
    foreign = 0 if phase.train is None else int((phase.train.task != task.index).sum())
    return PhaseRecord(place, phase.name, candidates, winner, steps, costs_of(groups), foreign)


def costs_of(groups: Sequence[GroupRecord]) -> Costs:
    """A phase's costs: operations by candidate, the same in groups and alone; seconds as they were spent."""
    costs, counts = Costs(), [of_one for group in groups for of_one in group.counts]
    for group in groups:
        costs.add(**asdict(group.costs))
    costs.examples = max(group.costs.examples for group in groups)
    costs.replayed = max(group.costs.replayed for group in groups)
    costs.flops, costs.flops_executed = alone(counts), executed(counts)
    costs.step_flops = alone(counts) - alone(counts, "score")
    return costs


def best_of(candidates: Sequence[CandidateRecord]) -> int:
    """The first with the highest validation accuracy of those that did not diverge; without validation there
    is only one."""
    return max(
        range(len(candidates)), key=lambda i: (not candidates[i].diverged, candidates[i].measure or 0.0)
    )


class Once:
    """What ``Learner.once`` calls: it returns the result of the work, read from the store if it was done
    before."""

    def __init__(self, store: Store, costs: Costs, seed: int, place: Place) -> None:
        self.store, self.costs, self.seed, self.place = store, costs, seed, place
        self.known: list[str] = []

    def __call__(self, name: str, work: Callable[[], Any]) -> Any:
        if name in self.known:
            raise Refusal(
                f"self.once({name!r}, ...) is called twice in {self.place.name}. Give each piece of work a "
                "name of its own."
            )
        self.known.append(name)
        key, done = f"{self.place.key}-once{len(self.known)}", False

        def do() -> tuple[OnceRecord, Any]:
            nonlocal done
            done = True
            with seeded(self.seed, self.place.name, "once", name), Flops() as counted:
                value = work()
            check_storable(value, f"the result of self.once({name!r}, ...)")
            return OnceRecord(name, counted.total), {"value": value}

        record = self.store.once(key, OnceRecord, do)
        if not done:
            self.costs.count(record.flops, record.flops)
        if record.name != name:
            raise Refusal(
                f"self.once({name!r}, ...) comes in {self.place.name} where self.once({record.name!r}, ...) "
                "came before the restart. "
                "Call once in the same order each time, or start afresh with resume=false."
            )
        return self.store.tensors(key)["value"]


class InsideCheckpoints(pl.Callback):
    """Lightning's checkpoint every so many minutes, at SIGTERM and at Ctrl-C, between blocks; the newest is
    kept."""

    def __init__(self, store: Store, start: InsideRecord, minutes: float) -> None:
        self.store, self.start, self.seconds, self.saved_at = store, start, minutes * 60, monotonic()

    def on_fit_start(self, trainer: pl.Trainer, learner: pl.LightningModule) -> None:
        termination.claim()  # Lightning has just put a handler of its own in place

    def on_train_batch_end(self, trainer: pl.Trainer, learner: Any, *_: Any) -> None:
        if termination.requested() or monotonic() - self.saved_at >= self.seconds:
            self.save(trainer, learner.phase_run.step)
            self.saved_at = monotonic()
        termination.exit_if_requested()

    def save(self, trainer: pl.Trainer, step: int) -> None:
        """Write what Lightning would write, but straight to its place."""
        # Private: the public trainer.save_checkpoint builds the file in memory and in another folder first.
        content = trainer._checkpoint_connector.dump_checkpoint()
        saved = self.store.save_tensors(f"work/inside/{step}", content)
        self.store.save(INSIDE, replace(self.start, step=step), saved)
        for path in (self.store.folder / saved.file).parent.glob("*.pt"):
            if path.name != f"{step}.pt":
                path.unlink(missing_ok=True)

    def on_train_end(self, trainer: pl.Trainer, learner: Any) -> None:
        score_last(learner, learner.phase_run)
