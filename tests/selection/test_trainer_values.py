"""A value of the trainer is trained with, from wherever it comes, or it is refused: no grid wins over it
unsaid."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from cl_lightning.cli.command import main
from cl_lightning.config.resolvers import RULES, conf_dir
from cl_lightning.errors import Refusal
from cl_lightning.learners.parts.stored import mapped
from cl_lightning.runs.identity import relevant
from cl_lightning.runs.run import run as run_config
from cl_lightning.selection.grid import searched
from tests.commands import SMALL, configure, fingerprint_of, folder_of, run

QUICK = (*SMALL, "stream.tasks=2", "trainer.max_epochs=1", "logger=none")
DEFAULT = {"lr": [0.01, 0.001], "weight_decay": [0.0, 1e-5, 1e-4]}


def from_the_command_line(outputs: Path, *overrides: str) -> None:
    if main([*QUICK, f"outputs={outputs}", *overrides]) != 0:
        raise Refusal("see what was said")


def from_python(outputs: Path, *overrides: str) -> None:
    """Values that are set after the configuration is composed."""
    cfg = configure(*QUICK, f"outputs={outputs}")
    for override in overrides:
        key, value = override.split("=")
        OmegaConf.update(cfg, key, OmegaConf.create(f"x: {value}").x)
    run_config(cfg)


def from_a_file(outputs: Path, *overrides: str) -> None:
    """An experiment of one's own."""
    own = OmegaConf.create({})
    for override in overrides:
        key, value = override.split("=")
        OmegaConf.update(own, key, OmegaConf.create(f"x: {value}").x)
    file = outputs / "conf" / "experiment" / "mine.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"# @package _global_\n{OmegaConf.to_yaml(own)}")
    with initialize_config_dir(conf_dir(), **RULES):
        cfg = compose(
            "config",
            [f"hydra.searchpath=[{outputs / 'conf'}]", "+experiment=mine", *QUICK, f"outputs={outputs}"],
        )
    run_config(cfg)


def from_a_sweep(outputs: Path, *overrides: str) -> None:
    from_the_command_line(outputs, "--multirun", "seed=0,1", *overrides)


def from_a_branch(outputs: Path, *overrides: str) -> None:
    """A branch of a run that was made with the default grid."""
    other = [*QUICK, f"outputs={outputs}", "name=other"]
    run_config(configure(*other))
    from_the_command_line(outputs, f"run={folder_of(configure(*other))}", "from_task=1", *overrides)


REST = [from_python, from_a_file, from_a_branch]
WAYS = [from_the_command_line, from_a_sweep, *REST]


def results_of(outputs: Path) -> dict:
    return json.loads(next(outputs.glob("quickstart/*/*-s0/results.json")).read_text())


def weights_of(outputs: Path) -> list[torch.Tensor]:
    """All tensors of the learner after the last task."""
    found: list[torch.Tensor] = []
    state = torch.load(next(outputs.glob("quickstart/*/*-s0/tasks/001.pt")), weights_only=True)
    mapped(lambda tensor: found.append(tensor) or tensor, state)
    return found


