"""Tables for other programs: what they read is what the table says, and nothing in it is obeyed."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cl_lightning.cli.report import main
from cl_lightning.report.formats import as_csv, as_json, latex, markdown
from tests.report.whole import task_costs, write_whole_results

NASTY = st.text(st.sampled_from("ab=+-@|\\*_`<>#$%&{}~^\t\n\r'\",;0.±† é"), max_size=12)
ROWS = st.lists(st.lists(NASTY, min_size=2, max_size=2), min_size=1, max_size=3)


@given(NASTY, ROWS)
def test_no_cell_of_csv_is_a_formula_and_each_is_read_as_it_was(head: str, rows: list[list[str]]) -> None:
    read = list(csv.reader(io.StringIO(as_csv([head, "b"], rows), newline="")))
    assert len(read) == 1 + len(rows)
    for line, row in zip(read, [[head, "b"], *rows]):
        for cell, was in zip(line, row):
            if cell.startswith(("=", "+", "-", "@", "\t", "\r")):
                assert re.fullmatch(r"[-+]?[\d.]+(e[-+]?\d+)?|-", cell), cell
            if len(line) == 2:
                assert cell.removeprefix("'") == " ".join(was.split()).removeprefix("'")


@given(NASTY, ROWS)
def test_a_table_of_markdown_has_a_line_a_row_and_its_cells_alone(head: str, rows: list[list[str]]) -> None:
    lines = markdown([head, "b"], rows).split("\n")
    assert len(lines) == 2 + len(rows)
    for line, row in zip(lines[2:], rows):
        cells = re.split(r"(?<!\\)\|", line.replace("\\\\", "\0"))
        assert len(cells) == 4
        shown = [re.sub(r"\\([|`*<])", r"\1", cell).replace("\0", "\\").strip() for cell in cells[1:3]]
        assert shown == [" ".join(cell.split()) for cell in row]


@given(NASTY, ROWS)
def test_what_latex_would_obey_is_escaped(head: str, rows: list[list[str]]) -> None:
    body = latex([head, "b"], rows).split("\\toprule\n")[1].split("\n\\bottomrule")[0]
    text = body.replace("\\midrule\n", "")
    for known in (r"\\textbackslash{}", r"\\text\w+{}", r"\\[{}$&#%_]", r"\$[^$\n]*\$", r" \\\\"):
        text = re.sub(known, "", text)
    assert not set(text) & set("\\{}$#%_^~<>"), text
    assert all(line.count("&") == 1 for line in text.splitlines())


@given(ROWS)
def test_json_has_a_mapping_a_row(rows: list[list[str]]) -> None:
    read = json.loads(as_json(["a", "b"], rows))
    assert len(read) == len(rows)
    for one, (first, _) in zip(read, rows):
        assert one["a"] in (first, None) or float(one["a"]) == float(first.partition(" ± ")[0])


@pytest.fixture
def three_seeds(tmp_path: Path) -> Path:
    """0.2, 0.4 and 0.9: mean 0.5, sqrt((0.09 + 0.01 + 0.16) / 2) = 0.361."""
    for seed, accuracy in enumerate((0.2, 0.4, 0.9)):
        config = {"stream": {"head": "domain"}, "learner": {"_target_": "m.A_B"}, "trainer": {}, "data": {}}
        write_whole_results(
            tmp_path / f"s{seed}", seed=seed, learner="a_b|c", config=config, costs=[task_costs(0)],
            accuracy_matrix=[[None], [accuracy]],
            metrics={"average_accuracy": accuracy, **dict.fromkeys((
                "average_incremental_accuracy", "learning_accuracy", "backward_transfer", "forward_transfer",
                "forgetting", "forgetting_from_best"))},
        )  # fmt: skip
    return tmp_path


@pytest.mark.parametrize(
    ("form", "line"),
    [
        ("markdown", r"| a_b\|c | 0.500 ± 0.361 | 3 |"),
        ("csv", "a_b|c,0.500,0.361,3"),
        ("latex", r"a\_b|c & $0.500 \pm 0.361$ & $3$ \\"),
        ("json", '  "ACC ±": 0.361,'),
    ],
)
def test_means_and_errors_over_seeds_in_each_format(
    form: str, line: str, three_seeds: Path, capsys: pytest.CaptureFixture
) -> None:
    assert main([str(three_seeds), f"--{form}"]) == 0
    out, err = capsys.readouterr()
    assert line in out.splitlines()
    note = "No published number stands beside these"
    assert (note in out) == (form in ("markdown", "latex"))
    assert (note in err) == (form in ("csv", "json"))
    if form == "json":
        assert json.loads(out) == [{"learner": "a_b|c", "ACC": 0.5, "ACC ±": 0.361, "seeds": 3}]


def test_one_format_at_a_time(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert main([str(tmp_path), "--csv", "--json"]) == 2
    assert "not allowed with argument" in capsys.readouterr().err
