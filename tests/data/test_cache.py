"""Decoded once for all, seen whole or not at all."""

import json
import multiprocessing
from pathlib import Path

import pytest
import torch

from cl_lightning.data.cache import open_images


class Counted:
    """A source that notes each decoding in a file."""

    classes = ("a", "b")

    def __init__(self, log: Path, value: int = 7) -> None:
        self.log, self.value = log, value

    def identity(self) -> dict:
        return {"value": self.value}

    def decode(self) -> dict[str, torch.Tensor]:
        with self.log.open("a") as file:
            file.write("decoded\n")
        x, y = torch.full((4, 1, 2, 2), self.value, dtype=torch.uint8), torch.tensor([0, 1, 0, 1])
        return {"train_x": x, "train_y": y, "test_x": x + 1, "test_y": y}


def test_a_second_opening_decodes_nothing_and_gives_the_same(tmp_path: Path) -> None:
    source = Counted(tmp_path / "log")
    first, second = open_images("toy", source, tmp_path / "cache"), open_images("toy", source, tmp_path / "cache")
    assert (tmp_path / "log").read_text() == "decoded\n"
    assert torch.equal(first.train.x, second.train.x)
    assert first.digest == second.digest


def test_another_identity_is_another_entry(tmp_path: Path) -> None:
    first, second = (open_images("toy", Counted(tmp_path / "log", value), tmp_path) for value in (7, 8))
    assert first.digest != second.digest
    assert first.train.x.max() == 7
    assert second.train.x.max() == 8


def test_what_a_killed_process_left_is_not_taken_for_data(tmp_path: Path) -> None:
    source = Counted(tmp_path / "log")
    place = next(p for p in [open_images("toy", source, tmp_path / "cache")] for p in (tmp_path / "cache").iterdir() if p.is_dir())
    (place / "meta.json").rename(place / "gone")  # as if it had been killed before the end
    assert open_images("toy", source, tmp_path / "cache").train.x.max() == 7
    assert (tmp_path / "log").read_text() == "decoded\n" * 2


def test_writing_to_the_images_does_not_reach_the_disk(tmp_path: Path) -> None:
    source = Counted(tmp_path / "log")
    open_images("toy", source, tmp_path).train.x.zero_()
    assert open_images("toy", source, tmp_path).train.x.max() == 7


@pytest.mark.parametrize("damage", [lambda content: content[:-3], lambda content: content[:-3] + bytes([content[-3] ^ 1]) + content[-2:]])
def test_a_damaged_entry_is_made_again(damage, tmp_path: Path) -> None:
    source = Counted(tmp_path / "log")
    open_images("toy", source, tmp_path / "cache")
    file = next((tmp_path / "cache").glob("*/train_x.npy"))
    file.write_bytes(damage(file.read_bytes()))
    with pytest.warns(UserWarning, match="is damaged: its images are made again"):
        assert open_images("toy", source, tmp_path / "cache").train.x.shape == (4, 1, 2, 2)


def opened(folder: Path) -> int:
    return int(open_images("toy", Counted(folder / "log"), folder / "cache").train.x.sum())


def test_processes_that_start_together_decode_once(tmp_path: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        assert pool.map(opened, [tmp_path] * 4) == [4 * 4 * 7] * 4
    assert (tmp_path / "log").read_text() == "decoded\n"


def test_the_entry_says_what_it_is_made_of(tmp_path: Path) -> None:
    open_images("toy", Counted(tmp_path / "log"), tmp_path / "cache")
    meta = json.loads(next((tmp_path / "cache").glob("*/meta.json")).read_text())
    assert meta["identity"] == {"value": 7}
    assert meta["classes"] == ["a", "b"]
