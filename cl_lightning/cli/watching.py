"""The lines of a sweep: how its jobs fare, while they run and as they end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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
    over = Event()
    watch = Watch(folder, overrides, first)
    thread = Thread(target=watch.run, args=(over,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        watch.look()
        watch.close()


class Watch:
    """Looks at the files in which jobs and runs say how they fare."""

    def __init__(self, folder: Path, overrides: Sequence[Sequence[str]], first: int) -> None:
        self.folder, self.overrides, self.first = folder, overrides, first
        self.said: dict[int, str] = {}
        self.console, self.began = Console(stderr=True), monotonic()
        self.told = self.began  # when a line was printed last
        self.live = self.console.status("") if self.console.is_terminal else None

    def run(self, over: Event) -> None:
        if self.live:
            self.live.start()
        elif not self.first:
            self.print(f"0 of {len(self.overrides)} jobs ended")
        while not over.wait(POLLED):
            self.look()

    def look(self) -> None:
        from cl_lightning.store.status import read_status

        running = []
        for place, own in enumerate(self.overrides):
            about = read_job(self.folder, self.first + place)
            status = read_status(Path(about["folder"])) if "folder" in about else None
            if "failed" in about:
                how = "diverged" if status and status.state == "diverged" else "failed"
                self.say(place, f"{how}: {' '.join(about['failed'].splitlines())}")
            elif "done" in about:  # its status may still be that of an earlier start
                self.say(place, "done")
            elif status is not None:
                running.append(f"{self.name(own)}: {status.learned} of {status.tasks} tasks")
        done = f"{len(self.said)} of {len(self.overrides)} jobs ended{self.left()}"
        if self.live:
            self.live.update("; ".join([done, *running[:4]]))
        elif monotonic() - self.told >= MINUTE:
            self.print("; ".join([done, *running[:4]]))

    def say(self, place: int, how: str) -> None:
        if place not in self.said:
            self.said[place] = how
            left = self.left() if len(self.said) < len(self.overrides) else ""
            name = self.name(self.overrides[place])
            line = f"job {place + 1} of {len(self.overrides)} ({name}) {how}{left}"
            self.print(line)

    def print(self, line: str) -> None:
        self.told = monotonic()
        say(self.console, line)

    def name(self, own: Sequence[str]) -> str:
        return name_of(own, self.overrides)

    def left(self) -> str:
        from cl_lightning.callbacks.pace import expected, words  # late: its package imports torch

        ended, still = len(self.said), len(self.overrides) - len(self.said)
        known = [(1.0, (monotonic() - self.began) / max(ended, 1))] * ended
        return f", {words(expected([1.0] * still, known))}" if ended and still else ""

    def close(self) -> None:
        if self.live:
            self.live.stop()
