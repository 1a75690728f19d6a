"""A paper's tables with ours beside: what is printed, what runs came to, the difference, and for what was not
run the command that runs it."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cl_lightning.metrics.table import METRICS
from cl_lightning.report.beside import OVER_WAYS, departs, is_minimum, missing, runs_of
from cl_lightning.report.formats import Sheet
from cl_lightning.report.groups import Group
from cl_lightning.report.printed import Cell, Table, tables

JUDGED = {metric.name for metric in METRICS if metric.of == "trainings"}  # undefined without a valid one
SHADE = "▒"
OTHER = {"backbone": "other network"}  # words for cells whose `same` settings are not the paper's


@dataclass(frozen=True)
class Beside:
    """A printed cell, and the runs that came to it: one group an experiment; none where they were not run."""

    cell: Cell
    groups: tuple[Group, ...]

    @property
    def ours(self) -> tuple[float, float | None] | None:
        """Mean and standard error over seeds, in the paper's unit."""
        found = [(group.mean_and_deviation(str(self.cell.result)), len(group.seeds)) for group in self.groups]
        known = [(each, seeds) for each, seeds in found if each is not None]
        if not known or len(known) < len(found):
            return None
        if is_minimum(self.cell):
            known = [min(known, key=lambda pair: pair[0][0])]
        if self.cell.result == OVER_WAYS:
            known = [max(known, key=lambda pair: pair[0][0])]
        mean = sum(each[0] for each, _ in known) / len(known)
        errors = [each[1] / math.sqrt(seeds) for each, seeds in known if each[1] is not None]
        error = math.hypot(*errors) / len(known) if len(errors) == len(known) else None
        return mean * self.cell.scale, None if error is None else error * self.cell.scale

    @property
    def why_not(self) -> str:
        """A word for why the two numbers do not compare; empty where they do."""
        if any(str(group.settings.get("data")).startswith("synthetic") for group in self.groups):
            return "drawn data"
        same = self.cell.same
        away = [key for group in self.groups for key in departs(group, self.cell)]
        return self.cell.differs or (OTHER[same] if same and any(k.startswith(same) for k in away) else "")

    @property
    def why_undefined(self) -> str:
        """Why runs have no such number, where that is known."""
        reasons = (group.undefined.get(str(self.cell.result)) for group in self.groups)
        return next(filter(None, reasons), "not measured")

    @property
    def difference(self) -> float | None:
        if self.ours is None or self.why_not or not isinstance(self.cell.value, int | float):
            return None
        return self.ours[0] - self.cell.value

    def __str__(self) -> str:
        """``printed → ours ± standard error (difference)``, as far as they are there."""
        if self.ours is None:
            there = self.groups and self.cell.value is not None
            judged = self.cell.result in JUDGED
            why = " → second task not learned" if judged else f" → - ({self.why_undefined})"
            return shade(self.cell, self.cell.value) + printed(self.cell) + (why if there else "")
        mean, error = self.ours
        places = 3 if abs(mean) < 10 else 1
        ours = f"{mean:.{places}f}" if error is None else f"{mean:.{places}f} ± {error:.{places}f}"
        said = self.why_not or ("" if self.difference is None else f"{self.difference:+.{places}f}")
        if self.cell.also and (all_ := Beside(replace(self.cell, result=self.cell.also), self.groups).ours):
            said += f"; {all_[0]:.1f} with all candidates"
        shades = [shade(self.cell, each) for each in (self.cell.value, mean)]
        return f"{shades[0]}{printed(self.cell)} → {shades[1]}{ours}{said and f' ({said})'}"


def shade(cell: Cell, value: float | str | None) -> str:
    """A mark before what the paper shades."""
    low = cell.forgets_below
    return SHADE if low is not None and isinstance(value, int | float) and value < low else ""


def printed(cell: Cell) -> str:
    """
    >>> printed(Cell(0.57, 0.01, "A", "average_accuracy", (), {}))
    '0.57 ± 0.01'
    """
    text = "-" if cell.value is None else cell.value if isinstance(cell.value, str) else f"{cell.value:.10g}"
    return text if cell.error is None else f"{text} ± {cell.error:g}"


def beside(table: Table, groups: Sequence[Group]) -> dict[str, dict[str, Beside]]:
    """The cells of a table with our runs, by row and column."""
    return {
        row: {head: Beside(cell, tuple(runs_of(cell, groups))) for head, cell in cells.items()}
        for row, cells in table.rows.items()
    }


