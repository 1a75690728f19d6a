"""What happens between two task boundaries: a learner's generators are run, their phases trained, and phases
that are finished read from the store."""

from __future__ import annotations

import copy
import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, cast

import pytorch_lightning as pl
from pytorch_lightning.loggers import Logger

import cl_lightning.termination as termination
from cl_lightning.config.settings import Training
from cl_lightning.data.module import StreamDataModule
from cl_lightning.data.task import Blocks, Task
from cl_lightning.engine.costs import alone, executed, forward
from cl_lightning.engine.devices import device_of
from cl_lightning.engine.hooks import checked_return, from_its_start, hooks_of, is_learner
from cl_lightning.engine.once import Once
from cl_lightning.engine.optimizer import Moments, held_by, weights_key
from cl_lightning.engine.own import Own
from cl_lightning.engine.phase_checkpoint import FOLDER, InsideCheckpoints, inside_key
from cl_lightning.engine.phase_run import PhaseRun
from cl_lightning.engine.proposals import check_phase, settings_of, splits_of
from cl_lightning.engine.read_only import check_unchanged, read_only
from cl_lightning.engine.restartable import different, give_back, kept_of
from cl_lightning.engine.scoring import restore_best, score_if_due, score_last
from cl_lightning.engine.stack import stackable
from cl_lightning.engine.trainer import new_trainer
from cl_lightning.engine.training import train_block
from cl_lightning.errors import Diverged, Refusal, is_of_memory
from cl_lightning.learners.base import Candidate, Learner, Outcome, Phase
from cl_lightning.learners.parts.stored import Point
from cl_lightning.metrics.costs import Costs
from cl_lightning.parallel.ranks import Ranks
from cl_lightning.parallel.rounds import Rounds
from cl_lightning.parallel.shares import divided
from cl_lightning.protocol import ProtocolError, apart, copied, running, training
from cl_lightning.randomness import Key, forked, seeded
from cl_lightning.selection.grid import of_task
from cl_lightning.selection.rules import best_of
from cl_lightning.store.files import Store, adapter, load_plain
from cl_lightning.store.records import (
    CandidateRecord,
    GroupRecord,
    InsideRecord,
    PhaseRecord,
    Place,
    ProbeRecord,
    ProbesRecord,
    Row,
)


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
        ranks: Ranks | None = None,
        rounds: Rounds | None = None,
    ) -> None:
        # Measures a learner as it was at a step of the open task, and gives nothing back to it.
        self.probe = probe
        self.data, self.store, self.settings = data, store, settings
        self.loggers, self.callbacks = list(loggers), list(callbacks)
        self.ranks = ranks or Ranks()  # those that share the candidates out
        self.told_of_one = False  # that several ranks have one candidate to train
        self.rounds = rounds  # where other jobs train candidates of the same phase
        self.work = Work()
        # The optimizer's moments of phases' winners, for phases that begin with the weights of these.
        self.moments: Moments = {}
        self.step = 0  # mini-batches of the whole run: what loggers go by
        self.first_step = 0  # of these, before the phase at hand
        self.own = Own(self.loggers, lambda: self.step)

    def collect_work(self) -> Work:
        """What was done since the last call."""
        done, self.work = self.work, Work()
        return done

    # ---- a task --------------------------------------------------------------------------------------------

    def learn(self, learner: Learner, task: Task, reference: bool = False) -> None:
        """Learn one task. After a kill it begins anew, and what was done before is read from the store."""
        place = Place("reference" if reference else "task", task.index)
        once, before = Once(self.store, self.work.costs, learner, place), self.moments
        learner.grid = of_task(learner.stages, task.index)
        if self.data.boundaries:
            with self.between_phases(learner, "on_task_start", (task.index, "on_task_start"), once, task):
                learner.on_task_start(task)
        self.run_phases(learner, "learn", task, task, place, once)
        if self.data.boundaries:
            with self.between_phases(learner, "on_task_end", (task.index, "on_task_end"), once, task):
                learner.on_task_end(task)
        new = {weights: each for weights, each in self.moments.items() if before.get(weights) is not each}
        self.moments = held_by(learner, new) or held_by(learner, before)

    def predictors(self, learner: Learner, seen: int, task: Task) -> Iterator[tuple[str, Learner]]:
        """The learner's predictors after ``seen`` tasks by name, each made when it is asked for; ``task`` is
        the last of them, without data. They may train phases."""
        place = Place("predictors", seen)
        once = Once(self.store, self.work.costs, learner, place)
        found = self.run_phases(learner, "predictors", seen, task, place, once)
        for name in found:
            with self.between_phases(learner, "predictors", (place.name, name), once, task):
                made = found[name]
                made = made if is_learner(made) else made()
            yield name, checked_return(learner, "predictors", made, kind="predictors returns one")
            del made  # before the next one is made

    @contextmanager
    def between_phases(self, learner: Learner, hook: str, key: Key, once: Once, task: Task) -> Iterator[None]:
        """Runs a hook, or a part of it, between two phases: guarded, seeded by ``key``, its costs counted."""
        termination.exit_if_requested()
        learner.eval()  # whether it was trained, restored or answered from the store before
        before = read_only(learner) if hook == "predictors" else {}
        with (
            self.work.costs.measured("hooks"),
            seeded(learner.seed, *key),
            running(learner, hook, (task,), once),
        ):
            yield
        if before and (changed := different(before, read_only(learner))):
            raise ProtocolError(
                f"{type(learner).__name__}.predictors changed the learner itself, which goes on learning: "
                f"{changed}.",
                "Change copies: copied = copy.deepcopy(self); train copied.network, and return {'': copied}.",
            )

    def run_phases(
        self, learner: Learner, hook: str, argument: Any, task: Task, place: Place, once: Once
    ) -> Any:
        """Run a hook that is a generator of phases to its end, and return what it returns."""
        phases, outcome = from_its_start(learner, hook, argument), cast(Outcome, None)
        for index in itertools.count():
            with self.between_phases(learner, hook, (place.name, index), once, task):
                try:
                    phase = checked_return(learner, hook, phases.send(outcome), kind="yields")
                except StopIteration as end:
                    return end.value
                phase = replace(phase, auxiliary=phase.auxiliary or place.part == "predictors")
                check_phase(learner, phase, task, self.settings, replace(place, phase=index))
                for c in phase.candidates:
                    c.settings = Point({**vars(settings_of(phase, self.settings)), **c.hparams})
            outcome = self.recall_or_train(learner, phase, task, replace(place, phase=index))

    def recall_or_train(self, learner: Learner, phase: Phase, task: Task, place: Place) -> Outcome:
        """The outcome of a phase, read from the store as far as it was trained before. Its winner gets its
        best weights."""
        self.first_step = self.step
        groups = self.groups(learner, phase, task, place)
        record = merged(phase, task, place, groups)
        self.step += record.mini_batches
        self.work.phases.append(record)
        self.work.costs.add(**asdict(record.costs))
        order = [c.name for c in record.candidates]
        probes = [probe for group in groups for probe in group.probes]
        self.work.probes += sorted(probes, key=lambda probe: order.index(probe.candidate or order[0]))
        winner = phase.candidates[record.winner]
        keeps_all, snapshots = phase.keep == "all", {}
        for group in groups:
            if not keeps_all and record.winner not in group.numbers:
                continue
            stored = self.store.tensors(group_key(place, group.numbers))
            for number, (weights, moments) in stored["kept"].items():
                if keeps_all or number == record.winner:
                    network = phase.candidates[number].network
                    network.load_state_dict(weights)
                    network.to(learner.device).eval()  # another rank or job may have trained it
                    if moments:
                        self.moments = {**self.moments, weights_key(network.parameters()): moments}
            if record.winner in group.numbers:
                snapshots = stored["snapshots"]
        if snapshots:
            self.work.probes += self.store.get_or_make(
                f"{place.key}-probes",
                ProbesRecord,
                lambda: (ProbesRecord(self.looks(learner, winner, snapshots, task, place)), None),
            ).probes
        for c in phase.candidates:
            if c is not winner and not keeps_all:
                take_network(c)
        chosen = record.chosen
        kept = phase.candidates if keeps_all else [winner]
        return Outcome(winner, chosen.measure, chosen.steps, chosen.steps_to_best, list(kept))

    def looks(
        self, learner: Learner, c: Candidate, snapshots: dict[int, dict], task: Task, place: Place
    ) -> list[ProbeRecord]:
        """Probe a candidate as it was at each step of a phase."""
        found = []
        for step, weights in snapshots.items() if self.probes(place) else ():
            then = copy.deepcopy(c)
            then.network.load_state_dict(weights)
            row = self.look(learner, task, then, step)
            found.append(ProbeRecord(task.index, place.phase, step, None, row, self.own.of_probe))
        return found

    def look(self, learner: Learner, task: Task, c: Candidate, step: int) -> Row:
        """Probe a copy of the learner that adopts the candidate as it is."""
        assert self.probe is not None, "asked before"
        run, learner.phase_run = learner.phase_run, None
        try:
            probed, then = copied(learner).eval(), copy.deepcopy(c)
        finally:
            learner.phase_run = run
        then.network.eval()
        with apart(), self.own.probing(self.first_step + step, c):
            with seeded(learner.seed, task.index, "probe", step), running(probed, "adopt"):
                probed.adopt(then, task)
            return self.probe(probed, task, step)

    def probes(self, place: Place) -> bool:
        return self.probe is not None and place.part == "task"

    # ---- a phase -------------------------------------------------------------------------------------------

    def groups(self, learner: Learner, phase: Phase, task: Task, place: Place) -> list[GroupRecord]:
        """The results of all candidates of a phase, group by group: those that the store holds, and the
        others, trained now. A group that was interrupted stays as it was, so that its checkpoint fits."""
        done = self.store.records(place.key, GroupRecord)
        begun = [record for record in self.store.records(FOLDER, InsideRecord) if record.place == place]
        earlier: list[GroupRecord | InsideRecord] = [*done, *begun]
        for record in earlier:
            refuse_other(learner, phase, record)
        for group in sorted(done, key=lambda group: group.numbers) if self.callbacks else ():
            give_back(self.callbacks, self.store.own.tensors(group_key(place, group.numbers)))
        left = set(range(len(phase.candidates))).difference(*(group.numbers for group in done))
        if self.rounds is not None:
            left = self.rounds.own(self.store, phase, place, left, self.settings.candidates_at_once)
        shares = []
        for numbers in (record.numbers for record in begun):
            if left.issuperset(numbers):
                shares.append(numbers)
                left.difference_update(numbers)
        at_once, ranks = self.settings.candidates_at_once, self.ranks
        if ranks.size > 1 and len(phase.candidates) == 1 and not self.told_of_one:
            self.told_of_one = True
            print(
                f"{type(learner).__name__} has one candidate in {phase.name!r} of {place.name}: where a "
                "phase has no more, more devices do not help.",
                file=sys.stderr,
            )
        shares += divided(phase.candidates, sorted(left), at_once, ranks.size)
        for first in range(0, len(shares), ranks.size):
            own = shares[first : first + ranks.size][ranks.rank : ranks.rank + 1]
            trained = [self.train_group(learner, phase, numbers, task, place) for numbers in own]
            done += self.exchanged(place, trained)
        if self.rounds is not None:
            self.rounds.end_of(place)
        return done

    def exchanged(self, place: Place, trained: Sequence[tuple[GroupRecord, Any]]) -> list[GroupRecord]:
        """The groups that all ranks have just trained. Rank 0 saves them."""
        plain = [(adapter(GroupRecord).dump_python(group, mode="json"), kept) for group, kept in trained]
        all_of_them = [each for of_rank in self.ranks.gather(plain) for each in of_rank]
        told = self.ranks.broadcast([content for content, _ in all_of_them])
        groups = adapter(list[GroupRecord]).validate_python(told)
        for group, (_, kept) in zip(groups, all_of_them):  # of ranks that do not write there are none
            key = group_key(place, group.numbers)
            self.store.save(key, group, self.store.save_tensors(key, kept))
        return groups

    def train_group(
        self, learner: Learner, phase: Phase, numbers: list[int], task: Task, place: Place
    ) -> tuple[GroupRecord, dict[str, Any]]:
        """Train some candidates of a phase side by side. Returns their results, with the weights of the best
        of them, or of all where the phase keeps all."""
        with forked(), in_memory(len(numbers)):
            run = self.fit(learner, phase, numbers, task, place)
        candidates, names = run.candidates, [c.name for c in phase.candidates]
        probes = [
            ProbeRecord(task.index, place.phase, step, c.name if self.settings.probe == "all" else None, row)
            for c, rows in zip(candidates, run.probes)
            for step, row in rows.items()
        ]
        records = run.records()
        best = winner_of(records)
        kept = {
            "kept": {
                numbers[i]: (c.network.state_dict(), run.standings[i].moments)
                for i, c in enumerate(candidates)
                if i == best or phase.keep == "all"
            },
            "snapshots": kept_looks(self.store, place, numbers[best]) if run.keep else {},
            **kept_of(self.callbacks),
        }
        counts = run.meter.counts()
        own = [replace(point, candidate=None) for point in run.own if point.candidate in (None, best)]
        return GroupRecord(
            place, phase.name, names, numbers, records, best, run.step, run.costs, counts, probes, own
        ), kept

    def fit(
        self,
        learner: Learner,
        phase: Phase,
        numbers: list[int],
        task: Task,
        place: Place,
    ) -> PhaseRun:
        """Train a group of candidates through ``Trainer.fit``, from the beginning or from where an earlier
        start was interrupted."""
        s, candidates = settings_of(phase, self.settings), [phase.candidates[i] for i in numbers]
        key = (learner.seed, place.draws, place.phase)
        epochs = s.max_epochs if phase.epochs is None else phase.epochs
        splits = splits_of(phase, task)
        blocks = Blocks(
            splits, key, s.batch_size, epochs, s.block, task.index, max_steps=s.max_steps, phase=phase.name,
            hidden=not self.data.boundaries,
        )  # fmt: skip
        blocks.in_order = s.single_pass and splits == (task.train,)
        carried = {} if phase.auxiliary else self.moments
        run = PhaseRun(phase, candidates, task, s, blocks, hooks_of(learner), train_block, self.step, carried)
        if self.probes(place) and (s.probe == "all" or len(phase.candidates) == 1):
            run.probe = partial(self.look, learner, task)
        elif place.part == "task":
            run.keep = lambda i, weights: self.store.own.save_tensors(
                f"{place.key}/looks/{numbers[i]}-{run.step}", weights
            )
        learner.phase_run = self.own.run = run
        learner.to(device_of(s, self.ranks))  # new networks come on the CPU
        if s.stack and s.precision == "32":
            shapes = stackable(learner, phase)
            run.shapes = [shapes[i] for i in numbers] if any(shapes) else []
        if not run.trainable:  # pure re-use of what is there
            score_if_due(learner, run)
            score_last(learner, run)
        else:
            start = InsideRecord(place, phase.name, [c.name for c in phase.candidates], numbers, 0)
            checkpoint = self.interrupted(start)
            if checkpoint is not None:
                blocks.start_step, file = checkpoint
                done = f"{blocks.start_step} mini-batch{'es' * (blocks.start_step != 1)}"
                print(f"It goes on inside {place.words}, after {done}.", file=sys.stderr)
            self.data.replay(blocks)
            waits = self.ranks.size > 1  # for the others, before its results are recorded
            saving = InsideCheckpoints(self.store.own, start, s.checkpoint_minutes, at_end=waits)
            trainer = new_trainer(s, self.loggers, [*self.callbacks, saving], self.ranks, self.store.folder)
            path = self.store.folder / file if checkpoint is not None else None
            with termination.deferred(), training(learner, "training"):
                trainer.fit(learner, datamodule=self.data, ckpt_path=path, weights_only=True)
                check_unchanged(learner, run.before)
            self.data.blocks = self.data.trainer = None
            learner.trainer = None
        restore_best(run)
        run.release()
        learner.phase_run = self.own.run = None
        return run

    def interrupted(self, start: InsideRecord) -> tuple[int, str] | None:
        """The step and the file of this group's checkpoint, where an earlier start wrote one."""
        store, key = self.store.own, inside_key(start.numbers)
        record = store.load(key, InsideRecord)
        if record is None or replace(record, step=0) != start:
            return None
        saved = store.saved(key)
        return None if saved is None else (record.step, saved.file)


