"""From task boundary to task boundary: drives a learner's generators, trains their phases, answers finished ones from the journal."""

from __future__ import annotations

import copy
import itertools
import logging
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

import pytorch_lightning as pl
import torch
import torch.nn as nn
from pytorch_lightning.loggers import Logger
from pytorch_lightning.utilities.exceptions import MisconfigurationException

from cl_lightning import faults, termination
from cl_lightning.data.copies import copies_of
from cl_lightning.data.module import StreamDataModule
from cl_lightning.data.task import Blocks, Task
from cl_lightning.engine.lockstep import LockStep
from cl_lightning.engine.moments import weights_key
from cl_lightning.engine.settings import Training
from cl_lightning.errors import Refusal
from cl_lightning.journal import Journal
from cl_lightning.learners.base import Candidate, Learner, Outcome, Phase, Phases, check_plain
from cl_lightning.metrics.costs import Costs
from cl_lightning.metrics.flops import Calls
from cl_lightning.protocol import running
from cl_lightning.randomness import seeded


class Engine:
    """Trains phases with Lightning and keeps account of what they cost."""

    def __init__(
        self,
        data: StreamDataModule,
        journal: Journal,
        settings: Training,
        loggers: Sequence[Logger] = (),
        callbacks: Sequence[pl.Callback] = (),
        probe: Callable[[Learner, Task, int, int], None] | None = None,
    ) -> None:
        self.probe = probe  # looks at a learner as it was at a step of the open task; gives nothing back
        self.data, self.journal, self.settings, self.loggers, self.callbacks = data, journal, settings, list(loggers), list(callbacks)
        self.costs = Costs()  # of the open task
        self.step = sum(row["mini_batches"] for row in journal.all("share"))  # over all phases: what loggers go by

    # ---- a task ----------------------------------------------------------------------------------------------

    def learn(self, learner: Learner, task: Task, where: str | None = None) -> None:
        """Boundary to boundary. After a kill the last boundary is loaded and this is called again. ``where`` is its place in the journal;
        mini-batches depend on what stands behind the colon in it alone."""
        where = where or f"task{task.index}"
        self.begin(learner, task, where)
        with self.hook(learner, task.index, "on_task_start"):
            learner.on_task_start(task)
        self.drive(learner.learn(task), learner, task, where)
        faults.reached("task_end")
        with self.hook(learner, task.index, "on_task_end"):
            learner.on_task_end(task)

    def predictors(self, learner: Learner, seen: int, task: Task) -> dict[str, Learner]:
        """After ``seen`` tasks; ``task`` is the last of them, closed. They may train phases."""
        moments = learner.optimizer_moments
        self.begin(learner, task, where := f"predictors{seen}")
        try:
            return self.drive(learner.predictors(seen), learner, task, where)
        finally:
            learner.optimizer_moments = moments  # what is trained for testing leaves no trace

    def begin(self, learner: Learner, task: Task, where: str) -> None:
        learner.head, learner._once = task.head, Once(self.journal, self.costs.count, learner.seed, where)

    @contextmanager
    def hook(self, learner: Learner, *key: object) -> Iterator[None]:
        """Around the learner's own code between phases: what it costs is counted, what it draws depends on the key."""
        learner.eval()  # whether it was trained, restored or answered from the journal before
        name = key[-1] if isinstance(key[-1], str) else "learn"
        with self.costs.measured("hooks"), seeded(learner.seed, *key), running(learner, name):
            yield

    def drive(self, phases: Phases, learner: Learner, task: Task, where: str) -> Any:
        """Run a generator of phases to its end and return what it returns."""
        outcome: Any = None
        for index in itertools.count():
            try:
                with self.hook(learner, where, index):
                    phase = phases.send(outcome)
            except StopIteration as end:
                return end.value
            outcome = self.outcome(learner, phase, task, where, index)
            faults.reached("adopt")

    def outcome(self, learner: Learner, phase: Phase, task: Task, where: str, index: int) -> Outcome:
        """Of a phase: read from the journal if it was finished before, else trained."""
        names = [c.name for c in phase.candidates]
        if not names or len(set(names)) < len(names):
            raise Refusal(
                f"{type(learner).__name__} proposed the candidates {names} for task {task.index}. "
                "A phase needs at least one, and each a name of its own."
            )
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
            learner.optimizer_moments = {"moments": kept["moments"], "weights": weights_key(winner.network)}
        self.costs.add(**row["costs"])
        if kept["snapshots"] and self.probe is not None and where == f"task{task.index}":
            self.probes(learner, winner, kept["snapshots"], task, index)
        best = row["standings"][row["winner"]]
        return Outcome(winner, best.get("score", best["val_accuracy"]), best["steps"], best["steps_to_best"])

    def probes(self, learner: Learner, winner: Candidate, snapshots: dict[int, dict], task: Task, index: int) -> None:
        """Copies of the learner that adopt the winner as it was at each step."""
        assert self.probe is not None
        for step, weights in snapshots.items():
            if self.journal.find("probe", task=task.index, phase=index, step=step) is None:
                copied, c = copy.deepcopy(learner), Candidate(winner.name, copy.deepcopy(winner.network), winner.hparams)
                c.network.load_state_dict(weights)
                with seeded(learner.seed, task.index, "probe", step), running(copied, "adopt"):
                    copied.adopt(c, task)
                self.probe(copied, task, index, step)

    # ---- a phase ---------------------------------------------------------------------------------------------

    def train(self, learner: Learner, phase: Phase, task: Task, where: str, index: int) -> dict:
        """Train all candidates, in shares where so many do not fit at once, and record the phase."""
        self.check_validation(phase, task)
        size = self.settings.candidates_at_once or len(phase.candidates)
        shares = [self.share(learner, phase, task, where, index, first, size) for first in range(0, len(phase.candidates), size)]
        standings = [standing for share in shares for standing in share["standings"]]
        lost = [each for share in shares for each in share["lost"]]
        winner, costs = best_of([s.get("score", s["val_accuracy"]) for s in standings], lost), Costs()
        if lost[winner]:
            raise Refusal(
                f"All candidates of task {task.index} were dropped, because their weights became infinite or no numbers: "
                f"{', '.join(c.name for c in phase.candidates)}.\n"
                "What was learned before is kept. Lower trainer.lr or the grid's, or set trainer.clip."
            )
        for share in shares:
            costs.add(**share["costs"])
        costs.examples, costs.replayed = (max(share["costs"][name] for share in shares) for name in ("examples", "replayed"))
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
            costs=costs.plain(),
            foreign=foreign(phase, task),
        )

    def check_validation(self, phase: Phase, task: Task) -> None:
        """Whatever compares or stops needs validation data: said before training, not after."""
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

    def share(self, learner: Learner, phase: Phase, task: Task, where: str, index: int, first: int, size: int) -> dict:
        """Candidates ``first`` .. ``first + size - 1`` of a phase: what they came to, and the weights of the best of them."""
        place = {"where": where, "index": index, "first": first}
        named = {"name": phase.name, "candidates": [c.name for c in phase.candidates]}
        row = self.journal.find("share", **place)
        if row is not None and self.journal.intact(row["weights"]):
            return row
        candidates = phase.candidates[first : first + size]
        with torch.random.fork_rng(devices=[]):
            engine = self.fit(learner, phase, candidates, task, place, named)
            standings = engine.finish()
        learner.engine = None
        self.step += engine.step
        lost = [s.lost for s in standings]
        best = best_of([s.accuracy for s in standings], lost)
        kept = {
            "weights": candidates[best].network.state_dict(),
            "moments": standings[best].moments,
            "snapshots": engine.snapshots[best],
        }
        row = self.journal.append(
            "share",
            **place,
            **named,
            standings=[s.plain(phase.score is not None) for s in standings],
            lost=lost,
            weights=self.journal.save(f"{where}-phase{index}-{first}", partial(torch.save, kept)),
            mini_batches=engine.step,
            costs=engine.costs.plain(),
        )
        for inside in self.journal.all("inside"):
            self.journal.drop(inside["saved"])
        return row

    def fit(self, learner: Learner, phase: Phase, candidates: list[Candidate], task: Task, place: dict, named: dict) -> LockStep:
        """Through ``Trainer.fit``, from the beginning or from where an earlier start was interrupted."""
        s, key = self.settings, (learner.seed, place["where"].rpartition(":")[2], place["index"])
        blocks = Blocks(phase.train or task.train, key, s.batch_size, phase.epochs or s.max_epochs, s.block, most=s.max_steps)
        engine = learner.engine = LockStep(learner, phase, candidates, task, s, blocks)
        engine.first_step = self.step
        if not engine.trains:
            engine.snapshot_if_due()
            engine.score_untrained()
            return engine
        inside = next(
            (row for row in reversed(self.journal.all("inside")) if is_at(row, place) and self.journal.intact(row["saved"])), None
        )
        if inside is not None:
            blocks.first = inside["step"]
            print(f"resumed at step {inside['step']} of {place['where']}, phase {place['index']}", file=sys.stderr)
        self.data.prepare(blocks.split)
        with running(learner, "learn"):
            self.data.replay(blocks, place["index"])
        learner.trying = nn.ModuleList(c.network for c in candidates)
        checkpoints = InsideCheckpoints(self.journal, {**place, **named}, inside, s.checkpoint_minutes)
        trainer = new_trainer(s, self.loggers, [*self.callbacks, checkpoints])
        checkpoint = self.journal.place(inside["saved"]) if inside else None
        with termination.deferred(), running(learner, "training"), interruptible():
            trainer.fit(learner, datamodule=self.data, ckpt_path=checkpoint, weights_only=True)
        learner.trying, learner.trainer = nn.ModuleList(), None
        self.data.blocks = None
        return engine

    def settle(self) -> Costs:
        """What was spent since the last call: on one task."""
        spent, self.costs = self.costs, Costs()
        return spent


