"""Streams of one's own: what their tasks may not be is said before anything is learned."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf

from cl_lightning.data.streams.stream import Recipe, Stream
from cl_lightning.data.task import Head
from cl_lightning.errors import Refusal
from cl_lightning.randomness import rng
from tests import toys
from tests.commands import SMALL, configure

IMAGES = toys.images()  # 400 and 200 of four classes in turn


def mine(make: Callable[[int], Any]) -> Stream:
    return Stream("mine", (IMAGES,), Head("domain", 4, ((0, 1, 2, 3),) * 2), make, seed=0)


def a_recipe(index: int = 0, **changed: Any) -> Recipe:
    """Training rows class after class, the last class first."""
    train = torch.cat([torch.arange(c, 40, 4) for c in (3, 2, 1, 0)])
    whole = Recipe(
        "one", tuple("abcd"), train, torch.arange(40, 60), torch.arange(200), torch.arange(4), None
    )
    return replace(whole, **changed)


def test_rows_keep_their_own_order() -> None:
    recipe, task = a_recipe(), mine(a_recipe).task(0)
    assert torch.equal(task.train.x, IMAGES.train.x[recipe.train] / 255)
    assert task.train.y.tolist() == [c for c in (3, 2, 1, 0) for _ in range(10)]
    assert torch.equal(task.val.x, IMAGES.train.x[40:60] / 255)


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"val": torch.arange(0)},
        {"train": torch.arange(8, dtype=torch.int32)},
        {"train": torch.arange(0, 40, 4), "val": torch.arange(0), "test": torch.arange(0, 200, 4)},
    ],
)
def test_what_may_be(changed: dict) -> None:
    s = mine(lambda index: a_recipe(**changed))
    assert len(s.task(0).train) == len(changed.get("train", range(40)))
    assert s.test(1).y[0] == 0


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"val": torch.arange(39, 60)}, "train and val share rows. Validation must be of examples that are"),
        ({"train": torch.arange(0)}, "train is empty. It must have at least one row"),
        ({"test": torch.arange(0)}, "test is empty. It must have at least one row"),
        ({"train": [0, 1, 2, 3]}, "train must be a row of whole numbers: torch.tensor"),
        ({"val": torch.arange(4.0)}, "val must be a row of whole numbers"),
        ({"test": torch.arange(4)[None]}, "test must be a row of whole numbers"),
        ({"train": torch.ones(400, dtype=torch.bool)}, "train must be a row of whole numbers"),
        ({"label_of_class": [0, 1, 2, 3]}, "label_of_class must be a row of whole numbers"),
        (
            {"label_of_class": torch.arange(3)},
            "label_of_class must have one output for each of the 4 classes",
        ),
        ({"train": torch.tensor([0, 400])}, "train has rows that toy has not. They go from 0 to 399"),
        ({"test": torch.tensor([0, 200])}, "test has rows that toy has not. They go from 0 to 199"),
        ({"val": torch.tensor([-1])}, "val has rows that toy has not. They go from 0 to 399"),
        (
            {"label_of_class": torch.tensor([0, 1, 2, 4])},
            r"train has labels \[0, 1, 2, 4\], but its outputs are \[0, 1, 2, 3\]",
        ),
        ({"label_of_class": torch.tensor([0, 1, 2, -1])}, r"train has labels \[-1, 0, 1, 2\]"),
        (
            {"train": torch.arange(0, 40, 4), "label_of_class": torch.tensor([0, -1, -1, -1])},
            r"val has labels \[-1, 0\]",
        ),
    ],
)
def test_what_may_not_be(changed: dict, says: str) -> None:
    s = mine(lambda index: a_recipe(**(changed if index else {})))
    s.task(0)
    for look in (s.task, s.test, s.print_of, s.recipe):
        with pytest.raises(Refusal, match=f"Task 1 of the stream mine: {says}"):
            look(1)


def test_outputs_that_the_head_has_not_are_no_labels() -> None:
    s = replace(mine(a_recipe), head=Head("domain", 3, ((0, 1, 2, 3),)))
    with pytest.raises(Refusal, match=r"train has labels \[0, 1, 2, 3\], but its outputs are \[0, 1, 2\]"):
        s.task(0)


@pytest.mark.parametrize("made", [None, (1, 2), {"train": 3}])
def test_what_is_no_recipe(made: Any) -> None:
    with pytest.raises(Refusal, match=r"stream mine: make\(0\) returns .*It must return a Recipe"):
        mine(lambda index: made).describe()


FIRST_COME = torch.Generator().manual_seed(0)
UNSEEDED = {
    "torch's global generator": lambda index: a_recipe(train=torch.randperm(40)),
    "NumPy's": lambda index: a_recipe(train=torch.from_numpy(np.random.default_rng().permutation(40))),
    "one generator for all tasks": lambda index: a_recipe(train=torch.randperm(40, generator=FIRST_COME)),
    "of validation alone": lambda index: a_recipe(val=40 + torch.randperm(20)),
    "of pixels alone": lambda index: a_recipe(pixels=torch.randperm(36)),
}


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("make", UNSEEDED.values(), ids=UNSEEDED)
def test_a_task_that_is_another_each_time_it_is_made(make: Callable, kept: bool) -> None:
    with pytest.raises(
        Refusal, match=r"mine: make\(0\) gives other rows each time. Draw with a new rng\(seed"
    ):
        mine(lru_cache(make) if kept else make).task(0)


def test_rows_drawn_with_a_key_may_be_kept_or_made_again() -> None:
    def make(index: int) -> Recipe:
        return a_recipe(train=torch.randperm(40, generator=rng(0, "mine", index)))

    for each in (make, lru_cache(make)):
        assert len(mine(each).task(1).train) == 40


def test_a_stream_with_another_make_is_looked_at_again() -> None:
    s = mine(a_recipe)
    s.task(0)
    with pytest.raises(Refusal, match="train is empty"):
        replace(s, make=lambda index: a_recipe(train=torch.arange(0))).task(0)


def test_a_run_says_it_before_it_learns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from cl_lightning.runs.run import run

    (tmp_path / "said_streams.py").write_text(
        "from cl_lightning.data.streams.stream import Stream\n"
        "from cl_lightning.data.task import Head\n\n\n"
        "def mine(images, seed, show):\n"
        "    return Stream('mine', (images,), Head('domain', 10, (tuple(range(10)),)), print, seed)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    cfg = configure(f"outputs={tmp_path}", *SMALL)
    cfg.stream = OmegaConf.create(
        {"_target_": "said_streams.mine", "source": "mnist", "seed": 0, "name": "mine"}
    )
    with pytest.raises(Refusal, match=r"Task 0 of the stream mine: make\(0\) returns None\."):
        run(cfg, [])
    assert not list(tmp_path.rglob("tasks/*"))
