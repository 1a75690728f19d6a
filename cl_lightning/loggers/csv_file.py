"""``logs.csv``: a line a value."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any, SupportsFloat

from cl_lightning.loggers.base import RunLogger, Status
from cl_lightning.store.atomic import write_whole


class CSVLogger(RunLogger):
    """``logs.csv``: one line a value, written at once, so that a kill loses none. What a resumed run logs
    again, because it trains it again, stands there once: it is the same. (Lightning's own logger starts a new
    file each time.)"""

    def __init__(self, folder: Path) -> None:
        path = folder / "logs.csv"
        text = path.read_text(errors="replace") if path.is_file() else ""
        whole, _, torn = text.rpartition("\n")
        if torn or not text:  # a kill may have cut the last line
            with write_whole(path) as building:
                building.write_text(f"{whole or 'step,name,value'}\n")
        self.known = set(whole.splitlines())
        self.file = path.open("a")

    def log_candidates(self, losses: Mapping[str, float], step: int) -> None:
        self.log_metrics({f"loss/{name}": loss for name, loss in losses.items()}, step)

    def log_metrics(self, metrics: dict[str, Any], step: int | None = None) -> None:
        for line in (csv_line(step, name, as_number(value)) for name, value in metrics.items()):
            if line not in self.known:
                self.known.add(line)
                self.file.write(f"{line}\n")
        self.file.flush()

    def save(self) -> None:
        """Nothing waits to be written."""

    def close(self, status: Status) -> None:
        self.file.close()


def as_number(value: Any) -> Any:
    """A tensor or a number of NumPy's as Python's own; all else as it is.

    >>> import torch
    >>> as_number(torch.tensor(0.25)), as_number(3), as_number(True), as_number("no")
    (0.25, 3, True, 'no')
    """
    return float(value) if isinstance(value, SupportsFloat) and not isinstance(value, int) else value


def csv_line(*values: object) -> str:
    """
    >>> csv_line(3, "loss/lr=0.1,momentum=0.9", 0.5)
    '3,"loss/lr=0.1,momentum=0.9",0.5'
    """
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(values)
    return text.getvalue()
