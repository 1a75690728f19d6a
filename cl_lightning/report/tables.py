"""What a run shows at its end, read from its results.json."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

WIDEST = 20  # tasks whose whole matrix is printed


def show(
    results: Mapping[str, Any], folder: Path, note: str | None = None, console: Console | None = None
) -> None:
    """Print the accuracy matrix, metrics and costs of a run, and where it lies."""
    console = console or Console()
    if not console.is_terminal:
        console = Console(file=console.file, width=max(console.width, 160))
    stream = results["stream"]
    seed = f"seed {results['seed']}"
    console.print(
        f"\n[bold]{results['learner']}[/bold] on {stream['name']}, {len(stream['tasks'])} tasks, {seed}",
        highlight=False,
    )
    matrix, metrics = matrix_table(results["accuracy_matrix"]), metric_table(metrics_in(results))
    for table in (matrix, metrics, path_table(results), cost_table(results)):
        if table is not None:
            console.print(table)
    if "card" in results:  # from schema 2 on
        console.print(card_table(results["card"]))
    if note:
        console.print(
            f"This run is from another version: {note} Start afresh with resume=false.", highlight=False
        )
    console.print(f"Results: {folder / 'results.json'}", highlight=False, soft_wrap=True)


def matrix_table(matrix: list[list[float | None]]) -> Table:
    tasks = len(matrix[0])
    if tasks > WIDEST:
        table = Table(title="Test accuracy of the last row", title_justify="left")
        for column in ("task", "just learned", "at the end"):
            table.add_column(column, justify="right")
        for j in range(tasks):
            table.add_row(str(j), three_digits(matrix[j + 1][j]), three_digits(matrix[-1][j]))
        return table
    table = Table(title="Test accuracy on task (columns) after learning tasks (rows)", title_justify="left")
    table.add_column("learned", justify="right")
    for j in range(tasks):
        table.add_column(str(j), justify="right", no_wrap=True)
    for learned, row in enumerate(matrix):
        cells = [
            f"[bold]{three_digits(value)}[/bold]" if j == learned - 1 else three_digits(value)
            for j, value in enumerate(row)
        ]
        table.add_row("none" if learned == 0 else f"0..{learned - 1}" if learned > 1 else "0", *cells)
    return table


def metrics_in(results: Mapping[str, Any]) -> dict[str, float | None]:
    """Metrics by the names under which they are shown; validation first."""
    metrics = dict(results["metrics"])
    if results.get("schema", 4) < 4 and metrics.get("forgetting") is not None:
        metrics["forgetting"] = 0.0 - metrics["forgetting"]  # it was the same number as backward transfer
    validated = results.get("validation_at_end")  # from schema 4 on
    reference = results.get("reference")  # from schema 3 on
    return {
        **({"validation accuracy at the end": validated["mean"]} if validated else {}),
        **metrics,
        **({"transfer to the last task": reference["transfer"]} if reference else {}),
    }


def metric_table(metrics: dict[str, float | None]) -> Table:
    table = Table(title="Metrics", title_justify="left", show_header=False)
    for name, value in metrics.items():
        signed = "+" if "transfer" in name or "forgetting" in name else ""
        table.add_row(name.replace("_", " "), "-" if value is None else f"{value:{signed}.4f}")
    return table


def cost_table(results: Mapping[str, Any]) -> Table:
    """A row a task. ``val`` is the best validation accuracy; a phase's own score is called so. ``held`` is
    everything that the learner keeps, ``Mem`` what Veniat et al. 2021 count of it, where that differs."""
    costs = results["costs"]
    counts = [(cost.get("published_memory"), sum(cost["held"].values())) for cost in costs]
    counted = all(mem is not None for mem, _ in counts) and any(mem != held for mem, held in counts)

    def lines(shown: Callable[[dict], str]) -> Callable[[dict, list[dict]], str]:
        return lambda cost, chosen: "\n".join(map(shown, chosen))

    columns: dict[str, Callable[[dict, list[dict]], str]] = {
        "task": lambda cost, chosen: str(cost["task"]),
        "chosen": lines(lambda s: s["candidate"]),
        "val": lines(
            lambda s: f"score {three_digits(s['score'])}" if "score" in s else three_digits(s["val_accuracy"])
        ),
        "steps": lines(lambda s: str(s["steps"])),
        "to best": lines(lambda s: str(s["steps_to_best"])),
        "held": lambda cost, chosen: scaled(sum(cost["held"].values()), "B"),
        **({"Mem": lambda cost, chosen: scaled(cost["published_memory"], "B")} if counted else {}),
        "flops": lambda cost, chosen: scaled(cost["flops"]),
        "executed": lambda cost, chosen: scaled(cost["flops_executed"]),
        "seconds": lambda cost, chosen: (
            f"{sum(value for part, value in cost['seconds'].items() if part != 'cpu'):.1f}"
        ),
    }
    table = Table(title="Costs and choices, a task", title_justify="left")
    for head in columns:
        table.add_column(head, justify="left" if head == "chosen" else "right", no_wrap=head != "chosen")
    for cost in costs:
        chosen = [s for s in results["selected"] if s["where"] == f"task{cost['task']}"]
        table.add_row(*(cell(cost, chosen) for cell in columns.values()))
    return table


def path_table(results: Mapping[str, Any]) -> Table | None:
    """How many modules of each task's path are an earlier task's, and which task's; None for learners without
    paths."""
    notes = module_paths(results)
    if not notes:
        return None
    table = Table(title="Modules re-used", title_justify="left")
    for head in ("task", "modules", "re-used", "of task"):
        table.add_column(head, justify="right")
    for task, note in enumerate(notes):
        path, count = note["path"], note["reused"]
        sources = [j for j in note["sources"] if count and notes[j]["path"][:count] == path[:count]]
        table.add_row(str(task), str(len(path)), str(count), str(sources[0]) if sources else "-")
    return table


def module_paths(results: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The notes of a learner that records its paths of modules, one a task; empty for other learners."""
    # Before schema 5 notes were recognised by the names of their fields.
    notes, old = results.get("notes", []), results.get("schema", 0) < 5
    known = [
        note.get("kind") == "module_paths" or (old and {"path", "reused", "sources"} <= set(note))
        for note in notes
    ]
    return notes if notes and all(known) else []


def card_table(card: list[dict[str, str]]) -> Table:
    table = Table(title="Card: what this evaluation does and does not show", title_justify="left")
    for column in ("rule", "", "evidence"):
        table.add_column(column, no_wrap=column != "evidence")
    for finding in card:
        looks = {"satisfied": "green", "violated": "red", "unknown": "yellow"}[finding["verdict"]]
        table.add_row(finding["rule"], f"[{looks}]{finding['verdict']}[/]", escape(finding["evidence"]))
    return table


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
