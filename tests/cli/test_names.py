"""A wrong name is answered by the one thing that was meant."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

import pytest

from cl_lightning.cli import names
from cl_lightning.cli.command import main
from cl_lightning.cli.help import LISTINGS
from cl_lightning.config.resolvers import conf_dir
from tests import docs


@pytest.mark.parametrize(
    ("wrong", "others", "right"),
    [
        ("experiment=ctrl_long", "", "+experiment=ctrl_long"),
        ("-experiment=ctrl_long", "", "+experiment=ctrl_long"),
        ("lr=0.1", "seed=0,1", "trainer.lr=0.1"),
        ("--lr=0.1", "", "trainer.lr=0.1"),
        ("--lr", "0.1", "trainer.lr=0.1"),
        ("--learner", "seed=1 ewc", "learner=ewc"),
        ("lr=0.1,0.2", "--multirun", "trainer.lr=0.1,0.2"),
        ("lr=[0.1,0.2]", "", "selection.grid.lr=[0.1,0.2]"),
        ("learning_rate=0.1", "", "trainer.lr=0.1"),
        ("leaners", "", "learners"),
        ("logger.wandb.projct=x", "logger=wandb", "logger.wandb.project=x"),
        ("model=ewc", "", "learner=ewc"),
        ("model=resnet", "", "backbone=resnet"),
        ("strem=splt", "", "stream=split"),
        ("ewc", "", "learner=ewc"),
        ("device=cuda", "", "trainer.accelerator=cuda"),
        ("device=2", "", "trainer.devices=2"),
        ("lerner=gem,ewc", "--multirun", "learner=gem,ewc"),
        ("learner.strenght=3", "learner=ewc", "learner.strength=3"),
        ("trainer.max_epoch=3", "another=wrong_one", "trainer.max_epochs=3"),
        ("~selection.grid.weight_decy", "", "~selection.grid.weight_decay"),
        ("--multirn", "seed=1,2", "--multirun"),
        ("--cofig-dir=x", "", "--config-dir=x"),
        *(
            (word, "", "")
            for word in ("foo", "quux=3", "run", "seed", "[", "=3", "--seed", "gpu=true", "hidden=3")
        ),
        *(("learner=xyz", "", ""), ("model=transformer", "", "")),
        *(("ewc", "learner=gem", ""), ("strem=split", "stream=permuted", "")),  # a choice that was made stays
        ("stream.angles=2", "+experiment=ctrl_long_small", ""),
        ("learner.memories=3", "", ""),  # another learner's
    ],
)
def test_what_was_meant_is_found_where_something_is_near(wrong: str, others: str, right: str) -> None:
    assert names.meant(wrong, others.split()) == right


def said(capsys: pytest.CaptureFixture, *arguments: str) -> list[str]:
    assert main(arguments) == 2
    return capsys.readouterr().err.splitlines()


WRITTEN = "arguments are group=choice or key=value, without spaces; see --help."
NO_KEY = "is not a key here. --cfg job shows all keys."


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        ("seed=3 lr=0.1 name=x", "lr is not a key here. Did you mean trainer.lr=0.1?"),
        ("experiment=ctrl_long", "Did you mean +experiment=ctrl_long?"),
        ("gem seed=3", "see --help. Did you mean learner=gem?"),
        ("seed=3 --multirn", "unrecognized arguments: --multirn. Did you mean --multirun?"),
        ("seed=3 --experiment=ctrl_long", "Did you mean +experiment=ctrl_long?"),
        ("+trainer.patienc=3", "trainer.patienc is not a key here. Did you mean patience?"),
        ("learner=gem learner=ewcc", "learner=ewcc is not there. Did you mean ewc?"),
        (
            "+experiment=gem",
            "Did you mean gem_cifar100 or gem_cifar100_reduced or gem_memory or gem_passes or ",
        ),
        ("learner=[gem,ewc] seed=1", "Did you mean --multirun learner=gem,ewc?"),
        ("stream=[split]", "Did you mean stream=split?"),
        ("foo=0,1", "that is a sweep, and this is a single run. A sweep needs --multirun."),
        ("+seed=1", "seed has a value already: to change it takes no plus."),
        ("seed 3", WRITTEN),
        ("learner: ewc", WRITTEN),
        ("seed==3", WRITTEN),
        ("hidden=256", NO_KEY),
        ("+experiment=ctrl_long_small stream.angles=2", NO_KEY),
        ("selection.grid.quux=[1]", "A new one is added with a plus: +selection.grid.quux=..."),
        (
            "trainer.lightning={profiler:simple}",
            "They are added with a plus: '+trainer.lightning={profiler:simple}'",
        ),
        ("-m stream.tasks=3,4", "a number of tasks is for stream=split, permuted or rotated."),
        ("+experiment=ctrl_long +experiment=ctrl_minus", "experiment is chosen twice. Leave one out."),
        ("--config-dir nowhere learners", "--config-dir=nowhere is not there."),
    ],
)
def test_the_answer_is_a_sentence(
    arguments: str, answer: str, capsys: pytest.CaptureFixture, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)  # a sweep whose jobs are refused has a folder
    text = "\n".join(said(capsys, *arguments.split()))
    assert answer in text
    assert "python -m" not in text or "jobs failed" in text  # then it says what goes on with the rest
    assert ("Did you mean" in text) == ("Did you mean" in answer)
    assert ("added with a plus" in text) == ("added with a plus" in answer)


def test_options_may_stand_between_arguments_and_ones_own_choices_are_meant_too(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    (tmp_path / "learner").mkdir()
    (tmp_path / "learner" / "anchored.yaml").write_text("# Mine\n_target_: x.Y  # mine\n")
    assert names.meant("lerner=anchord", ["--config-dir", str(tmp_path)]) == "learner=anchored"
    assert main(["learner=ewc", "--config-dir", str(tmp_path), "seed=7", "--cfg", "job", "name=x"]) == 0
    shown = capsys.readouterr().out
    assert "seed: 7" in shown
    assert "name: x" in shown


def test_a_listing_is_found_at_any_place_with_the_choices_of_ones_own(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    (tmp_path / "learner").mkdir()
    (tmp_path / "learner" / "anchored.yaml").write_text("# Mine\n_target_: x.Y  # mine\n")
    assert main(["--config-dir", str(tmp_path), "learners"]) == 0
    assert "anchored" in capsys.readouterr().out
    (tmp_path / "learners").mkdir()
    with contextlib.chdir(tmp_path):
        (line,) = said(capsys, "--config-dir", "learners", "seed=x")
    assert line == "seed=x must be a whole number of at least 0."


def test_the_answer_in_the_quickstart_is_what_is_said(capsys: pytest.CaptureFixture) -> None:
    (picture,) = (block for block in docs.blocks(docs.page("quickstart"), "text") if "Did you mean" in block)
    assert said(capsys, "model=ewc", "stream=permuted") == picture.splitlines()


def test_where_nothing_is_near_the_answer_says_what_lists_the_choices(capsys: pytest.CaptureFixture) -> None:
    assert said(capsys, "learner=xyz") == [
        "learner=xyz is not there. python -m cl_lightning learners lists what is."
    ]
    assert said(capsys, "data=icarl") == ["data=icarl is not there. Choose one of real, synthetic."]
    (line,) = said(capsys, "quux=3")
    assert line.startswith("quux is not a key here. --cfg job shows all keys")


def test_choices_are_listed_with_the_text_of_their_files(capsys: pytest.CaptureFixture, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    for name, group in LISTINGS.items():
        assert main([name]) == 0
        head, *lines = capsys.readouterr().out.splitlines()
        assert head.startswith(f"The {name}")
        files = sorted((Path(conf_dir()) / group).glob("*.yaml"))
        assert [line.strip("* ").split()[0] for line in lines] == [file.stem for file in files]
        for line, file in zip(lines, files):
            comment = next(t for t in file.read_text().splitlines() if re.match("# (?!@|yaml-language)", t))
            assert line.endswith(comment[2:])


def test_the_version_is_the_programs_own(capsys: pytest.CaptureFixture) -> None:
    import cl_lightning

    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"cl_lightning {cl_lightning.__version__}\n"
