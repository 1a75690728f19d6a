"""Tables of any content fit any terminal, and nothing of them is cut."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.table import Table

from cl_lightning.report.layout import Column, new_console, tables, wrapped
from tests import golden

WORDS = st.text("ab=,/_ .0é漢", max_size=60)


def lines_of(made: list[Table], width: int) -> list[str]:
    console = golden.new_console(width)
    for table in made:
        console.print(table)
    return golden.printed(console).splitlines()


def texts_of(made: list[Table]) -> list[list[str]]:
    """All cells of each column of each table, without spaces and ends of lines."""
    return [["".join(str(cell).split()) for cell in c.cells] for table in made for c in table.columns]


@st.composite
def contents(draw: st.DrawFn) -> tuple[list[Column], list[list[str]], int]:
    """Columns, rows, and how many columns say what a row is about."""
    texts = draw(st.lists(st.booleans(), min_size=2, max_size=9))
    columns = [Column(f"head {place} of them", text) for place, text in enumerate(texts)]
    numbers = st.text("0123456789.± -", max_size=14)
    row = st.tuples(*(WORDS if column.text else numbers for column in columns)).map(list)
    return columns, draw(st.lists(row, min_size=1, max_size=4)), draw(st.integers(1, len(columns)))


@given(contents(), st.integers(40, 130))
@settings(max_examples=60, derandomize=True, deadline=None)
def test_no_line_is_wider_than_the_terminal_and_nothing_is_missing(content: tuple, width: int) -> None:
    columns, rows, keys = content
    made = tables(columns, rows, width, keys)
    assert max(map(cell_len, lines_of(made, width))) <= width
    for table in made:
        widths = [column.width for column in table.columns]
        assert all(widths), "a column of no width"
        assert sum(w + 3 for w in widths) + 1 <= width, "cells would be cut"
    shown = texts_of(made)
    for place in range(keys, len(columns)):
        assert ["".join(row[place].split()) for row in rows] in shown
    about = [["".join(row[place].split()) for row in rows] for place in range(keys)]
    named = [", ".join(f"head {place} of them={row[place]}" for place in range(keys)) for row in rows]
    assert shown[:keys] == about or ["".join(text.split()) for text in named] in shown


@given(WORDS, st.integers(2, 20))
@settings(max_examples=100, derandomize=True, deadline=None)
def test_a_wrapped_text_is_the_text_in_lines_that_fit(text: str, width: int) -> None:
    lines = wrapped(text, width).split("\n")
    assert max(map(cell_len, lines)) <= width
    assert "".join("".join(lines).split()) == "".join(text.split())


def test_hyper_parameters_are_broken_between_each_other() -> None:
    text = "lr=0.01,weight_decay=0.0001,k=3"
    assert wrapped(text, 20).split("\n") == ["lr=0.01,", "weight_decay=0.0001,", "k=3"]


def test_columns_of_long_texts_are_narrowed_before_a_further_table_is_begun() -> None:
    columns = [Column("run", text=True), Column("state", text=True), Column("MB")]
    (table,) = tables(columns, [["a/" * 40, "word " * 20, "1.5"]], 80)
    assert sum(column.width or 0 for column in table.columns) + 3 * 3 + 1 == 80


def test_off_terminals_tables_are_as_wide_as_columns_says_or_120(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: False, raising=False)
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "97")
    assert new_console().width == 97
    monkeypatch.delenv("COLUMNS")
    assert new_console().width == 120
