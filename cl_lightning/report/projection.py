"""What a run's records say, as points, tables and pictures: all that Weights & Biases gets of a run. Nothing
here knows of it: the panels of docs/dashboard.md are drawn from the same points."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cl_lightning.errors import Refusal
from cl_lightning.metrics.table import METRICS, metrics_of
from cl_lightning.report.parts.accuracy import heat
from cl_lightning.report.parts.costs import seconds_of
from cl_lightning.report.results import Results, costs, own_of, reference_of, results_of
from cl_lightning.report.style import styled
from cl_lightning.store.folder import open_store, row_key, task_key
from cl_lightning.store.records import ReferenceRecord, Row, RowRecord, TaskRecord

Point = dict[str, Any]  # values by key, with the place on the axis under the axis' name

AXES = {  # which keys go by which axis
    "learned": ("own/*", "test/*", "cl/*", "cost/*", "chosen/*", "matrix/*", "card/*", "figures/*"),
    "batches": ("train/*", "val/*"),
}
OF_TRAINING = ("train/", "val/")  # the beginnings of the names of curves


@dataclass(frozen=True)
class Sheet:
    """A table."""

    columns: list[str]
    rows: list[list[Any]]


class Projection:
    """The points of a run, in their order; each is given out once. What is recorded later comes with the next
    call."""

    def __init__(self, folder: Path) -> None:
        found = open_store(folder)
        if found is None:
            raise Refusal(f"{folder} holds no run. Give a folder that has run.json in it.")
        self.folder = folder
        self.store, self.start = found
        self.curves = Curves(folder / "logs.csv")
        self.rows: list[RowRecord] = []
        self.transfer = False  # whether it was given out

    def news(self) -> Iterator[Point]:
        """Points of what was recorded since the last call: inside tasks, then at their boundaries."""
        yield from self.curves.news()
        while (row := self.store.load(row_key(len(self.rows)), RowRecord)) is not None:
            task = self.store.load(task_key(row.learned - 1), TaskRecord) if row.learned else None
            if row.learned and task is None:  # damaged: it is learned again
                return
            self.rows.append(row)
            logged: dict[int, Point] = {}
            for name, curve in own_of([task, row] if task else [row])["learned"].items():
                for at, value in curve:
                    logged.setdefault(at, {}).update(known({f"own/{name}": value}))
            point = {**tests_of(row), **logged.pop(row.learned, {})}
            for at in sorted(logged):
                yield {"learned": at, **logged[at]}
            if task is not None:
                matrix = [row.first for row in self.rows]
                point |= {**metrics_at(matrix), **costs_at(task, row), **chosen_at(task)}
                if is_drawn(row.learned, len(self.start.stream.tasks)):
                    with styled():
                        point["matrix/heat"] = heat(matrix)
            if point:
                yield {"learned": row.learned, **point}
        reference = None if self.transfer else self.store.load("reference", ReferenceRecord)
        if reference is not None and len(self.rows) > len(self.start.stream.tasks):
            self.transfer = True
            transfer = reference_of(reference, [row.first for row in self.rows])["transfer"]
            yield {"learned": self.rows[-1].learned, **known({"cl/T": transfer})}

    def results(self) -> Results:
        return results_of(self.store, self.start)


# ---- inside tasks ------------------------------------------------------------------------------------------


@dataclass
class Curves:
    """The curves of training in ``logs.csv``, where each point stands once. Each is given out once."""

    path: Path
    read: int = 0  # bytes

    def news(self) -> Iterator[Point]:
        """What was written since the last call: values of one mini-batch together, but for a second value of
        one name. A task's last mini-batch is where the next task begins."""
        point: Point = {}
        for step, name, value in self.lines():
            if point and (step != point["batches"] or name in point):
                yield point
                point = {}
            point |= {"batches": step, name: value}
        if point:
            yield point

    def lines(self) -> Iterator[tuple[int, str, float]]:
        """What was written of training since the last call, without a last line that is not whole."""
        if not self.path.is_file():
            return
        with self.path.open("rb") as file:
            file.seek(self.read)
            whole = file.read().rpartition(b"\n")[0]
        self.read += len(whole) + bool(whole)
        for cells in csv.reader(whole.decode(errors="replace").splitlines()):
            try:
                step, name, value = cells
                if name.startswith(OF_TRAINING):
                    yield int(step), name, float(value)
            except ValueError:  # the head, and lines that are damaged
                continue


