"""One page of several runs, in a file by itself: no network, no script, light and dark, also on a phone."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from cl_lightning.report import across
from cl_lightning.report.compare import groups_of, in_order, table
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
th:first-child, td:first-child, .card td { text-align: left; } .card td { white-space: normal; }
figure { background: #fff; border-radius: 6px; display: inline-block; margin: 8px 8px 8px 0; max-width: 100%;
  padding: 6px; vertical-align: top; } figure svg { max-width: 100%; height: auto; }
pre { white-space: pre-wrap; border: 1px solid var(--line); padding: 8px; } summary { cursor: pointer; }
"""
DRAWN = 12  # runs up to which each has its own figures


def page_of_runs(runs: Runs, title: str) -> str:
    """The page: all runs side by side, figures of all, and each run by itself."""
    finished = [run for run in runs.results if run["finished"]]
    groups = in_order(groups_of(runs, []))
    with styled():
        figures = {name: make(across.by_learner(finished)) for name, make in found("figure", across).items()}
        of_all = "".join(drawn(name, figure) for name, figure in figures.items())
        each = "".join(of_run(run, len(finished) <= DRAWN) for run in finished)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" '
        f'content="width=device-width, initial-scale=1"><title>{escape(title)}</title>'
        f"<style>{STYLE}</style></head><body><h1>{escape(title)}</h1>"
        f"<p>{len(finished)} runs. Means over seeds, and standard deviations behind ±.</p>"
        f"{grid(*table(groups, beside_print=False))}{''.join(f'<p>{escape(line)}</p>' for line in runs.said)}"
        f"<h2>Figures</h2>{of_all}<h2>Runs</h2>{each}</body></html>\n"
    )


def of_run(run: Mapping[str, Any], with_figures: bool) -> str:
    """A run: accuracies, metrics, candidates, costs, card, command and configuration."""
    import yaml

    parts = [f"<pre>python -m cl_lightning {escape(' '.join(run['command']))}</pre>"]
    if with_figures:
        own = {name: make(run) for name, make in found("figure").items()}
        parts += [drawn(name, figure) for name, figure in own.items()]
    parts += [
        "<h4>Test accuracy on task (columns) after learning tasks (rows)</h4>",
        heat(run["accuracy_matrix"]),
    ]
    metrics = {name: value for name, value in run["metrics"].items() if value is not None}
    parts += ["<h4>Metrics</h4>", grid(["", ""], [[name, f"{value:.4f}"] for name, value in metrics.items()])]
    rows = [
        [phase["where"], each["candidate"], number(each["val_accuracy"]), str(each["steps"])]
        for phase in run["selected"]
        for each in phase["compared"]
    ]
    heads = ["where", "candidate", "validation accuracy", "mini-batches"]
    parts += ["<h4>Candidates</h4>", grid(heads, rows)] if rows else []
    costs = [
        [
            str(c["task"]),
            f"{sum(c['held'].values()) / 1e6:.3f}",
            f"{c['flops'] / 1e12:.4f}",
            number(c["seconds"].get("cpu")),
        ]
        for c in run["costs"]
    ]
    parts += ["<h4>Costs</h4>", grid(["task", "held, MB", "Tflop", "processor, s"], costs)]
    card = [[each["rule"], each["verdict"], each["evidence"]] for each in run["card"]]
    parts += ["<h4>Card</h4>", grid(["rule", "verdict", "evidence"], card, "card")] if card else []
    config = escape(yaml.safe_dump(run["config"], sort_keys=False))
    parts += [f"<details><summary>configuration</summary><pre>{config}</pre></details>"]
    name = f"{run['name']} {run['learner']}, seed {run['seed']}"
    return f"<details><summary>{escape(name)}</summary>{''.join(parts)}</details>"


def number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def grid(heads: Sequence[str], rows: Iterable[Sequence[str]], kind: str = "") -> str:
    """A table that scrolls by itself where it is wider than the page."""
    head = "".join(f"<th>{escape(each)}</th>" for each in heads)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f'<div class="wide"><table class="{kind}"><tr>{head}</tr>{body}</table></div>'


def heat(matrix: Sequence[Sequence[float | None]]) -> str:
    """The accuracy matrix with its numbers, the higher the darker blue."""
    rows = []
    for learned, row in enumerate(matrix):
        cells = "".join(
            "<td>-</td>"
            if v is None
            else f'<td style="background: rgba(0, 114, 178, {v * 0.6:.2f})">{v:.3f}</td>'
            for v in row
        )
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
