"""``python -m cl_lightning.report outputs/gem_rotations``: finished runs side by side, beside what papers
print."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from cl_lightning.errors import Refusal
from cl_lightning.report.compare import groups_in, markdown, runs_in, table
from cl_lightning.report.notes import notes, unfinished
from cl_lightning.report.results import schema, write_unfinished

DESCRIPTION = "Compare finished runs: means and standard deviations over seeds, beside published values."


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
        heads, rows = table(groups)
        below = [*notes(groups), *unfinished(runs_in(options.folders))]
    except Refusal as refusal:
        print(refusal, file=sys.stderr)
        return 2
    if options.markdown:
        print("\n\n".join([markdown(heads, rows), *below]))
        return 0
    shown = Table()
    for head in heads:
        shown.add_column(head, no_wrap=True)
    for row in rows:
        shown.add_row(*row)
    Console(width=None if sys.stdout.isatty() else 300).print(shown, *map(escape, below), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
