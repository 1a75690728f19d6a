"""A paper's tables with ours beside: what is printed, what runs came to, the difference, and for what was not
run the command that runs it."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from cl_lightning.config.resolvers import conf_dir
from cl_lightning.metrics.table import METRICS
from cl_lightning.report.compare import Group, as_published, departures
from cl_lightning.report.printed import Cell, Table, tables

KIND = "stream.kind"  # the key of which a cell may name several values: it is the least over these
JUDGED = {metric.name for metric in METRICS if metric.of == "trainings"}  # undefined without a valid one
SHADE = "▒"
OVER_WAYS = "prescient"  # a result that is the highest over all ways to learn the first task, a run each
GROUPS = ("learner", "dnn", "selection")  # of which a cell's command names a choice
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


# ---- which runs stand in which cell ------------------------------------------------------------------------


def beside(table: Table, groups: Sequence[Group]) -> dict[str, dict[str, Beside]]:
    """The cells of a table with our runs, by row and column."""
    return {
        row: {head: Beside(cell, tuple(runs_of(cell, groups))) for head, cell in cells.items()}
        for row, cells in table.rows.items()
    }


def runs_of(cell: Cell, groups: Sequence[Group]) -> list[Group]:
    """Of each experiment of a cell the group that came to it: on real data first, then the one that is most
    like what was printed, then the one with most seeds; of none where one is missing."""
    found = []
    for experiment in cell.experiments if cell.result and missing(cell) is None else ():
        name = cell.overrides.get("name", experiment)
        for part in parts_of(cell):
            own = [g for g in groups if g.experiment == name and is_of(g, part)]
            if not own:
                return []
            if cell.result == OVER_WAYS:
                found += own
                continue
            found.append(max(own, key=lambda group: how_like(group, part)))
    return found


def how_like(group: Group, cell: Cell) -> tuple[bool, int, int]:
    """What the runs of a cell are chosen by, the highest first."""
    is_real = str(group.settings.get("data")).startswith("real")
    return is_real, -len(departs(group, cell)), len(group.seeds)


def is_minimum(cell: Cell) -> bool:
    """Whether a cell is the least over several streams."""
    return "," in str(cell.overrides.get(KIND, ""))


def parts_of(cell: Cell) -> list[Cell]:
    """A cell for each of its streams."""
    if not is_minimum(cell):
        return [cell]
    kinds = str(cell.overrides[KIND]).split(",")
    return [replace(cell, overrides={**cell.overrides, KIND: kind}) for kind in kinds]


def is_of(group: Group, cell: Cell) -> bool:
    """Whether runs are of a cell's learner, network and stream with its own settings. What the whole table
    says (data, trainer, width) may be another: that is told beside."""
    if group.learner != learner_called(tuple(cell.overrides.items())):
        return False
    if group.departs is not None and cell.overrides.get("dnn", dnn_of(group)) != dnn_of(group):
        return False
    own = {key: value for key, value in cell.overrides.items() if "." in key}
    if "backbone" in cell.overrides:
        own["backbone._target_"] = class_of("backbone", str(cell.overrides["backbone"]))
    if any(group.settings.get(key, value) != value for key, value in own.items()):
        return False
    away = set(departs(group, cell)) - {"stream.on_shortage"}
    network = ("backbone.",) if "dnn" in cell.overrides else ("backbone._target_", "backbone.widen")
    return not any(key.startswith(("learner.", "stream.", *network)) for key in away)


def dnn_of(group: Group) -> str | None:
    """The choice of ``conf/dnn`` that the command of runs names: an extract has not all of its settings."""
    return next((word.removeprefix("dnn=") for word in group.command if word.startswith("dnn=")), None)


@cache
def class_of(group: str, choice: str) -> str:
    """The class of a choice, or of the one that it is made of."""
    cfg = OmegaConf.to_container(OmegaConf.load(Path(conf_dir(), group, f"{choice}.yaml")), resolve=False)
    assert isinstance(cfg, dict)
    others = [each for each in cfg.get("defaults", []) if each != "_self_"]
    return str(cfg["_target_"]) if "_target_" in cfg else class_of(group, others[0])


def departs(group: Group, cell: Cell) -> Mapping[str, Any]:
    """Settings that are not as in print, each with the value here and there."""
    if group.departs is not None:
        return group.departs
    cell = next(
        (part for part in parts_of(cell) if part.overrides.get(KIND) == group.settings.get(KIND)), cell
    )
    experiment = next(e for e in cell.experiments if cell.overrides.get("name", e) == group.experiment)
    wanted = as_published(experiment, tuple(f"{key}={value}" for key, value in cell.overrides.items()))[1]
    found = departures(group.settings, wanted)
    found = [key for key in found if not key.startswith("data")]  # that is told by itself
    return {key: [group.settings.get(key), wanted.get(key)] for key in found}


@cache
def learner_called(overrides: tuple[tuple[str, Any], ...]) -> str | None:
    """The name that a learner has in results, read from its file alone."""
    own = dict(overrides)
    learner = own["learner"] if "learner" in own else learner_of(own["dnn"])
    cfg = OmegaConf.load(Path(conf_dir(), "learner", f"{learner}.yaml"))
    assert isinstance(cfg, DictConfig)
    for key, value in own.items():
        if key.startswith("learner."):
            OmegaConf.update(cfg, key.removeprefix("learner."), value)
    name = cfg.name
    return str(name)


def learner_of(dnn: str) -> str:
    """The learner that a choice of ``conf/dnn`` has."""
    cfg: Any = OmegaConf.load(Path(conf_dir(), "dnn", f"{dnn}.yaml"))
    return next(each["override /learner"] for each in cfg.defaults if "override /learner" in each)


def missing(cell: Cell) -> str | None:
    """What a cell's command names and this version does not have."""
    named = [("experiment", each) for each in cell.experiments]
    named += [(key, str(value)) for key, value in cell.overrides.items() if key in GROUPS]
    for group, name in named:
        if not Path(conf_dir(), group, f"{name}.yaml").is_file():
            return f"no {group} {name} yet"
    return None


# ---- tables ------------------------------------------------------------------------------------------------


def heads_and_rows(table: Table, groups: Sequence[Group]) -> tuple[list[str], list[list[str]]]:
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
