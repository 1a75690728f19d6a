"""``python -m cl_lightning.report paper=gem``: a paper's tables with ours beside; comparisons and figures."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path

from rich.text import Text

from cl_lightning.cli.parser import Parser, parser_of_runs
from cl_lightning.config.suggestions import names_like
from cl_lightning.errors import Refusal, plain
from cl_lightning.report.compare import in_order
from cl_lightning.report.comparisons import comparison_table, over_streams
from cl_lightning.report.desiderata import card_table
from cl_lightning.report.extracts import extract_of
from cl_lightning.report.figures import draw_across
from cl_lightning.report.formats import FORMATS, Rows
from cl_lightning.report.groups import Group, groups_in
from cl_lightning.report.layout import Column, new_console, tables
from cl_lightning.report.paper import departures_of, heads_and_rows, records
from cl_lightning.report.papers import claims_of
from cl_lightning.report.printed import names
from cl_lightning.report.printed import tables as tables_of
from cl_lightning.report.reading import runs_in


def report_paper(arguments: Sequence[str]) -> int:
    """``paper=NAME [RUNS...]``: folders of runs, or extracts (``docs/results/gem.json``)."""
    parser = Parser(
        prog="python -m cl_lightning.report",
        description="A paper's tables: printed → ours ± standard error (difference).",
    )
    parser.add_argument("paper", help=f"paper={'|'.join(names())}")
    parser.add_argument("runs", nargs="*", type=Path, help="folders of runs, and extracts (default: outputs)")
    parser.add_formats()
    options = parser.parse_intermixed_args(arguments)
    paper = options.paper.removeprefix("paper=")
    if paper not in names():
        near = names_like(paper, names())
        hint = f" Did you mean {near[0]}?" if near else ""
        raise Refusal(f"No paper is called {paper}. There are {', '.join(names())}.{hint}")
    runs = options.runs or [folder for folder in [Path("outputs")] if folder.is_dir()]
    groups = groups_or_extracts(runs)
    if options.form == "json":  # each cell as an object
        print(json.dumps(records(paper, groups), indent=1, ensure_ascii=False))
        return 0
    for table in tables_of(paper):
        title = f"{table.paper}, {table.name}: {table.title}"
        show({title: heads_and_rows(table, groups)}, options.form, departures_of(table, groups))
    if claimed := claims_of(paper, groups):
        show({f"{table.paper}: what is claimed": claimed}, options.form)
    return 0


def groups_or_extracts(places: Sequence[Path]) -> list[Group]:
    """The runs below folders, and the rows of extracts; none where nothing is finished."""
    for place in places:
        if not place.exists():
            raise Refusal(
                f"There is no {place}. Give folders of runs, or an extract like docs/results/gem.json."
            )
    extracts = [group for place in places if place.suffix == ".json" for group in extract_of(place)]
    folders = [place for place in places if place.is_dir() and any(place.rglob("results.json"))]
    return extracts + (groups_in(folders) if folders else [])


def report_compared(arguments: Sequence[str]) -> int:
    """``compared [RUNS...]``: learners of each experiment against one of them, seed by seed."""
    what = "Compare the learners of each experiment with one of them, seed by seed."
    parser = Parser(prog="python -m cl_lightning.report compared", description=what)
    parser.add_argument("runs", nargs="*", type=Path, help="folders of runs, and extracts (default: outputs)")
    parser.add_argument("--against", help="a learner (default: the first of each experiment)")
    parser.add_argument("--result", default="average_accuracy", help="default: average_accuracy")
    parser.add_formats()
    options = parser.parse_intermixed_args(arguments)
    groups, shown = in_order(groups_or_extracts(options.runs or [Path("outputs")])), {}
    for experiment, same in groupby(groups, key=lambda group: group.experiment):
        own = list(same)
        against = options.against or own[0].learner
        if len(own) > 1 and any(group.learner == against for group in own):
            shown[experiment] = comparison_table(own, against, options.result)
    if len({group.experiment for group in groups}) > 1:
        shown["over all experiments, by the same seeds"] = over_streams(groups, options.result)
    show(shown, options.form)
    return 0


def report_card(arguments: Sequence[str]) -> int:
    """``card [RUNS...]``: experiments x desiderata."""
    what = "Tell what experiments show: five desiderata and six further challenges (Farquhar and Gal 2018)."
    parser = parser_of_runs("card", what)
    parser.add_formats()
    options = parser.parse_args(arguments)
    runs = runs_in(options.folders)
    heads, rows = card_table(runs.results)
    if not rows:
        raise Refusal("\n".join(["No run that has learned a task lies there.", *runs.said]))
    show({"What the experiments show": (heads, rows)}, options.form)
    return 0


def report_figures(arguments: Sequence[str]) -> int:
    """``figures RUNS... --to FOLDER``: figures of several runs, as PNG, SVG and PDF."""
    what = "Draw figures of several runs, learners beside each other: PNG, SVG and PDF."
    parser = parser_of_runs("figures", what)
    parser.add_argument("--to", type=Path, default=Path("figures"), help="where to (default: figures)")
    options = parser.parse_intermixed_args(arguments)
    runs = runs_in(options.folders)
    if not any(run["finished"] for run in runs.results):
        raise Refusal("\n".join(["No finished run lies there: there is nothing to draw.", *runs.said]))
    print(*draw_across(runs.results, options.to), sep="\n")
    return 0


MARKS = {"markdown": "", "latex": "% ", "csv": "# "}  # of lines that are no rows


def show(shown: Mapping[str, tuple[list[str], Rows]], form: str | None, below: Sequence[str] = ()) -> None:
    """Tables by their titles, and lines below the last; for JSON one mapping."""
    if form == "json":
        rows_of = {title: json.loads(FORMATS["json"](*table)) for title, table in shown.items()}
        print(plain(json.dumps(rows_of, indent=1, ensure_ascii=False)))
    elif form is not None:
        marked = [f"{MARKS[form]}{line}\n" for line in below]
        for title, table in shown.items():
            print(plain(f"{MARKS[form] or '## '}{title}\n"), plain(FORMATS[form](*table)), "", sep="\n")
        print(*map(plain, marked), sep="\n", end="")
    else:
        console = new_console()
        for title, (heads, rows) in shown.items():
            columns = [Column(head, text=head in (heads[0], heads[-1])) for head in heads]
            console.print(Text(title, "bold"), *tables(columns, rows, console.width), "", sep="\n")
        console.print(*(Text(f"{line}\n") for line in below), sep="\n", end="")
