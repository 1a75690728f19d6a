"""The data module: one task of the stream open at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytorch_lightning as pl

from cl_lightning.data.streams import Stream
from cl_lightning.data.task import Blocks, Task


class StreamDataModule(pl.LightningDataModule):
    """Replays a stream to ``Trainer.fit``, task after task. Holds no test data."""

    def __init__(self, stream: Stream) -> None:
        super().__init__()
        self.stream = stream
        self.task: Task | None = None
        self.blocks: Blocks | None = None

    def __len__(self) -> int:
        return len(self.stream)

    @contextmanager
    def open(self, index: int, past: bool = False) -> Iterator[Task]:
        """Lend a task's training and validation data. ``past`` lends those of all earlier tasks as well."""
        if self.task is not None:
            raise RuntimeError(f"task {self.task.index} is still open; close it before opening task {index}")
        earlier = tuple(map(self.stream.task, range(index))) if past else ()
        self.task = self.stream.task(index, earlier)
        try:
            yield self.task
        finally:
            self.task = self.blocks = None

    def train_dataloader(self) -> Blocks:
        """The mini-batches of the phase that is being trained."""
        if self.blocks is None:
            raise RuntimeError("no phase is being trained: set `blocks` to the mini-batches it takes")
        return self.blocks
