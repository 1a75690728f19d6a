"""``python -m cl_lightning.report outputs/gem_rotations``: finished runs side by side, beside what papers
print."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from statistics import fmean

from rich.text import Text

from cl_lightning.cli.dashboard import report_tensorboard, report_wandb
from cl_lightning.cli.diff import report_diff
from cl_lightning.cli.papers import (
    report_card,
    report_compared,
    report_figures,
    report_paper,
)
from cl_lightning.cli.parser import Parser
from cl_lightning.cli.status import report_status
from cl_lightning.errors import Refusal, plain
from cl_lightning.report.compare import in_order, keys_of, table
from cl_lightning.report.formats import FORMATS, Rows
from cl_lightning.report.groups import Group, groups_of
from cl_lightning.report.html import page_of_runs
from cl_lightning.report.layout import Column, new_console, tables
from cl_lightning.report.notes import notes, unfinished
from cl_lightning.report.reading import runs_in
from cl_lightning.report.results import write_unfinished
from cl_lightning.report.schema import schema
from cl_lightning.report.tables import show
from cl_lightning.store.atomic import write_whole

DESCRIPTION = (
    "Compare finished runs: means and standard deviations over seeds, beside published values. Instead, "
    "'paper=gem [folders]' prints a paper's tables with ours beside, 'compared [folders]' compares learners "
    "seed by seed, 'card [folders]' tells what experiments show, 'figures [folders]' draws them, 'diff A B' "
    "tells what differs, 'status [folders]' tells how all runs fare, and 'wandb folders' sends runs to "
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
        if error.filename is None:  # of the terminal or a pipe
            raise
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


COMMANDS = {
    "status": report_status,
    "wandb": report_wandb,
    "tensorboard": report_tensorboard,
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
    console, keys = new_console(), keys_of(groups)
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