@contextmanager
def in_memory(candidates: int) -> Iterator[None]:
    """Says what to do where candidates do not fit into the memory of a device, or of the machine."""
    try:
        yield
    except Exception as error:
        if not is_of_memory(error):
            raise
        if candidates == 1:
            raise  # there are no fewer at once
        raise Refusal(
            f"The memory is too small for {candidates} candidates at once: {str(error).splitlines()[0]}\n"
            f"Train fewer at once, with the same results: trainer.candidates_at_once={candidates // 2}. What "
            "was trained is kept."
        ) from error


def take_network(loser: Candidate) -> None:
    """Its weights are not kept: after a kill, or on another rank, it would have others."""
    vars(loser).pop("network").to("meta")  # whoever else holds it computes nothing with it
    vars(loser).pop("parameters", None)


def kept_looks(store: Store, place: Place, number: int) -> dict[int, dict]:
    """The weights of a candidate by the steps of its probes."""
    files = (store.folder / place.key / "looks").glob(f"{number}-*.pt")
    return {
        step: load_plain(file) for step, file in sorted((int(f.stem.partition("-")[2]), f) for f in files)
    }


def group_key(place: Place, numbers: Sequence[int]) -> str:
    return f"{place.key}/{numbers[0]}"


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
    by_number = {n: c for group in groups for n, c in zip(group.numbers, group.candidates)}
    candidates = [by_number[n] for n in range(len(phase.candidates))]
    winner, lost = winner_of(candidates), [c.name for c in candidates if c.diverged]
    if candidates[winner].diverged or (lost and phase.keep == "all"):
        which = "All candidates" if len(lost) == len(candidates) else "Candidates that are all needed"
        raise Diverged(
            f"{which} of task {task.index} were dropped, because their weights became infinite or no "
            f"numbers: {', '.join(lost)}.\n"
            "What was learned before is kept. Lower trainer.lr or the grid's, or set trainer.clip; "
            "resume=retry tries the same again."
        )
    steps = max(group.mini_batches for group in groups)
    foreign = sum(int((each.task != task.index).sum()) for each in splits_of(phase, task) if phase.train)
    costs = costs_of(groups)
    costs.published_flops = published_flops(groups, candidates[winner])
    last = sorted(groups, key=lambda group: winner in group.numbers)  # the winner's own count
    own = {(point.name, point.at): point for group in last for point in group.own}
    kept = (costs, foreign, phase.auxiliary, [*own.values()])
    return PhaseRecord(place, phase.name, candidates, winner, steps, *kept)


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


def published_flops(groups: Sequence[GroupRecord], chosen: CandidateRecord) -> int:
    """Operations as Veniat et al. 2021 seem to count them: of all candidates with the hyper-parameters of the
    chosen one, up to the best weights of each, 3 multiplications with an addition for each of a forward pass.
    A candidate without any, since it trains nothing, is of every point: the first one's counts."""
    every = [(c, of_one) for group in groups for c, of_one in zip(group.candidates, group.counts)]
    point = chosen.hparams or next((c.hparams for c, _ in every if c.hparams), {})
    trained = [(c, forward(of_one)) for c, of_one in every if c.steps and c.hparams == point]
    return sum(3 * passes // 2 * c.steps_to_best // c.steps for c, passes in trained)


def winner_of(candidates: Sequence[CandidateRecord]) -> int:
    return best_of([c.measure for c in candidates], [c.diverged for c in candidates])
