"""What papers print, cell by cell: the files of ``published``, one a paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    beside: tuple[str, ...]  # rows that stand in reports of runs, too
    variants: tuple[Mapping[str, str], ...]  # other overrides under which the same numbers stand
    images: Mapping[str, str]  # digests of data sets that are the same everywhere


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
    own = as_mapping(table["overrides"])
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
    beside = tuple(whole["rows"][key].get("name", key) for key in table.get("beside", []))
    variants = tuple(as_mapping([variant]) for variant in table.get("variants", []))
    head = (whole["paper"], table["name"], table["title"])
    return Table(*head, tuple(heads), rows, beside, variants, whole["images"])


def as_mapping(overrides: Sequence[str]) -> dict[str, str]:
    return dict(override.split("=", 1) for override in overrides)


@cache
def paper_of(experiment: str) -> str | None:
    """The paper that prints numbers of an experiment; None where none does."""
    for paper in names():
        cells = (cell for t in tables(paper) for row in t.rows.values() for cell in row.values())
        if any(experiment in cell.experiments for cell in cells):
            return paper
    return None
