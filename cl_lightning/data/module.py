"""The data module: one task of the stream open at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytorch_lightning as pl
import torch

from cl_lightning.data.lease import Lease
from cl_lightning.data.streams.stream import Stream
from cl_lightning.data.task import Batch, Block, Blocks, Task
from cl_lightning.randomness import moved


class StreamDataModule(pl.LightningDataModule):
    """Replays a stream to ``Trainer.fit``, task after task. Lends training and validation data; test data are
    the evaluator's."""

    def __init__(self, stream: Stream, device: torch.device | None = None, boundaries: bool = True) -> None:
        super().__init__()
        self.boundaries = boundaries  # whether learners are told where tasks begin and end
        self.device = device  # where the open task's examples lie, beside the learner
        self.stream = stream
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
            for each in (*earlier, task):
                each.train.close()
                if each.val is not None:
                    each.val.close()
        if not failed:
            lease.end(to)

    def replay(self, blocks: Blocks) -> None:
        """Set the mini-batches of the next phase, and look up what augmentation needs to know of its
        tasks."""
        self.blocks = blocks
        if self.stream.show.augments:
            self._black = torch.zeros(len(self.stream), self.stream.shape[0])
            for task in {task for split in blocks.splits for task in split.task.unique().tolist()}:
                self._black[task] = self.stream.black(task)

    def train_dataloader(self) -> Blocks:
        """The mini-batches of the phase that is being trained."""
        if self.blocks is None:
            raise RuntimeError("no phase is being trained: set `blocks` to its mini-batches")
        return self.blocks

    def on_after_batch_transfer(self, batch: Block, dataloader_idx: int) -> Block:
        """Called by Lightning when mini-batches are on their device: there they are augmented, by draws that
        their keys decide."""
        if self.stream.show.augments:
            batch = Block([self.augmented(each) for each in batch.batches])
        return batch if self.boundaries else Block([each.without_ids() for each in batch.batches])

    def augmented(self, batch: Batch) -> Batch:
        black = moved(self._black, batch.x.device)[batch.task]
        return replace(batch, x=self.stream.show.augmented(batch.x, black, batch.rng("augment")))
