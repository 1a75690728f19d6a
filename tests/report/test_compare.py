"""Runs side by side: means over seeds, what was varied, and what papers print."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from cl_lightning.cli.report import main
from cl_lightning.cli.report import main as report_command
from cl_lightning.metrics.table import metrics_of
from cl_lightning.report.beside import beside_runs, missing, published
from cl_lightning.report.compare import head_of, table
from cl_lightning.report.groups import COLUMNS, Group, gain, groups_in, settings_of
from cl_lightning.report.notes import notes
from cl_lightning.report.results import text_of
from cl_lightning.runs.identity import learner_name, relevant
from cl_lightning.selection.stream_level import Chosen
from tests.commands import command, configure, run
from tests.report.whole import stream_of, task, task_costs, whole_results, write_whole_results


@cache
def settings_of_command(*overrides: str) -> dict:
    return relevant(configure("+experiment=gem_rotations", "data=real", *overrides))


def result(
    folder: Path, learner: str, seed: int, acc: float, *overrides: str, bwt: float | None = -0.1,
    images: dict | None = None, version: dict | None = None, **more: Any,
) -> None:  # fmt: skip
    """A run as reports read it; without digests of images, if none are given."""
    fingerprint = "-".join(overrides) or "f"
    one = whole_results()
    parts = {
        "learner": learner, "seed": seed, "fingerprint": fingerprint,
        "config": {**settings_of_command(f"learner={learner}", *overrides), "seed": seed},
        "metrics": {**dict.fromkeys(one["metrics"]), "average_accuracy": acc, "backward_transfer": bwt},
        "costs": [task_costs(0, train=5.0, cpu=4.0), task_costs(1, train=5.0, cpu=3.0)],
        "stream": {**one["stream"], "images": images or {}},
        "version": {**one["version"], **(version or {})},
    }  # fmt: skip
    write_whole_results(folder / learner / f"{fingerprint}-s{seed}", **{**parts, **more})


def change_result(folder: Path, **parts: Any) -> None:
    """Other values in the results of the only run there."""
    (file,) = folder.rglob("results.json")
    file.write_text(text_of(whole_results(**{**json.loads(file.read_text()), **parts})))


@pytest.mark.parametrize("options", [[], ["--markdown"]])
def test_results_of_others_control_no_terminal(
    options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    result(tmp_path, "gem", 0, 0.5, name="a\x1b]0;owned\x07b\x9b31m")
    change_result(tmp_path, learner="g\x1b[2Jem")
    assert report_command([str(tmp_path), *options]) == 0
    out = capsys.readouterr().out
    assert "g?[2Jem" in out
    assert not set(out) & set("\x1b\x07\x9b")


def test_seeds_are_averaged_and_published_values_stand_beside(tmp_path: Path) -> None:
    for seed, acc in enumerate([0.7, 0.8, 1.0]):
        result(tmp_path, "gem", seed, acc)
    heads, rows = table(groups_in([tmp_path]))
    assert heads == [
        "learner", "ACC", "paper's ACC", "BWT", "paper's BWT", "CPU s", "paper's CPU s", "seeds"
    ]  # fmt: skip
    assert rows == [["gem", "0.833 ± 0.153", "0.86", "-0.100 ± 0.000", "0.05", "7.0 ± 0.0", "135", "3"]]


def test_means_and_standard_deviations_are_those_of_a_sample_of_seeds(tmp_path: Path) -> None:
    """0.2 and 0.6 deviate by 0.2 each: sqrt((0.04 + 0.04) / (2 - 1)) = 0.283, where 0.2 is that of a
    population and 0.4 the range."""
    for seed, acc in enumerate([0.2, 0.6]):
        result(tmp_path, "gem", seed, acc)
    heads, (row,) = table(groups_in([tmp_path]))
    assert row[heads.index("ACC")] == "0.400 ± 0.283"
    result(tmp_path, "gem", 2, 1.0)
    result(tmp_path, "gem", 3, 0.6)  # 0.6 and its deviations 0.4, 0, 0.4, 0: sqrt(0.32 / 3)
    heads, (row,) = table(groups_in([tmp_path]))
    assert row[heads.index("ACC")] == "0.600 ± 0.327"


def test_validation_stands_before_test_and_forgetting_is_positive_where_something_was_forgotten(
    tmp_path: Path,
) -> None:
    matrices = [  # task 0 was best after task 1
        [[0.0] * 3, [0.5, 0.0, 0.0], [0.9, 0.8, 0.0], [0.4, 0.6, 0.7]],
        [[0.0] * 3, [0.6, 0.0, 0.0], [0.7, 0.8, 0.0], [0.4, 0.6, 0.8]],
    ]
    for seed, matrix in enumerate(matrices):
        result(tmp_path, "gem", seed, 0.0, **measured(matrix, validated=[0.25, 0.5, 0.45 + 0.3 * seed]))
    heads, (row,) = table(groups_in([tmp_path]))
    shown = dict(zip(heads, row))
    assert [head for head in heads if "paper" not in head][1:7] == [
        "val",
        "ACC",
        "AIA",
        "BWT",
        "FWT",
        "forgetting from best",
    ]
    assert shown["val"] == "0.450 ± 0.071"  # 1.2 / 3 and 1.5 / 3
    assert shown["ACC"] == "0.583 ± 0.024"  # 1.7 / 3 and 1.8 / 3
    assert shown["AIA"] == "0.644 ± 0.008"  # (0.5 + 1.7 / 2 + 1.7 / 3) / 3 and (0.6 + 1.5 / 2 + 1.8 / 3) / 3
    assert shown["BWT"] == "-0.175 ± 0.035"  # -(0.1 + 0.2) / 2 and -(0.2 + 0.2) / 2
    assert shown["forgetting from best"] == "0.300 ± 0.071"  # (0.5 + 0.2) / 2 and (0.3 + 0.2) / 2


def measured(matrix: list[list[float]], validated: list[float]) -> dict:
    """Parts of results that an accuracy matrix and accuracies on validation data decide."""
    return {
        "metrics": metrics_of(matrix),
        "accuracy_matrix": matrix,
        "validation_at_end": {"accuracies": validated, "mean": sum(validated) / len(validated)},
    }


def test_runs_without_validation_data_have_no_validation_column(tmp_path: Path) -> None:
    result(tmp_path, "gem", 0, 0.5, validation_at_end={"accuracies": [None], "mean": None})
    result(tmp_path, "finetune", 0, 0.5)  # of a version that did not measure it
    assert "val" not in table(groups_in([tmp_path]))[0]


def test_a_rate_that_a_grid_chose_is_called_so_and_not_by_the_trainers_own(tmp_path: Path) -> None:
    result(tmp_path, "finetune", 0, 0.5, "trainer.lr=0.1")
    result(tmp_path, "finetune", 0, 0.6, "selection=task_level", "trainer.lr=null")
    configs = [json.loads(path.read_text())["config"] for path in tmp_path.rglob("results.json")]
    (older,) = [config for config in configs if "lr" in config["selection"]["grid"]]
    assert (older["trainer"]["lr"], older["selection"]["grid"]["lr"]) == (0.001, [0.01, 0.001])
    heads, rows = table(groups_in([tmp_path]))
    assert sorted(row[heads.index("trainer.lr")] for row in rows) == ["0.1", "grid"]


def test_what_was_varied_is_a_column_and_chooses_the_published_row(tmp_path: Path) -> None:
    result(tmp_path, "finetune", 0, 0.5, "trainer.max_epochs=1")
    result(tmp_path, "finetune", 0, 0.4, "trainer.max_epochs=5")
    heads, rows = table(groups_in([tmp_path]))
    assert heads[:4] == ["learner", "max_epochs", "ACC", "paper's ACC"]
    assert sorted(row[1:4] for row in rows) == [["1", "0.500", "0.53"], ["5", "0.400", "0.43"]]


def test_settings_in_which_only_different_learners_differ_are_not_what_was_varied(tmp_path: Path) -> None:
    result(tmp_path, "gem", 0, 0.5, "trainer.lr=0.1")
    result(tmp_path, "finetune", 0, 0.5, "trainer.lr=0.03")
    assert table(groups_in([tmp_path]))[0][:2] == ["learner", "ACC"]


@pytest.mark.parametrize(
    ("change", "head", "cells"),
    [
        ("stream=permuted", "stream", ["permuted_mnist", "rotated_mnist"]),
        ("stream.tasks=3", "tasks", ["20", "3"]),
        ("data=synthetic", "data", ["real", "synthetic"]),
        ("data.sources.mnist.folder=usps", "mnist.folder", ["mnist", "usps"]),
        ("backbone.sizes=[9]", "sizes", ["[100, 100]", "[9]"]),
        ("backbone._target_=mine.MLP", "class of backbone", ["cl_lightning.backbones.MLP", "mine.MLP"]),
        ("trainer.max_epochs=2", "max_epochs", ["1", "2"]),
        ("grants.task_id_at_test=false", "task_id_at_test", ["False", "True"]),
    ],
)
def test_what_learners_of_one_experiment_do_not_share_is_told_in_their_rows(
    change: str, head: str, cells: list[str], tmp_path: Path
) -> None:
    result(tmp_path, "gem", 0, 0.5, change)
    result(tmp_path, "finetune", 0, 0.5)
    heads, rows = table(groups_in([tmp_path]))
    assert sorted(row[heads.index(head)] for row in rows) == cells


@pytest.mark.parametrize(
    "change",
    ["trainer.lr=0.2", "trainer.momentum=0.9", "trainer.weight_decay=1e-5", "backbone.init=torch_unbiased"],
)
def test_what_an_experiment_tunes_for_each_learner_is_told_where_it_differs_within_one(
    change: str, tmp_path: Path
) -> None:
    result(tmp_path, "gem", 0, 0.5, change)
    result(tmp_path, "finetune", 0, 0.5)
    assert table(groups_in([tmp_path]))[0][:2] == ["learner", "ACC"]
    result(tmp_path, "gem", 0, 0.5, "trainer.lr=0.1")
    assert head_of(change.partition("=")[0]) in table(groups_in([tmp_path]))[0]


def test_rows_that_have_seeds_of_their_own_are_told_below_the_table(tmp_path: Path) -> None:
    """Where one has more than another, the column of their number tells."""
    for learner, seeds in (("gem", (0, 1)), ("finetune", (0, 1, 2))):
        for seed in seeds:
            result(tmp_path, learner, seed, 0.5)
    assert notes(groups_in([tmp_path])) == []
    for seed in (1, 2):
        result(tmp_path, "ewc", seed, 0.5)
    assert notes(groups_in([tmp_path])) == [
        "These rows have not the same seeds, and so not the same draws: gem_rotations ewc for seed 1, 2; "
        "gem_rotations finetune for seed 0, 1, 2; gem_rotations gem for seed 0, 1."
    ]


def test_a_measure_that_some_seed_lacks_is_left_out(tmp_path: Path) -> None:
    result(tmp_path, "gem", 0, 0.5)
    result(tmp_path, "gem", 1, 0.6, bwt=None)
    assert "BWT" not in table(groups_in([tmp_path]))[0]


def test_of_the_data_the_kind_is_told_and_what_is_said_of_each_source_but_for_places_and_remarks() -> None:
    drawn, hub = (
        {"_target_": "cl_lightning.data.sources.synthetic.Digits", "seed": 3},
        {"_target_": "cl_lightning.data.sources.ParquetImages"},
    )
    assert settings_of({"data": {"sources": {"x": drawn}}}) == {
        "data": "synthetic",
        "data.sources.x._target_": "cl_lightning.data.sources.synthetic.Digits",
        "data.sources.x.seed": 3,
    }
    told = settings_of({"data": {"sources": {"y": {**hub, "root": "/a", "licence": "b", "folder": "c"}}}})
    assert told == {
        "data": "real",
        "data.sources.y._target_": "cl_lightning.data.sources.ParquetImages",
        "data.sources.y.folder": "c",
    }


def test_no_run_no_table(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert main([str(tmp_path)]) == 2
    assert "No finished run" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("wadnb .", "There is no folder wadnb. Did you mean wandb?"),
        (". nowhere", "There is no folder nowhere. See python -m cl_lightning.report --help."),
        ("wandb . nowhere", "There is no folder nowhere. See python -m cl_lightning.report wandb --help."),
        ("wandb nowhere", "There is no folder nowhere. See python -m cl_lightning.report wandb --help."),
        ("status nowhere", "There is no folder nowhere. See python -m cl_lightning.report status --help."),
        (
            "wandb . --projct x",
            "The command line cannot be read: unrecognized arguments: --projct x\n"
            "See python -m cl_lightning.report wandb --help.",
        ),
    ],
)
def test_what_is_no_folder_and_no_option_is_a_sentence(
    arguments: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result(tmp_path, "gem", 0, 0.5)
    assert main(arguments.split()) == 2
    assert capsys.readouterr() == ("", f"{says}\n")


def test_every_command_of_reports_has_a_page_of_help(capsys: pytest.CaptureFixture) -> None:
    for words in ([], ["status"], ["wandb"]):
        with pytest.raises(SystemExit, match="0"):
            main([*words, "--help"])
        whole = " ".join(["python -m cl_lightning.report", *words])
        assert capsys.readouterr().out.startswith(f"usage: {whole} [-h]")


@pytest.mark.slow
def test_the_command_reads_real_runs(tmp_path: Path) -> None:
    run(tmp_path, "learner=finetune")
    run(tmp_path, "learner=finetune", "seed=1")
    import subprocess
    import sys

    shown = subprocess.run(
        [sys.executable, "-m", "cl_lightning.report", "--markdown", str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
    )
    head, _, row, *below = shown.stdout.splitlines()
    assert head.startswith("| learner | val | ACC | AIA | BWT | FWT | forgetting from best |")
    assert row.startswith("| finetune | 0.")
    assert row.endswith("| 2 |")
    assert [line for line in below if line] == [
        "task-incremental (outputs of other tasks masked in training and at test).",
        "No published number stands beside these: the data are synthetic.",
    ]


def test_published_numbers_belong_to_experiments_and_learners_that_exist() -> None:
    for _, cell in beside_runs():
        assert missing(cell) is None
        assert len(cell.experiments) == 1


def ctrl_values(stream: str, learner: str, *overrides: str) -> dict[str, float]:
    protocol = (
        "trainer=published",
        "backbone=resnet",
        "selection=task_level",
        f"learner={learner}",
        f"+experiment=ctrl_{stream}",
    )
    cfg = configure(*protocol, *overrides)
    return published(Group(cfg.name, learner_name(cfg), settings_of(relevant(cfg)), (0,), {}))


@pytest.mark.parametrize(
    "change",
    ["seed=3", "reference=false", "trainer.block=5", "trainer.threads=2", "learner.name=mntdp_d_again"],
)
def test_settings_that_change_no_result_keep_the_published_numbers(change: str) -> None:
    values = ctrl_values("out", "mntdp_d", "data=real", change)
    assert (values == {}) == change.startswith(
        "learner.name"
    )  # a name of one's own is a learner of one's own


@pytest.mark.parametrize(
    "change",
    [
        "learner.k=all", "learner.neighbours=1", "learner.searched=10", "selection=none",
        "selection.grid.lr=[0.5]", "backbone.modules=3",
        "stream/show=plain", "stream.show.normalise=false", "stream.test_per_class=5", "stream.held_out=null",
        "stream.tasks=[{source: mnist}, {source: mnist, like: "
        "0}]", "trainer.clip=0.1", "trainer.precision=bf16-mixed",
        "trainer=reduced", "data=synthetic", "data.substitute={svhn: street_chars}",
    ],
)  # fmt: skip
def test_ctrls_published_numbers_do_not_stand_beside_other_settings(change: str) -> None:
    assert ctrl_values("out", "mntdp_d", "data=real", change) == {}


@pytest.mark.parametrize(
    "change", ["stream.names=[mnist]", "stream.large=[50,25]", "stream.show.val_copies=0", "stream.tasks=10"]
)
def test_numbers_of_s_long_stand_beside_the_printed_tasks_and_tasks_drawn_as_they_were(change: str) -> None:
    assert ctrl_values("long", "mntdp_d", "data=real") == ctrl_values(
        "long", "mntdp_d", "data=real", "stream=ctrl_long_published"
    )
    assert ctrl_values("long", "mntdp_d", "data=real", change) == {}


def test_with_alexnet_transfer_is_left_out_since_the_papers_is_against_another_network() -> None:
    values = ctrl_values("out", "mntdp_d", "data=real", "backbone=alexnet")
    assert values["memory"] > 100
    assert "transfer" not in values


def test_an_older_run_that_knew_fewer_settings_keeps_its_published_numbers(tmp_path: Path) -> None:
    result(tmp_path, "gem", 0, 0.5)
    group = groups_in([tmp_path])[0]
    fewer = {key: value for key, value in group.settings.items() if key != "backbone.init"}
    assert published(replace(group, settings=fewer)) == published(group) != {}
    assert published(replace(group, settings={**group.settings, "learner.more": 1})) == {}


def test_transfer_is_shown_with_its_sign(tmp_path: Path) -> None:
    result(tmp_path, "gem", 0, 0.5)
    reference = {"task": 2, "accuracy": 0.8, "transfer": -0.4}
    change_result(tmp_path, reference=reference, **of_stream(("mnist", "012"), ("mnist", "012")))
    heads, (row,) = table(groups_in([tmp_path]))
    assert row[heads.index(COLUMNS["transfer"])] == "-0.400"


def test_what_is_called_forgetting_is_positive_where_something_was_forgotten(tmp_path: Path) -> None:
    result(tmp_path, "gem", 0, 0.5)
    change_result(tmp_path, metrics=metrics_of([[0.1, 0.1], [0.9, 0.1], [0.3, 0.8]]))
    heads, (row,) = table(groups_in([tmp_path]))
    shown = [cell for head, cell in zip(heads, row) if "forgetting" in head]
    assert set(shown) == {"0.600"}


def of_stream(first: tuple[str, str], last: tuple[str, str]) -> dict[str, Any]:
    return {
        "stream": stream_of(*(task(source, classes) for source, classes in (first, ("dtd", "xyz"), last))),
        "accuracy_matrix": [[None] * 3, [0.7, None, None], [0.6, 0.5, None], [0.6, 0.5, 0.4]],
    }


def test_the_gain_on_the_first_task_is_told_where_the_last_has_its_classes() -> None:
    assert gain(of_stream(("mnist", "012"), ("mnist", "120"))) == pytest.approx(0.4 - 0.7)
    assert gain(of_stream(("mnist", "012"), ("mnist", "013"))) is None
    assert gain(of_stream(("mnist", "012"), ("svhn", "012"))) is None


def test_runs_on_several_streams_are_told_apart_by_the_streams_names() -> None:
    def group(*overrides: str) -> Group:
        return Group(
            "quickstart", "mntdp_d", settings_of(relevant(configure("learner=mntdp_d", *overrides))), (0,), {}
        )

    streams = [
        group("stream=ctrl_minus"),
        group("stream=ctrl_short"),
        group("stream=permuted"),
        group("stream=permuted", "stream.tasks=3"),
    ]
    heads, rows = table(streams)
    assert heads == ["learner", "stream", "tasks", "seeds"]
    assert rows[0][1] == "ctrl_minus"
    assert max(len(cell) for row in rows for cell in row) <= 40


def validated(mean: float) -> dict:
    return {"validation_at_end": {"accuracies": [mean], "mean": mean}}


def test_a_report_over_several_streams_says_the_stream_and_ranks_none_beside_another(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    """Also where the streams are of experiments of different names, and differ in their tasks alone."""
    for learner, mean, *changes in [
        ("gem", 0.5),
        ("ewc", 0.7),
        ("gem", 0.9, "stream=permuted"),
        ("finetune", 0.8, "stream=permuted"),
        ("gem", 0.6, "stream=permuted", "stream.tasks=3"),
    ]:
        result(tmp_path, learner, 0, 0.5, *changes, name="-".join(["of", *changes]), **validated(mean))
    heads, _ = table(groups_in([tmp_path]))
    assert heads[:4] == ["experiment", "learner", "stream", "tasks"]
    assert main([str(tmp_path), "--markdown", "--validation"]) == 0
    lists = [part for part in capsys.readouterr().out.split("\n\n") if part.startswith("|")]
    rows = [[row.strip("| ").split(" | ") for row in part.splitlines()[2:]] for part in lists]
    best_first = {tuple(row[2:4]): [(each[1], each[4]) for each in part] for part in rows for row in part}
    assert len(lists) == 3
    assert best_first == {
        ("rotated_mnist", "20"): [("ewc", "0.700"), ("gem", "0.500")],
        ("permuted_mnist", "20"): [("gem", "0.900"), ("finetune", "0.800")],
        ("permuted_mnist", "3"): [("gem", "0.600")],
    }
    assert main([str(tmp_path), "--validation"]) == 0
    assert capsys.readouterr().out.count("┡") >= len(lists)


def test_a_name_alone_makes_no_other_stream(tmp_path: Path) -> None:
    result(tmp_path, "gem", 0, 0.5)
    result(tmp_path, "ewc", 0, 0.5, "stream.name=mine", name="mine")
    one, other = groups_in([tmp_path])
    assert one.stream == other.stream


def test_rows_of_different_scenarios_are_told_below_the_table(tmp_path: Path) -> None:
    """One learner is told the task and the others are not: the numbers are not of the same problem."""
    two = stream_of(task(classes=["0"]), task(classes=["1"]))
    for learner, told in (("gem", False), ("ewc", False), ("joint", True)):
        result(tmp_path, learner, 0, 0.5, stream=two, needs={"task_id_at_test": told, "past_data": False})
    of_domain, of_task = (
        "domain-incremental (all tasks share the outputs, no task ids at test)",
        "task-incremental (task ids given at test)",
    )
    assert [line for line in notes(groups_in([tmp_path])) if "incremental" in line] == [
        f"{of_domain}: gem_rotations ewc; gem_rotations gem.",
        f"{of_task}: gem_rotations joint.",
    ]
    shutil.rmtree(tmp_path / "joint")
    assert [line for line in notes(groups_in([tmp_path])) if "incremental" in line] == [f"{of_domain}."]


def test_only_what_whole_streams_chose_is_marked_and_for_the_seeds_that_they_chose_it_for(
    tmp_path: Path,
) -> None:
    for learner, strength, winners in (("ewc", 1, [0]), ("ewc", 10, [1, 2]), ("gem", 1, [])):
        for seed in range(3):
            changes = [f"learner.strength={strength}"] * (learner == "ewc")
            result(tmp_path, learner, seed, 0.5, *changes)
        if winners:
            chosen = Chosen(f"learner.strength={strength}", winners, 2, 2, 0.5, 10**12, 3.0, "s")
            best = tmp_path / "sweeps" / "0123" / "best" / f"ewc-{strength}.yaml"
            best.parent.mkdir(parents=True, exist_ok=True)
            best.write_text(yaml.safe_dump({"defaults": [], "chosen": asdict(chosen)}, sort_keys=False))
    heads, rows = table(groups_in([tmp_path]))
    marked = {(row[0], row[heads.index("strength")]) for row in rows}
    assert marked == {("ewc†", "1"), ("ewc†", "10"), ("gem", "None")}
    (line,) = [line for line in notes(groups_in([tmp_path])) if line.startswith("†")]
    ends = "gem_rotations ewc strength=1 for seed 0, gem_rotations ewc strength=10 for seed 1, 2."
    assert line.endswith(f"; {ends}")
    for seed in range(3):
        shutil.rmtree(tmp_path / "ewc" / f"learner.strength=1-s{seed}")
    shutil.rmtree(tmp_path / "ewc" / "learner.strength=10-s0")
    assert [row[0] for row in table(groups_in([tmp_path]))[1]] == ["ewc†", "gem"]
    (line,) = [line for line in notes(groups_in([tmp_path])) if line.startswith("†")]
    assert line.endswith("(selection=stream_level).")  # for all its seeds


@pytest.mark.slow
def test_a_study_is_a_sweep_of_its_own(tmp_path: Path) -> None:
    small = (
        "stream.tasks=2",
        "stream.n_train=20",
        "stream.n_test=20",
        "data.sources.mnist.train=500",
        "data.sources.mnist.test=100",
    )
    command(
        "+experiment=gem_passes",
        "learner=finetune,joint",
        "trainer.max_epochs=1,2",
        f"outputs={tmp_path}",
        "progress=false",
        *small,
    )
    groups = groups_in([tmp_path])
    assert sorted((g.learner, g.settings["trainer.max_epochs"]) for g in groups) == [
        ("finetune", 1),
        ("finetune", 2),
        ("joint", 1),
        ("joint", 2),
    ]
    assert {g.experiment for g in groups} == {"gem_rotations"}
    assert not any(published(group) for group in groups), (
        "a paper's number beside short runs on synthetic data"
    )


# ---- what stands beside what -------------------------------------------------------------------------------


@cache
def gem_group(experiment: str, *overrides: str) -> Group:
    cfg = configure(f"+experiment={experiment}", "data=real", *overrides)
    return Group(cfg.name, learner_name(cfg), settings_of(relevant(cfg)), (0,), {})


def gem_values(
    *overrides: str, experiment: str = "gem_rotations", images: dict | None = None
) -> dict[str, float]:
    return published(replace(gem_group(experiment, *overrides), images=frozenset((images or {}).items())))


def test_numbers_of_one_experiment_stand_beside_no_other() -> None:
    assert gem_values() == {"average_accuracy": 0.86, "backward_transfer": 0.05, "cpu_seconds": 135}
    assert gem_values(experiment="gem_permutations") == {"cpu_seconds": 77}
    assert gem_values("name=gem_permutations") == gem_values("name=mine") == gem_values(), (
        "a name is no setting"
    )
    assert ctrl_values("out", "mntdp_d", "data=real", "stream=ctrl_minus") == ctrl_values(
        "minus", "mntdp_d", "data=real"
    )


def test_in_a_table_each_printed_number_stands_in_the_row_of_its_run(tmp_path: Path) -> None:
    for learner, passes in (("gem", 5), ("agem", 1), ("finetune", 2), ("gem", 1), ("er", 1), ("finetune", 1)):
        result(tmp_path, learner, 0, 0.5, f"trainer.max_epochs={passes}")
    heads, rows = table(groups_in([tmp_path]))
    beside = {(row[0], row[1]): row[heads.index("ACC") + 1] for row in rows}
    assert beside == {
        ("gem", "1"): "0.86", ("gem", "5"): "0.89", ("finetune", "1"): "0.53", ("finetune", "2"): "0.49",
        ("agem", "1"): "", ("er", "1"): "",
    }  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [
        "data.sources.mnist.folder=usps", "data.sources.mnist.repository=somebody/mnist",
        "data.sources.mnist.revision=v2",
        "data.sources.mnist.config=small", "data.sources.mnist.splits={train: [test], test: [train]}",
        "data.sources.mnist.side=14",
        "data.sources.mnist.classes=[0,1,2,3,4,5,6,7,9,8]", "data.sources.mnist._target_=mine.Images",
        "stream.source=usps",
        "learner._target_=mine.GEM", "backbone._target_=mine.MLP", "stream._target_=mine.rotated",
        "stream.test_share=0.5",
        "trainer.callbacks=[{_target_: "
        "mine.Callback}]", "trainer.callbacks=[{_target_: pytorch_lightning.callbacks.Timer}]",
        "data=synthetic", "data.substitute={mnist: usps}",
    ],
)  # fmt: skip
def test_other_classes_other_images_and_callbacks_of_ones_own_have_no_published_numbers_beside_them(
    change: str,
) -> None:
    assert gem_values() != {}
    assert gem_values(change) == {}


NO_NUMBER_CHANGES = {
    *("learner.name", "stream.name", "reference"),
    *("trainer.accelerator", "trainer.threads", "trainer.stack", "trainer.block", "trainer.eval_batch_size"),
    *("trainer.evaluate", "trainer.probe_at", "trainer.probe_every", "trainer.probe_examples"),
    *("trainer.measures", "trainer.keep_predictions"),
}


def test_another_value_of_a_setting_that_changes_numbers_takes_the_published_ones_away() -> None:
    group = gem_group("gem_rotations")
    assert len(group.settings) > 60
    for key in group.settings:
        other = replace(group, settings={**group.settings, key: "another"})
        assert bool(published(other)) == (key in NO_NUMBER_CHANGES), key


def test_three_passes_are_in_no_table() -> None:
    assert gem_values("trainer.max_epochs=3") == {}


@pytest.mark.parametrize(
    "change",
    [
        "data.root=/elsewhere",
        "data.sources.mnist.root=/elsewhere",
        "data.sources.mnist.licence=free",
        "trainer.block=7",
        "seed=3",
    ],
)
def test_the_same_images_at_another_place_keep_the_published_numbers(change: str) -> None:
    assert gem_values(change) == gem_values() != {}


@pytest.mark.parametrize("change", ["trainer.threads=2", "trainer.accelerator=gpu"])
def test_on_other_threads_and_accelerators_only_the_papers_seconds_are_missing(change: str) -> None:
    plain = gem_values()
    assert gem_values(change) == {key: value for key, value in plain.items() if key != "cpu_seconds"}
    assert "cpu_seconds" in plain
    assert gem_values(change, "trainer.lr=0.2") == {}


MNIST = beside_runs()[0][0].images["mnist"]


def test_images_of_another_digest_than_the_known_one_have_no_published_numbers_beside_them(
    tmp_path: Path, capsys
) -> None:
    assert gem_values(images={"mnist": MNIST}) == gem_values() != {}
    assert gem_values(images={"mnist": "0123"}) == {}
    for seed, digest in enumerate([MNIST, "0123"]):  # one of the runs is enough
        result(tmp_path, "gem", seed, 0.5, images={"mnist": digest})
    assert published(groups_in([tmp_path])[0]) == {}
    assert main([str(tmp_path), "--markdown"]) == 0
    assert (
        "No published number stands beside these: images of mnist are not the original ones in their order."
        in capsys.readouterr().out
    )


def test_nothing_is_said_of_images_where_nothing_published_could_stand(tmp_path: Path) -> None:
    result(tmp_path, "gem", 0, 0.5, images={"mnist": MNIST})
    result(tmp_path, "gem", 0, 0.5, "data=synthetic", images={"mnist": "0123"})
    result(tmp_path, "agem", 0, 0.5, images={"mnist": "0123"})
    assert not any("images" in line for line in notes(groups_in([tmp_path])))


@pytest.mark.parametrize(
    ("learner", "changes", "why"),
    [
        ("gem", ("name=mine",), None),
        ("gem", ("name=mine", "data=synthetic"), "the data are synthetic"),
        ("gem", ("data.substitute={mnist: usps}",), "the data are real, usps for mnist"),
        ("agem", (), "none are known of this learner on this stream"),
        ("gem", ("name=mine", "stream=split"), "none are known of this learner on this stream"),
        ("gem", ("stream.tasks=3",), "Lopez-Paz and Ranzato 2017, table 1 has stream.tasks=20 (here 3)"),
        (
            "gem",
            ("name=mine", "trainer.lr=0.2", "trainer.max_epochs=2", "trainer.clip=1.0"),
            "Lopez-Paz and Ranzato 2017, table 3 has trainer.clip=None (here 1.0), trainer.lr=0.1 (here 0.2)",
        ),
    ],
)
def test_where_nothing_published_stands_beside_a_run_it_is_said_why(
    learner: str, changes: tuple[str, ...], why: str | None, tmp_path: Path
) -> None:
    result(tmp_path, learner, 0, 0.5, *changes, name="mine" if "name=mine" in changes else "gem_rotations")
    expected = [] if why is None else [f"No published number stands beside these: {why}."]
    assert [line for line in notes(groups_in([tmp_path])) if "published" in line] == expected


def test_other_images_and_classes_under_the_same_names_are_told_as_what_was_varied(tmp_path: Path) -> None:
    for change in (
        "data.sources.mnist.folder=mnist",
        "data.sources.mnist.folder=usps",
        "backbone._target_=mine.MLP",
        "data=synthetic",
    ):
        result(tmp_path, "gem", 0, 0.5, change)
    heads, rows = table(groups_in([tmp_path]))
    assert set(heads[1 : heads.index("ACC")]) == {"data", "mnist.folder", "class of backbone"}
    column = heads.index("mnist.folder")
    assert sorted(row[column] for row in rows) == ["None", "mnist", "mnist", "usps"]


# ---- the code of runs --------------------------------------------------------------------------------------

NOT_ALL = "These runs were not all made by the same code, and may differ for that reason:"
THIS, OTHER = (f"cl_lightning 1.0 (source {source}), torch 2.6" for source in ("abc", "def"))


def test_runs_of_the_same_code_have_no_note_of_it(tmp_path: Path) -> None:
    result(tmp_path, "gem", 0, 0.5, version={"source_hash": "abc"})
    result(tmp_path, "gem", 1, 0.5, version={"source_hash": "abc"})
    result(tmp_path, "ewc", 0, 0.5, version={"source_hash": "abc"})
    assert NOT_ALL not in notes(groups_in([tmp_path]))


def test_runs_of_different_code_in_one_row_are_told_below_the_table(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    for seed, source in enumerate(["abc", "def", "abc"]):
        result(tmp_path, "gem", seed, 0.5, version={"source_hash": source})
    said = [NOT_ALL, f"{THIS}: gem_rotations gem (seed 0, 2)", f"{OTHER}: gem_rotations gem (seed 1)"]
    assert notes(groups_in([tmp_path])) == said
    for options in ([], ["--markdown"]):
        assert main([str(tmp_path), *options]) == 0
        out = capsys.readouterr().out
        assert all(line in out for line in said)


def test_rows_of_different_code_are_told_below_the_table_by_what_was_varied(tmp_path: Path) -> None:
    result(tmp_path, "gem", 0, 0.5, "trainer.lr=0.1", version={"source_hash": "abc"})
    result(tmp_path, "gem", 0, 0.5, "trainer.lr=0.2", version={"source_hash": "def"})
    result(tmp_path, "ewc", 0, 0.5, version={"source_hash": "def"})
    lines = [line for line in notes(groups_in([tmp_path])) if line.startswith((THIS, OTHER))]
    assert lines[0] == f"{THIS}: gem_rotations gem lr=0.1 (seed 0)"
    assert lines[1] == f"{OTHER}: gem_rotations ewc lr=0.01 (seed 0); gem_rotations gem lr=0.2 (seed 0)"


@pytest.mark.parametrize("version", [{"torch": "2.7"}, {"package": "1.1"}])
def test_another_torch_and_another_release_are_different_code_too(version: dict, tmp_path: Path) -> None:
    result(tmp_path, "gem", 0, 0.5, version={"torch": "2.6"})
    result(tmp_path, "ewc", 0, 0.5, version=version)
    assert notes(groups_in([tmp_path]))[0] == NOT_ALL


@pytest.mark.parametrize("target", ["mine.GEM", "cl_lightning.learners.AGEM"])
def test_a_learner_is_part_of_its_runs_hash_and_no_different_code_beside_others(
    target: str, tmp_path: Path
) -> None:
    other = f"learner._target_={target}"
    result(tmp_path, "gem", 0, 0.5, version={"source_hash": "abc.1"})
    result(tmp_path, "gem", 0, 0.5, other, version={"source_hash": "abc.2"})
    assert NOT_ALL not in notes(groups_in([tmp_path]))
    result(tmp_path, "gem", 1, 0.5, other, version={"source_hash": "abc.3"})  # it was changed in between
    assert NOT_ALL in notes(groups_in([tmp_path]))


def test_changed_settings_are_not_those_of_the_paper(tmp_path: Path) -> None:
    result(tmp_path, "gem", 0, 0.5, "trainer.lr=0.2")
    assert published(groups_in([tmp_path])[0]) == {}


@pytest.mark.parametrize(("passes", "printed"), [(1, (0.76, -0.02)), (2, (0.72, -0.11)), (5, (0.59, -0.28))])
def test_multimodal_networks_have_published_numbers_from_the_authors_first_weights_alone(
    passes: int, printed: tuple[float, float], tmp_path: Path
) -> None:
    result(tmp_path / "own", "multimodal", 0, 0.5, f"trainer.max_epochs={passes}")
    result(tmp_path / "glorot", "multimodal", 0, 0.5, f"trainer.max_epochs={passes}", "backbone.init=glorot")
    values = published(groups_in([tmp_path / "own"])[0])
    assert (values["average_accuracy"], values["backward_transfer"]) == printed
    assert published(groups_in([tmp_path / "glorot"])[0]) == {}


def test_a_run_that_is_found_twice_counts_once(tmp_path: Path) -> None:
    result(tmp_path, "gem", 0, 0.5)
    assert groups_in([tmp_path, tmp_path / "gem"])[0].seeds == (0,)


def test_copies_of_a_run_are_no_further_seeds(tmp_path: Path) -> None:
    for seed, acc in enumerate([0.4, 0.6]):
        result(tmp_path / "outputs", "gem", seed, acc)
    for copy in ("backup", "mailed"):
        shutil.copytree(tmp_path / "outputs" / "gem" / "f-s1", tmp_path / copy / "f-s1")
    (group,) = groups_in([tmp_path])
    assert group.seeds == (0, 1)
    heads, (row,) = table([group])
    assert (row[heads.index("ACC")], row[-1]) == ("0.500 ± 0.141", "2")


def test_images_that_stand_in_for_others_are_named_below_the_table_and_beside_no_published_value(
    tmp_path: Path, capsys
) -> None:
    result(tmp_path, "gem", 0, 0.8)
    config = json.loads(next(tmp_path.rglob("results.json")).read_text())["config"]
    change_result(tmp_path, config={**config, "data": {**config["data"], "substitute": {"mnist": "usps"}}})
    for options in ([], ["--markdown"]):
        assert main([str(tmp_path), *options]) == 0
        out = capsys.readouterr().out
        assert "gem_rotations: usps for mnist (data.substitute)." in out
        assert "paper" not in out


def test_below_the_table_stands_why_a_row_lacks_a_number(tmp_path: Path) -> None:
    matrix = [[0.1, 0.1], [0.5, 0.2], [0.4, 0.6]]
    result(tmp_path, "gem", 0, 0.5, accuracy_matrix=matrix, metrics=metrics_of(matrix))
    untold = [[None, None], [0.5, None], [0.4, 0.6]]
    result(tmp_path, "ewc", 0, 0.5, accuracy_matrix=untold, metrics=metrics_of(untold))
    said = notes(groups_in([tmp_path]))
    assert "No FWT: a task could not be predicted, in gem_rotations ewc." in said
    assert not any("BWT" in line for line in said)
