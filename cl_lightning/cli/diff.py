"""``python -m cl_lightning.report diff A B``: in which settings two rows of a report differ, and in which
results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from cl_lightning.cli.parser import Parser
from cl_lightning.errors import Refusal, plain
from cl_lightning.report.compare import in_a_cell
from cl_lightning.report.formats import FORMATS
from cl_lightning.report.groups import COLUMNS, Group, groups_in
from cl_lightning.report.layout import Column, new_console, tables

HEADS = ("what differs", "first", "second", "difference")


def report_diff(arguments: Sequence[str]) -> int:
    what = "Tell in which settings two runs differ, or the runs of two settings, and in which results."
    parser = Parser(prog="python -m cl_lightning.report diff", description=what)
    parser.add_folders("two folders, each with runs that differ in their seed alone", needed=True)
    parser.add_formats()
    options = parser.parse_args(arguments)
    if len(options.folders) != 2:
        raise Refusal(f"diff compares two folders, and these are {len(options.folders)}. Give two.")
    one, other = (row_in(folder) for folder in options.folders)
    settings, results = list(settings_that_differ(one, other)), list(results_that_differ(one, other))
    if not settings + results:
        print("Nothing differs that a report knows of.")
    elif options.form is not None:
        print(plain(FORMATS[options.form](HEADS, settings + results)))
    else:
        console = new_console()
        for heads, rows in ((HEADS[:3], settings), (HEADS, results)):
            columns = [Column(head, text=head != HEADS[3]) for head in heads]
            console.print(*tables(columns, rows, console.width) if rows else (), sep="\n")
    return 0


def row_in(folder: Path) -> Group:
    groups = groups_in([folder])
    if len(groups) > 1:
        rows = ", ".join(dict.fromkeys(f"{group.experiment} {group.learner}" for group in groups))
        raise Refusal(
            f"{folder} has runs of {len(groups)} rows of a report ({rows}), and diff compares one with "
            "another. Give the folder of a run, or a folder whose runs differ in their seed alone."
        )
    return groups[0]


def settings_that_differ(one: Group, other: Group) -> Iterator[list[str]]:
    """By dotted names; and what is no setting and can change a number."""
    first, second = facts_of(one), facts_of(other)
    for key in [*first, *(key for key in second if key not in first)]:
        if first.get(key) != second.get(key):
            yield [key, *(in_a_cell(facts.get(key, "-")) for facts in (first, second)), ""]


def facts_of(group: Group) -> dict[str, object]:
    return {
        "experiment": group.experiment,
        "learner": group.learner,
        "seeds": ", ".join(map(str, group.seeds)),
        "code": "; ".join(sorted(map(str, group.code))),
        **{f"images of {name}": digest[:12] for name, digest in sorted(group.images)},
        **dict(sorted(group.settings.items())),
    }


def results_that_differ(one: Group, other: Group) -> Iterator[list[str]]:
    """Means over seeds; the difference is the second's less the first's."""
    for column, head in COLUMNS.items():
        first, second = one.mean_and_deviation(column), other.mean_and_deviation(column)
        if first != second:
            gap = f"{second[0] - first[0]:+.3f}" if first and second else "-"
            yield [head, one.label(column), other.label(column), gap]
