"""``python -m cl_lightning.data``: list and show."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cl_lightning.data.__main__ import main
from cl_lightning.data.sources.hub import ParquetImages

SMALL = ("data=synthetic", "data.sources.mnist.train=400", "data.sources.mnist.test=100")


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A folder with 20 + 10 usps images, and a cache that is empty; room for a line a data set."""
    monkeypatch.setenv("COLUMNS", "200")
    for split, count in (("train", 2), ("test", 1)):
        for digit in range(10):
            place = tmp_path / "data" / "usps" / split / str(digit)
            place.mkdir(parents=True)
            for image in range(count):
                Image.fromarray(
                    np.full((4, 4), 20 * digit + 3 * image + (split == "test"), dtype=np.uint8)
                ).save(place / f"{image}.png")
    return ["data=real", f"data.root={tmp_path / 'data'}", f"cache={tmp_path / 'cache'}"]


def test_list_tells_what_there_is_and_decodes_nothing(
    own: list[str], tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch
) -> None:
    monkeypatch.setattr(ParquetImages, "decode", lambda _: pytest.fail("something was decoded"))
    assert main(["list", *own]) == 0
    rows = {line.split()[1]: line for line in capsys.readouterr().out.splitlines() if line.startswith("│")}
    assert all(word in rows["usps"] for word in ("10", "20", "no", str(tmp_path / "data")[:20]))
    assert all(word in rows["cifar100"] for word in ("100", "50000", "10000", "Hub: uoft-cs/cifar100@main"))
    assert "no Hub repository is known" in rows["devanagari"]


def test_list_without_a_choice_shows_stand_ins_and_real_sets(
    own: list[str], capsys: pytest.CaptureFixture, monkeypatch
) -> None:
    monkeypatch.delenv("CL_LIGHTNING_DATA", raising=False)
    assert main(["list", "mnist", own[2]]) == 0
    said = capsys.readouterr().out
    assert "drawn here" in said
    assert "Hub: ylecun/mnist@main" in said


def test_list_shows_the_shape_of_what_is_cached(
    own: list[str], tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    assert main(["show", "usps", *own, "--out", str(tmp_path / "usps.png")]) == 0
    assert main(["list", "usps", *own]) == 0
    assert "1x4x4 │ yes" in capsys.readouterr().out


def test_list_goes_on_behind_a_source_that_is_broken(own: list[str], capsys: pytest.CaptureFixture) -> None:
    broken = "data.sources.own={_target_: cl_lightning.data.sources.Arrays, file: nowhere.npz}"
    assert main(["list", *own, f"+{broken}"]) == 0
    said = capsys.readouterr().out
    assert "nowhere.npz is not there" in said
    assert "fruits20" in said


def test_show_draws_twelve_images_of_every_class(
    own: list[str], tmp_path: Path, monkeypatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["show", "mnist", *SMALL, own[2]]) == 0
    assert capsys.readouterr().out == "written: mnist.png\n"
    sheet = np.asarray(Image.open(tmp_path / "mnist.png").convert("RGB"))
    assert sheet.shape[0] == 10 * (28 * 2 + 2) + 2
    first = (tmp_path / "mnist.png").read_bytes()
    assert main(["show", "mnist", *SMALL, own[2], "--out", str(tmp_path / "again.png")]) == 0
    assert (tmp_path / "again.png").read_bytes() == first


def test_more_than_twenty_classes_take_more_pages(tmp_path: Path) -> None:
    np.savez(tmp_path / "many.npz",
    **{f"{split}_x": np.zeros((45, 4, 4), dtype=np.uint8) for split in ("train", "test")},
             **{f"{split}_y": np.arange(45) for split in ("train", "test")})  # fmt: skip
    many = f"+data.sources.many={{_target_: cl_lightning.data.sources.Arrays, file: {tmp_path / 'many.npz'}}}"
    assert main(["show", "many", many, f"cache={tmp_path}", "--out", str(tmp_path / "sheet.png")]) == 0
    assert sorted(path.name for path in tmp_path.glob("sheet*.png")) == [
        "sheet-2.png",
        "sheet-3.png",
        "sheet.png",
    ]


def test_the_picture_in_the_docs_is_small() -> None:
    assert (Path(__file__).parents[2] / "docs" / "images" / "synthetic.png").stat().st_size < 300_000


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["list", "mnst"], "no source 'mnst' here. Did you mean mnist"),
        (["show"], "show draws one source. Name it"),
        (["show", "mnist", "kmnist"], "show draws one source. Name it"),
        (["show", "usps", "data=synthetic"], "no source 'usps' here"),
        (
            ["show", "mnist", "data=real", "data.root=null"],
            "The images of 'mnist' are not on this machine",
        ),
        (["show", "dtd10", "data=real", "data.root=/nowhere"], "no repository of the Hub is known"),
        (["list", "data=nope"], "data=nope is not there"),
        (
            ["list", "data=real", "data.sources.mnist.side=0"],
            "data.sources.mnist.side=0 must be a whole number of at least 1",
        ),
        (
            ["list", "data=real", "data.sources.mnist.splits={train: 3}"],
            "must be a mapping of train and test to lists of names",
        ),
        (["draw"], "The command line cannot be read"),
        ([], "The command line cannot be read"),
        (["list", "--bogus"], "The command line cannot be read"),
    ],
)
def test_what_cannot_work_is_a_sentence_and_exit_code_2(
    arguments: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    assert main([*arguments, f"cache={tmp_path}"] if arguments else []) == 2
    said = capsys.readouterr()
    assert says in said.out + said.err
    assert "Traceback" not in said.err
    assert len(said.err.splitlines()) <= 5


def test_help_explains_the_commands_as_a_real_process() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "cl_lightning.data", "--help"], capture_output=True, text=True, check=True
    )
    assert all(word in result.stdout for word in ("list", "show NAME", "describe", "data=real", "--out"))