# ---- tables ------------------------------------------------------------------------------------------------


def heads_and_rows(table: Table, groups: Sequence[Group]) -> Sheet:
    """A row a row of the paper; at its end the seeds, and what ours are or how to run them."""
    rows = []
    for name, cells in beside(table, groups).items():
        of_row = list({id(group): group for each in cells.values() for group in each.groups}.values())
        seeds = ", ".join(dict.fromkeys(str(len(group.seeds)) for group in of_row))
        said = [*dict.fromkeys(said_of(group, cells) for group in of_row), *to_run(cells)]
        texts = [str(cells[head]) if head in cells else "" for head in table.heads]
        rows.append([name, *texts, seeds, "; ".join(said)])
    return [table.paper, *table.heads, "seeds", "ours"], rows


def said_of(group: Group, cells: Mapping[str, Beside]) -> str:
    """Data with stand-ins, width and protocol of runs."""
    away = next(departs(group, each.cell) for each in cells.values() if group in each.groups)
    width = group.settings.get("backbone.width")
    own = [key for key in away if key != "backbone.width"]
    protocol = "reduced" if any(key.startswith("trainer.") for key in own) else "other settings"
    words = [str(group.settings.get("data")), *([f"width {width}"] if width else [])]
    return ", ".join([*words, protocol if own else "as printed"])


def to_run(cells: Mapping[str, Beside]) -> Iterator[str]:
    """How to run what was not, or why that is not possible."""
    open_ = [each.cell for each in cells.values() if not each.groups and each.cell.result]
    yield from dict.fromkeys(why for cell in open_ if (why := missing(cell)))
    if commanded := [cell for cell in open_ if missing(cell) is None]:
        yield f"not run: {command(commanded)}"


def command(cells: Sequence[Cell]) -> str:
    """One command line for several cells, with three seeds."""
    values: dict[str, dict[str, None]] = {}
    for cell in cells:
        for key, value in cell.overrides.items():
            values.setdefault(key, {})[str(value).lower() if isinstance(value, bool) else str(value)] = None
    experiments = dict.fromkeys(each for cell in cells for each in cell.experiments)
    words = [f"+experiment={','.join(experiments)}"]
    words += [shlex.quote(f"{key}={','.join(each)}") for key, each in values.items()] + ["seed=0,1,2"]
    sweep = [] if "stream_level" in values.get("selection", {}) else ["--multirun"]
    return " ".join(["python -m cl_lightning", *sweep, *words])


def departures_of(table: Table, groups: Sequence[Group]) -> list[str]:
    """A line for each way in which runs of a table are not as in print."""
    found: dict[str, None] = {}
    for cells in beside(table, groups).values():
        for each in cells.values():
            for group in each.groups:
                away = departs(group, each.cell)
                told = ", ".join(f"{key}={here} ({there})" for key, (here, there) in away.items())
                found.setdefault(told)
    printed = [cell for row in table.rows.values() for cell in row.values()]
    limits = {cell.forgets_below for cell in printed if cell.forgets_below is not None}
    shaded = f"{SHADE} is forgetting, as the paper shades it: below {' or '.join(map(str, sorted(limits)))}."
    return [*[shaded] * bool(limits), *(f"Here (in print): {told}." for told in found if told)]


def mean_in(
    groups: Sequence[Group], paper: str, table: str, row: str, head: str
) -> tuple[float, float] | None:
    """A printed number and our mean; None where it was not run."""
    cell = next(each for each in tables(paper) if each.name == table).rows[row][head]
    ours = Beside(cell, tuple(runs_of(cell, groups))).ours
    return None if ours is None or not isinstance(cell.value, int | float) else (cell.value, ours[0])


def records(paper: str, groups: Sequence[Group]) -> list[dict[str, Any]]:
    """All cells, one after the other, for programs."""
    found = []
    for table in tables(paper):
        for row, cells in beside(table, groups).items():
            for head, each in cells.items():
                mean, error = each.ours or (None, None)
                why = each.why_not if each.ours or not each.groups else each.why_undefined
                said = [why, *(said_of(group, cells) for group in each.groups), *to_run({head: each})]
                found.append(
                    {
                        "table": table.name,
                        "row": row,
                        "column": head,
                        "printed": each.cell.value,
                        "printed_error": each.cell.error,
                        "ours": mean,
                        "standard_error": error,
                        "seeds": min((len(group.seeds) for group in each.groups), default=0),
                        "difference": each.difference,
                        "said": "; ".join(filter(None, said)),
                    }
                )
    return found
