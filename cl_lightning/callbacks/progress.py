"""What a run says while it is made: on a terminal a bar for the stream and one for the phase; elsewhere a
line a task, and one a minute. All tell the time left, as a range."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Event, Thread
from time import monotonic
from typing import Any

import pytorch_lightning as pl
from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from cl_lightning.callbacks.base import StreamCallback
from cl_lightning.callbacks.pace import Pace, Range, clock, words
from cl_lightning.data.task import Task
from cl_lightning.engine.phase_run import PhaseRun

MINUTE = 60.0  # seconds between two lines where there is no terminal
BEGUN = 1.0  # seconds that a phase must have been trained before its time left is estimated
BAR = 10  # columns


class ProgressDisplay(StreamCallback):
    """Tells how far a run is. Its words are made when they are shown, by a thread of their own: so also what
    takes long between two hooks is told, with the time it took. Tasks are counted from 0."""

    def __init__(self, console: Console | None = None, sizes: Sequence[int] = ()) -> None:
        """``sizes`` are the numbers of training examples of all tasks."""
        self.console = console or Console(stderr=True)
        self.sizes = sizes
        self.live: Live | None = None
        self.over = Event()
        self.run: PhaseRun | None = None  # the phase that is trained
        self.first_step = 0  # of it in this start
        self.doing, self.mean = "preparing", ""
        self.tasks, self.task = 1, 0
        # When the stage at hand, the task and the phase began, and when a line was printed last.
        self.since = self.task_began = self.phase_began = self.said = monotonic()

    # ---- what it hears -------------------------------------------------------------------------------------

    def on_stream_start(self, name: str, tasks: int, learned: int) -> None:
        self.tasks, self.task, self.pace = tasks, learned, Pace(self.sizes or [1] * tasks)
        self.now("preparing")
        self.said = self.since
        self.over.clear()
        if self.console.is_terminal:
            self.live = Live(self, console=self.console, transient=True)
            self.live.start()
        else:
            Thread(target=self.say_each_minute, daemon=True).start()

    def on_task_start(self, learner: Any, task: Task) -> None:
        self.task = task.index
        self.now(self.place(task.index))
        self.task_began = self.since

    def on_train_start(self, trainer: pl.Trainer, learner: Any) -> None:
        self.run = learner.phase_run
        if self.run is not None:
            self.phase_began, self.first_step = monotonic(), self.run.step

    def on_train_end(self, trainer: pl.Trainer, learner: Any) -> None:
        if self.run is not None:
            self.now(f"{self.place(self.run.task.index)}, after {self.run.phase.name}")

    def on_task_end(self, learner: Any, task: Task) -> None:
        self.now(f"{self.place(task.index)}, testing")

    def on_evaluated(self, learner: Any, learned: int, accuracies: list[float | None]) -> None:
        known = [accuracy for accuracy in accuracies[:learned] if accuracy is not None]
        self.mean = f", mean test accuracy on them {sum(known) / len(known):.3f}" if known else ""
        if learned > self.task:
            self.pace.learned(self.task, monotonic() - self.task_began)
        self.task = learned
        self.now("validation data" if learned == self.tasks else "preparing")
        self.task_began = self.since
        if self.live is None and learned:
            self.print(self.of_stream())

    def on_stream_end(self) -> None:
        self.over.set()
        self.run = None
        if self.live is not None:
            self.live.stop()
            self.live = None

    def now(self, doing: str) -> None:
        self.run, self.doing, self.since = None, doing, monotonic()

    # ---- what it says --------------------------------------------------------------------------------------

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

    def of_stream(self) -> str:
        done = f"{self.task} of {self.tasks} task{'s' * (self.tasks != 1)} learned{self.mean}"
        learning = self.task < self.tasks
        left = self.pace.of_stream(self.task, self.elapsed(), self.of_phase()) if learning else None
        return ", ".join(filter(None, [done, words(left)]))

    def of_task(self) -> str:
        run = self.run
        if run is None:
            return f"{self.doing}, for {clock(monotonic() - self.since)}"
        best = "-" if run.best_accuracy is None else f"{run.best_accuracy:.3f}"
        left = self.of_phase()
        if self.task < self.tasks:
            left = self.pace.of_task(self.task, self.elapsed(), left)
        told = [
            f"{self.place(run.task.index)}, {run.phase.name}: batch {run.step} of at most {run.blocks.steps}",
            f"{len(run.active)} of {len(run.candidates)} alive",
            f"best {'val' if run.phase.score is None else 'score'} {best}",
            words(left),
        ]
        return ", ".join(filter(None, told))

    def elapsed(self) -> float:
        return monotonic() - self.task_began

    def of_phase(self) -> Range | None:
        """Seconds left of the phase at its mean pace: if no candidate improves any more, and if none stops
        early."""
        run, seconds = self.run, monotonic() - self.phase_began
        if run is None or run.step == self.first_step or seconds < BEGUN:
            return None
        most = least = max(run.blocks.steps - run.step, 0)
        if run.is_scored and run.patience is not None:
            last = max((run.standings[i].step for i in list(run.active)), default=run.step)
            least = min(max(int(last + run.patience) - run.step, 0), most)
        each = seconds / (run.step - self.first_step)
        return each * least, each * most

    def __rich__(self) -> Table:
        run = self.run
        part = run.step / max(run.blocks.steps, 1) if run else 0.0
        table = Table.grid(padding=(0, 1))
        table.add_column(width=BAR)
        for done, text in ((self.task / self.tasks, self.of_stream()), (part, self.of_task())):
            table.add_row(ProgressBar(total=1.0, completed=done, width=BAR), Text(text))
        return table

    def say_each_minute(self) -> None:
        while not self.over.wait(max(MINUTE - (monotonic() - self.said), 0.01)):
            if monotonic() - self.said >= MINUTE:
                self.print(f"{self.of_task()}; {self.of_stream()}")

    def print(self, line: str) -> None:
        self.said = monotonic()
        self.console.print(line, highlight=False, markup=False, soft_wrap=True)