def is_drawn(learned: int, tasks: int) -> bool:
    """Whether the matrix is drawn after so many tasks: at each tenth of a stream, and so at its end. Pictures
    cost more than all numbers together.

    >>> [learned for learned in range(1, 26) if is_drawn(learned, 25)]
    [3, 5, 8, 10, 13, 15, 18, 20, 23, 25]
    """
    return learned * 10 // tasks > (learned - 1) * 10 // tasks


# ---- at boundaries -----------------------------------------------------------------------------------------


def tests_of(record: RowRecord) -> dict[str, float]:
    """The row of the accuracy matrix, and its mean over the tasks learned so far; of measures their means."""
    of_learned = [accuracy for accuracy in record.first[: record.learned] if accuracy is not None]
    mean = {"test/mean_learned": sum(of_learned) / len(of_learned)} if of_learned else {}
    for measure, rows in record.measures.items():
        values = [value for value in next(iter(rows.values()))[: record.learned] if value is not None]
        mean |= {f"test/{measure}": sum(values) / len(values)} if values else {}
    return {**mean, **known({f"test/task/{j}": accuracy for j, accuracy in enumerate(record.first)})}


def metrics_at(matrix: Sequence[Row]) -> dict[str, float]:
    """The metrics of the stream as far as it is learned, as if it ended there."""
    return known(short_names("cl", metrics_of([row[: len(matrix) - 1] for row in matrix])))


def short_names(group: str, metrics: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{group}/{metric.short}": metrics.get(metric.name) for metric in METRICS}


def costs_at(task: TaskRecord, row: RowRecord) -> dict[str, float]:
    """What the task cost with its test, and what is held after it."""
    of_task = costs(task, row)
    held = {f"cost/bytes_{as_name(part)}": size for part, size in of_task["held"].items()}
    return {**held, "cost/flops": of_task["flops"], "cost/seconds": seconds_of(of_task)}


def chosen_at(task: TaskRecord) -> dict[str, Any]:
    """What validation data chose in the task's last phase. Of hyper-parameters numbers and words."""
    own = [phase for phase in task.phases if phase.place.part == "task" and not phase.auxiliary]
    values: dict[str, Any] = {}
    if own:
        chosen = own[-1].chosen
        plain = {key: value for key, value in chosen.hparams.items() if isinstance(value, int | float | str)}
        values = {**plain, "val_accuracy": chosen.val_accuracy, "score": chosen.score}
    if task.notes.get("kind") == "module_paths":
        values["reused_modules"] = task.notes["reused"]
    return known({f"chosen/{as_name(key)}": value for key, value in values.items()})


def as_name(words: str) -> str:
    """Letters, digits and underscores alone, as W&B wants keys.

    >>> as_name("cross-task resemblance"), as_name("memory.A")
    ('cross_task_resemblance', 'memory_A')
    """
    return re.sub(r"[^A-Za-z0-9]", "_", words)


def known(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


# ---- at the end --------------------------------------------------------------------------------------------


def table_of(matrix: Sequence[Row]) -> Sheet:
    """The accuracy matrix, as far as it is measured."""
    columns = ["learned", *(f"task {j}" for j in range(len(matrix[0])))]
    return Sheet(columns, [[learned, *row] for learned, row in enumerate(matrix)])


def summary_of(results: Results) -> dict[str, Any]:
    """What a finished run came to, in the words of its points, and the verdicts of its card."""
    at_end, reference = results["validation_at_end"], results["reference"]
    final = short_names("final", results["metrics"])
    final |= {"final/T": reference and reference["transfer"], "final/val_accuracy": at_end and at_end["mean"]}
    card = {f"card/{as_name(finding['rule'])}": finding["verdict"] for finding in results["card"]}
    return {**known(final), **card}


def card_of(results: Results) -> Sheet:
    rows = [[finding["rule"], finding["verdict"], finding["evidence"]] for finding in results["card"]]
    return Sheet(["rule", "verdict", "evidence"], rows)
