"""Put runs into the extract beside a page of results (the same name with .json), and write both."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from cl_lightning.cli.papers import groups_or_extracts
from cl_lightning.errors import Refusal
from cl_lightning.report.extracts import extract_of
from tests.pages import update


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.pages", description=__doc__)
    parser.add_argument("page", type=Path, help="the page, as docs/results/gem.md")
    parser.add_argument("runs", nargs="*", type=Path, help="folders of runs; none: write the page anew")
    options = parser.parse_args(arguments)
    if not options.page.is_file():
        parser.error(f"There is no page {options.page}. Write its headings first: docs/contributing.md.")
    try:
        groups = groups_or_extracts(options.runs)
        update(options.page, groups)
    except Refusal as refusal:
        parser.error(str(refusal))
    print(f"{options.page}: {len(groups)} of {len(extract_of(options.page))} rows new.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
