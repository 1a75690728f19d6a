"""``python -m cl_lightning.report outputs/gem_rotations``: finished runs side by side, beside what papers
print."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from cl_lightning.cli.dashboard import report_panels, report_wandb
from cl_lightning.errors import Refusal
from cl_lightning.report.compare import Group, groups_in, in_order, markdown, runs_in, table
from cl_lightning.report.notes import notes, unfinished
from cl_lightning.report.results import schema, write_unfinished
from cl_lightning.store.status import status_of

DESCRIPTION = (
    "Compare finished runs: means and standard deviations over seeds, beside published values. "
    "'status [folders]' instead tells how all runs fare, 'wandb folders' sends runs to Weights & Biases, and "
    "'panels folders --out folder' draws the panels of docs/dashboard.md."
)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m cl_lightning.report", description=DESCRIPTION)
    parser.add_argument(
        "folders",
        nargs="*",
        type=Path,
        default=[Path("outputs")],
        help="folders to look for runs in (default: outputs)",
    )
    parser.add_argument("--markdown", action="store_true", help="print a Markdown table")
    parser.add_argument(
        "--results", action="store_true", help="write results.json of runs that are not finished, too"
    )
    parser.add_argument("--schema", action="store_true", help="print the JSON schema of results.json")
    parser.add_argument("--validation", action="store_true", help="the best by validation accuracy first")
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] == ["status"]:
        return print_status([Path(folder) for folder in arguments[1:] or ["outputs"]])
    if arguments[:1] == ["wandb"]:
        return report_wandb(arguments[1:])
    if arguments[:1] == ["panels"]:
        return report_panels(arguments[1:])
    options = parser.parse_args(arguments)
    if options.schema:
        print(json.dumps(schema(), indent=1))
        return 0
    try:
        if options.results:
            written = write_unfinished(options.folders)
            print(*(f"Results: {path}" for path in written), sep="\n")
            return 0
        groups = groups_in(options.folders)
        print_groups(groups, unfinished(runs_in(options.folders)), options.markdown, options.validation)
    except Refusal as refusal:
        print(refusal, file=sys.stderr)
        return 2
    return 0


def print_groups(
    groups: Sequence[Group], more: Sequence[str] = (), as_markdown: bool = False, by_validation: bool = False
) -> None:
    """A table of runs, means over seeds; ``more`` are lines that go below it. By validation: the best
    first."""
    groups = in_order(groups)
    if by_validation:
        groups = sorted(groups, key=lambda group: -fmean(group.values.get("validation", [-1.0])))
    heads, rows = table(groups)
    below = [*notes(groups), *more]
    if as_markdown:
        print("\n\n".join([markdown(heads, rows), *below]))
        return
    shown = Table()
    for head in heads:
        shown.add_column(head, no_wrap=True)
    for row in rows:
        shown.add_row(*row)
    Console(width=None if sys.stdout.isatty() else 300).print(shown, *map(escape, below), sep="\n")


def print_status(folders: Sequence[Path]) -> int:
    """How every run below the folders fares, and its size on disk."""
    runs = sorted(
        {
            path.parent
            for top in folders
            for name in ("status.json", "results.json")
            for path in top.rglob(name)
        }
    )
    shown = Table()
    for head in ("run", "state", "MB"):
        shown.add_column(head, no_wrap=head != "state", justify="right" if head == "MB" else "left")
    said = []
    for folder in runs:
        status = status_of(folder)
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        shown.add_row(escape(str(folder)), "done" if status is None else str(status), f"{size / 1e6:.1f}")
        if status is not None and status.said:
            said.append(f"{folder}: {' '.join(status.said.splitlines())}")
    Console(width=None if sys.stdout.isatty() else 300).print(shown, *map(escape, said), sep="\n")
    return 0
