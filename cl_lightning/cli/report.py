"""``python -m cl_lightning.report outputs/gem_rotations``: finished runs side by side, beside what papers
print."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from statistics import fmean
from typing import Any

from rich.console import Console
from rich.text import Text

from cl_lightning.cli.dashboard import report_tensorboard, report_wandb
from cl_lightning.cli.diff import report_diff
from cl_lightning.cli.jobs import name_of
from cl_lightning.cli.papers import (
    report_card,
    report_compared,
    report_figures,
    report_page,
    report_paper,
)
from cl_lightning.cli.parser import Parser
from cl_lightning.cli.slurm import left_in
from cl_lightning.errors import Refusal, plain
from cl_lightning.report.compare import Group, groups_of, in_order, keys_of, table
from cl_lightning.report.formats import FORMATS, Rows
from cl_lightning.report.html import page_of_runs
from cl_lightning.report.layout import Column, new_console, tables
from cl_lightning.report.notes import notes, unfinished
from cl_lightning.report.reading import runs_in
from cl_lightning.report.results import write_unfinished
from cl_lightning.report.schema import schema
from cl_lightning.report.tables import show
from cl_lightning.selection.sweep import JOBS, read_jobs
from cl_lightning.store.atomic import write_whole
from cl_lightning.store.folder import is_held, read_holder
from cl_lightning.store.status import status_of

DESCRIPTION = (
    "Compare finished runs: means and standard deviations over seeds, beside published values. Instead, "
    "'paper=gem [folders]' prints a paper's tables with ours beside, 'compared [folders]' compares learners "
    "seed by seed, 'card [folders]' tells what experiments show, 'figures [folders]' draws them, 'diff A B' "
    "tells what differs, 'page' writes a page of "
    "results, 'status [folders]' tells how all runs fare, and 'wandb folders' sends runs to "
    "Weights & Biases; 'tensorboard folders' writes them for TensorBoard."
)


def main(arguments: list[str] | None = None) -> int:
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        if arguments and arguments[0].startswith("paper="):
            return report_paper(arguments)
        if arguments and arguments[0] in COMMANDS:
            return COMMANDS[arguments[0]](arguments[1:])
        return report_results(arguments)
    except Refusal as refusal:
        print(refusal, file=sys.stderr)
    except OSError as error:
        print(plain(f"{error.filename}: {error.strerror}."), file=sys.stderr)
    return 2


def report_results(arguments: Sequence[str]) -> int:
    parser = Parser(prog="python -m cl_lightning.report", description=DESCRIPTION)
    parser.add_folders("folders to look for runs in", *COMMANDS)
    parser.add_formats()
    parser.add_argument(
        "--results", action="store_true", help="write results.json of runs that are not finished, too"
    )
    parser.add_argument(
        "--schema",
        nargs="?",
        const="results",
        choices=["results", "sweep"],
        help="print the JSON schema of results.json, or of sweep.json",
    )
    parser.add_argument("--validation", action="store_true", help="the best by validation accuracy first")
    parser.add_argument("--html", type=Path, metavar="PAGE", help="write one page of all runs")
    options = parser.parse_args(arguments)
    if options.schema:
        print(json.dumps(schema(options.schema), indent=1))
    elif options.results:
        print(*(f"Results: {path}" for path in write_unfinished(options.folders)), sep="\n")
    else:
        runs = runs_in(options.folders)
        groups = groups_of(runs, options.folders)
        if options.html:
            title = ", ".join(dict.fromkeys(group.experiment for group in groups))
            with write_whole(options.html) as building:
                building.write_text(page_of_runs(runs, title), encoding="utf-8")
            print(f"Page: {options.html}")
            return 0
        alone = options.folders[0] if len(options.folders) == 1 else None
        if alone and runs and (alone / "run.json").is_file() and options.form is None:
            show(json.loads((alone / "results.json").read_text()), alone)
        print_groups(groups, unfinished(runs), options.form, options.validation)
    return 0


def report_status(arguments: Sequence[str]) -> int:
    what = "Tell how all runs and sweeps fare, and their size on disk."
    parser = Parser(prog="python -m cl_lightning.report status", description=what)
    parser.add_folders("folders to look for runs in")
    return print_status(parser.parse_args(arguments).folders)


COMMANDS = {
    "status": report_status,
    "wandb": report_wandb,
    "tensorboard": report_tensorboard,
    "page": report_page,
    "compared": report_compared,
    "card": report_card,
    "diff": report_diff,
    "figures": report_figures,
}


def print_groups(
    groups: Sequence[Group],
    more: Sequence[str] = (),
    form: str | None = None,
    by_validation: bool = False,
    console: Console | None = None,
) -> None:
    """A table of runs, means over seeds; ``more`` are lines that go below it. By validation: the best
    first."""
    groups = in_order(groups)
    if by_validation:  # learners on different streams are not ranked in one list
        groups = sorted(groups, key=lambda g: (g.stream, -fmean(g.values.get("validation", [-1.0]))))
    heads, rows = table(groups)
    of_stream = groupby(zip(groups, rows), key=lambda each: each[0].stream if by_validation else None)
    lists = [[row for _, row in part] for _, part in of_stream]
    below = [*notes(groups), *more]
    if form is not None:
        print_as(form, heads, lists, below)
        return
    console = console or new_console()
    keys = keys_of(groups)
    columns = [Column(head, text=place < keys) for place, head in enumerate(heads)]
    shown = [each for part in lists for each in tables(columns, part, console.width, keys)]
    console.print(*shown, *map(Text, below), sep="\n")


def print_as(form: str, heads: Sequence[str], lists: Sequence[Rows], below: Sequence[str]) -> None:
    """Tables for another program. What is said below them goes to standard error where it reads no text."""
    if form in ("csv", "json"):
        lists = [[row for rows in lists for row in rows]]
    texts = [plain(FORMATS[form](heads, rows)) for rows in lists]
    said = [plain(line) for line in below]
    if form == "markdown":
        print("\n\n".join([*texts, *said]))
    elif form == "latex":
        print("\n\n".join([*texts, "\n".join(f"% {line}" for line in said)]).rstrip())
    else:
        print(*texts, sep="\n")
        print(*said, sep="\n", end="\n" * bool(said), file=sys.stderr)


def print_status(folders: Sequence[Path], console: Console | None = None) -> int:
    """How every run below the folders fares, and its size on disk."""
    console = console or new_console()
    for top in folders:
        rows, said = [], []
        sweeps = sorted({path.parent.parent for path in top.rglob(f"{JOBS}/*.json")})
        for folder in sweeps:
            rows.append([str(folder.relative_to(top)), state_of_sweep(folder), megabytes(folder)])
            said += failures_of(folder)
        for folder in runs_below(top):
            status = status_of(folder)
            state = "done" if status is None else str(status)
            rows.append([str(folder.relative_to(top)), state, megabytes(folder)])
            if status is not None and status.said:
                said.append(f"{folder}: {' '.join(status.said.splitlines())}")
        line = f"Runs in {top}" if rows else f"No run lies in {top}."
        columns = [Column("run", text=True), Column("state", text=True), Column("MB")]
        console.print(line, highlight=False, markup=False, soft_wrap=True)
        console.print(*tables(columns, rows, console.width), sep="\n")
        for line in said:
            console.print(line, highlight=False, markup=False, soft_wrap=True)
    return 0


def runs_below(top: Path) -> list[Path]:
    """Folders of runs, which have said how they fare or are finished."""
    return sorted({path.parent for name in ("status.json", "results.json") for path in top.rglob(name)})


def megabytes(folder: Path) -> str:
    return f"{sum(path.stat().st_size for path in folder.rglob('*') if path.is_file()) / 1e6:.1f}"


def state_of_sweep(folder: Path) -> str:
    """Who runs a sweep, and how many of its jobs are done, failed, running and waiting."""
    held = is_held(folder)
    left = left_in(folder)
    states = Counter(state_of_job(job, held or n in left) for n, job in enumerate(read_jobs(folder)))
    counts = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
    if left:
        return f"sweep with Slurm ({len(left)} jobs there): {counts}"
    if not held:
        open_ = states["missing"] + states["running"]  # jobs may outlive a sweep that was killed
        return f"sweep {'interrupted' if open_ else 'done'}: {counts}"
    holder = read_holder(folder / "holder.json")
    return f"sweep running by process {holder['process']} on {holder['machine']}: {counts}"


def state_of_job(job: dict[str, Any], held: bool) -> str:
    """The state of a job by what it has said, in a sweep that is held by a process or not. A job can go on
    without its sweep, and then holds its run."""
    if said := next((state for state in ("done", "failed") if state in job), None):
        return said
    if "folder" in job and (held or is_held(Path(job["folder"]))):
        return "running"
    return "waiting" if held else "missing"


def failures_of(folder: Path) -> list[str]:
    """Lines for the jobs that failed and whose runs do not say so: they were refused before, or in use."""
    jobs = read_jobs(folder)
    names = [job.get("overrides", []) for job in jobs]
    lines = []
    for job, own in zip(jobs, names):
        status = status_of(Path(job["folder"])) if "folder" in job else None
        if "failed" in job and not (status and status.said):
            lines.append(f"{folder}: {name_of(own, names)}: {' '.join(job['failed'].splitlines())}")
    return lines