def same(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize(
    "way",
    [from_the_command_line, *(pytest.param(way, marks=pytest.mark.all) for way in (from_a_sweep, *REST))],
)
def test_a_learning_rate_of_the_trainer_is_what_is_trained_with(
    way, tmp_path: Path, capfd: pytest.CaptureFixture
) -> None:
    """To the bit what a grid of this rate alone gives."""
    for name, overrides in {
        "default": [],
        "trainer": ["trainer.lr=0.1"],
        "grid": ["selection.grid.lr=[0.1]"],
    }.items():
        capfd.readouterr()
        way(tmp_path / name, *overrides)
        said = capfd.readouterr().err
        assert said.count("trainer.lr=0.1 takes lr out of the default grid.\n") == (name == "trainer") * (
            1 + (way is from_a_sweep)
        )
    by_trainer = results_of(tmp_path / "trainer")
    assert by_trainer["config"]["trainer"]["lr"] == 0.1
    assert by_trainer["config"]["selection"]["grid"] == {"weight_decay": DEFAULT["weight_decay"]}
    assert by_trainer["selected"][-1]["hparams"].keys() == {"weight_decay"}
    assert by_trainer["selected"][-1]["candidates"] == 3
    assert results_of(tmp_path / "default")["selected"][-1]["hparams"]["lr"] in DEFAULT["lr"]
    assert same(weights_of(tmp_path / "trainer"), weights_of(tmp_path / "grid"))
    assert not same(weights_of(tmp_path / "trainer"), weights_of(tmp_path / "default"))


@pytest.mark.parametrize("way", WAYS)
def test_a_value_beside_a_grid_of_ones_own_is_refused_with_the_remedy(
    way, tmp_path: Path, capfd: pytest.CaptureFixture
) -> None:
    with pytest.raises(Refusal) as refusal:
        way(tmp_path, "trainer.lr=0.1", "selection.grid.lr=[0.2]")
    said = f"{refusal.value}\n{capfd.readouterr().err}"
    assert "trainer.lr=0.1 and selection.grid.lr=[0.2] are both given" in said
    assert "Set trainer.lr=null to search the grid" in said
    assert not list(tmp_path.glob("quickstart/*/*/run.json"))
    way(tmp_path, "trainer.lr=null", "selection.grid.lr=[0.2]")  # the remedy
    assert results_of(tmp_path)["selected"][-1]["hparams"]["lr"] == 0.2


@pytest.mark.parametrize(("key", "value"), [("weight_decay", 0.5), ("momentum", 0.9)])
def test_the_rule_is_the_same_for_all_that_a_grid_may_name(key: str, value: float, tmp_path: Path) -> None:
    common = (*QUICK, "trainer.optimizer=sgd", f"outputs={tmp_path / 'trainer'}")
    run_config(configure(*common, f"trainer.{key}={value}"))
    run_config(configure(*common, f"++selection.grid.{key}=[{value}]", f"outputs={tmp_path / 'grid'}"))
    assert results_of(tmp_path / "trainer")["selected"][-1]["hparams"].keys() == DEFAULT.keys() - {key}
    assert same(weights_of(tmp_path / "trainer"), weights_of(tmp_path / "grid"))
    with pytest.raises(Refusal, match=rf"trainer\.{key}={value} and selection\.grid\.{key}"):
        relevant(configure(f"trainer.{key}={value}", f"++selection.grid.{key}=[{value}]"))


def grid_of(*overrides: str) -> dict:
    return relevant(configure(*overrides))["selection"]["grid"]


@pytest.mark.parametrize(
    ("overrides", "grid"),
    [
        ([], DEFAULT),
        (["selection.grid.lr=[0.1,0.01]"], {**DEFAULT, "lr": [0.1, 0.01]}),
        (["selection.grid.weight_decay=[0.0]"], {**DEFAULT, "weight_decay": [0.0]}),
        (["selection.grid.weight_decay=[0.0]", "+selection.grid.strength=[0.0,1.0]"],
        {"lr": DEFAULT["lr"], "weight_decay": [0.0], "strength": [0.0, 1.0]}),
        (["~selection.grid.lr"], {"weight_decay": DEFAULT["weight_decay"]}),
        (["selection=none", "+selection.grid.lr=[0.5]"], {"lr": [0.5]}),
        (["trainer.lr=0.1", "selection.grid.weight_decay=[0.0]"], {"weight_decay": [0.0]}),
        (["trainer.lr=0.1", "trainer.weight_decay=0.0"], {}),
        (["trainer.lr=null", "trainer.weight_decay=null"], DEFAULT),
        (["trainer=published"], DEFAULT),
        (["trainer=reduced"], DEFAULT),
        (["selection=none"], {}),
    ],
)  # fmt: skip
def test_what_one_writes_stands_in_the_place_of_the_defaults_key_by_key(
    overrides: list[str], grid: dict
) -> None:
    assert grid_of(*overrides) == grid


@pytest.mark.parametrize(
    ("overrides", "lr"),
    [
        (["selection=none"], 0.001),
        (["selection=none", "trainer.lr=0.5"], 0.5),
        (["selection=none", "trainer=reduced"], 0.001),
        (["selection=none", "trainer=single_pass"], 0.03),
        (["+experiment=ctrl_minus"], 0.001),
        (["+experiment=gem_rotations"], 0.1),
        (["+experiment=gem_rotations", "learner=finetune"], 0.003),
        (["+experiment=gem_rotations", "learner=finetune", "trainer.lr=0.2"], 0.2),
    ],
)
def test_without_a_grid_the_rate_is_the_trainers_as_the_protocol_says(
    overrides: list[str], lr: float
) -> None:
    config = relevant(configure(*overrides))
    assert (config["trainer"]["lr"], config["selection"]["grid"]) == (lr, {})


def test_without_a_grid_null_trains_to_the_bit_as_0_001(tmp_path: Path) -> None:
    run(tmp_path / "null", *QUICK, "selection=none", small=False)
    run(tmp_path / "named", *QUICK, "selection=none", "trainer.lr=0.001", small=False)
    assert same(weights_of(tmp_path / "null"), weights_of(tmp_path / "named"))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (["selection=none"], ["selection=none", "trainer.lr=0.001", "trainer.weight_decay=0.0"]),
        ([], ["selection.grid.lr=[0.01,0.001]"]),
        (["trainer.lr=0.1"], ["trainer.lr=0.1", "selection.default.lr=[5.0]"]),
        (
            ["trainer.lr=0.1", "trainer.weight_decay=0.0"],
            ["trainer.lr=0.1", "trainer.weight_decay=0.0", "selection=none"],
        ),
    ],
)
def test_configurations_that_train_the_same_share_a_fingerprint(one: list[str], other: list[str]) -> None:
    assert fingerprint_of(*one) == fingerprint_of(*other)


