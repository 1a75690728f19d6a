"""One page of several runs, in a file by itself: no network, no script, light and dark, also on a phone."""

from __future__ import annotations

import io
import shlex
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from rich.table import Table

from cl_lightning.report import across
from cl_lightning.report.compare import in_order, table
from cl_lightning.report.formats import is_number
from cl_lightning.report.groups import groups_of
from cl_lightning.report.layout import three_digits
from cl_lightning.report.notes import undefined, unfinished
from cl_lightning.report.parts import found
from cl_lightning.report.reading import Runs
from cl_lightning.report.style import styled

STYLE = """
:root { color-scheme: light dark; --back: #fff; --text: #1a1a1a; --line: #ccc; }
@media (prefers-color-scheme: dark) { :root { --back: #16181c; --text: #e8e8e8; --line: #444; } }
body { background: var(--back); color: var(--text); font: 15px/1.45 system-ui, sans-serif; margin: 0 auto;
  max-width: 1000px; padding: 0 12px 40px; overflow-wrap: anywhere; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: 13px; margin: 8px 0; }
th, td { border: 1px solid var(--line); padding: 3px 7px; text-align: right; white-space: nowrap; }
th, td:first-child, .text { text-align: left; } tr:empty { display: none; }
td.long { min-width: 260px; white-space: normal; }
figure { background: #fff; border-radius: 6px; display: inline-block; margin: 8px 8px 8px 0; max-width: 100%;
  overflow-x: auto; padding: 6px; vertical-align: top; }
pre { white-space: pre-wrap; border: 1px solid var(--line); padding: 8px; } summary { cursor: pointer; }
"""
DRAWN = 12  # runs up to which each has its own figures
WIDE = 1_000_000  # columns: nothing goes over several lines
HEAT = "<h4>Test accuracy on task (columns) after learning so many tasks (rows)</h4>"


def page_of_runs(runs: Runs, title: str) -> str:
    """The page: all runs side by side, figures of all, and each run by itself."""
    from matplotlib import rc_context

    finished = [run for run in runs.results if run["finished"]]
    groups = in_order(groups_of(runs, []))
    with styled(), rc_context({"svg.fonttype": "none"}):
        figures = {name: make(across.by_learner(finished)) for name, make in found("figure", across).items()}
        of_all = "".join(drawn(name, figure) for name, figure in figures.items())
        each = "".join(of_run(run, len(finished) <= DRAWN) for run in finished)
    said = [*undefined(groups), *unfinished(runs)]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" '
        f'content="width=device-width, initial-scale=1"><title>{escape(title)}</title>'
        f"<style>{STYLE}</style></head><body><h1>{escape(title)}</h1>"
        f"<p>{len(finished)} runs. Means over seeds, and standard deviations behind ±.</p>"
        f"{grid(*table(groups, beside_print=False))}{''.join(f'<p>{escape(line)}</p>' for line in said)}"
        f"<h2>Figures</h2>{of_all}<h2>Runs</h2>{each}</body></html>\n"
    )


def of_run(run: Mapping[str, Any], with_figures: bool) -> str:
    """A run: its command, its figures, all tables of ``report/parts``, and its configuration."""
    import yaml

    config = escape(yaml.safe_dump(run["config"], sort_keys=False))
    figures = {name: make(run) for name, make in found("figure").items() if with_figures}
    instead = {"accuracy": [HEAT, heat(run["accuracy_matrix"])], "choices": candidates(run)}
    tables = {
        name: instead.get(name) or map(as_html, make(run, WIDE)) for name, make in found("table").items()
    }
    parts = [
        f"<pre>python -m cl_lightning {escape(shlex.join(run['command']))}</pre>",
        *(drawn(name, figure) for name, figure in figures.items()),
        *(part for name in tables for part in tables[name]),
        f"<details><summary>configuration</summary><pre>{config}</pre></details>",
    ]
    name = f"{run['name']} {run['learner']}, seed {run['seed']}"
    return f"<details><summary>{escape(name)}</summary>{''.join(parts)}</details>"


def as_html(part: Any) -> str:
    """A table, a title or a line of the terminal."""
    if isinstance(part, Table):
        heads = [str(column.header) for column in part.columns]
        return grid(heads, zip(*([str(cell) for cell in column.cells] for column in part.columns)))
    tag = "h4" if getattr(part, "style", "") == "italic" else "p"
    return f"<{tag}>{escape(str(part))}</{tag}>"


def candidates(run: Mapping[str, Any]) -> list[str]:
    """All that were compared, and which was chosen."""
    rows = [
        [phase["where"], each["candidate"], "yes" * (each["candidate"] == phase["candidate"]),
         *(three_digits(each.get(key)) for key in ("val_accuracy", "score")),
         str(each["steps"]), str(each["steps_to_best"])]
        for phase in run["selected"]
        for each in phase["compared"]
    ]  # fmt: skip
    heads = ["where", "candidate", "chosen", "validation accuracy", "score", "mini-batches", "to the best"]
    return ["<h4>Candidates</h4>", grid(heads, rows)] if rows else []


def grid(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table that scrolls by itself where it is wider than the page."""
    head = "".join(f"<th>{escape(each)}</th>" for each in heads if any(heads))
    body = "".join(f"<tr>{''.join(map(cell, row))}</tr>" for row in rows)
    return f'<div class="wide"><table><tr>{head}</tr>{body}</table></div>'


def cell(text: str) -> str:
    """Numbers to the right, words to the left, and sentences in several lines."""
    kind = "" if is_number(text) else ' class="text long"' if len(text) > 50 else ' class="text"'
    return f"<td{kind}>{escape(text)}</td>"


def heat(matrix: Sequence[Sequence[float | None]]) -> str:
    """The accuracy matrix with its numbers, the higher the darker blue."""
    rows = []
    for learned, row in enumerate(matrix):
        styles = ("" if v is None else f' style="background: rgba(0, 114, 178, {v * 0.6:.2f})"' for v in row)
        cells = "".join(f"<td{style}>{three_digits(v)}</td>" for style, v in zip(styles, row))
        rows.append(f"<tr><th>{learned}</th>{cells}</tr>")
    head = "".join(f"<th>{j}</th>" for j in range(len(matrix[0])))
    return f'<div class="wide"><table><tr><th>learned</th>{head}</tr>{"".join(rows)}</table></div>'


def drawn(name: str, figure: Any) -> str:
    """A figure as SVG inside the page; nothing where there is none."""
    if figure is None:
        return ""
    file = io.StringIO()
    figure.savefig(file, format="svg", metadata={"Date": None}, bbox_inches="tight")
    svg = file.getvalue()
    return f'<figure data-name="{escape(name)}">{svg[svg.index("<svg") :]}</figure>'
