"""What papers print: every cell is there."""

from __future__ import annotations

import hashlib
import json

import pytest

from cl_lightning.metrics.table import METRICS
from cl_lightning.report.groups import values_of
from cl_lightning.report.printed import Table, content, names, paper_of, tables
from tests.report.whole import whole_results

# Cells, those with a number, and their sum, counted from the papers' texts. Errors in print are cells, too.
COUNTED = {
    "mntdp table 1": (108, 108, 6398.64),
    "mntdp table 2": (36, 36, 2672.41),
    "mntdp table 11": (90, 87, 1694.28),
    "mntdp table 12": (85, 85, 34063.11),
    "mntdp table 13": (153, 153, 8266.51),
    "mntdp table 14": (153, 153, 9232.92),
    "mntdp table 15": (153, 153, 6879.53),
    "mntdp table 16": (153, 153, 9293.63),
    "mntdp table 17": (119, 119, 8309.27),
    "mntdp table 18": (90, 90, 57598.68),
    "gem table 1": (10, 10, 636),
    "gem table 2": (8, 8, 4.29),
    "gem table 3": (36, 33, 10.8),
    "icann18 table 3": (72, 72, 52.6),
    "icann18 table 4": (72, 72, 36.64),
    "iclr19 table 3": (324, 322, 177.42),
    "iclr19 table 4": (24, 24, 16.67),
    "iclr19 table 5": (324, 324, 278.7),
}
ALL = {f"{paper} {table.name}": table for paper in names() for table in tables(paper)}


def numbers(table: Table) -> list[float | None]:
    cells = [cell for row in table.rows.values() for cell in row.values()]
    errors = [cell.error for cell in cells if cell.error is not None]
    return [cell.value for cell in cells] + errors  # type: ignore[return-value]


@pytest.mark.parametrize("name", COUNTED)
def test_every_cell_of_a_table_is_there_and_their_sum_is_that_of_the_text(name: str) -> None:
    found = numbers(ALL[name])
    known = [number for number in found if number is not None]
    cells, with_number, total = COUNTED[name]
    assert (len(found), len(known)) == (cells, with_number)
    assert sum(known) == pytest.approx(total, abs=0.006)


DIGESTS = {  # of all cells, when each was held against the papers' texts: row, column, number and error
    "gem": "2f19a71c16d61fd8",
    "icann18": "64b4c95a8cb4dbf7",
    "iclr19": "b31844ddad390671",
    "mntdp": "ca6ffae2bc1924dd",
    "robust": "ab9cbf223bdc3f6b",
}


@pytest.mark.parametrize("paper", DIGESTS)
def test_every_cell_is_the_one_that_was_held_against_the_text(paper: str) -> None:
    cells = [
        [table.name, name, place, cell.value, cell.error]
        for table in tables(paper)
        for name, row in table.rows.items()
        for place, cell in enumerate(row.values())
    ]
    assert hashlib.sha256(json.dumps(cells).encode()).hexdigest()[:16] == DIGESTS[paper]


@pytest.mark.parametrize("paper", ["gem", "icann18", "mntdp", "robust"])
def test_every_result_of_a_table_is_one_that_runs_have(paper: str) -> None:
    cells = [cell for table in tables(paper) for row in table.rows.values() for cell in row.values()]
    named = {name for cell in cells for name in (cell.result, cell.also) if name}
    assert named <= {*values_of(whole_results()), *(metric.name for metric in METRICS)}


def test_the_first_paper_has_1140_cells_and_all_five_are_there() -> None:
    assert sum(cells for name, (cells, *_) in COUNTED.items() if name.startswith("mntdp")) == 1140
    assert names() == ("gem", "icann18", "iclr19", "mntdp", "robust")
    assert {name for name in ALL if name not in COUNTED} == {
        "mntdp table 10",  # texts
        *(
            f"robust {n}"
            for n in ("figure 2", "appendix C.8", "appendix C.7.1", "section 6.2", "standard errors")
        ),
    }


def test_cells_stand_where_the_papers_print_them() -> None:
    minus, long = ALL["mntdp table 13"].rows, ALL["mntdp table 18"].rows
    assert minus["MNTDP-D"]["T"].value == 0.36
    assert minus["HAT wide †"]["Mem MB"].value == 164.0
    assert (long["MNTDP-S"]["Mem MB"].value, long["MNTDP-S"]["Mem MB"].error) == (158.63, 2.58)
    assert ALL["icann18 table 4"].rows["LWTA"]["D9-1c"].value == 0.66
    assert ALL["iclr19 table 3"].rows["SVHN D9-1"]["EWC last"].value == 0.10
    assert ALL["iclr19 table 5"].rows["Devanagari DP10-10"]["CONV omega"].value == 8.11
    assert ALL["gem table 3"].rows["EWC"]["BWT, 5 passes"].value == -0.11
    assert ALL["robust appendix C.8"].rows["VCL"]["AUC"].value == 0.76


def test_what_is_said_of_rows_and_columns_is_said_of_some_that_are_there() -> None:
    for paper in names():
        whole = content(paper)
        used = {key for table in whole["tables"] for key in table["cells"]}
        heads = {name for table in whole["tables"] for row in table["cells"].values() for name in row}
        assert set(whole["rows"]) == used
        assert set(whole["columns"]) == {name for name in heads if not name.endswith("_se")}
        for table in whole["tables"]:
            assert set(table.get("beside", [])) <= set(table["cells"])


def test_an_experiment_belongs_to_the_paper_that_prints_its_numbers() -> None:
    assert (paper_of("ctrl_minus"), paper_of("gem_rotations"), paper_of("mine")) == ("mntdp", "gem", None)
