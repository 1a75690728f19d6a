"""The default run with W&B, offline, and a clock on all that W&B adds. Takes the program's own arguments."""

from __future__ import annotations

import atexit
import json
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from cl_lightning.cli.command import main
from cl_lightning.loggers import base
from cl_lightning.loggers.wandb_run import WandbRun
from cl_lightning.loggers.wandb_service import Service
from cl_lightning.report.projection import Curves, Point

spent = {"in all": 0.0, "for curves": 0.0}
open_clocks: list[str] = []
sent: list[int] = []


def clocked(function: Callable, kind: str) -> Callable:
    """Seconds of a clock in all; of the processor for curves, as those of training are counted."""
    now = perf_counter if kind == "in all" else process_time

    def inside(*arguments: Any, **options: Any) -> Any:
        outermost, began = kind not in open_clocks, now()
        open_clocks.append(kind)
        try:
            return function(*arguments, **options)
        finally:
            open_clocks.pop()
            spent[kind] += (now() - began) * outermost

    return inside


def opened(make: Any, provided: dict[str, Any], original: Callable = base.opened) -> Any:
    of_wandb = make.func.__name__ == "open_wandb"
    return (clocked(original, "in all") if of_wandb else original)(make, provided)


def send(self: Service, point: Point, original: Callable = Service.send) -> None:
    """The first point has W&B import what it needs: that belongs to what a run has added once."""
    of_a_curve = "batches" in point and sent
    (clocked(original, "for curves") if of_a_curve else original)(self, point)
    sent.append(1)


def news(self: Curves, original: Callable = Curves.news) -> list[Point]:
    return clocked(lambda: list(original(self)), "for curves")()


def seconds_of_training(outputs: Path) -> float:
    """The processor's, of all tasks."""
    (results,) = outputs.glob("*/*/*/results.json")
    costs = json.loads(results.read_text())["costs"]
    return sum(cost["seconds"]["cpu"] for cost in costs)


def tell(outputs: Path) -> None:
    """Called last, when W&B's process has ended, too."""
    spent["in all"] += perf_counter() - ended
    print(f"added {spent['in all']:.4f}")
    print(f"share {spent['for curves'] / seconds_of_training(outputs):.6f}")


if __name__ == "__main__":
    atexit.register(
        tell, next(Path(word.partition("=")[2]) for word in sys.argv if word.startswith("outputs="))
    )
    base.opened, Service.send, Curves.news = opened, send, news  # type: ignore[assignment, method-assign]
    for name in ("log_metrics", "boundary", "close"):
        setattr(WandbRun, name, clocked(getattr(WandbRun, name), "in all"))
    code = main(sys.argv[1:])
    ended = perf_counter()
    sys.exit(code)
