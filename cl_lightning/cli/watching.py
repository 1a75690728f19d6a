"""The lines of a sweep: how its jobs fare, while they run and as they end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from threading import Event, Thread
from time import monotonic

from rich.console import Console

from cl_lightning.report.layout import say
from cl_lightning.selection.sweep import name_of, read_job

POLLED = 0.5  # seconds between two looks at the jobs
MINUTE = 60.0  # seconds between two lines where there is no terminal


@contextmanager
def watched(folder: Path, overrides: Sequence[Sequence[str]], first: int) -> Iterator[None]:
    """Print a line for each job that ends inside; on a terminal, show how far the others are. Any launcher
    may run them."""
    over, watch = Event(), Watch(folder, overrides, first)
    thread = Thread(target=watch.run, args=(over,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


class Watch:
    """Looks at the files in which jobs and runs say how they fare."""

    def __init__(self, folder: Path, overrides: Sequence[Sequence[str]], first: int) -> None:
        self.folder, self.overrides, self.first = folder, overrides, first
        self.ended: set[int] = set()
        self.console, self.began = Console(stderr=True), monotonic()
        self.told = self.began  # when a line was printed last
        self.live = self.console.status("") if self.console.is_terminal else None

    def run(self, over: Event) -> None:
        with self.live or nullcontext():
            if not (self.live or self.first):
                self.print(f"0 of {len(self.overrides)} jobs ended")
            while not over.wait(POLLED):
                self.look()
            self.look()

    def look(self) -> None:
        from cl_lightning.store.status import read_status

        running = []
        for place, own in enumerate(self.overrides):
            about = read_job(self.folder, self.first + place)
            status = read_status(Path(about["folder"])) if "folder" in about else None
            name = name_of(own, self.overrides)
            if "failed" in about:
                how = "diverged" if status and status.state == "diverged" else "failed"
                self.say(place, name, f"{how}: {' '.join(about['failed'].splitlines())}")
            elif "done" in about:  # its status may still be that of an earlier start
                self.say(place, name, "done")
            elif status is not None:
                running.append(f"{name}: {status.learned} of {status.tasks} tasks")
        done = f"{len(self.ended)} of {len(self.overrides)} jobs ended{self.left()}"
        if self.live:
            self.live.update("; ".join([done, *running[:4]]))
        elif monotonic() - self.told >= MINUTE:
            self.print("; ".join([done, *running[:4]]))

    def say(self, place: int, name: str, how: str) -> None:
        if place not in self.ended:
            self.ended.add(place)
            self.print(f"job {place + 1} of {len(self.overrides)} ({name}) {how}{self.left()}")

    def print(self, line: str) -> None:
        self.told = monotonic()
        say(self.console, line)

    def left(self) -> str:
        from cl_lightning.callbacks.pace import expected, words  # late: its package imports torch

        ended, still = len(self.ended), len(self.overrides) - len(self.ended)
        known = [(1.0, (monotonic() - self.began) / max(ended, 1))] * ended
        return f", {words(expected([1.0] * still, known))}" if ended and still else ""
