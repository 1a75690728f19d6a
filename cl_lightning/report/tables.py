"""What a run shows at its end, read from its results.json."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from cl_lightning.evaluation.scenario import Scenario, scenario_in
from cl_lightning.metrics.table import METRICS
from cl_lightning.report.layout import Cell, Column, new_console, tables, titled

TRANSFER = "transfer to the last task"
SIGNS = {metric.name: metric.sign for metric in METRICS} | {TRANSFER: "+"}
PREDICTORS = 20  # in a table
VERDICT_COLOURS = {"satisfied": "green", "violated": "red", "unknown": "yellow"}  # of verdicts


def show(
    results: Mapping[str, Any], folder: Path, note: str | None = None, console: Console | None = None
) -> None:
    """Print the accuracy matrix, metrics and costs of a run, and where it lies."""
    console = console or new_console()
    line = headline(
        results["learner"],
        results["stream"]["name"],
        len(results["stream"]["tasks"]),
        results["config"]["stream"]["head"],
        scenario_in(results["stream"]["tasks"], results["needs"]),
        results["seed"],
    )
    console.print(f"\n{line}", style="bold", highlight=False, markup=False, soft_wrap=True)
    for part in parts_of(results, console.width):
        console.print(part)
    if note:
        console.print(
            f"This run is from another version: {note} Start afresh with resume=false.",
            highlight=False,
        )
    console.print(f"Results: {folder / 'results.json'}", highlight=False, soft_wrap=True)


def headline(
    learner: str, stream: str, tasks: int, head: str | None, scenario: Scenario | None, seed: int
) -> str:
    """What learns what, and under which rules.

    >>> headline("ewc", "permuted", 20, "domain", Scenario("domain-incremental", "no task ids at test"), 3)
    'ewc on permuted: 20 tasks, domain-incremental (no task ids at test), head mode domain, seed 3'
    """
    rules = [
        f"{tasks} task{'s' * (tasks != 1)}",
        *([str(scenario)] if scenario else []),
        *([f"head mode {head}"] if head else []),
        f"seed {seed}",
    ]
    return f"{learner} on {stream}: {', '.join(rules)}"


def parts_of(results: Mapping[str, Any], width: int) -> list[RenderableType]:
    """All tables of a run, with their titles. Tasks are counted from 0."""
    return [
        *accuracy_table(results["accuracy_matrix"], width),
        *titled("Metrics", *metric_table(metrics_in(results), width)),
        *measure_table(results.get("measures", {}), width),
        *predictor_table(results.get("predictors", {}), width),
        *path_table(results, width),
        *choice_table(results, width),
        *cost_table(results, width),
        *card_table(results["card"], width),
    ]


def accuracy_table(matrix: list[list[float | None]], width: int) -> list[RenderableType]:
    """The whole accuracy matrix where it fits, else what papers look at first: when it was learned, and at
    the end."""
    tasks = len(matrix[0])
    rows: list[list[Cell]] = []
    for learned, row in enumerate(matrix):
        cells = [Text(three_digits(value), "bold" * (j == learned - 1)) for j, value in enumerate(row)]
        rows.append(["none" if learned == 0 else f"0..{learned - 1}" if learned > 1 else "0", *cells])
    whole = tables([Column("learned"), *(Column(str(j)) for j in range(tasks))], rows, width)
    if len(whole) == 1:
        return titled("Test accuracy on task (columns) after learning tasks (rows)", *whole)
    columns = [Column("task"), Column("just learned"), Column("at the end")]
    two = [[str(j), three_digits(matrix[j + 1][j]), three_digits(matrix[-1][j])] for j in range(tasks)]
    title = "Test accuracy on each task (results.json has the whole matrix)"
    return titled(title, *tables(columns, two, width))


def metrics_in(results: Mapping[str, Any]) -> dict[str, float | None]:
    """Metrics by the names under which they are shown; validation first."""
    validated, reference = results["validation_at_end"], results["reference"]
    return {
        **({"validation accuracy at the end": validated["mean"]} if validated else {}),
        **results["metrics"],
        **({TRANSFER: reference["transfer"]} if reference else {}),
    }


def metric_table(metrics: dict[str, float | None], width: int) -> list[Table]:
    rows = []
    for name, value in metrics.items():
        signed = SIGNS.get(name, "")
        rows.append([name.replace("_", " "), "-" if value is None else f"{value:{signed}.4f}"])
    return tables([Column("", text=True), Column("", text=True)], rows, width)


def measure_table(measures: Mapping[str, list[list[float | None]]], width: int) -> list[RenderableType]:
    """A row a measure, means over tasks: of tasks about to be learned, just learned, and of all at the
    end."""
    rows = []
    for name, matrix in measures.items():
        tasks = range(len(matrix[0]))
        looks = ([matrix[j][j] for j in tasks], [matrix[j + 1][j] for j in tasks], matrix[-1])
        means = [None if None in look else sum(map(float, look)) / len(look) for look in looks]  # type: ignore[arg-type]
        rows.append([name.replace("_", " "), *map(three_digits, means)])
    heads = [Column("measure", text=True), *map(Column, ("before learning", "just learned", "at the end"))]
    return with_title("Measures, means over tasks (results.json has matrices)", heads, rows, width)


def predictor_table(predictors: Mapping[str, Any], width: int) -> list[RenderableType]:
    """A row a predictor that the learner named; where there are many, the first of them."""
    shown = [metric for metric in METRICS if metric.head and metric.of == "matrix"]
    rows = [
        [name, *(three_digits(predictor["metrics"].get(metric.name)) for metric in shown)]
        for name, predictor in [*predictors.items()][:PREDICTORS]
    ]
    columns = [Column("predictor", text=True), *(Column(metric.head) for metric in shown)]
    left = len(predictors) - len(rows)
    more = f" ({left} more are in results.json)" if left else ""
    return with_title(f"Named predictors{more}", columns, rows, width)


def choice_table(results: Mapping[str, Any], width: int) -> list[RenderableType]:
    """A row a phase of each task. ``val`` is the best validation accuracy; a phase's own score is called
    so."""
    rows = []
    for cost in results["costs"]:
        chosen = [phase for phase in results["selected"] if phase["where"] == f"task{cost['task']}"]
        for place, phase in enumerate(chosen):
            rows.append(
                [
                    "" if place else str(cost["task"]),
                    phase["candidate"],
                    f"score {three_digits(phase['score'])}"
                    if "score" in phase
                    else three_digits(phase["val_accuracy"]),
                    str(phase["steps"]),
                    str(phase["steps_to_best"]),
                ]
            )
    heads = [Column(head, text=head == "chosen") for head in ("task", "chosen", "val", "steps", "to best")]
    return with_title("Choices, by task", heads, rows, width)


def cost_table(results: Mapping[str, Any], width: int) -> list[RenderableType]:
    """A row a task. ``held`` is everything that the learner keeps, ``Mem`` what Veniat et al. 2021 count of
    it, where that differs."""
    costs = results["costs"]
    held, counted = held_and_counted(costs)
    heads = ["task", "held", *(["Mem"] if counted else []), "flops", "executed", "seconds"]
    rows = [
        [
            str(cost["task"]),
            scaled(own, "B"),
            *([scaled(mem, "B")] if counted else []),
            scaled(cost["flops"]),
            scaled(cost["flops_executed"]),
            f"{sum(value for part, value in cost['seconds'].items() if part != 'cpu'):.1f}",
        ]
        for cost, own, mem in zip(costs, held, counted or held)
    ]
    return with_title("Costs, by task", list(map(Column, heads)), rows, width)


def held_and_counted(costs: Sequence[Mapping[str, Any]]) -> tuple[list[int], list[int]]:
    """Bytes that the learner keeps after each task, and those that Veniat et al. 2021 count of them; empty
    where they are the same, or are not counted."""
    held = [sum(cost["held"].values()) for cost in costs]
    counted: list[Any] = [cost["published_memory"] for cost in costs]
    return held, [] if None in counted or counted == held else counted


def with_title(
    title: str, columns: Sequence[Column], rows: Sequence[Sequence[Cell]], width: int
) -> list[RenderableType]:
    """Nothing where there are no rows."""
    return titled(title, *tables(columns, rows, width)) if rows else []


def path_table(results: Mapping[str, Any], width: int) -> list[RenderableType]:
    """How many modules of each task's path are an earlier task's, and which task's; nothing for learners
    without paths."""
    notes, rows = module_paths(results), []
    for task, note in enumerate(notes):
        path, count = note["path"], note["reused"]
        sources = [j for j in note["sources"] if count and notes[j]["path"][:count] == path[:count]]
        rows.append([str(task), str(len(path)), str(count), str(sources[0]) if sources else "-"])
    columns = [Column(head) for head in ("task", "modules", "re-used", "of task")]
    return with_title("Modules re-used", columns, rows, width)


def module_paths(results: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The notes of a learner that records its paths of modules, one a task; empty for other learners."""
    notes = results["notes"]
    return notes if all(note.get("kind") == "module_paths" for note in notes) else []


def card_table(card: list[dict[str, str]], width: int) -> list[RenderableType]:
    columns = [Column(head, text=True) for head in ("rule", "verdict", "evidence")]
    rows: list[list[Cell]] = []
    for finding in card:
        verdict = Text(finding["verdict"], VERDICT_COLOURS[finding["verdict"]])
        rows.append([finding["rule"], verdict, finding["evidence"]])
    return with_title("Card: what this evaluation does and does not show", columns, rows, width)


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
