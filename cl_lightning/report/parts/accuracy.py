"""The accuracy matrix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from cl_lightning.report.layout import Cell, Column, tables, three_digits, titled
from cl_lightning.report.style import Figure, panels, whole_numbers, without_gaps

ORDER = 0  # among the tables of a run
FEW = 10  # tasks up to which a run ends in its matrix
SHOWN = (
    "Old tasks end at 0: with one output layer for all classes, and no word of the task at test, this is "
    "what the protocol shows of a learner that trains on the new classes alone (docs/protocols.md)."
)


def table(results: Mapping[str, Any], width: int) -> list[RenderableType]:
    """The whole accuracy matrix where it fits, else what papers look at first: when it was learned, and at
    the end."""
    matrix: list[list[float | None]] = results["accuracy_matrix"]
    tasks = len(matrix[0])
    rows: list[list[Cell]] = []
    for learned, row in enumerate(matrix):
        cells = [Text(three_digits(value), "bold" * (j == learned - 1)) for j, value in enumerate(row)]
        rows.append(["none" if learned == 0 else f"0..{learned - 1}" if learned > 1 else "0", *cells])
    said = [Text(SHOWN)] if ends_at_zero(results) else []
    whole = tables([Column("learned"), *(Column(str(j)) for j in range(tasks))], rows, width)
    if len(whole) == 1:
        return titled("Test accuracy on task (columns) after learning tasks (rows)", *whole, *said)
    columns = [Column("task"), Column("just learned"), Column("at the end")]
    two = [[str(j), three_digits(matrix[j + 1][j]), three_digits(matrix[-1][j])] for j in range(tasks)]
    title = "Test accuracy on each task (results.json has the whole matrix)"
    return titled(title, *tables(columns, two, width), *said)


def ends_at_zero(results: Mapping[str, Any]) -> bool:
    """Whether all tasks but the last are lost at the end of a stream with one output layer."""
    heads, last = [task["head"] for task in results["stream"]["tasks"]], results["accuracy_matrix"][-1]
    single = len(heads) > 1 and all(head["mode"] == "single" for head in heads)
    return single and all(value is not None and value < 0.005 for value in last[:-1])


def line(results: Mapping[str, Any]) -> list[str]:
    """Of many tasks: accuracies as they were learned and at the end, their mean and their ends."""
    matrix = results["accuracy_matrix"]
    tasks = range(len(matrix[0]))
    if len(tasks) <= FEW:
        return []
    said = []
    for when, row in (("just learned", [matrix[j + 1][j] for j in tasks]), ("at the end", matrix[-1])):
        known = [(value, j) for j, value in enumerate(row) if value is not None]
        (low, lowest), (high, highest) = min(known, default=(None, 0)), max(known, default=(None, 0))
        mean = sum(value for value, _ in known) / len(known) if known else None
        ends = f"from {three_digits(low)} (task {lowest}) to {three_digits(high)} (task {highest})"
        said.append(f"Test accuracy {when}: mean {three_digits(mean)}, {ends}")
    return said


def heat(matrix: Sequence[Sequence[float | None]]) -> Figure:
    """The accuracy matrix in colours, from 0 to 1; white where a task was not tested."""
    figure, (axes,) = panels(1, height=2.8)
    image = axes.imshow([*map(without_gaps, matrix)], vmin=0, vmax=1, cmap="viridis", aspect="auto")
    figure.colorbar(image, label="test accuracy")
    axes.set(xlabel="task", ylabel="tasks learned")
    whole_numbers(axes.xaxis)
    whole_numbers(axes.yaxis)
    return figure
