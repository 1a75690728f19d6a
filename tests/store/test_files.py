"""Records: each there whole or not at all, and each its run's and its key's."""

from __future__ import annotations

import errno
import os
import zlib
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch

from cl_lightning.store import files
from cl_lightning.store.atomic import write_whole
from cl_lightning.store.files import Store, write_tensors


@dataclass(frozen=True)
class Inner:
    a: int
    b: float | None = None


@dataclass(frozen=True)
class Outer:
    name: str
    inner: list[Inner]
    more: dict[str, list[int]] = field(default_factory=dict)


RECORD = Outer("x", [Inner(1, 0.1), Inner(2)], {"k": [1, 2]})
TENSORS = {"weights": torch.arange(3.0), "list": [1, "a", None]}


def save(store: Store, key: str = "tasks/003") -> None:
    store.save(key, RECORD, store.save_tensors(key, TENSORS))


def test_a_record_comes_back_as_it_was_with_its_types(tmp_path: Path) -> None:
    save(Store(tmp_path, "run"))
    again = Store(tmp_path, "run")
    assert again.load("tasks/003", Outer) == RECORD
    assert torch.equal(again.tensors("tasks/003")["weights"], TENSORS["weights"])
    assert again.tensors("tasks/003")["list"] == TENSORS["list"]
    assert sorted(path.name for path in (tmp_path / "tasks").iterdir()) == ["003.json", "003.pt"]


def test_floats_come_back_to_the_bit(tmp_path: Path) -> None:
    value = 0.1 + 0.2
    Store(tmp_path, "run").save("x", Inner(1, value))
    assert Store(tmp_path, "run").load("x", Inner).b == value


def test_what_is_missing_is_none_without_a_warning(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    store = Store(tmp_path, "run")
    assert store.load("x", Inner) is None
    assert store.saved("x") is None
    assert not recwarn.list


def test_every_changed_byte_of_a_record_is_noticed_or_changes_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path, "run")
    save(store)
    path = tmp_path / "tasks" / "003.json"
    whole, expected = path.read_bytes(), files.content_of(path)
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        content = files.content_of(path)
        assert content is None or content == expected


def test_a_changed_byte_anywhere_in_the_tensors_is_noticed(tmp_path: Path) -> None:
    store = Store(tmp_path, "run")
    save(store)
    path = tmp_path / "tasks" / "003.pt"
    whole = path.read_bytes()
    assert store.saved("tasks/003") is not None
    for place in range(0, len(whole), 7):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.warns(UserWarning, match="damaged"):
            assert store.saved("tasks/003") is None


@pytest.mark.parametrize("other", ["run", "key"])
def test_a_record_of_another_run_or_key_is_not_taken(other: str, tmp_path: Path) -> None:
    there = Store(tmp_path / "there", "other" if other == "run" else "run")
    save(there, "tasks/003" if other == "run" else "tasks/004")
    (tmp_path / "here" / "tasks").mkdir(parents=True)
    (there.folder / "tasks" / ("003.json" if other == "run" else "004.json")).rename(
        tmp_path / "here" / "tasks" / "003.json"
    )
    with pytest.warns(UserWarning, match="from another place or run"):
        assert Store(tmp_path / "here", "run").load("tasks/003", Outer) is None


def test_work_is_done_once_and_again_where_its_record_or_its_tensors_are_damaged(
    tmp_path: Path, monkeypatch
) -> None:
    store, done = Store(tmp_path, "run"), []

    def work() -> tuple[Outer, dict]:
        done.append(1)
        return RECORD, TENSORS

    for _ in range(2):
        assert store.get_or_make("x", Outer, work) == RECORD
    assert len(done) == 1
    for name in ("x.json", "x.pt"):
        (tmp_path / name).write_bytes(b"")
        with pytest.warns(UserWarning, match="damaged"):
            store.get_or_make("x", Outer, work)
    assert len(done) == 3
    read, original = [], files.content_of
    monkeypatch.setattr(files, "content_of", lambda path: read.append(path) or original(path))
    store.get_or_make("x", Outer, work)
    assert len(done) == 3
    assert len(read) == 1, "a record is read once"


def test_what_goes_wrong_while_a_file_is_written_leaves_the_old_one_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("old")
    with pytest.raises(ZeroDivisionError), write_whole(tmp_path / "x") as building:
        building.write_text("new")
        1 / 0  # noqa: B018
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("x", "old")]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device here that is always full")
@pytest.mark.parametrize("size", [10, 1_000_000])
def test_a_full_disk_is_an_error_of_the_disk_whatever_torch_makes_of_it(size: int) -> None:
    with pytest.raises(OSError, match="No space left") as error:
        write_tensors({"x": torch.zeros(size)}, Path("/dev/full"))
    assert error.value.errno == errno.ENOSPC


def test_an_error_that_is_not_the_disks_stays_what_it_is(tmp_path: Path) -> None:
    class Broken:
        def __reduce__(self):
            raise RuntimeError("of its own")

    with pytest.raises(RuntimeError, match="of its own"):
        write_tensors({"x": Broken()}, tmp_path / "x.pt")


def test_dropping_takes_a_record_its_tensors_or_a_whole_folder(tmp_path: Path) -> None:
    store = Store(tmp_path, "run")
    for key in ("work/a", "work/inside/phase", "tasks/000"):
        save(store, key)
    store.drop("work")
    assert sorted(os.listdir(tmp_path)) == ["tasks"]
    store.drop("tasks/000")
    assert not list((tmp_path / "tasks").iterdir())


def test_the_sum_of_what_is_written_is_the_files(tmp_path: Path) -> None:
    saved = Store(tmp_path, "run").save_tensors("x", {"x": torch.arange(300_000)})
    content = (tmp_path / "x.pt").read_bytes()
    assert (saved.bytes, saved.crc) == (len(content), f"{zlib.crc32(content):08x}")