def test_two_values_are_told_in_one_line(tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    run(tmp_path, *QUICK, "trainer.lr=0.1", "trainer.weight_decay=0.0", small=False)
    (line,) = capfd.readouterr().err.splitlines()
    assert (
        line
        == "trainer.lr=0.1 and trainer.weight_decay=0.0 take lr and weight_decay out of the default grid."
    )


@pytest.mark.parametrize("overrides", [[], ["selection=none", "trainer.lr=0.1"], ["selection.grid.lr=[0.1]"]])
def test_where_nothing_is_taken_out_nothing_is_said(
    overrides: list[str], tmp_path: Path, capfd: pytest.CaptureFixture
) -> None:
    run(tmp_path, *QUICK, *overrides, small=False)
    assert capfd.readouterr().err == ""


def test_a_selection_of_ones_own_needs_no_default() -> None:
    assert searched({"grid": {"lr": [1.0]}}, {"lr": None}) == {"lr": [1.0]}
    with pytest.raises(Refusal, match=r"selection\.default\.lr, and there are none\. Give a list"):
        searched({"grid": {"lr": "default"}}, {"lr": None})


@pytest.mark.parametrize(
    "overrides", [[], ["trainer.lr=0.1"], ["selection.grid.lr=[0.1]"], ["selection=none"]]
)
def test_a_resolved_configuration_means_the_same(overrides: list[str], tmp_path: Path) -> None:
    """As a run's folder holds it: nothing goes by how a value was written."""
    OmegaConf.save(configure(*overrides), tmp_path / "config.yaml", resolve=True)
    assert relevant(OmegaConf.load(tmp_path / "config.yaml")) == relevant(configure(*overrides))
