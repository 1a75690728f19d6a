"""A stream is a function and its YAML."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cl_lightning.cli.command import main

RECIPE = '''
import torch

from cl_lightning.data.streams.recipes import PLAIN, Sizes, recipe, transformed


@recipe
def mirrored(images, seed: int, tasks: int, head="domain", show=PLAIN):
    """Every second task is mirrored, left to right."""
    height, width = images.train.x.shape[-2:]
    pixels = torch.arange(height * width).reshape(height, width)
    sizes = Sizes(200, 50, 50, False, "error")
    return transformed("mirrored", images, seed, tasks, sizes, head, show, lambda i: f"mirrored {i % 2}",
                       lambda i: (pixels.flip(1) if i % 2 else pixels).flatten(), permutes=False)
'''
CHOICE = """# Every second task is mirrored
defaults:
  - show: plain
  - _self_
_target_: my_stream.mirrored
source: mnist
seed: ${seed}
tasks: 3
"""


def test_a_function_and_a_yaml_file_are_a_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_stream.py").write_text(RECIPE)
    (tmp_path / "own" / "stream").mkdir(parents=True)
    (tmp_path / "own" / "stream" / "mirrored.yaml").write_text(CHOICE)
    monkeypatch.syspath_prepend(str(tmp_path))
    small = ["learner=finetune", "trainer.max_epochs=1", "progress=false", "figures=false", "logger=none"]
    drawn = ["data.sources.mnist.train=1000", "data.sources.mnist.test=200", f"outputs={tmp_path / 'out'}"]
    assert main(["--config-dir", str(tmp_path / "own"), "stream=mirrored", *small, *drawn]) == 0
    (path,) = tmp_path.glob("out/*/finetune/*/results.json")
    results = json.loads(path.read_text())
    assert [task["name"] for task in results["stream"]["tasks"]] == ["mirrored 0", "mirrored 1", "mirrored 0"]
    assert results["metrics"]["average_accuracy"] is not None
