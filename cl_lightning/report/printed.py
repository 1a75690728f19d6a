"""What papers print, cell by cell: the files of ``published``, one a paper."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "published"


@dataclass(frozen=True)
class Cell:
    """A printed number (or text) and the command that comes to it."""

    value: float | str | None
    error: float | None  # standard error, where one is printed
    head: str
    result: str | None  # of ours; None for texts
    experiments: tuple[str, ...]  # where there are several, the mean over them is printed
    overrides: Mapping[str, Any]  # of table, row and column
    scale: float = 1.0  # of ours, to the paper's unit
    same: str | None = None  # the group of settings that must be the paper's for the two to compare
    differs: str | None = None  # a word for why the two do not compare
    also: str | None = None  # a result of ours that is told with it
    forgets_below: float | None = None  # the paper shades accuracies below


@dataclass(frozen=True)
class Table:
    paper: str
    name: str
    title: str
    heads: tuple[str, ...]
    rows: Mapping[str, Mapping[str, Cell]]  # by the row's name and the column's head
    beside: Mapping[str, str]  # names of rows that stand in reports of runs, too, by their key
    variants: tuple[str, ...]  # other overrides under which the same numbers stand


@cache
def names() -> tuple[str, ...]:
    """All papers, by their files."""
    return tuple(sorted(file.stem for file in FOLDER.glob("*.yaml")))


@cache
def content(paper: str) -> dict[str, Any]:
    import yaml

    return yaml.load((FOLDER / f"{paper}.yaml").read_text(), yaml.CSafeLoader)


@cache
def tables(paper: str) -> tuple[Table, ...]:
    return tuple(table_of(content(paper), each) for each in content(paper)["tables"])


def table_of(whole: Mapping[str, Any], table: Mapping[str, Any]) -> Table:
    own = dict(override.split("=", 1) for override in table["overrides"])
    rows: dict[str, dict[str, Cell]] = {}
    for key, printed in table["cells"].items():
        row = whole["rows"][key]
        cells = rows.setdefault(row.get("name", key), {})
        for name, value in printed.items():
            if name.endswith("_se"):
                continue
            column = whole["columns"][name]
            cells[column.get("head", name)] = Cell(
                value,
                printed.get(f"{name}_se"),
                column.get("head", name),
                table.get("result", column.get("result")),
                tuple(column.get("experiments", table["experiments"])),
                {**own, **row.get("overrides", {}), **column.get("overrides", {})},
                column.get("scale", 1.0),
                column.get("same"),
                row.get("differs", {}).get(name, column.get("differs")),
                column.get("also"),
                row.get("forgets_below") if column.get("shaded") else column.get("forgets_below"),
            )
    heads = dict.fromkeys(head for cells in rows.values() for head in cells)
    beside = {key: whole["rows"][key].get("name", key) for key in table.get("beside", [])}
    head = (whole["paper"], table["name"], table["title"])
    return Table(*head, tuple(heads), rows, beside, tuple(table.get("variants", [])))


def rows_beside(results: Collection[str]) -> Iterator[dict[str, Any]]:
    """Entries for reports of runs: an experiment, a command, and rows with their own overrides and with
    numbers by the names of ``results``. What does not compare is left out, but for another machine's
    seconds."""
    for paper in names():
        for table, raw in zip(tables(paper), content(paper)["tables"]):
            found: dict[str, list[dict[str, Any]]] = {}
            for name in table.beside.values():
                for experiment, row in numbers_of(table.rows[name], raw["overrides"], results):
                    found.setdefault(experiment, []).append(row)
            for experiment, rows in found.items():
                entry = {"experiment": experiment, "source": f"{table.paper}, {table.name}", "rows": rows}
                for more in ((), *((variant,) for variant in table.variants)):
                    images = content(paper)["images"]
                    yield {**entry, "command": [*raw["overrides"], *more], "images": images}


def numbers_of(
    cells: Mapping[str, Cell], overrides: Sequence[str], results: Collection[str]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """By experiment and overrides besides the given ones: these, the learner's first, and the numbers."""
    rows: dict[tuple, dict[str, Any]] = {}
    for cell in cells.values():
        if cell.result in results and cell.value is not None and cell.differs in (None, "machine"):
            own = {key: v for key, v in cell.overrides.items() if f"{key}={v}" not in overrides}
            own = dict(sorted(own.items(), key=lambda pair: pair[0] != "learner"))
            rows.setdefault((cell.experiments[0], *own.items()), own)[str(cell.result)] = cell.value
    return ((key[0], row) for key, row in rows.items())


@cache
def paper_of(experiment: str) -> str | None:
    """The paper that prints numbers of an experiment; None where none does."""
    for paper in names():
        cells = (cell for t in tables(paper) for row in t.rows.values() for cell in row.values())
        if any(experiment in cell.experiments for cell in cells):
            return paper
    return None
