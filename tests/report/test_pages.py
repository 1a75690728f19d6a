"""Pages of results are what their extracts say, and their sentences what comparisons hold."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from cl_lightning.cli.report import main as report
from cl_lightning.report.beside import missing, runs_of
from cl_lightning.report.comparisons import comparison_table, comparisons, over_streams
from cl_lightning.report.extracts import extract_of, from_row
from cl_lightning.report.groups import Group
from cl_lightning.report.paper import command, heads_and_rows
from cl_lightning.report.papers.mntdp import claims
from cl_lightning.report.printed import tables
from tests.commands import configure
from tests.docs import PAGES, ROOT
from tests.pages import REGION, page_of, region, side_by_side, update
from tests.pages.__main__ import main
from tests.report.test_compare import result

RESULTS = ROOT / "docs" / "results"
EXTRACTS = sorted(RESULTS.glob("*.json"))


# ---- the committed pages -----------------------------------------------------------------------------------


@pytest.mark.parametrize("extract", EXTRACTS, ids=lambda path: path.stem)
def test_a_page_and_its_extract_say_the_same(extract: Path) -> None:
    page = extract.with_suffix(".md")
    assert page_of(page) == page.read_text()
    assert "<!-- report: " in page.read_text()
    for row in json.loads(extract.read_text()):
        assert row["seeds"]
        assert row["command"].endswith(f"seed={','.join(map(str, row['seeds']))}")
        assert all(len(values) == len(row["seeds"]) for values in row["values"].values())


@pytest.mark.parametrize("paper", ["gem", "icann18", "iclr19", "mntdp", "robust"])
def test_the_page_of_a_paper_has_all_its_tables_and_says_what_did_not_come_out(paper: str) -> None:
    text = (RESULTS / f"{paper}.md").read_text()
    assert "\n## What did not reproduce\n" in text
    for table in tables(paper):
        assert f"<!-- report: {table.name} -->" in text


@pytest.mark.parametrize("extract", EXTRACTS, ids=lambda path: path.stem)
def test_numbers_of_three_digits_in_a_pages_sentences_stand_in_its_tables_or_are_a_seeds(
    extract: Path,
) -> None:
    text = re.sub(r"```.*?```", "", extract.with_suffix(".md").read_text(), flags=re.DOTALL)
    told, made = REGION.sub("", text), "".join(found[0] for found in REGION.finditer(text))
    groups = extract_of(extract.with_suffix(".md"))
    of_seeds = {
        f"{abs(value):.3f}" for group in groups for values in group.values.values() for value in values
    }
    assert set(re.findall(r"\b0\.\d{3}\b", told)) <= {*re.findall(r"\b0\.\d{3}\b", made), *of_seeds}


def test_no_sentence_calls_a_learner_better_without_a_comparison_that_holds() -> None:
    groups = [group for extract in EXTRACTS for group in extract_of(extract.with_suffix(".md"))]
    for path in [*PAGES, ROOT / "CHANGELOG.md"]:
        for sentence in sentences_with_better(path.read_text()):
            named = re.search(r"<!-- holds: (\S+) (\S+) (\S+) -->", sentence)
            assert named, f"{path.name}: {sentence.strip()}"
            experiment, learner, other = named.groups()
            own = [group for group in groups if group.experiment == experiment]
            verdicts = {g.learner: c.verdict for g, c in comparisons(own, other) if c is not None}
            assert verdicts.get(learner) == "better", f"{path.name}: {sentence.strip()}"


OTHERWISE = (  # what else is called better, and by what
    "did not get better",
    "does not get better",
    "better score",
    "the better way",
    "`better`",
    "calls a learner better",
)


def sentences_with_better(text: str) -> list[str]:
    """Sentences outside code and tables in which something is better than something else."""
    plain = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    lines = " ".join(line for line in plain.splitlines() if not line.startswith("|"))
    found = re.split(r"(?<=[.!?])\s+(?!<!-- holds)|(?<=-->)\s", re.sub(r"\s+", " ", lines).strip())
    return [s for s in found if re.search(r"\bbetter\b", s) and not any(words in s for words in OTHERWISE)]


def test_a_sentence_that_says_better_is_found_wherever_its_line_breaks() -> None:
    text = "| x | better |\n```\nbetter\n```\nA is\nbetter than B. <!-- holds: e a b --> C is good."
    assert sentences_with_better(text) == ["A is better than B. <!-- holds: e a b -->"]


# ---- what extracts and tables are made of ------------------------------------------------------------------


def test_runs_put_into_an_extract_take_the_place_of_rows_of_the_same_command(tmp_path: Path) -> None:
    page = tmp_path / "gem.md"
    page.write_text("# GEM\n\n<!-- report: table 3 -->\n<!-- /report -->\n")
    for seed, acc in enumerate([0.8, 0.9]):
        result(tmp_path / "a", "gem", seed, acc, command=["+experiment=gem_rotations", "data=real", "seed=0"])
    result(tmp_path / "a", "finetune", 0, 0.5, "trainer.max_epochs=2", command=["trainer.max_epochs=2"])
    assert main([str(page), str(tmp_path / "a")]) == 0
    rows = json.loads(page.with_suffix(".json").read_text())
    assert [(row["learner"], row["seeds"], row["values"]["average_accuracy"]) for row in rows] == [
        ("finetune", [0], [0.5]),
        ("gem", [0, 1], [0.8, 0.9]),
    ]
    assert rows[1]["command"] == "+experiment=gem_rotations data=real seed=0,1"
    assert "| 0.86 → 0.850 ± 0.050 (-0.010) |" in page.read_text()  # the deviation .0707 / sqrt(2)
    assert "0.49 → 0.500 (+0.010)" in page.read_text()  # two passes; the columns of one are not its own
    assert page.read_text().count("→") == 4  # accuracy and backward transfer of both
    for seed in range(3):
        result(tmp_path / "b", "gem", seed, 0.7, command=["+experiment=gem_rotations", "data=real", "seed=0"])
    assert main([str(page), str(tmp_path / "b")]) == 0
    assert [(g.learner, len(g.seeds)) for g in extract_of(page)] == [("finetune", 1), ("gem", 3)]
    assert "0.86 → 0.700 ± 0.000 (-0.160)" in page.read_text()


def test_an_extract_is_read_as_it_was_written(tmp_path: Path) -> None:
    page = tmp_path / "gem.md"
    page.write_text("# GEM\n")
    result(tmp_path / "a", "gem", 0, 0.8, version={}, command=["learner=gem", "trainer.max_epochs=1"])
    assert main([str(page), str(tmp_path / "a")]) == 0
    (group,) = extract_of(page)
    update(page, [group])
    (again,) = extract_of(page)
    assert again == group
    assert (again.departs, next(iter(again.code)).source) == ({}, "abc")
    assert again.commit is None  # of another program than the one that is here


def test_agreement_with_the_first_paper_by_hand() -> None:
    """Of S-: T of New-head and New-leg has the printed sign, PNN's has not; AlexNet's is against
    Independent."""

    def of(learner: str, network: str, A: float, T: float, last: float, **learners: str) -> Group:
        settings = {"data": "real", "backbone._target_": f"cl_lightning.backbones.{network}"}
        settings |= {f"learner.{key}": value for key, value in learners.items()}
        values = {"average_accuracy": [A], "transfer": [T], "last_task": [last], "memory": [10 * A]}
        return Group("ctrl_minus", learner, settings, (0,), values, departs={})

    groups = [
        of("independent", "ResNet", 0.5, 0.0, 0.4),
        of("new_head_freeze", "ResNet", 0.6, 0.3, 0.7, trunk="freeze"),
        of("new_leg_freeze", "ResNet", 0.4, 0.2, 0.6, trunk="freeze"),
        of("pnn", "ResNet", 0.7, -0.1, 0.3),
        of("mntdp_d", "ResNet", 0.1, 0.2, 0.6),
        of("mntdp_d", "AlexNet", 0.2, 0.3, 0.35),  # .3 above an AlexNet alone, and .05 below Independent
    ]
    sign, rank, pnn, memory = claims(groups)
    assert sign[2:] == ["3 of 5", "PNN (table 13), MNTDP-D AlexNet (table 13)"]
    # Printed A is .56, .54, .47, .62, .67, .63 in this order: ranks 2 1 0 3 5 4, here 3 4 2 5 0 1
    assert rank[2] == f"{1 - 6 * (1 + 9 + 4 + 4 + 25 + 9) / (6 * 35):.2f} of 6 rows" == "-0.49 of 6 rows"
    assert pnn == ["PNN's T", "table 13", "-0.100", "printed +0.290"]
    assert memory == ["PNN's memory over MNTDP-D's", "table 13", "7.00", "printed 5.55"]


def test_what_is_in_no_table_stands_beside_nothing(tmp_path: Path) -> None:
    page = tmp_path / "gem.md"
    page.write_text("# GEM\n")
    result(tmp_path / "a", "gem", 0, 0.8, "learner.memories=10", command=["learner.memories=10"])
    assert main([str(page), str(tmp_path / "a")]) == 0
    (table,) = (t for t in tables("gem") if t.name == "table 3")
    assert not any("→" in cell for row in heads_and_rows(table, extract_of(page))[1] for cell in row)
    assert side_by_side(extract_of(page))[1][0][:2] == ["gem", "0.800"]


def extract(experiment: str, learner: str, values: list[float], **settings: object) -> Group:
    settings = {"data": "real", "stream.name": experiment, **settings}
    numbers = {"average_accuracy": values, "transfer": [0.1] * len(values), "memory": [9.0] * len(values)}
    return Group(experiment, learner, settings, tuple(range(len(values))), numbers, departs={})


def row_of(paper: str, table: str, row: str, groups: list[Group]) -> dict[str, str]:
    (found,) = (t for t in tables(paper) if t.name == table)
    heads, rows = heads_and_rows(found, groups)
    return dict(zip(heads[1:], next(cells[1:] for cells in rows if cells[0] == row)))


def test_a_row_that_was_not_run_has_the_command_that_runs_it() -> None:
    pnn = row_of("mntdp", "table 13", "PNN", [])
    assert pnn["A"] == "0.62"
    assert pnn["ours"] == (
        "not run: python -m cl_lightning --multirun +experiment=ctrl_minus data=real trainer=published "
        "backbone=resnet selection=task_level learner=pnn seed=0,1,2"
    )
    assert row_of("gem", "table 3", "GEM", [])["ours"].endswith(
        "learner=gem trainer.max_epochs=1,2,5 seed=0,1,2"
    )


def test_the_accuracy_on_each_task_at_the_end_is_the_mean_over_seeds() -> None:
    """Both have an average of 0.5; what they remember is another task."""

    def group(learner: str, *tasks: list[float], **settings: object) -> Group:
        numbers = {f"task {i}": values for i, values in enumerate(tasks)}
        return Group(
            "split", learner, settings, (0, 1), {**numbers, "average_accuracy": [0.5, 0.5]}, departs={}
        )

    groups = [
        group("vcl", [1.0, 0.9], [0.0, 0.1]),
        group("ewc", [0.0, 0.0], [1.0, 1.0], **{"learner.strength": 3}),
    ]
    assert region("each task split", "robust", groups) == (
        "| learner | each task | ACC | seeds |\n| --- | --- | --- | --- |\n"
        "| ewc | 0.00, 1.00 | 0.500 ± 0.000 | 2 |\n| vcl | 0.95, 0.05 | 0.500 ± 0.000 | 2 |"
    )
    assert "ewc" not in region("each task split learner.strength=", "robust", groups)


def test_what_this_version_does_not_have_is_said() -> None:
    cell = tables("robust")[0].rows["split MNIST"]["entropy, nats"]
    assert missing(replace(cell, experiments=("unheard",))) == "no experiment unheard yet"
    assert (
        missing(replace(cell, experiments=(), overrides={"learner": "unheard"})) == "no learner unheard yet"
    )


def test_the_mean_over_several_streams_needs_all_of_them() -> None:
    five = ["ctrl_minus", "ctrl_plus", "ctrl_in", "ctrl_out", "ctrl_pl"]
    groups = [extract(name, "mntdp_d", [0.5 + i / 10, 0.5 + i / 10 + 0.02]) for i, name in enumerate(five)]
    whole = row_of("mntdp", "table 1", "MNTDP-D", groups)
    assert whole["A"] == "0.64 → 0.710 ± 0.004 (+0.070)"  # each error .0141 / sqrt(2); of the mean / sqrt(5)
    assert whole["T S-"] == "0.4 → 0.100 ± 0.000 (-0.300)"
    four = row_of("mntdp", "table 1", "MNTDP-D", groups[:4])
    assert four["A"] == "0.64"
    assert "not run" in four["ours"]


def test_what_does_not_compare_says_why_in_a_word() -> None:
    narrow = replace(extract("ctrl_minus", "mntdp_d", [0.6]), departs={"backbone.width": [16, 64]})
    row = row_of("mntdp", "table 13", "MNTDP-D", [narrow])
    assert row["Mem MB"] == "9.2 → 9.000 (other network)"
    assert row["A"] == "0.67 → 0.600 (-0.070)"
    assert row["ours"] == "real, as printed"
    counted = {**narrow.values, "published_flops": [2.0], "all_flops": [13.0]}
    searched = row_of("mntdp", "table 13", "MNTDP-D", [replace(narrow, values=counted)])
    assert searched["Tflop"] == "1876 → 2.000 (other network; 13.0 with all candidates)"
    drawn = replace(narrow, settings={**narrow.settings, "data": "synthetic"})
    assert row_of("mntdp", "table 13", "MNTDP-D", [drawn])["A"] == "0.67 → 0.600 (drawn data)"
    both = row_of("mntdp", "table 13", "MNTDP-D", [drawn, narrow])
    assert both["ours"] == "real, as printed"
    alexnet = extract(
        "ctrl_minus", "mntdp_d", [0.6], **{"backbone._target_": "cl_lightning.backbones.AlexNet"}
    )
    assert row_of("mntdp", "table 13", "MNTDP-D AlexNet", [alexnet])["T"] == "0.28 → 0.100 (other reference)"


@pytest.mark.parametrize("paper", ["gem", pytest.param("mntdp", marks=pytest.mark.all)])
def test_the_commands_of_rows_compose(paper: str) -> None:
    """One of each learner that this version has."""
    cells = [cell for table in tables(paper) for row in table.rows.values() for cell in row.values()]
    by_learner = {
        cell.overrides["learner"]: cell
        for cell in cells
        if cell.result and cell.experiments and missing(cell) is None
    }
    assert len(by_learner) > 5
    for cell in by_learner.values():
        words = shlex.split(command([replace(cell, experiments=cell.experiments[:1])]))
        assert words[:3] == ["python", "-m", "cl_lightning"]
        configure(*(word for word in words[3:] if not word.startswith(("seed=", "selection=", "--"))))


def test_a_number_that_runs_do_not_have_says_why() -> None:
    lacking = replace(extract("ctrl_minus", "mntdp_d", [0.6]), undefined={"gain": "other classes"})
    row = row_of("mntdp", "table 13", "MNTDP-D", [lacking])
    assert (row["δ"], row["F"]) == ("0 → - (other classes)", "0 → - (not measured)")


def test_what_learners_of_one_seed_are_compared_by_is_one_stream() -> None:
    base = extract("x", "a", [0.1 * seed for seed in range(7)], **{"stream.n_train": 10})
    above = extract("x", "b", [0.1 * seed + 0.05 for seed in range(7)], **{"stream.n_train": 10})
    more = extract("x", "b", [0.9] * 7, **{"stream.n_train": 20})
    digests = replace(above, images=frozenset({("mnist", "other")}))
    heads, rows = comparison_table([base, above, more, digests], "a")
    assert heads[0] == "ACC against a n_train=10"
    nothing = "no numbers of the same streams and seeds"
    assert [(row[0], row[-1]) for row in rows] == [
        ("b n_train=10", "better"), ("b n_train=20", nothing), ("b n_train=10", nothing),
    ]  # fmt: skip


def test_runs_stand_in_the_row_of_their_own_settings(tmp_path: Path) -> None:
    from cl_lightning.report.groups import groups_in

    for passes, acc in ((1, 0.5), (2, 0.6), (3, 0.7)):
        result(tmp_path, "gem", 0, acc, f"trainer.max_epochs={passes}")
    groups = groups_in([tmp_path])
    row = row_of("gem", "table 3", "GEM", groups)
    assert row["ACC, 1 pass"] == "0.86 → 0.500 (-0.360)"
    assert row["ACC, 2 passes"] == "0.88 → 0.600 (-0.280)"
    assert row["ACC, 5 passes"] == "0.89"
    assert row["ours"].startswith("real, as printed; not run: ")
    one = next(t for t in tables("gem") if t.name == "table 3").rows["GEM"]["ACC, 1 pass"]
    assert runs_of(one, groups)[0].values["average_accuracy"] == [0.5]


def test_rows_of_an_extract_stand_beside_the_cells_of_their_own_stream() -> None:
    """They have not all of a stream's settings: its name decides."""
    row = {"command": "", "code": [], "commit": None, "experiment": "robust_entropy", "learner": "vcl"}
    entropy = {"split_mnist": 0.25, "permuted_mnist": 0.75}
    groups = [
        from_row({
            **row, "seeds": [0], "settings": {"stream.name": name, "data": "real"}, "departs": {},
            "values": {"entropy_of_predictions": [value]},
        })
        for name, value in entropy.items()
    ]  # fmt: skip
    text = region("figure 2", "robust", groups)
    assert re.findall(r"^\| (\w+) MNIST \| \S+ → (\S+)", text, re.MULTILINE) == [
        ("split", "0.250"),
        ("permuted", "0.750"),
    ]


def test_several_streams_are_summed_up_by_their_interquartile_mean() -> None:
    groups = [extract(e, "a", [0.1, 0.2, 0.3, 0.4]) for e in ("x", "y")]
    groups += [extract(e, "b", [0.2, 0.3, 0.4, 0.5]) for e in ("x", "y")] + [extract("x", "c", [0.9])]
    rows = over_streams(groups)[1]
    assert [row[:2] for row in rows] == [["a", "0.250"], ["b", "0.350"]]
    assert rows[1][3] == f"{(10 + 3 / 2) / 16:.2f}"  # of 16 pairs 10 are above and 3 equal
    assert rows[0][-2:] == ["4", "2"]


def test_a_page_that_asks_for_what_is_not_there_is_told_what_is() -> None:
    from cl_lightning.errors import Refusal

    with pytest.raises(
        Refusal,
        match="Known are runs, each task, compared, claims, not reproduced and the tables table 1, table 2",
    ):
        region("table 9", "gem", [])
    assert report(["paper=gam"]) == 2
