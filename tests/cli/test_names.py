"""A wrong name is answered by the one thing that was meant, as a command to copy."""

from __future__ import annotations

import contextlib
import shlex
from functools import cache
from pathlib import Path

import pytest

from cl_lightning.cli import names
from cl_lightning.cli.command import main
from cl_lightning.cli.help import LISTINGS
from cl_lightning.config import compose_config
from cl_lightning.errors import Refusal
from tests import docs

composed = cache(names.composed)


@pytest.fixture(autouse=True)
def compose_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "composed", lambda others: composed(tuple(others)))


@pytest.mark.parametrize(
    ("wrong", "others", "right"),
    [
        ("experiment=ctrl_long", "", "+experiment=ctrl_long"),
        ("+experiment=ctrl_lnog", "", "+experiment=ctrl_long"),
        ("-experiment=ctrl_long", "", "+experiment=ctrl_long"),
        ("lr=0.1", "", "trainer.lr=0.1"),
        ("+lr=0.1", "", "trainer.lr=0.1"),
        ("lr=0.1,0.2", "--multirun", "trainer.lr=0.1,0.2"),
        ("lr=[0.1,0.2]", "", "selection.grid.lr=[0.1,0.2]"),
        ("learning_rate=0.1", "", "trainer.lr=0.1"),
        ("bs=32", "", "trainer.batch_size=32"),
        ("leaners", "", "learners"),
        ("logger.wandb.project=x", "", "logger=wandb logger.wandb.project=x"),
        ("logger.wandb.projct=x", "logger=wandb", "logger.wandb.project=x"),
        ("model=ewc", "", "learner=ewc"),
        ("model=resnet", "", "backbone=resnet"),
        ("strem=split", "", "stream=split"),
        ("show=ctrl", "", "stream/show=ctrl"),
        ("steam.tasks=3", "stream=split", "stream.tasks=3"),
        ("learner=ewcc", "", "learner=ewc"),
        ("learner=EWC", "", "learner=ewc"),
        ("learner = ewc", "", "learner=ewc"),
        ("+learner=ewc", "", "learner=ewc"),
        ("ewc", "", "learner=ewc"),
        ("learner.strenght=3", "learner=ewc", "learner.strength=3"),
        ("learner.fishr=exact", "", "learner=ewc learner.fisher=exact"),
        ("learner.strenght=3", "--multirun learner=ewc seed=0,1", "learner.strength=3"),
        ("learner.memories=3", "", "learner=gem learner.memories=3"),
        ("selection.grid.stregth=[1]", "learner=ewc", "+selection.grid.strength=[1]"),
        ("trainer.max_epoch=3", "seed=1", "trainer.max_epochs=3"),
        ("epochs=3", "seed=0,1", "trainer.max_epochs=3"),
        ("dataset=mnist", "", "stream=split stream.source=mnist"),
        ("dataset=mnist", "stream=permuted", "stream.source=mnist"),
        ("~selection.grid.weight_decy", "", "~selection.grid.weight_decay"),
        ("--multirn", "seed=1,2", "--multirun"),
        ("lerner=gem,ewc", "--multirun", "learner=gem,ewc"),
        ("lr=0.1,0.2", "", "trainer.lr=0.1,0.2"),
        ("device=cuda", "", "trainer.accelerator=cuda"),
        ("device=2", "", "trainer.devices=2"),
        ("widen=2", "", "backbone=alexnet backbone.widen=2"),
        ("--cofig-dir=x", "", "--config-dir=x"),
        ("+experiment=gem_perm", "", "+experiment=gem_permutations"),
        ("lr=0.1", "another=wrong_one", "trainer.lr=0.1"),
        ("lr=0.1", "backbone=é name=[", "trainer.lr=0.1"),
    ],
)
def test_it_is_found_what_was_meant(wrong: str, others: str, right: str) -> None:
    assert names.meant(wrong, shlex.split(others)) == right.split(" ")


@pytest.mark.parametrize(
    "wrong",
    [
        *("learner=icarl", "quux=3", "trainer.lr.x=3", "experiment=foo", "foo", "run", "seed", "[", "=3"),
        *("seed==3", "seed=range(3", "lr=[0.1", 'name=my "q" exp'),  # what Hydra cannot read
        *("hidden=256", "model=transformer", "force=true"),  # near a key that only other choices have
        *("+experiment=gem", "+experiment=ctrl", "stream=ctrl"),  # several begin so, and others are called so
        *("--seed", "--cofig-dir", "gpu=true", "learner.lamda=1", "lerner=[gem,ewc]"),
    ],
)
def test_where_nothing_is_near_nothing_is_guessed(wrong: str) -> None:
    assert names.meant(wrong, []) == []


def test_a_key_of_another_learner_is_not_meant_where_one_is_named() -> None:
    assert names.meant("learner.memories=3", ["learner=joint"]) == []


def test_a_learner_of_ones_own_is_found_in_its_folder(tmp_path: Path) -> None:
    (tmp_path / "learner").mkdir()
    (tmp_path / "learner" / "anchored.yaml").write_text("# Mine\n_target_: x.Y  # mine\n")
    assert names.meant("learner=anchord", ["--config-dir", str(tmp_path)]) == ["learner=anchored"]


@pytest.mark.parametrize("wrong", ["lr=abc", "tasks=3", "tasks=3,4"])
def test_a_key_of_this_name_that_cannot_have_the_value_says_so(wrong: str) -> None:
    with pytest.raises(Refusal, match=r"^(trainer\.lr=abc must be a number|stream\.tasks=3 must be a list)"):
        names.meant(wrong, [])


