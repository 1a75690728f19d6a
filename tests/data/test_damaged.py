"""Damaged data: a sentence or a run, soon, and no program is started."""

from __future__ import annotations

import random
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.commands import SMALL, command
from tests.report.test_reading import DAMAGES

OWN = (
    *SMALL, "stream.tasks=2", "stream.n_train=20", "stream.n_val=0", "selection=none", "logger=none",
    "trainer.patience=null",
)  # fmt: skip
BYTES = ("cut", "a byte", "nothing", "binary")


def arrays(folder: Path) -> str:
    draw = np.random.default_rng(0)
    of = {"train": 60, "test": 20}
    x = {f"{part}_x": draw.integers(0, 255, (n, 1, 8, 8), dtype=np.uint8) for part, n in of.items()}
    y = {f"{part}_y": np.arange(n) % 4 for part, n in of.items()}
    np.savez(folder / "own.npz", **x, **y)
    return f"{{_target_: cl_lightning.data.sources.Arrays, file: {folder / 'own.npz'}}}"


def images(folder: Path) -> str:
    draw = np.random.default_rng(0)
    for part, n in (("train", 15), ("test", 5)):
        for name in "abcd":
            (folder / part / name).mkdir(parents=True)
            for i in range(n):
                picture = Image.fromarray(draw.integers(0, 255, (8, 8), dtype=np.uint8))
                picture.save(folder / part / name / f"{i}.png")
    return f"{{_target_: cl_lightning.data.sources.ImageFolder, folder: {folder}}}"


@pytest.mark.parametrize("make", [arrays, images])
@pytest.mark.parametrize("damages", [2, pytest.param(25, marks=pytest.mark.all)])
def test_whatever_file_of_a_data_set_is_damaged_a_run_says_so_soon(
    make, damages: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, original = [], subprocess.Popen.__init__
    monkeypatch.setattr(
        subprocess.Popen, "__init__", lambda self, *a, **k: (started.append(a[0]), original(self, *a, **k))[1]
    )
    refused = 0
    for seed in range(-1, damages):  # the first is whole
        folder = tmp_path / str(seed)
        folder.mkdir()
        target, rng = make(folder), random.Random(seed)
        damaged = rng.choice(sorted(path for path in folder.rglob("*") if path.is_file()))
        if seed >= 0:
            damaged.write_bytes(DAMAGES[rng.choice(BYTES)](damaged.read_bytes(), rng))
        began = time.process_time()
        told = command(
            *OWN, f"+data.sources.own={target}", "stream.source=own", f"outputs={tmp_path / 'runs'}",
            f"cache={folder / 'cache'}", "resume=false", check=False,
        )  # fmt: skip
        assert time.process_time() - began < 5
        words = told.stderr
        assert told.returncode in ((0, 2) if seed >= 0 else (0,)), words
        assert "Traceback" not in words
        if told.returncode:
            refused += 1
            assert "program itself" not in words, words
            assert str(folder) in words
    assert refused
    assert {program[0] for program in started} <= {"git", "uname"}  # which tell the version and machine
