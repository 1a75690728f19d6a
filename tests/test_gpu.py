"""What only a machine with GPUs can show: ``pytest tests/test_gpu.py`` there."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from tests.commands import but_what_may_differ, run
from tests.engine import test_on_meta

pytestmark = [
    pytest.mark.all,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU that CUDA knows"),
]
GPU = ("trainer.accelerator=cuda", "stream.tasks=3", "trainer.block=2", "trainer.checkpoint_minutes=0")
GRID = ("selection.grid.lr=[0.001,0.01]", "selection.grid.weight_decay=[0.0,0.001]")
LEARNERS = {
    "finetune": GRID,
    "mntdp_d": GRID,
    "ewc": (*GRID, "learner.fisher=sample"),
    "online_ewc": GRID,
    "si": GRID,
    "lwf": GRID,
    "er": GRID,
    "joint": GRID,
    "independent": GRID,
    "new_head": GRID,
    "new_leg": GRID,
    "multimodal": GRID,
    "pnn": GRID,
    "hat": GRID,
    "gem": ("selection=none",),
    "agem": ("selection=none",),
}


@pytest.mark.parametrize("name", LEARNERS)
def test_a_killed_run_ends_as_one_that_was_not(name: str, tmp_path: Path) -> None:
    options = (*GPU, f"learner={name}", *LEARNERS[name])
    whole = but_what_may_differ(run(tmp_path / "whole", *options))
    code = (
        "from pathlib import Path; from tests.commands import run; from tests.dying import dying; "
        f"dying('block:5', lambda: run(Path({str(tmp_path / 'cut')!r}), *{options!r}))"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == -signal.SIGKILL
    assert but_what_may_differ(run(tmp_path / "cut", *options)) == whole


@contextmanager
def no_waiting() -> Iterator[None]:
    """CUDA refuses what would have the CPU wait for it."""
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("name", sorted(test_on_meta.LEARNERS.keys() - test_on_meta.READS))
def test_no_step_waits_for_the_gpu(name: str) -> None:
    learner = test_on_meta.after_one_task(name)
    test_on_meta.one_step_on(learner, torch.device("cuda", 0), no_waiting())


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="there is one GPU")
@pytest.mark.parametrize("name", ["finetune", "mntdp_d", "ewc"])
def test_two_gpus_end_as_one(name: str, tmp_path: Path) -> None:
    options = (*GPU, f"learner={name}", *LEARNERS[name])
    one = but_what_may_differ(run(tmp_path / "one", *options))
    assert but_what_may_differ(run(tmp_path / "two", *options, "trainer.devices=2")) == one


def test_bf16_trains_on_the_gpu(tmp_path: Path) -> None:
    results = run(tmp_path, *GPU, *GRID, "trainer.precision=bf16-mixed")
    assert results["metrics"]["average_accuracy"] > 0.3
