"""One live line on a terminal: where the stream is, and how long it will take. Silent elsewhere."""

from __future__ import annotations

from time import monotonic
from typing import Any

import pytorch_lightning as pl
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from cl_lightning.callbacks import StreamCallback
from cl_lightning.data.task import Task


class ProgressDisplay(StreamCallback):
    """Stream, task, candidates alive, best validation accuracy or score, time left."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True)
        self.line: Progress | None = None
        self.bar = TaskID(0)
        self.tasks, self.first, self.task, self.began = 1, 0, 0, monotonic()

    def on_stream_start(self, name: str, tasks: int, learned: int) -> None:
        self.tasks, self.first, self.task, self.began = tasks, learned, learned, monotonic()
        if self.console.is_terminal:
            columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), TextColumn("{task.fields[state]}"))
            self.line = Progress(*columns, console=self.console, transient=True, refresh_per_second=4)
            self.bar = self.line.add_task(name, total=tasks, completed=learned, state="preparing")
            self.line.start()

    def on_task_start(self, learner: Any, task: Task) -> None:
        self.task = task.index
        self.show(0.0, f"task {task.index + 1}/{task.of}")

    def on_train_batch_end(self, trainer: pl.Trainer, learner: Any, *_: Any) -> None:
        engine, blocks = learner.engine, trainer.train_dataloader
        if self.line is None or engine is None or blocks is None:
            return
        best, measure = engine.best_accuracy, "val" if engine.phase.score is None else "score"
        self.show(
            engine.step / max(blocks.steps, 1),
            f"task {self.task + 1}/{self.tasks}  step {engine.step}/{blocks.steps}  alive {len(engine.alive)}/{len(engine.candidates)}  "
            f"best {measure} {'-' if best is None else f'{best:.3f}'}",
        )

    def on_evaluated(self, learner: Any, learned: int, accuracies: list[float | None]) -> None:
        self.task = learned
        self.show(0.0, f"evaluated after {learned}/{self.tasks}")

    def on_stream_end(self) -> None:
        if self.line is not None:
            self.line.stop()
            self.line = None

    def show(self, of_task: float, state: str) -> None:
        if self.line is not None:
            done = self.task + of_task
            self.line.update(self.bar, completed=done, state=f"{state}  {self.left(done)}")

    def left(self, done: float) -> str:
        """Time left if every task takes as long as those of this start did so far; early stopping makes it an upper bound."""
        if done - self.first < 0.02:
            return ""
        seconds = (monotonic() - self.began) * (self.tasks - done) / (done - self.first)
        return f"{int(seconds // 60)}:{int(seconds % 60):02d} left"
