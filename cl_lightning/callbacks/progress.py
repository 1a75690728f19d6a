"""What a run says while it trains: one live line on a terminal; elsewhere a line a task, and one a minute.
All tell the time left."""

from __future__ import annotations

from time import monotonic
from typing import Any

import pytorch_lightning as pl
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.table import Column

from cl_lightning.callbacks.base import StreamCallback
from cl_lightning.data.task import Task

MINUTE = 60.0  # seconds between two lines where there is no terminal
BEGUN = 0.02  # the part of a task that must be trained before the time left is estimated


class ProgressDisplay(StreamCallback):
    """Task, time left, phase, candidates alive, best validation accuracy. Tasks are counted from 0."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True)
        self.line: Progress | None = None
        self.bar = TaskID(0)
        self.tasks, self.first, self.task, self.began = 1, 0, 0, monotonic()
        self.said = self.began  # when a line was printed last

    def on_stream_start(self, name: str, tasks: int, learned: int) -> None:
        self.tasks, self.first, self.task, self.began = tasks, learned, learned, monotonic()
        if self.console.is_terminal:
            state = Column(no_wrap=True, overflow="ellipsis")  # what is last in it may be missed
            bar = BarColumn(bar_width=10, table_column=Column(width=10))
            columns = (bar, TextColumn("{task.fields[state]}", table_column=state))
            self.line = Progress(*columns, console=self.console, transient=True, refresh_per_second=4)
            self.bar = self.line.add_task(name, total=tasks, completed=learned, state="preparing")
            self.line.start()

    def on_task_start(self, learner: Any, task: Task) -> None:
        self.task = task.index
        self.show(0.0, self.place(task.index))

    def on_train_batch_end(self, trainer: pl.Trainer, learner: Any, *_: Any) -> None:
        run = learner.phase_run
        if run is None or (self.line is None and monotonic() - self.said < MINUTE):
            return
        best = "-" if run.best_accuracy is None else f"{run.best_accuracy:.3f}"
        measure = "val" if run.phase.score is None else "score"
        self.show(
            run.step / max(run.blocks.steps, 1),
            self.place(run.task.index),
            f"{run.phase.name}: {len(run.active)} of {len(run.candidates)} alive, best {measure} {best}, "
            f"batch {run.step}/{run.blocks.steps}",
        )

    def place(self, task: int) -> str:
        """
        >>> display = ProgressDisplay()
        >>> display.tasks = 5
        >>> display.place(3)
        'task 3 of 0..4'
        """
        if self.task == self.tasks:
            return f"reference on task {task}"
        return f"task {task} of 0..{self.tasks - 1}" if self.tasks > 1 else f"task {task}"

    def on_evaluated(self, learner: Any, learned: int, accuracies: list[float | None]) -> None:
        self.task = learned
        done = f"{learned} of {self.tasks} task{'s' * (self.tasks != 1)} learned"
        self.show(0.0, f"{done} and tested")
        if self.line is None and learned > self.first:
            known = [accuracy for accuracy in accuracies[:learned] if accuracy is not None]
            mean = f", mean test accuracy on them {sum(known) / len(known):.3f}" if known else ""
            left = f", {self.left(learned)}" if learned < self.tasks else ""
            self.print(f"{done}{mean}{left}")

    def on_stream_end(self) -> None:
        if self.line is not None:
            self.line.stop()
            self.line = None

    def show(self, of_task: float, place: str, state: str = "") -> None:
        done = self.task + of_task
        told = ", ".join(filter(None, [place, self.left(done), state]))
        if self.line is not None:
            self.line.update(self.bar, completed=done, state=told)
        elif state:
            self.print(told)

    def print(self, line: str) -> None:
        self.said = monotonic()
        self.console.print(line, highlight=False, markup=False, soft_wrap=True)

    def left(self, done: float) -> str:
        """The time left if every task lasts as long as those of this start did so far; early stopping makes
        it an upper bound."""
        if done - self.first < BEGUN or done >= self.tasks:
            return ""
        return f"{clock((monotonic() - self.began) * (self.tasks - done) / (done - self.first))} left"


def clock(seconds: float) -> str:
    """
    >>> clock(75), clock(4000)
    ('1:15', '1:06:40')
    """
    minutes, hours = int(seconds // 60) % 60, int(seconds // 3600)
    return f"{hours}:{minutes:02d}:{int(seconds % 60):02d}" if hours else f"{minutes}:{int(seconds % 60):02d}"