def said(capsys: pytest.CaptureFixture, *arguments: str) -> list[str]:
    assert main(arguments) == 2
    return capsys.readouterr().err.splitlines()


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        ("seed=3 lr=0.1 name=x", "seed=3 trainer.lr=0.1 name=x"),
        ("+trainer.patienc=3", "trainer.patience=3"),  # Hydra takes it, and nothing reads it
        ("--multirun learner=ewcc,gem", "--multirun learner=ewc,gem"),
        ("seed=3 --multirn", "seed=3 --multirun"),
        ("gem seed=3", "learner=gem seed=3"),
        ("logger=[wandb,cvs]", "'logger=[wandb,csv]'"),
        ("logger=[cvs]", "'logger=[csv]'"),
        ("logger.wandb.mode=offline", "logger=wandb logger.wandb.mode=offline"),
        ("--experiment ctrl_long seed=3", "+experiment=ctrl_long seed=3"),
        ("seed=3 --lr 0.1", "seed=3 trainer.lr=0.1"),
        ("leaners", "learners"),
        ("seed=0,1 name=x", "--multirun seed=0,1 name=x"),
        ("lr=0.1,0.01", "--multirun trainer.lr=0.1,0.01"),
        ("seeds=0,1,2 name=x", "--multirun seed=0,1,2 name=x"),
        ("seed=range(3)", "--multirun 'seed=range(3)'"),
        ("-m lerner=gem,ewc", "-m learner=gem,ewc"),
        ("logger=wandb,csv", "'logger=[wandb,csv]'"),
        ("learner=[gem,ewc] seed=1", "--multirun learner=gem,ewc seed=1"),
        ("-m learner=[gem,ewc]", "--multirun learner=gem,ewc"),
        ("stream=[split]", "stream=split"),
        ("device=cuda", "trainer.accelerator=cuda"),
        ("--cofig-dir=x seed=3", "--config-dir=x seed=3"),
        ("--cofig-dir x seed=3", "--config-dir=x seed=3"),
        ("+seed=1", "seed=1"),
        ("learner=gem learner=ecw", "learner=gem learner=ewc"),
    ],
)
def test_the_answer_is_two_lines_of_which_one_is_the_whole_command(
    arguments: str, answer: str, capsys: pytest.CaptureFixture
) -> None:
    first, second = said(capsys, *arguments.split(" "))
    assert "Did you mean " in first
    assert second == f"  python -m cl_lightning {answer}"
    kept = [each for each in shlex.split(answer) if "=" in each and names.first_of_a_sweep(each) == each]
    kept = [each for each in kept if not each.startswith("--")]
    compose_config(*kept)


WRITTEN = "arguments are group=choice or key=value, without spaces; see --help."
NO_KEY = "is not a key here. --cfg job shows all keys."


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        ("seed 3", WRITTEN),
        ("learner = ewc", WRITTEN),
        ("learner: ewc", WRITTEN),
        ("seed=1 2", WRITTEN),
        ("run", WRITTEN),
        ("seed==3", WRITTEN),
        ("lr=[0.1", WRITTEN),
        ("--seed", "unrecognized arguments: --seed"),
        ("hidden=256", NO_KEY),
        ("gpu=true", NO_KEY),
        ("learner.lambda=1", NO_KEY),
        ("selection.grid.quux=[1]", "A new one is added with a plus: +selection.grid.quux=..."),
        (
            "trainer.lightning={profiler:simple}",
            "They are added with a plus: '+trainer.lightning={profiler:simple}'",
        ),
        ("logger.foo.bar=1", "A new one is added with a plus: +logger.foo.bar=..."),
        ("tasks=3", "a number of tasks is for stream=split, permuted or rotated."),
        ("-m tasks=3,4", "a number of tasks is for stream=split, permuted or rotated."),
        ("stream.tasks=3", "a number of tasks is for stream=split, permuted or rotated."),
        (
            "foo=0,1",
            "that is a sweep, and this is a single run. A sweep needs --multirun.",
        ),
        ("+experiment=gem", "Did you mean gem_memory or gem_passes or gem_permutations or gem_rotations or "),
        ("+experiment=ctrl_long +experiment=ctrl_minus", "experiment is chosen twice. Leave one out."),
        ("--config-dir=nowhere", "--config-dir=nowhere is not there."),
        ("--config-dir nowhere learners", "--config-dir=nowhere is not there."),
    ],
)
def test_where_no_command_is_sure_to_be_meant_none_is_offered(
    arguments: str, answer: str, capsys: pytest.CaptureFixture
) -> None:
    text = "\n".join(said(capsys, *arguments.split(" ")))
    assert answer in text
    assert "python -m" not in text
    assert ("added with a plus" in text) == ("added with a plus" in answer)


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


def test_a_command_can_be_copied_into_a_shell(capsys: pytest.CaptureFixture) -> None:
    *_, command = said(capsys, "name=a b", "lr=[0.1, 0.2]")
    assert shlex.split(command)[3:] == ["name=a b", "selection.grid.lr=[0.1, 0.2]"]


def test_where_nothing_is_near_the_answer_says_what_lists_the_choices(capsys: pytest.CaptureFixture) -> None:
    assert said(capsys, "learner=icarl") == [
        "learner=icarl is not there. python -m cl_lightning learners lists what is."
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
        files = sorted((Path(names.conf_dir()) / group).glob("*.yaml"))
        assert [line.strip("* ").split()[0] for line in lines] == [file.stem for file in files]
        for line, file in zip(lines, files):
            comment = next(t for t in file.read_text().splitlines() if t.startswith("# ") and "@" not in t)
            assert line.endswith(comment[2:])


def test_the_version_is_the_programs_own(capsys: pytest.CaptureFixture) -> None:
    import cl_lightning

    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"cl_lightning {cl_lightning.__version__}\n"
