"""The data module: one task of the stream open at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytorch_lightning as pl

from cl_lightning.data.lease import Lease
from cl_lightning.data.streams import Stream
from cl_lightning.data.task import Blocks, Task


class StreamDataModule(pl.LightningDataModule):
    """Replays a stream to ``Trainer.fit``, task after task. Lends training and validation data; test data are the evaluator's."""

    def __init__(self, stream: Stream) -> None:
        super().__init__()
        self.stream = stream
        self.task: Task | None = None
        self.blocks: Blocks | None = None

    def __len__(self) -> int:
        return len(self.stream)

    @contextmanager
    def open(self, index: int, past: bool = False, to: object = None) -> Iterator[Task]:
        """Lend a task's training and validation data; ``past`` lends those of all earlier tasks as well.

        At the end everything is closed, and whoever kept a tensor of it (``to``, the learner) is named by an error.
        """
        if self.task is not None:
            raise RuntimeError(f"task {self.task.index} is still open; close it before opening task {index}")
        lease = Lease()
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
            for split in (split for each in (*earlier, task) for split in (each.train, each.val) if split is not None):
                split.close()
        if not failed:
            lease.end(to)

    def train_dataloader(self) -> Blocks:
        """The mini-batches of the phase that is being trained."""
        if self.blocks is None:
            raise RuntimeError("no phase is being trained: set `blocks` to the mini-batches it takes")
        return self.blocks
