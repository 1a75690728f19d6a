"""What pages say of the claims of Pfuelb and Gepperth, on numbers made by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cl_lightning.cli.report import main
from cl_lightning.report.beside import is_of, runs_of
from cl_lightning.report.groups import Group
from cl_lightning.report.paper import SHADE, Beside, departures_of
from cl_lightning.report.papers import icann18, iclr19
from cl_lightning.report.printed import Cell, tables
from tests.docs import ROOT
from tests.pages import key_of, short


def of(dnn: str, kind: str, learner: str = "finetune", **values: float) -> Group:
    """A group of an extract."""
    settings = {"stream.kind": kind, "stream.source": "mnist", "data": "real"}
    words = ("+experiment=icann18_reduced", f"dnn={dnn}", f"stream.kind={kind}")
    named = {name.replace("_at_", " at "): [value] for name, value in values.items()}
    return Group("icann18", learner, settings, (0,), named, command=words, departs={})


def said(rows: list[list[str]], words: str) -> list[list[str]]:
    return [row[2:] for row in rows if words in row[0]]


FC = of("fc", "D5-5a", prescient=0.69, realistic=0.47)
D91 = {"best at 0.001": [0.88], "last at 0.001": [0.2], "last at 0.0001": [0.15]}
ALL = [
    FC,
    of("fc", "D5-5b", prescient=0.81, realistic=0.46),
    of("d_fc", "D5-5a", realistic=0.52),
    of("lwta", "D5-5a", realistic=0.6),
    of("fc", "DP10-10", prescient=0.97, realistic=0.96),
    replace(of("fc", "D9-1a"), values=D91),
    replace(of("ewc", "D9-1a", "ewc"), values={"last at 0.0001": [0.31]}),
]


def test_each_claim_is_decided_by_the_numbers_or_was_not_run() -> None:
    rows = icann18.claims(ALL)
    assert said(rows, "DP10-10") == [["0.960", "holds"]]
    assert said(rows, "0.001: best") == [["0.880", "holds"]]
    assert said(rows, "0.001: last") == [["0.200", "does not hold"]]
    assert said(rows, "EWC keeps more") == [["0.160", "holds"]]
    assert said(rows, "highest prescient") == [["0.810", "does not hold"]]
    assert said(rows, "D-fc changes") == [["0.050", "holds"]]
    assert said(rows, "LWTA changes") == [["0.130", "does not hold"]]
    assert said(rows, "never below") == [["0.010", "holds"]], "0.97 - 0.96 is the least"
    assert {row[3] for row in icann18.claims([])} == {"not run"}


def test_runs_with_other_grids_or_another_source_decide_nothing() -> None:
    ways = replace(FC, command=(*FC.command, "tuned.topologies=[[200,200]]"))
    clothes = replace(FC, settings={**FC.settings, "stream.source": "fashion_mnist"})
    assert said(icann18.claims([ways, clothes]), "loses D1") == [["", "not run"]]


def test_the_released_programs_choice_is_held_to_table_4_at_the_published_size_alone() -> None:
    """Table 4 prints 0.47 for fc on D5-5a and 0.49 on D5-5b."""
    large, small = ("+experiment=icann18", "dnn=fc"), ("+experiment=icann18_reduced", "dnn=fc")
    runs = [
        replace(of("fc", "D5-5a", realistic_as_released=0.475), command=large),
        replace(of("fc", "D5-5b", realistic_as_released=0.475), command=large),
        replace(of("fc", "D5-5c", realistic_as_released=0.9), command=small),
    ]
    far = replace(runs[0], values={"realistic_as_released": [0.44]})
    for some, verdict in (
        (runs, ["0.015", "holds"]),
        ([far], ["0.030", "does not hold"]),
        (runs[2:], ["", "not run"]),
    ):
        (row,) = (
            row for row in icann18.claims(some) if row[0].startswith("fc on D5-5 at the published size")
        )
        assert row[2:] == verdict


def test_what_did_not_come_out_is_what_the_tables_show() -> None:
    ewc = replace(of("ewc", "D9-1a", "ewc"), values={"prescient": [0.95]})
    fc = of("fc", "D9-1a", realistic=0.7, realistic_as_released=0.11)
    rows = [row[:3] for row in icann18.not_reproduced([ewc, fc])]
    assert rows == [["EWC on D9-1a, prescient", "1", "0.950"], ["fc on D9-1a, realistic", "0.15", "0.700"]]
    pairs = [of("lwta", f"D5-5{letter}", best_on_both=0.5, last_on_both=0.4) for letter in "abcdefgh"]
    runs = [replace(run, experiment="iclr19", command=("dnn=lwta",)) for run in pairs]
    rows = [row[:3] for row in iclr19.not_reproduced(runs)]
    assert rows == [
        ["LWTA on D5-5, smallest best", "0.1", "0.500"],
        ["LWTA on D5-5, smallest last", "0.09", "0.400"],
    ]


def test_the_smallest_best_and_what_is_recovered() -> None:
    runs = [
        of("fc", "D5-5a", best_on_both=0.5), of("fc", "D5-5h", best_on_both=0.6),
        of("fc", "D9-1a", best_on_both=0.9, last_on_both=0.1),
        of("fc", "D9-1a", "stop_by_kept", end_on_both=0.82),
    ]  # fmt: skip
    rows = iclr19.claims(runs)
    assert said(rows, "FC forgets D1 of each D5-5: the smallest best (2 of 8 run)") == [["0.500", "holds"]]
    assert said(rows, "kept images") == [["0.900", "holds"]], "(0.82 - 0.1) / (0.9 - 0.1)"
    assert said(iclr19.claims([]), "kept images") == [["", "not run"]]


def test_networks_that_an_extract_keeps_no_setting_of_stand_in_rows_of_their_own() -> None:
    cells = {row: cells["D5-5a"] for row, cells in tables("icann18")[1].rows.items()}
    assert is_of(FC, cells["fc"])
    assert not is_of(FC, cells["D-fc"])
    assert is_of(of("d_fc", "D5-5a"), cells["D-fc"])
    fc, dropout = (
        short(replace(FC, settings={**FC.settings, "backbone.dropout": rate}), "icann18")
        for rate in (0.0, 0.5)
    )
    assert key_of(fc) != key_of(dropout)


def test_prescient_is_the_highest_of_all_ways_to_learn_the_first_task() -> None:
    cell = tables("icann18")[0].rows["fc"]["D5-5a"]
    ways = [replace(FC, values={"prescient": [value]}) for value in (0.5, 0.7, 0.6)]
    assert Beside(cell, tuple(runs_of(cell, ways))).ours == (0.7, None)
    realistic = tables("icann18")[1].rows["fc"]["D5-5a"]
    assert len(runs_of(realistic, ways)) == 1


@pytest.mark.parametrize(("ours", "text"), [(0.49, "0.5 → ▒0.490 (-0.010)"), (0.5, "0.5 → 0.500 (+0.000)")])
def test_what_is_below_the_papers_threshold_is_shaded(ours: float, text: str) -> None:
    cell = Cell(0.5, None, "best", "best_on_both", ("icann18",), {}, forgets_below=0.5)
    assert str(Beside(cell, (replace(FC, values={"best_on_both": [ours]}),))) == text
    assert str(Beside(replace(cell, value=0.4), ())) == "▒0.4"


def test_the_papers_thresholds_are_of_best_accuracies_alone() -> None:
    rows = tables("iclr19")[0].rows
    for name, cells in rows.items():
        limit = 0.9 if "D9-1" in name else 0.5
        assert {head: cell.forgets_below for head, cell in cells.items()} == {
            head: limit if head.endswith("best") else None for head in cells
        }
    imm = tables("iclr19")[1].rows["MNIST, mode"]
    assert {head: cell.forgets_below for head, cell in imm.items()} == {"D5-5": 0.5, "D9-1": 0.9}
    assert {cell.result for cell in imm.values()} == {"best_end_on_both"}
    assert departures_of(tables("iclr19")[0], [])[0].startswith(SHADE)
    assert departures_of(tables("iclr19")[2], []) == []


def test_a_run_that_never_learned_the_second_task_is_said_to_be_invalid() -> None:
    cell = tables("icann18")[1].rows["fc"]["D5-5a"]
    assert str(Beside(cell, (replace(FC, values={"average_accuracy": [0.4]}),))) == (
        "0.47 → second task not learned"
    )
    assert str(Beside(cell, ())) == "0.47"


@pytest.mark.parametrize(("paper", "first"), [("iclr19", "| FC forgets D1"), ("mntdp", "| sign of T")])
def test_the_report_on_a_paper_ends_with_what_it_claims(
    paper: str, first: str, capsys: pytest.CaptureFixture
) -> None:
    assert main([f"paper={paper}", str(ROOT / "docs" / "results" / f"{paper}.json"), "--markdown"]) == 0
    *_, claimed = capsys.readouterr().out.partition(": what is claimed\n")
    assert claimed.splitlines()[3].startswith(first)
