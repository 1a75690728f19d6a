"""What a run says while it trains: one live line on a terminal, a line a task elsewhere. Both tell the time
left."""

from __future__ import annotations

from time import monotonic
from typing import Any

import pytorch_lightning as pl
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from cl_lightning.callbacks.base import StreamCallback
from cl_lightning.data.task import Task

BEGUN = 0.02  # the part of a task that must be trained before the time left is estimated


class ProgressDisplay(StreamCallback):
    """Stream, task, candidates alive, best validation accuracy, time left."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True)
        self.line: Progress | None = None
        self.bar = TaskID(0)
        self.tasks, self.first, self.task, self.began = 1, 0, 0, monotonic()

    def on_stream_start(self, name: str, tasks: int, learned: int) -> None:
        self.tasks, self.first, self.task, self.began = tasks, learned, learned, monotonic()
        if self.console.is_terminal:
            columns = (
                TextColumn("{task.description}"),
                BarColumn(bar_width=24),
                TextColumn("{task.fields[state]}"),
            )
            self.line = Progress(*columns, console=self.console, transient=True, refresh_per_second=4)
            self.bar = self.line.add_task(name, total=tasks, completed=learned, state="preparing")
            self.line.start()

    def on_task_start(self, learner: Any, task: Task) -> None:
        self.task = task.index
        self.show(0.0, f"task {task.index}, of {self.tasks}")

    def on_train_batch_end(self, trainer: pl.Trainer, learner: Any, *_: Any) -> None:
        run = learner.phase_run
        if self.line is None or run is None:
            return
        best, steps, measure = (
            run.best_accuracy,
            run.blocks.steps,
            "val" if run.phase.score is None else "score",
        )
        self.show(
            run.step / max(steps, 1),
            f"task {self.task}, of {self.tasks}  step {run.step}/{steps}  alive "
            f"{len(run.active)}/{len(run.candidates)}  "
            f"best {measure} {'-' if best is None else f'{best:.3f}'}",
        )

    def on_evaluated(self, learner: Any, learned: int, accuracies: list[float | None]) -> None:
        self.task = learned
        self.show(0.0, f"tested after {learned} of {self.tasks} tasks")
        if self.line is None and learned > self.first:
            known = [accuracy for accuracy in accuracies[:learned] if accuracy is not None]
            mean = f", mean test accuracy on them {sum(known) / len(known):.3f}" if known else ""
            left = f", {self.left(learned)}" if learned < self.tasks else ""
            self.console.print(
                f"{learned} of {self.tasks} tasks learned{mean}{left}", highlight=False, soft_wrap=True
            )

    def on_stream_end(self) -> None:
        if self.line is not None:
            self.line.stop()
            self.line = None

    def show(self, of_task: float, state: str) -> None:
        if self.line is not None:
            done = self.task + of_task
            self.line.update(self.bar, completed=done, state=f"{state}  {self.left(done)}")

    def left(self, done: float) -> str:
        """The time left if every task lasts as long as those of this start did so far; early stopping makes
        it an upper bound."""
        if done - self.first < BEGUN:
            return ""
        return f"{clock((monotonic() - self.began) * (self.tasks - done) / (done - self.first))} left"


def clock(seconds: float) -> str:
    """
    >>> clock(75), clock(4000)
    ('1:15', '1:06:40')
    """
    minutes, hours = int(seconds // 60) % 60, int(seconds // 3600)
    return f"{hours}:{minutes:02d}:{int(seconds % 60):02d}" if hours else f"{minutes}:{int(seconds % 60):02d}"
