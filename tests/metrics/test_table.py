"""A metric is a row of one table: what shows results has it from there."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path

from tests.dying import in_a_child

A_NEW_ROW = """
import sys
from pathlib import Path

from cl_lightning.metrics import table

def worst_accuracy(R):
    return R[-1].min()

formula = "min over j of R[T, j]"
row = table.Metric("worst_accuracy", worst_accuracy, "WORST", "worst", formula, "")
table.METRICS += (row,)

from cl_lightning.cli.report import print_groups
from cl_lightning.report.groups import groups_in
from cl_lightning.report.projection import metrics_at, summary_of
from cl_lightning.report.schema import schema
from cl_lightning.report.tables import show
from tests.commands import run

results = run(Path(sys.argv[1]), "stream.tasks=2", "selection=none")
print("results", results["metrics"]["worst_accuracy"], min(results["accuracy_matrix"][-1]))
print("schema", schema()["$defs"]["Metrics"]["properties"]["worst_accuracy"]["description"])
print("W&B", metrics_at(results["accuracy_matrix"])["cl/WORST"], summary_of(results)["final/WORST"])
show(results, Path("."))
print_groups(groups_in([Path(sys.argv[1])]), form="markdown")
"""


def with_a_new_row(outputs: Path, said: Path) -> None:
    """A child process that has torch already takes this package anew."""
    for name in [name for name in sys.modules if name.partition(".")[0] in ("cl_lightning", "tests")]:
        del sys.modules[name]
    sys.argv = ["", str(outputs)]
    with said.open("w") as file, redirect_stdout(file):
        exec(A_NEW_ROW, {})


def test_one_row_is_seen_in_results_schema_wandb_terminal_and_report(tmp_path: Path) -> None:
    outputs, file = tmp_path / "outputs", tmp_path / "said"
    assert in_a_child(lambda: with_a_new_row(outputs, file)) == 0
    said = file.read_text().splitlines()
    lines = {line.split()[0]: line for line in said if line.strip()}
    _, value, worst = lines["results"].split()
    assert value == worst
    assert lines["schema"] == "schema min over j of R[T, j]"
    assert lines["W&B"] == f"W&B {value} {value}"
    on_the_terminal = [line for line in said if "worst accuracy" in line]
    assert f"{float(value):.4f}" in on_the_terminal[0]
    (head,) = [line for line in said if "| worst |" in line]
    row = said[said.index(head) + 2]
    assert row.split("|")[head.split("|").index(" worst ")].strip() == f"{float(value):.3f}"