class Once:
    """Behind ``Learner.once``: what the work came to, read from the journal if it was done before."""

    def __init__(self, journal: Journal, count: Callable[[int, int], None], seed: int, where: str) -> None:
        self.journal, self.count, self.seed, self.where = journal, count, seed, where
        self.known: list[str] = []

    def __deepcopy__(self, memo: dict) -> Once:
        return self  # a copy of a learner keeps things where the learner does

    def __call__(self, name: str, work: Callable[[], Any]) -> Any:
        if name in self.known:
            raise Refusal(f"self.once({name!r}, ...) is called twice in {self.where}. Give each piece of work a name of its own.")
        self.known.append(name)
        row = self.journal.find("once", where=self.where, name=name)
        if row is None or not self.journal.intact(row["saved"]):
            with seeded(self.seed, self.where, "once", name), Calls() as calls:
                value = work()
            check_plain(value, f"what self.once({name!r}, ...) came to")
            saved = self.journal.save(f"{self.where}-once{len(self.known)}", partial(torch.save, value))
            row = self.journal.append("once", where=self.where, name=name, saved=saved, flops=calls.total)
        else:
            self.count(row["flops"], row["flops"])
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
            self.journal.save_behind(name, partial(write_checkpoint, trainer), "inside", **self.row, step=learner.engine.step)
            self.latest = f"{name}.pt"
            self.saved_at = monotonic()
        if termination.requested():
            self.journal.settle()
        termination.exit_if_requested()

    def on_train_end(self, trainer: pl.Trainer, learner: Any) -> None:
        learner.engine.score_last()
        self.journal.settle()


def write_checkpoint(trainer: pl.Trainer, path: Path) -> None:
    """Lightning's content, straight to its place: ``trainer.save_checkpoint`` builds it in memory and in another folder first."""
    torch.save(trainer._checkpoint_connector.dump_checkpoint(), path)


def is_at(row: dict, place: dict) -> bool:
    return all(row.get(key) == value for key, value in place.items())


def best_of(accuracies: Sequence[float | None], lost: Sequence[bool]) -> int:
    """The first with the highest validation accuracy of those that were not lost; without validation there is only one."""
    return max(range(len(accuracies)), key=lambda i: (not lost[i], accuracies[i] or 0.0))


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


def foreign(phase: Phase, task: Task) -> int:
    """How many of a phase's examples are none of the open task's."""
    if phase.train is None or phase.train is task.train:
        return 0
    return len(phase.train) - min(len(phase.train), sum(copies_of([task.train], {"x": phase.train.x}).values()))


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
