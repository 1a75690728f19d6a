"""From task boundary to task boundary: drives a learner's generators, trains their phases, answers finished ones from the journal."""

from __future__ import annotations

import copy
import itertools
import logging
import sys
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.loggers import Logger
from pytorch_lightning.utilities.exceptions import MisconfigurationException

from cl_lightning import faults, termination
from cl_lightning.data.module import StreamDataModule
from cl_lightning.data.task import Blocks, Split, Task
from cl_lightning.engine.costs import alone, executed
from cl_lightning.engine.hooks import hooks_of
from cl_lightning.engine.optimizer import weights_key
from cl_lightning.engine.phase_run import PhaseRun
from cl_lightning.engine.scoring import restore_best, score_if_due, score_last
from cl_lightning.engine.settings import Training
from cl_lightning.engine.stack import stackable
from cl_lightning.errors import Refusal
from cl_lightning.journal import Journal
from cl_lightning.learners.base import Candidate, Learner, Outcome, Phase, check_plain, mapped
from cl_lightning.metrics.costs import Costs
from cl_lightning.metrics.flops import Flops
from cl_lightning.protocol import ProtocolError, running, training
from cl_lightning.randomness import Key, seeded


class Phases:
    """Drives the generators of a learner, trains their phases with Lightning and keeps account of what they cost."""

    def __init__(
        self,
        data: StreamDataModule,
        journal: Journal,
        settings: Training,
        loggers: Sequence[Logger] = (),
        callbacks: Sequence[pl.Callback] = (),
        probe: Callable[[Learner, Task, int, int, str | None], None] | None = None,
    ) -> None:
        self.probe = probe  # looks at a learner as it was at a step of the open task; gives nothing back
        self.data, self.journal, self.settings = data, journal, settings
        self.loggers, self.callbacks = list(loggers), list(callbacks)
        self.costs = Costs()  # of the open task
        self.moments: dict[str, Any] = {}  # of the last phase's winner and for which weights, where the next task goes on with them
        self.step = sum(row["mini_batches"] for row in journal.all("share"))  # over all phases: what loggers go by

    # ---- a task ----------------------------------------------------------------------------------------------

    def learn(self, learner: Learner, task: Task, where: str | None = None) -> None:
        """Learn one task. After a kill the last boundary is loaded and this is called again. ``where`` is its place in
        the journal; mini-batches depend on what stands behind the colon in it alone."""
        where = where or f"task{task.index}"
        once = Once(self.journal, self.costs, learner.seed, where)
        with self.between_phases(learner, (task.index, "on_task_start"), once, task):
            learner.on_task_start(task)
        self.run_phases(learner.learn(task), learner, task, where, once)
        faults.reached("task_end")
        with self.between_phases(learner, (task.index, "on_task_end"), once, task):
            learner.on_task_end(task)

    def predictors(self, learner: Learner, seen: int, task: Task) -> dict[str, Learner]:
        """After ``seen`` tasks; ``task`` is the last of them, closed. They may train phases."""
        moments, before = self.moments, state_versions(learner)
        where = f"predictors{seen}"
        once = Once(self.journal, self.costs, learner.seed, where)
        try:
            found = self.run_phases(learner.predictors(seen), learner, task, where, once)
        finally:
            self.moments = moments  # what is trained for testing leaves no trace
        if state_versions(learner) != before:
            raise ProtocolError(
                f"{type(learner).__name__}.predictors changed the learner itself, which goes on learning.",
                "Change copies: copied = copy.deepcopy(self); train copied.network, and return {'': copied}.",
            )
        return found

    @contextmanager
    def between_phases(self, learner: Learner, key: Key, once: Once, *handed: object) -> Iterator[None]:
        """Runs the learner's code between two phases: guarded, seeded by ``key``, its costs counted."""
        learner.eval()  # whether it was trained, restored or answered from the journal before
        name = key[-1] if isinstance(key[-1], str) else "learn"
        with self.costs.measured("hooks"), seeded(learner.seed, *key), running(learner, name, handed, once):
            yield

    def run_phases(self, phases: Generator[Phase, Outcome, Any], learner: Learner, task: Task, where: str, once: Once) -> Any:
        """Run a generator of phases to its end and return what it returns."""
        outcome: Any = None
        for index in itertools.count():
            with self.between_phases(learner, (where, index), once, task):
                try:
                    phase = phases.send(outcome)
                except StopIteration as end:
                    return end.value
            outcome = self.recall_or_train(learner, phase, task, where, index)
            faults.reached("adopt")

    def recall_or_train(self, learner: Learner, phase: Phase, task: Task, where: str, index: int) -> Outcome:
        """What a phase came to: read from the journal if it was finished before, else trained."""
        self.check_phase(learner, phase, task)
        names = [c.name for c in phase.candidates]
        before = next((row for row in reversed(self.journal.rows) if is_at(row, {"where": where, "index": index})), None)
        if before is not None and [before["name"], *before["candidates"]] != [phase.name, *names]:
            raise Refusal(
                f"{type(learner).__name__}.learn proposed {names} in phase {phase.name!r} of task {task.index}; before the restart it was "
                f"{before['candidates']} in {before['name']!r}.\nWhat it does between yields may depend only on the learner at the task's "
                "start, the task, earlier outcomes and rng(key). Start afresh with resume=false."
            )
        row = self.journal.find("phase", where=where, index=index)
        if row is None or not self.journal.intact(row["weights"]):
            row = self.train(learner, phase, task, where, index)
        winner = phase.candidates[row["winner"]]
        kept = self.journal.load(row["weights"])
        winner.network.load_state_dict(kept["weights"])
        winner.network.eval()
        if kept["moments"] is not None:
            self.moments = {"moments": kept["moments"], "weights": weights_key(winner.network)}
        self.costs.add(**row["costs"])
        if self.settings.probe == "winner" and where == f"task{task.index}":
            self.look(learner, winner, kept["snapshots"], task, index)
        best = row["standings"][row["winner"]]
        return Outcome(winner, best.get("score", best["val_accuracy"]), best["steps"], best["steps_to_best"])

    def look(self, learner: Learner, c: Candidate, snapshots: dict[int, dict], task: Task, index: int, name: str | None = None) -> None:
        """Probe copies of the learner that adopt a candidate as it was at each step. ``name``: of one among all candidates."""
        if self.probe is None:
            return
        for step, weights in snapshots.items():
            if self.journal.find("probe", task=task.index, phase=index, step=step, candidate=name) is None:
                copied, then = copy.deepcopy(learner), copy.deepcopy(c)
                then.network.load_state_dict(weights)
                with seeded(learner.seed, task.index, "probe", step), running(copied, "adopt"):
                    copied.adopt(then, task)
                self.probe(copied, task, index, step, name)

    # ---- a phase ---------------------------------------------------------------------------------------------

    def check_phase(self, learner: Learner, phase: Phase, task: Task) -> None:
        """What cannot be trained or compared is said before training, not after."""
        who, names = type(learner).__name__, [c.name for c in phase.candidates]
        if not names or len(set(names)) < len(names):
            raise Refusal(
                f"{who} proposed the candidates {names} for task {task.index}. A phase needs at least one, and each a name of its own."
            )
        owners: dict[int, str] = {}
        for c in phase.candidates:
            for name, tensor in c.network.state_dict(keep_vars=True).items():
                other = owners.setdefault(storage_of(tensor), c.name) if isinstance(tensor, torch.Tensor) and tensor.numel() else c.name
                if other != c.name:
                    raise Refusal(
                        f"{who} proposed {other} and {c.name} for task {task.index}, which share the tensor {name}: each would train the "
                        "other's weights. Give every candidate a network of its own: copy.deepcopy(self.network)."
                    )
        for tensor in (*learner.parameters(), *learner.buffers()):
            owner = owners.get(storage_of(tensor)) if tensor.numel() else None
            if owner is not None:
                raise Refusal(
                    f"{who} proposed a network of its own as the candidate {owner} for task {task.index}: training would change the "
                    "learner before a winner is chosen. Propose a copy: copy.deepcopy(self.network)."
                )
        if phase.train is not None and not len(phase.train):
            raise Refusal(
                f"{who} proposed a phase of task {task.index} whose `train` is empty. Leave it out (None) for the task's own examples."
            )
        if phase.val is not None or task.val is not None or phase.score is not None:
            return
        if len(phase.candidates) > 1:
            raise Refusal(
                f"{len(phase.candidates)} candidates are to be compared, but the task has no validation data to compare them on. "
                f"{'Set' if self.settings.single_pass else 'Set n_val of the stream or its tasks above 0, or'} selection=none."
            )
        if phase.patience is not None or self.settings.patience is not None:
            raise Refusal(
                "Early stopping needs validation data, and the task has no validation data. "
                "Set n_val of the stream or its tasks above 0, or trainer.patience=null to train to the end."
            )

    def train(self, learner: Learner, phase: Phase, task: Task, where: str, index: int) -> dict:
        """Train all candidates, in shares where so many do not fit at once, and record the phase."""
        size = self.settings.candidates_at_once or len(phase.candidates)
        shares = [self.share(learner, phase, task, where, index, first, size) for first in range(0, len(phase.candidates), size)]
        standings = [standing for share in shares for standing in share["standings"]]
        diverged = [each for share in shares for each in share["diverged"]]
        winner = best_of([s.get("score", s["val_accuracy"]) for s in standings], diverged)
        if diverged[winner]:
            raise Refusal(
                f"All candidates of task {task.index} were dropped, because their weights became infinite or no numbers: "
                f"{', '.join(c.name for c in phase.candidates)}.\n"
                "What was learned before is kept. Lower trainer.lr or the grid's, or set trainer.clip."
            )
        return self.journal.append(
            "phase",
            where=where,
            index=index,
            task=task.index,
            name=phase.name,
            candidates=[c.name for c in phase.candidates],
            hparams=[c.hparams for c in phase.candidates],
            standings=standings,
            winner=winner,
            weights=shares[winner // size]["weights"],
            costs=costs_of(shares).plain(),
            foreign=0 if phase.train is None else int((phase.train.task != task.index).sum()),
        )

    def share(self, learner: Learner, phase: Phase, task: Task, where: str, index: int, first: int, size: int) -> dict:
        """Candidates ``first`` .. ``first + size - 1`` of a phase: what they came to, and the weights of the best of them."""
        place = {"where": where, "index": index, "first": first}
        named = {"name": phase.name, "candidates": [c.name for c in phase.candidates]}
        row = self.journal.find("share", **place)
        if row is not None and self.journal.intact(row["weights"]):
            return row
        candidates = phase.candidates[first : first + size]
        with torch.random.fork_rng(devices=[]):
            run = self.fit(learner, phase, candidates, task, place, named)
        self.step += run.step
        if self.settings.probe == "all" and where == f"task{task.index}":
            for c, snapshots in zip(candidates, run.snapshots):
                self.look(learner, c, snapshots, task, index, c.name)
        diverged = [s.diverged for s in run.standings]
        best = best_of([s.accuracy for s in run.standings], diverged)
        kept = {
            "weights": candidates[best].network.state_dict(),
            "moments": run.standings[best].moments,
            "snapshots": run.snapshots[best] if self.settings.probe == "winner" else {},
        }
        row = self.journal.append(
            "share",
            **place,
            **named,
            standings=[s.plain(phase.score is not None) for s in run.standings],
            diverged=diverged,
            weights=self.journal.save(f"{where}-phase{index}-{first}", partial(torch.save, kept)),
            mini_batches=run.step,
            costs=run.costs.plain(),
            counts=run.meter.counts(),
        )
        for inside in self.journal.all("inside"):
            self.journal.drop(inside["saved"])
        return row

    def fit(self, learner: Learner, phase: Phase, candidates: list[Candidate], task: Task, place: dict, named: dict) -> PhaseRun:
        """Train a share through ``Trainer.fit``, from the beginning or from where an earlier start was interrupted."""
        s, key = self.settings, (learner.seed, place["where"].rpartition(":")[2], place["index"])
        split: Split = task.train if phase.train is None else phase.train
        blocks = Blocks(split, key, s.batch_size, phase.epochs or s.max_epochs, s.block, task.index, most=s.max_steps)
        run = PhaseRun(phase, candidates, task, s, blocks, hooks_of(learner), self.step, carried=self.moments)
        run.stacks = s.stack and s.precision == "32" and stackable(learner, phase)
        learner.phase_run = run
        if not run.trainable:  # pure re-use of what is there
            score_if_due(learner, run)
            score_last(learner, run)
        else:
            inside = next(
                (row for row in reversed(self.journal.all("inside")) if is_at(row, place) and self.journal.intact(row["saved"])), None
            )
            if inside is not None:
                blocks.first = inside["step"]
                print(f"resumed at step {inside['step']} of {place['where']}, phase {place['index']}", file=sys.stderr)
            self.data.prepare(blocks.split)
            with running(learner, "learn"):
                self.data.replay(blocks, place["index"])
            checkpoints = InsideCheckpoints(self.journal, {**place, **named}, inside, s.checkpoint_minutes)
            trainer = new_trainer(s, self.loggers, [*self.callbacks, checkpoints])
            checkpoint = self.journal.place(inside["saved"]) if inside else None
            with termination.deferred(), training(learner, "training"), interruptible():
                trainer.fit(learner, datamodule=self.data, ckpt_path=checkpoint, weights_only=True)
            self.data.blocks = self.data.trainer = None
            learner.trainer = None
        restore_best(run)
        learner.phase_run = None
        return run

    def settle(self) -> Costs:
        """What was spent since the last call: on one task."""
        spent, self.costs = self.costs, Costs()
        return spent


def costs_of(shares: Sequence[dict]) -> Costs:
    """A phase's costs: operations by candidate, the same in shares and alone; seconds as they were spent."""
    costs, counts = Costs(), [of_one for share in shares for of_one in share["counts"]]
    for share in shares:
        costs.add(**share["costs"])
    costs.examples, costs.replayed = (max(share["costs"][name] for share in shares) for name in ("examples", "replayed"))
    costs.flops, costs.flops_executed = alone(counts), executed(counts)
    costs.step_flops = alone(counts) - alone(counts, "score")
    return costs


class Once:
    """Behind ``Learner.once``: what the work came to, read from the journal if it was done before."""

    def __init__(self, journal: Journal, costs: Costs, seed: int, where: str) -> None:
        self.journal, self.costs, self.seed, self.where = journal, costs, seed, where
        self.known: list[str] = []

    def __call__(self, name: str, work: Callable[[], Any]) -> Any:
        if name in self.known:
            raise Refusal(f"self.once({name!r}, ...) is called twice in {self.where}. Give each piece of work a name of its own.")
        self.known.append(name)
        row = self.journal.find("once", where=self.where, name=name)
        if row is None or not self.journal.intact(row["saved"]):
            with seeded(self.seed, self.where, "once", name), Flops() as counted:
                value = work()
            check_plain(value, f"what self.once({name!r}, ...) came to")
            saved = self.journal.save(f"{self.where}-once{len(self.known)}", partial(torch.save, value))
            row = self.journal.append("once", where=self.where, name=name, saved=saved, flops=counted.total)
        else:
            self.costs.count(row["flops"], row["flops"])
        return self.journal.load(row["saved"])


class InsideCheckpoints(pl.Callback):
    """Lightning's checkpoint every so many minutes and at SIGTERM, between blocks; the last two are kept."""

    def __init__(self, journal: Journal, row: dict, resumed: dict | None, minutes: float) -> None:
        self.journal, self.row, self.seconds, self.saved_at = journal, row, minutes * 60, monotonic()
        self.latest = resumed["saved"]["file"] if resumed else ""  # good, so not to be written over

    def on_fit_start(self, trainer: pl.Trainer, learner: pl.LightningModule) -> None:
        termination.claim()  # Lightning has just put a handler of its own in place

    def on_train_batch_end(self, trainer: pl.Trainer, learner: Any, *_: Any) -> None:
        if termination.requested() or monotonic() - self.saved_at >= self.seconds:
            name = "inside1" if self.latest == "inside0.pt" else "inside0"
            self.journal.save_behind(name, partial(write_checkpoint, trainer), "inside", **self.row, step=learner.phase_run.step)
            self.latest = f"{name}.pt"
            self.saved_at = monotonic()
        if termination.requested():
            self.journal.settle()
        termination.exit_if_requested()

    def on_train_end(self, trainer: pl.Trainer, learner: Any) -> None:
        score_last(learner, learner.phase_run)
        self.journal.settle()


def write_checkpoint(trainer: pl.Trainer, path: Path) -> None:
    """Lightning's content, straight to its place: ``trainer.save_checkpoint`` builds it in memory and in another folder first."""
    torch.save(trainer._checkpoint_connector.dump_checkpoint(), path)


def is_at(row: dict, place: dict) -> bool:
    return all(row.get(key) == value for key, value in place.items())


def best_of(accuracies: Sequence[float | None], diverged: Sequence[bool]) -> int:
    """The first with the highest validation accuracy of those that did not diverge; without validation there is only one."""
    return max(range(len(accuracies)), key=lambda i: (not diverged[i], accuracies[i] or 0.0))


def new_trainer(settings: Training, loggers: list[Logger], callbacks: list[pl.Callback]) -> pl.Trainer:
    """A Trainer for one phase. What Lightning would do a second time (validation, checkpoints, clipping) is the engine's."""
    quiet_lightning()
    for callback in callbacks:
        if isinstance(callback, pl.callbacks.EarlyStopping | pl.callbacks.ModelCheckpoint | pl.callbacks.GradientAccumulationScheduler):
            raise Refusal(
                f"trainer.callbacks holds {type(callback).__name__}, which looks at one model a step, while the engine trains several. "
                "Use trainer.patience for early stopping; checkpoints are kept by the run itself."
            )
    try:
        return pl.Trainer(**arguments(settings, loggers, callbacks))
    except (TypeError, MisconfigurationException) as reason:
        raise Refusal(
            f"Lightning makes no Trainer of trainer.accelerator={settings.accelerator} and trainer.lightning={dict(settings.lightning)}: "
            f"{str(reason).splitlines()[0]}\nCheck these two keys."
        ) from reason


def arguments(settings: Training, loggers: list[Logger], callbacks: list[pl.Callback]) -> dict[str, Any]:
    return dict(
        max_epochs=1,
        accelerator=settings.accelerator,
        devices=1,
        logger=loggers or False,
        callbacks=callbacks,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        **settings.lightning,
    )


def storage_of(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata


def state_versions(learner: Learner) -> list[tuple]:
    """Where all tensors of a learner lie, and how often each was written to."""
    found: list[tuple] = []

    def note(tensor: torch.Tensor) -> torch.Tensor:
        found.append((storage_of(tensor), tensor._version))
        return tensor

    mapped(note, [*learner.parameters(), *learner.buffers(), learner.memory])
    return found


@contextmanager
def interruptible() -> Iterator[None]:
    """Ctrl-C stays what it is: Lightning makes an exit with code 1 of it."""
    try:
        yield
    except SystemExit as end:
        if isinstance(end.__context__, KeyboardInterrupt):
            raise KeyboardInterrupt from end
        raise


def quiet_lightning() -> None:
    """A Trainer a phase must not greet each time."""
    for name in ("pytorch_lightning", "lightning_fabric", "lightning.pytorch"):
        logging.getLogger(name).setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="pytorch_lightning|lightning_fabric")
