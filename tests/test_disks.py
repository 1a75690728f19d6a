"""Disks that are full, read-only or have a file where a folder belongs: a sentence that says where, and
nothing is lost."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cl_lightning.cli.report import main as report
from tests.commands import but_what_may_differ, command, finished, results_in
from tests.disks import arguments_in, trouble, whole

KINDS = ("train_x.npy", "logs.csv", "inside", "tasks/001.pt")  # all: python -m tests.soak --disks


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], dict]:
    return whole(tmp_path_factory.mktemp("whole"))


@pytest.mark.parametrize(
    "kind", [*KINDS[2:], *(pytest.param(kind, marks=pytest.mark.all) for kind in KINDS[:2])]
)
def test_a_full_disk_is_a_sentence_and_with_space_the_run_goes_on(
    kind: str, undisturbed: tuple[list[str], dict], tmp_path: Path
) -> None:
    opened, expected = undisturbed
    first = next(number for number, name in enumerate(opened) if kind in name)
    assert trouble(tmp_path, first, expected) == ""


@contextmanager
def mounted(folder: Path, options: str) -> Iterator[None]:
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def can_mount() -> bool:
    return os.name == "posix" and os.geteuid() == 0 and Path("/proc/filesystems").exists()


@pytest.mark.skipif(not can_mount(), reason="only root can mount a small disk")
def test_a_run_goes_on_when_its_small_disk_was_made_larger(
    undisturbed: tuple[list[str], dict], tmp_path: Path
) -> None:
    arguments = arguments_in(tmp_path / "runs", f"cache={tmp_path / 'cache'}")
    (tmp_path / "runs").mkdir()
    with mounted(tmp_path / "runs", "size=64k"):
        for more in (80, 120):  # it may be full again
            told = command(*arguments, check=False)
            assert told.returncode == 2
            assert f"{tmp_path / 'runs'}" in told.stderr
            assert "the disk is full. Free some space" in told.stderr
            remount = ["mount", "-o", f"remount,size={more}k", str(tmp_path / "runs")]
            subprocess.run(remount, check=True)
        subprocess.run(["mount", "-o", "remount,size=10m", str(tmp_path / "runs")], check=True)
        command(*arguments)
        assert but_what_may_differ(results_in(tmp_path)) == undisturbed[1]


@pytest.mark.parametrize("which", ["outputs", "cache"])
def test_a_folder_that_is_read_only_is_named(which: str, tmp_path: Path) -> None:
    folder = tmp_path / "closed"
    folder.mkdir()
    arguments = [*arguments_in(tmp_path / "open"), f"{which}={folder}"]
    if not can_mount():
        folder.chmod(0o500)
        told = command(*arguments, check=False)
    else:  # root may write wherever the disk allows it
        with mounted(folder, "ro"):
            told = command(*arguments, check=False)
    assert told.returncode == 2
    assert told.stderr.startswith(str(folder))
    assert "Choose another folder with outputs= or cache=" in told.stderr


@pytest.mark.parametrize("where", [".", "quickstart", "cache", "work"])
def test_a_file_where_a_folder_belongs_is_named(
    where: str, undisturbed: tuple[list[str], dict], tmp_path: Path
) -> None:
    run = next(Path(name).parent for name in undisturbed[0] if name.endswith("run.json.building"))
    place = tmp_path / "top" / (run / where if where == "work" else where)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text("mine")
    told = command(*arguments_in(tmp_path / "top"), check=False)
    assert told.returncode == 2, told.stdout
    assert str(place) in told.stderr
    assert "a file" in told.stderr
    assert place.read_text() == "mine"
    if where == "work":
        place.unlink()
        command(*arguments_in(tmp_path / "top"))


def test_a_page_that_cannot_be_written_is_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    (tmp_path / "file").touch()
    finished(tmp_path / "runs")
    assert report([str(tmp_path / "runs"), "--html", str(tmp_path / "file" / "page.html")]) == 2
    assert str(tmp_path / "file") in capsys.readouterr().err
