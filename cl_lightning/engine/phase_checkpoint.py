"""Checkpoints inside a phase, from which a killed run goes on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from time import monotonic
from typing import Any

import pytorch_lightning as pl

import cl_lightning.termination as termination
from cl_lightning.engine.scoring import score_last
from cl_lightning.store.files import Store
from cl_lightning.store.records import InsideRecord

FOLDER = "work/inside"


def inside_key(numbers: Sequence[int]) -> str:
    """Where the newest checkpoint of a group of candidates lies."""
    return f"{FOLDER}/{numbers[0]}"


class InsideCheckpoints(pl.Callback):
    """Lightning's checkpoint of a group in training every so many minutes, at SIGTERM and at Ctrl-C, between
    blocks; the newest is kept. Each rank writes those of its own groups."""

    def __init__(self, store: Store, start: InsideRecord, minutes: float, at_end: bool = False) -> None:
        self.store, self.start, self.seconds, self.saved_at = store, start, minutes * 60, monotonic()
        self.at_end = at_end  # whether to write one when the group is trained, too

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
        key = inside_key(self.start.numbers)
        saved = self.store.save_tensors(f"{key}-{step}", content)
        self.store.save(key, replace(self.start, step=step), saved)
        newest = self.store.folder / saved.file
        for path in newest.parent.glob(f"{self.start.numbers[0]}-*.pt"):
            if path != newest:
                path.unlink(missing_ok=True)

    def on_train_end(self, trainer: pl.Trainer, learner: Any) -> None:
        score_last(learner, learner.phase_run)
        if self.at_end:
            self.save(trainer, learner.phase_run.step)
