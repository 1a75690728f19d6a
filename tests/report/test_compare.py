"""Runs side by side: means over seeds, what was varied, and what papers print."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cl_lightning.report.__main__ import main
from cl_lightning.report.compare import Group, groups_in, published, settings_of, table
from cl_lightning.runs import relevant
from tests.commands import command, configure, run


def result(folder: Path, learner: str, seed: int, acc: float, fingerprint: str = "f", bwt: float | None = -0.1, **settings) -> None:
    trainer = {
        "max_epochs": 1,
        "single_pass": True,
        "batch_size": 10,
        "optimizer": "sgd",
        "lr": {"finetune": 0.003}.get(learner, 0.1),
        **settings,
    }
    content = {
        "name": "gem_rotations", "learner": learner, "seed": seed, "fingerprint": fingerprint,
        "config": {"seed": seed, "trainer": trainer, "stream": {"source": "mnist", "tasks": 20, "n_train": 1000, "n_test": None}, "backbone": {"sizes": [100, 100]},
                   "learner": {"memories": 256, "total": None, "margin": 0.5}, "data": {"sources": {"mnist": {"_target_": "a.hub.ParquetImages"}}}},
        "metrics": {"average_accuracy": acc, "backward_transfer": bwt, "forward_transfer": None, "forgetting_from_best": None},
        "costs": [{"seconds": {"train": 5.0, "cpu": 4.0}}, {"seconds": {"train": 5.0, "cpu": 3.0}}],
    }  # fmt: skip
    place = folder / learner / f"{fingerprint}-s{seed}"
    place.mkdir(parents=True)
    (place / "results.json").write_text(json.dumps(content))


def test_seeds_are_averaged_and_published_values_stand_beside(tmp_path: Path) -> None:
    for seed, acc in enumerate([0.8, 0.9, 1.0]):
        result(tmp_path, "gem", seed, acc)
    heads, rows = table(groups_in([tmp_path]))
    assert heads == ["learner", "ACC", "paper", "BWT", "paper", "CPU s", "paper", "seeds"]
    assert rows == [["gem", "0.900 ± 0.100", "0.86", "-0.100 ± 0.000", "0.05", "7.0 ± 0.0", "135", "3"]]


def test_what_was_varied_is_a_column_and_chooses_the_published_row(tmp_path: Path) -> None:
    result(tmp_path, "finetune", 0, 0.5, "one", max_epochs=1)
    result(tmp_path, "finetune", 0, 0.4, "five", max_epochs=5)
    heads, rows = table(groups_in([tmp_path]))
    assert heads[:4] == ["learner", "max_epochs", "ACC", "paper"]
    assert sorted(row[1:4] for row in rows) == [["1", "0.500", "0.53"], ["5", "0.400", "0.43"]]


def test_settings_in_which_only_different_learners_differ_are_not_what_was_varied(tmp_path: Path) -> None:
    result(tmp_path, "gem", 0, 0.5, lr=0.1)
    result(tmp_path, "finetune", 0, 0.5, lr=0.03)
    assert table(groups_in([tmp_path]))[0][:2] == ["learner", "ACC"]


def test_a_measure_that_some_seed_lacks_is_left_out(tmp_path: Path) -> None:
    result(tmp_path, "gem", 0, 0.5)
    result(tmp_path, "gem", 1, 0.6, bwt=None)
    assert "BWT" not in table(groups_in([tmp_path]))[0]


def test_of_the_data_the_kind_is_told() -> None:
    assert settings_of({"data": {"sources": {"x": {"_target_": "cl_lightning.data.synthetic.Digits"}}}}) == {"data": "synthetic"}


def test_no_run_no_table(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert main([str(tmp_path)]) == 2
    assert "No finished run" in capsys.readouterr().err


@pytest.mark.slow
def test_the_command_reads_real_runs(tmp_path: Path) -> None:
    run(tmp_path, "learner=finetune")
    run(tmp_path, "learner=finetune", "seed=1")
    import subprocess
    import sys

    shown = subprocess.run(
        [sys.executable, "-m", "cl_lightning.report", "--markdown", str(tmp_path)], capture_output=True, text=True, check=True
    )
    head, _, row = shown.stdout.splitlines()
    assert head.startswith("| learner | ACC | BWT |")
    assert row.startswith("| finetune | 0.")
    assert row.endswith("| 2 |")


def test_published_numbers_belong_to_experiments_and_learners_that_exist() -> None:
    import yaml

    from cl_lightning.report import compare
    from cl_lightning.runs import conf_dir

    for paper in yaml.safe_load((Path(compare.__file__).parent / "published.yaml").read_text()):
        assert (Path(conf_dir()) / "experiment" / f"{paper['experiment']}.yaml").is_file()
        for row in paper["rows"]:
            named = row["learner"].removesuffix("_freeze").removesuffix("_finetune")  # the folder has the variant's name
            assert (Path(conf_dir()) / "learner" / f"{named}.yaml").is_file()
            assert set(row) & set(compare.COLUMNS)


CTRL = ("minus", "plus", "in", "out", "pl", "long")


def ctrl_values(stream: str, learner: str, name: str, *overrides: str) -> dict[str, float]:
    protocol = ("trainer=published", "backbone=resnet", "selection=task_level", f"learner={learner}", f"+experiment=ctrl_{stream}")
    cfg = configure(*protocol, *overrides)
    return published(Group(cfg.name, name, settings_of(relevant(cfg)), (0,), {}))


@pytest.mark.parametrize("stream", CTRL)
@pytest.mark.parametrize(("learner", "variant"), [("mntdp_d", ""), ("independent", ""), ("new_head", "_freeze"), ("finetune", "")])
def test_ctrls_published_numbers_stand_beside_the_papers_protocol_on_real_data_and_nothing_else(stream, learner, variant) -> None:
    def found(*overrides: str) -> dict[str, float]:
        return ctrl_values(stream, learner, learner + variant, *overrides)

    printed = {"mntdp_d": (0.67, 0.61, 0.60, 0.68, 0.62, 0.75), "independent": (0.56, 0.57, 0.57, 0.61, 0.59, 0.57)}
    if learner in printed:
        assert found("data=real")["average_accuracy"] == dict(zip(CTRL, printed[learner]))[stream]
    else:
        assert found("data=real")["average_accuracy"] < 0.55
    assert found("data=synthetic") == {}
    assert found("data=real", "trainer=reduced") == {}
    assert found("data=real", "data.substitute={svhn: street_chars}") == {}


@pytest.mark.parametrize(
    "change",
    ["learner.k=all", "selection=none", "selection.grid.lr=[0.5]", "backbone.modules=3", "stream/show=plain", "stream.test_per_class=5"],
)
def test_ctrls_published_numbers_do_not_stand_beside_other_settings(change: str) -> None:
    assert ctrl_values("out", "mntdp_d", "mntdp_d", "data=real")
    assert ctrl_values("out", "mntdp_d", "mntdp_d", "data=real", change) == {}
    with_alexnet = ctrl_values("out", "mntdp_d", "mntdp_d", "data=real", "backbone=alexnet")
    assert with_alexnet["memory"] > 100
    assert "transfer" not in with_alexnet  # the paper's is against another network


@pytest.mark.slow
def test_a_study_is_a_sweep_of_its_own(tmp_path: Path) -> None:
    small = ("stream.tasks=2", "stream.n_train=20", "stream.n_test=20", "data.sources.mnist.train=500", "data.sources.mnist.test=100")
    command("+experiment=gem_passes", "learner=finetune,joint", "trainer.max_epochs=1,2", f"outputs={tmp_path}", "progress=false", *small)
    groups = groups_in([tmp_path])
    assert sorted((g.learner, g.settings["trainer.max_epochs"]) for g in groups) == [
        ("finetune", 1),
        ("finetune", 2),
        ("joint", 1),
        ("joint", 2),
    ]
    assert {g.experiment for g in groups} == {"gem_rotations"}
    assert not any(published(group) for group in groups), "a paper's number beside short runs on synthetic data"


def test_changed_settings_are_not_those_of_the_paper(tmp_path: Path) -> None:
    result(tmp_path, "gem", 0, 0.5, lr=0.2)
    assert published(groups_in([tmp_path])[0]) == {}


def test_a_run_that_is_found_twice_counts_once(tmp_path: Path) -> None:
    result(tmp_path, "gem", 0, 0.5)
    assert groups_in([tmp_path, tmp_path / "gem"])[0].seeds == (0,)


def test_images_that_stand_in_for_others_are_named_below_the_table_and_beside_no_published_value(tmp_path: Path, capsys) -> None:
    result(tmp_path, "gem", 0, 0.8)
    file = next(tmp_path.rglob("results.json"))
    content = json.loads(file.read_text())
    content["config"]["data"]["substitute"] = {"mnist": "usps"}
    file.write_text(json.dumps(content))
    for options in ([], ["--markdown"]):
        assert main([str(tmp_path), *options]) == 0
        out = capsys.readouterr().out
        assert "gem_rotations: usps for mnist (data.substitute)." in out
        assert "paper" not in out
