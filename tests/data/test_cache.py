"""Decoded once for all, seen whole or not at all."""

import json
import multiprocessing
import os
import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hydra.types import RunMode

from cl_lightning.data.sources.cache import Images, open_images, shape_in
from cl_lightning.errors import Refusal
from tests.dying import in_a_child


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
    first, second = (
        open_images("toy", source, tmp_path / "cache"),
        open_images("toy", source, tmp_path / "cache"),
    )
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
    place = next(
        p
        for p in [open_images("toy", source, tmp_path / "cache")]
        for p in (tmp_path / "cache").iterdir()
        if p.is_dir()
    )
    (place / "meta.json").rename(place / "gone")  # as if it had been killed before the end
    assert open_images("toy", source, tmp_path / "cache").train.x.max() == 7
    assert (tmp_path / "log").read_text() == "decoded\n" * 2


class Killed(Counted):
    """A source whose process is killed while it decodes."""

    def decode(self) -> dict[str, torch.Tensor]:
        os.kill(os.getpid(), signal.SIGKILL)
        return super().decode()


def test_a_half_written_folder_of_a_killed_process_is_removed_when_images_are_made(
    tmp_path: Path,
) -> None:
    source, cache = Counted(tmp_path / "log"), tmp_path / "cache"
    assert in_a_child(lambda: open_images("toy", Killed(tmp_path / "log"), cache)) == -signal.SIGKILL
    (half,) = cache.glob("*.building")
    (half / "train_x.npy").write_bytes(b"half of it")
    assert open_images("toy", source, cache).train.x.max() == 7
    assert not list(cache.glob("*.building"))


def test_writing_to_the_images_does_not_reach_the_disk(tmp_path: Path) -> None:
    source = Counted(tmp_path / "log")
    open_images("toy", source, tmp_path).train.x.zero_()
    assert open_images("toy", source, tmp_path).train.x.max() == 7


def entry_of(cache: Path) -> Path:
    return next(path.parent for path in cache.glob("*/meta.json"))


def content_of(images: Images) -> tuple:
    pools = [(pool.x.tolist(), pool.y.tolist()) for pool in (images.train, images.test)]
    return images.classes, images.digest, pools


def flipped(content: bytes) -> bytes:
    return content[:-3] + bytes([content[-3] ^ 1]) + content[-2:]


def other(key: str, value: object) -> Callable[[bytes], bytes]:
    return lambda content: json.dumps(json.loads(content) | {key: value}).encode()


DAMAGES = {
    **{f"{name} {how}": (name, change) for name in ("train_x.npy", "test_y.npy") for how, change in {
        "emptied": lambda _: b"", "cut": lambda content: content[:-3], "flipped": flipped,
    }.items()},
    **{f"meta.json {text}": ("meta.json", lambda _, text=text: text.encode()) for text in
       ("[]", "3", "null", '"classes"', "{}", "", "{")},
    **{f"{key} {value}": ("meta.json", other(key, value)) for key, value in
       (("classes", None), ("classes", ["b", "a"]), ("classes", ["a"]), ("digest", None),
        ("digest", "0" * 64))},
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_entry_is_found_and_made_again_also_where_age_and_length_are_kept(
    damage: str, tmp_path: Path
) -> None:
    source, (name, change) = Counted(tmp_path / "log"), DAMAGES[damage]
    images = open_images("toy", source, tmp_path / "cache")
    before, folder = content_of(images), entry_of(tmp_path / "cache")
    file, times = folder / name, ((folder / name).stat().st_atime_ns, (folder / name).stat().st_mtime_ns)
    file.write_bytes(change(file.read_bytes()))
    os.utime(file, ns=times)
    with pytest.warns(UserWarning, match="is damaged: its images are made again"):
        after = open_images("toy", source, tmp_path / "cache")
    assert content_of(after) == before
    assert content_of(open_images("toy", source, tmp_path / "cache")) == before
    assert (tmp_path / "log").read_text() == "decoded\n" * 2


def test_a_shape_that_cannot_be_read_is_not_known(tmp_path: Path) -> None:
    open_images("toy", Counted(tmp_path / "log"), tmp_path / "cache")
    folder = entry_of(tmp_path / "cache")
    assert shape_in(folder) == (1, 2, 2)
    (folder / "train_x.npy").write_bytes(b"")
    assert shape_in(folder) == ()


class Uneven(Counted):
    """Images of several sizes."""

    def __init__(self, log: Path, side: int | None) -> None:
        super().__init__(log)
        self.side = side

    def decode(self) -> dict:
        x = [
            torch.full((3, height, width), 9, dtype=torch.uint8)
            for height, width in ((40, 60), (50, 41), (32, 32), (33, 90))
        ]
        return super().decode() | {"train_x": x, "test_x": x}


def test_images_of_several_sizes_are_brought_to_the_sources_side(tmp_path: Path) -> None:
    images = open_images("toy", Uneven(tmp_path / "log", side=32), tmp_path)
    assert images.train.x.shape == images.test.x.shape == (4, 3, 32, 32)
    assert images.train.x.unique().tolist() == [9]


def test_another_side_is_another_entry(tmp_path: Path) -> None:
    small, large = (open_images("toy", Uneven(tmp_path / "log", side), tmp_path) for side in (16, 32))
    assert (small.shape, large.shape) == ((3, 16, 16), (3, 32, 32))


def test_images_of_several_sizes_without_a_side_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="Uneven gives images of 4 different shapes and has no side"):
        open_images("toy", Uneven(tmp_path / "log", side=None), tmp_path)


def opened(folder: Path) -> int:
    return int(open_images("toy", Counted(folder / "log"), folder / "cache").train.x.sum())


@pytest.mark.all
def test_processes_that_start_together_decode_once(tmp_path: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        assert pool.map(opened, [tmp_path] * 4) == [4 * 4 * 7] * 4
    assert (tmp_path / "log").read_text() == "decoded\n"


def test_the_entry_says_what_it_is_made_of(tmp_path: Path) -> None:
    open_images("toy", Counted(tmp_path / "log"), tmp_path / "cache")
    meta = json.loads(next((tmp_path / "cache").glob("*/meta.json")).read_text())
    assert meta["identity"] == {"value": 7}
    assert meta["classes"] == ["a", "b"]


@pytest.mark.parametrize("mode", RunMode)
def test_a_run_and_a_job_of_a_sweep_say_once_that_images_are_made(
    mode: RunMode, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cl_lightning.config.build import build_sources
    from tests.commands import configure

    hydra = SimpleNamespace(initialized=lambda: True, get=lambda: SimpleNamespace(mode=mode))
    monkeypatch.setattr("cl_lightning.selection.sweep.HydraConfig", hydra)

    def said(*more: str) -> str:
        cfg = configure(
            "data.sources.mnist.train=20", "data.sources.mnist.test=20", f"cache={tmp_path}", *more
        )
        build_sources(cfg)["mnist"]
        return capsys.readouterr().err

    assert said("progress=true") == (f"Making the images of mnist: once, then they are kept in {tmp_path}.\n")
    assert said("progress=true") == ""
