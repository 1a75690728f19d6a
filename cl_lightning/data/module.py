"""The data module: one task of the stream open at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytorch_lightning as pl
import torch

from cl_lightning.data.lease import Lease
from cl_lightning.data.streams.stream import Stream
from cl_lightning.data.task import Batch, Block, Blocks, Split, Task
from cl_lightning.errors import Refusal
from cl_lightning.protocol import ProtocolError


class StreamDataModule(pl.LightningDataModule):
    """Replays a stream to ``Trainer.fit``, task after task. Lends training and validation data; test data are
    the evaluator's."""

    def __init__(self, stream: Stream, passes: int | None = None, device: torch.device | None = None) -> None:
        super().__init__()
        self.device = device  # where the open task's examples lie, beside the learner
        self.stream, self.passes = stream, passes  # in a single pass: how often each example may be seen
        self.task: Task | None = None
        self.blocks: Blocks | None = None
        self._black = torch.empty(0)  # (tasks, channels) what black pixels are there

    def __len__(self) -> int:
        return len(self.stream)

    @contextmanager
    def open(self, index: int, past: bool = False, to: object = None) -> Iterator[Task]:
        """Lend a task's training and validation data; ``past`` lends those of all earlier tasks as well.

        At the end everything is closed, and whoever kept a tensor of it (``to``, the learner) is named by an
        error.
        """
        if self.task is not None:
            raise RuntimeError(f"task {self.task.index} is still open; close it before opening task {index}")
        lease = Lease(self.device)
        *earlier, task = (self.stream.task(i, lease=lease) for i in range(0 if past else index, index + 1))
        self.task = replace(task, past=tuple(earlier))
        try:
            yield self.task
            failed = False
        except BaseException:
            failed = True
            raise
        finally:
            self.task = self.blocks = None
            for split in (
                split for each in (*earlier, task) for split in (each.train, each.val) if split is not None
            ):
                split.close()
        if not failed:
            lease.end(to)

    def prepare(self, split: Split) -> None:
        """Look up what augmentation needs to know of the tasks that are trained on."""
        if self.stream.show.augments:
            self._black = torch.zeros(len(self.stream), self.stream.shape[0])
            for task in split.task.unique().tolist():
                self._black[task] = self.stream.black(task)
            self._black = self._black.to(split.x.device)

    def replay(self, blocks: Blocks, phase: int) -> None:
        """Set the mini-batches of the next phase, the ``phase``-th of the open task. In a single pass there
        is one, on each example as often as the protocol has passes, in the stream's order first."""
        self.blocks, task = blocks, self.task
        if self.passes is None or task is None:
            return
        if task.val is not None:
            raise Refusal(
                f"trainer.single_pass shows each example {self.passes} times and has no validation, but "
                f"task {task.index} has "
                f"{len(task.val)} validation examples. Set n_val of the stream and its tasks to 0."
            )
        blocks.in_order = blocks.split is task.train
        epochs, n, lent = (
            blocks.epochs,
            len(blocks.split),
            sum(len(each.train) for each in (*task.past, task)),
        )
        if phase > 0:
            more = (
                f"a second phase of task {task.index} would see examples again that a single pass shows once."
            )
        elif epochs > self.passes or n > lent:
            more = (
                f"{epochs} epochs of {n} examples were asked for; a single pass lends {lent}, "
                f"{self.passes} times."
            )
        elif not blocks.in_order and not task.past:
            more = "examples in a split of its own were to be trained on, which a single pass cannot count."
        else:
            return
        raise ProtocolError(
            more, "Learn in one phase from the mini-batches that come, or do without trainer.single_pass."
        )

    def train_dataloader(self) -> Blocks:
        """The mini-batches of the phase that is being trained."""
        if self.blocks is None:
            raise RuntimeError("no phase is being trained: set `blocks` to its mini-batches")
        return self.blocks

    def on_after_batch_transfer(self, batch: Block, dataloader_idx: int) -> Block:
        """Called by Lightning when mini-batches are on their device: there they are augmented, by draws that
        their keys decide."""
        return Block([self.augmented(each) for each in batch.batches]) if self.stream.show.augments else batch

    def augmented(self, batch: Batch) -> Batch:
        black = self._black[batch.task]
        return replace(batch, x=self.stream.show.augmented(batch.x, black, batch.rng("augment")))
