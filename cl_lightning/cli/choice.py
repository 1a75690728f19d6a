"""What a search over whole streams comes to: a table of its points, and what its winners' files say."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from cl_lightning.cli.jobs import Job
from cl_lightning.report.layout import Column, new_console, say, tables, titled
from cl_lightning.report.parts.metrics import metric_table
from cl_lightning.report.results import recorded
from cl_lightning.report.schema import TaskCosts
from cl_lightning.selection.stream_level import Choice, Chosen, Scored, is_for, winning
from cl_lightning.selection.sweep import different, name_of
from cl_lightning.store.folder import open_store
from cl_lightning.store.records import StartRecord


def chosen_of(
    sweep: str, jobs: Sequence[Job], scored: Sequence[Scored], winner: Job, choice: Choice
) -> Chosen:
    """What the winner's file says of a choice: among how many points, and what the search cost."""
    own = [(job, each) for job, each in zip(jobs, scored) if is_for(choice, each)]
    points = {each.number for _, each in own}
    costs = [cost for job, _ in own if job.folder for cost in costs_in(Path(job.folder))]
    return Chosen(
        fingerprint=start_of(winner).fingerprint,
        seeds=list(choice.seeds),
        points=len(points),
        scored=len(points - {each.number for _, each in own if each.score is None}),
        score=choice.score,
        flops=sum(cost["flops_executed"] for cost in costs),
        seconds=sum(cost["seconds"].get("cpu", 0.0) for cost in costs),
        sweep=sweep,
    )


def costs_in(folder: Path) -> Sequence[TaskCosts]:
    """What the tasks of a run cost; of one that came to no end, those that it learned."""
    found = recorded(folder)
    return found["costs"] if found else []


def test_accuracy(job: Job) -> float | None:
    """The mean accuracy over all tasks at the end; None where the job came to none."""
    results = recorded(Path(job.folder)) if job.folder else None
    return results["metrics"]["average_accuracy"] if results and results["finished"] else None


def start_of(job: Job) -> StartRecord:
    found = open_store(folder_of(job))
    assert found is not None, "it has a score"
    return found[1]


def folder_of(job: Job) -> Path:
    assert job.folder is not None, "it has a score"
    return Path(job.folder)


def show_choices(jobs: Sequence[Job], scored: Sequence[Scored], choices: Sequence[Choice], by: str) -> None:
    """Every point with its score; of the winners alone what they came to on test data."""
    console, rows, names = new_console(), [], [job.overrides for job in jobs]
    for job, each in zip(jobs, scored):
        won = any(is_for(choice, each) and choice.number == each.number for choice in choices)
        score = "-" if each.score is None else f"{each.score:.4f}"
        rows.append([name_of(job.overrides, names), score, "yes" if won else ""])
    columns = [Column("run", text=True), Column(by), Column("chosen", text=True)]
    title = f"Mean {by} accuracy over all tasks at the end of the stream"
    console.print(*titled(title, *tables(columns, rows, console.width)), sep="\n")
    found: dict[tuple[str, ...], list[dict[str, Any]]] = {}  # results of the winners, by what else was swept
    for choice in choices:
        for job in winning(choice, jobs, scored):
            results = json.loads((folder_of(job) / "results.json").read_text())
            found.setdefault(choice.others, []).append(results)
            name = name_of(job.overrides, names)
            say(console, f"Chosen: {name}")
            console.print(*metric_table(results, console.width), sep="\n")
            say(console, f"Results: {folder_of(job) / 'results.json'}")
    below = not_chosen(scored, choices)
    for others, runs in found.items():
        if len(runs) > 1:
            own = " ".join(different(others, list(found))) + ": " if len(found) > 1 else ""
            below.append(f"{own}{mean_of(runs)}")
    for line in below:
        say(console, line)


def not_chosen(scored: Sequence[Scored], choices: Sequence[Choice]) -> list[str]:
    """A line for each combination and its seeds for which nothing was chosen."""
    combinations = list(dict.fromkeys(each.others for each in scored))
    lines = []
    for others in combinations:
        left = [each for each in scored if each.others == others]
        left = [each for each in left if not any(is_for(choice, each) for choice in choices)]
        if left:
            seeds = ", ".join(map(str, dict.fromkeys(each.seed for each in left)))
            own = "".join(f"{each} " for each in different(others, combinations))
            why = "each point lacks a run that came to the end of the stream"
            lines.append(f"Nothing was chosen for {own}seed={seeds}: {why}.")
    return lines


def mean_of(runs: Sequence[dict[str, Any]]) -> str:
    """What the winners of all seeds came to together: the row of a paper's table."""
    parts = []
    for name in ("average_accuracy", "backward_transfer"):
        values = [run["metrics"][name] for run in runs]
        if None not in values:
            parts.append(f"{name.replace('_', ' ')} {fmean(values):.4f} ± {stdev(values):.4f}")
    seeds = ", ".join(str(run["seed"]) for run in runs)
    return f"As chosen, over seeds {seeds}: {', '.join(parts)}"
