"""Tables that fit the terminal: long texts go over several lines, and columns that find no room make a
further table. Nothing is cut."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rich.cells import cell_len, chop_cells
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from cl_lightning.errors import plain

ELSEWHERE = 120  # columns where there is no terminal, and COLUMNS does not say how many
LEAST = 20  # columns that a text has at least, before a further table is begun
BETWEEN = 3  # columns between the texts of two cells: a line, and a space on both sides


class Output(Console):
    """Standard output. Where nobody reads it any more (``| head``), the program goes on without. What is
    printed controls no terminal."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=plain(segment.text))

    def on_broken_pipe(self) -> None:
        throw_output_away()


def say(console: Console, line: str, style: str | None = None) -> None:
    """Print a line that can be copied: it is not broken, and nothing in it is a mark."""
    console.print(line, style=style, highlight=False, markup=False, soft_wrap=True)


def throw_output_away() -> None:
    """Write no more to standard output, and not what waits to be written."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def new_console() -> Console:
    """Standard output, as wide as its terminal; elsewhere as COLUMNS says, or 120 columns."""
    console = Output()
    if console.is_terminal:
        return console
    said = os.environ.get("COLUMNS", "")
    return Output(width=int(said) if said.isdecimal() and int(said) else ELSEWHERE)


Cell = str | Text  # a Text with a style is shown in it


class Column(NamedTuple):
    """A column of a table. A text may go over several lines; anything else is a number, on one line."""

    head: str
    text: bool = False


def tables(
    columns: Sequence[Column], rows: Sequence[Sequence[Cell]], width: int, keys: int = 1
) -> list[Table]:
    """The rows in one table, or in several where one would be too wide; without heads where all are empty.
    The first ``keys`` columns say what a row is about: they are in each table. Where they leave so little
    room that there would be more tables for it, a table of their own numbers the rows, and the others go by
    the numbers."""
    least = [least_width(column, cells) for column, cells in zip(columns, zip(*rows))]
    by_number = [max(cell_len(str(len(rows))), cell_len("row")), *least[keys:]]
    wide = needed([*least[:keys], max(least[keys:], default=0)]) > width
    if wide or len(list(parts(least, keys, width))) > 1 + len(list(parts(by_number, 1, width))):
        legend, columns, rows = numbered(columns, rows, keys)
        least, keys = by_number, 1
        first = [one_table([Column("row"), Column("what it is", text=True)], legend, width, keys=2)]
    else:
        first = []
    return first + [
        one_table([columns[i] for i in part], [[row[i] for i in part] for row in rows], width, keys)
        for part in parts(least, keys, width)
    ]


def numbered(
    columns: Sequence[Column], rows: Sequence[Sequence[Cell]], keys: int
) -> tuple[list[list[Cell]], list[Column], list[list[Cell]]]:
    """What each row is, by number; and columns and rows with the number in the place of the first columns.

    >>> numbered([Column("learner"), Column("lr"), Column("ACC")], [["gem", "0.1", "0.5"]], 2)[::2]
    ([['1', 'learner=gem, lr=0.1']], [['1', '0.5']])
    """
    named = [[f"{column.head}={cell}" for column, cell in zip(columns[:keys], row)] for row in rows]
    return (
        [[str(number), ", ".join(words)] for number, words in enumerate(named, start=1)],
        [Column("row"), *columns[keys:]],
        [[str(number), *row[keys:]] for number, row in enumerate(rows, start=1)],
    )


def parts(least: Sequence[int], keys: int, width: int) -> Iterator[list[int]]:
    """The numbers of the columns of each table.

    >>> list(parts([10, 5, 5, 5], keys=1, width=30))
    [[0, 1, 2], [0, 3]]
    """
    part = list(range(keys))
    for i in range(keys, len(least)):
        if len(part) > keys and needed([least[j] for j in (*part, i)]) > width:
            yield part
            part = list(range(keys))
        part.append(i)
    if least:
        yield part


def one_table(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], width: int, keys: int) -> Table:
    """With lines between rows where what a row is about goes over several lines."""
    widths = [max(map(length, (column.head, *cells))) for column, cells in zip(columns, zip(*rows))]
    if needed(widths) > width:  # heads go over several lines
        widths = [natural_width(column, cells) for column, cells in zip(columns, zip(*rows))]
    while needed(widths) > width and any(column.text for column in columns):
        widest = max((i for i, column in enumerate(columns) if column.text), key=lambda i: widths[i])
        if widths[widest] == 1:
            break
        widths[widest] -= 1
    cells = [[wrapped(str(cell), w) for cell, w in zip(row, widths)] for row in rows]
    lines = any("\n" in cell for row in cells for cell in row[:keys])
    table = Table(show_lines=lines, show_header=any(column.head for column in columns))
    for column, w in zip(columns, widths):
        head = Text(wrapped(column.head, w))
        table.add_column(head, justify="left" if column.text else "right", no_wrap=True, width=w)
    for row, texts in zip(rows, cells):
        table.add_row(*(Text(text, getattr(cell, "style", "")) for cell, text in zip(row, texts)))
    return table


def needed(widths: Sequence[int]) -> int:
    """The width of a table with texts of these widths."""
    return sum(w + BETWEEN for w in widths) + 1


def length(cell: Cell) -> int:
    return cell_len(str(cell))


def natural_width(column: Column, cells: Sequence[Cell]) -> int:
    return max(map(length, (*column.head.split(), *cells)), default=1)


def least_width(column: Column, cells: Sequence[Cell]) -> int:
    natural = natural_width(column, cells)
    return min(natural, LEAST) if column.text else natural


def wrapped(text: str, width: int) -> str:
    """The text in lines of at most this width, broken behind spaces, commas and slashes; words that are
    longer are broken anywhere.

    >>> wrapped("reuse=0,lr=0.01,weight_decay=0.0001", 16).split()
    ['reuse=0,lr=0.01,', 'weight_decay=0.0', '001']
    """
    lines = [""]
    for piece in (piece for word in re.findall(r"[^ ,/]*[ ,/]?", text) for piece in chop_cells(word, width)):
        if cell_len(lines[-1] + piece.rstrip()) > width:
            lines.append("")
        lines[-1] += piece
    return "\n".join(line.rstrip() for line in lines)


def titled(title: str, *below: RenderableType) -> list[RenderableType]:
    """Things to print, below a title."""
    return [Text(title, style="italic"), *below]


def with_title(
    title: str, columns: Sequence[Column], rows: Sequence[Sequence[Cell]], width: int
) -> list[RenderableType]:
    """Nothing where there are no rows."""
    return titled(title, *tables(columns, rows, width)) if rows else []


def three_digits(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def scaled(value: float, unit: str = "") -> str:
    """
    >>> scaled(1_234_000, "B"), scaled(12)
    ('1.23 MB', '12 ')
    """
    for power, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= power:
            return f"{value / power:.2f} {prefix}{unit}"
    return f"{value:.0f} {unit}"
