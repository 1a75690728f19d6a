"""What MNTDP is for, on the drawn data: transfer where something can be gained, nothing lost elsewhere, less
memory.

CTrL's streams in small: linear layers, 28 x 28, three or four tasks. Numbers on real data stand in
docs/results/mntdp.md.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.commands import run

pytestmark = pytest.mark.slow

LARGE, FEW = "n_train: 2000, n_val: 300", "n_train: 100, n_val: 100"
BETWEEN = "{source: fashion_mnist, n_train: 200, n_val: 100}, {source: kmnist, n_train: 200, n_val: 100}"
FIRST_AND_LAST = {
    "minus": (f"{{source: mnist, {LARGE}}}", f"{{source: mnist, like: 0, {FEW}}}"),
    "out": (f"{{source: mnist, {LARGE}}}", f"{{source: mnist, like: 0, labels: shift, {FEW}}}"),
    "plus": (f"{{source: mnist, {FEW}}}", f"{{source: mnist, like: 0, {LARGE}}}"),
    "pl": (f"{{source: mnist, {FEW}}}", f"{{source: madbase, {LARGE}}}"),
}
SMALL = (
    "backbone.sizes=[100,100,100,100]",
    "selection=none",
    "stream.test_per_class=200",
    "trainer.evaluate=seen",
)
IMAGES = [
    f"data.sources.{name}.{split}"
    for name in ("mnist", "fashion_mnist", "kmnist", "madbase", "notmnist")
    for split in ("train=8000", "test=3000")
]
LONGER = (
    *IMAGES,
    "trainer.max_epochs=40",
    "trainer.patience=200",
    "trainer.score_at=[0]",
    "figures=false",
    "progress=false",
    "logger=none",
)


@cache
def learned(stream: str, seed: int, *overrides: str) -> dict[str, Any]:
    first, last = FIRST_AND_LAST[stream]
    tasks = f"stream.tasks=[{first}, {BETWEEN}, {last}]"
    with TemporaryDirectory() as folder:
        options = (
            "learner=mntdp_d",
            "stream=ctrl_short",
            tasks,
            f"seed={seed}",
            "reference=true",
            *SMALL,
            *LONGER,
            *overrides,
        )
        return run(Path(folder), *options, small=False)


@pytest.mark.parametrize(
    ("stream", "seed"),
    [
        ("minus", 0),
        pytest.param("minus", 1, marks=pytest.mark.all),
        pytest.param("out", 0, marks=pytest.mark.all),
        pytest.param("out", 1, marks=pytest.mark.all),
    ],
)
def test_few_examples_of_a_known_task_are_learned_with_its_modules(stream: str, seed: int) -> None:
    results = learned(stream, seed)
    first, *_, last = results["notes"]
    assert last["reused"] >= 1  # how many more is decided by a few of 100 validation images
    assert last["path"][0] == first["path"][0]  # the first task's module, whoever else re-uses it
    assert results["reference"]["transfer"] >= 0.14


@pytest.mark.all
@pytest.mark.parametrize("stream", ["plus", "pl"])
def test_where_nothing_is_to_be_gained_little_is_re_used_and_nothing_lost(stream: str) -> None:
    results = learned(stream, 0)
    assert results["notes"][-1]["reused"] <= 2
    assert -0.04 <= results["reference"]["transfer"] <= 0.05


@pytest.mark.all
def test_a_random_prior_finds_less_to_transfer() -> None:
    nearest, random = (
        [learned("minus", seed, *p)["reference"]["transfer"] for seed in (0, 1)]
        for p in ((), ("learner.prior=random",))
    )
    assert mean(random) <= mean(nearest) - 0.1


@pytest.mark.parametrize(
    "stream", ["minus", *(pytest.param(name, marks=pytest.mark.all) for name in ("plus", "out", "pl"))]
)
def test_nothing_is_forgotten(stream: str) -> None:
    assert learned(stream, 0)["metrics"]["forgetting"] == 0


@pytest.mark.all
def test_ten_drawn_tasks_are_learned_better_than_apart_and_in_less_memory(tmp_path: Path) -> None:
    """S_long in small: two data sets, 1500 or 50 examples a task."""
    drawn = (
        "stream.names=[mnist,notmnist]",
        "stream.large=[1500,250]",
        "stream.small=[50,50]",
        "stream.held_out=null",
    )
    stream = ("stream=ctrl_long", "stream/show=plain", "stream.show.val_copies=0", "stream.tasks=10", *drawn)
    gains = []
    for seed in (0, 1):
        modular, apart = (
            run(tmp_path, f"learner={learner}", f"seed={seed}", *stream, *SMALL, *LONGER, small=False)
            for learner in ("mntdp_d", "independent")
        )
        gains.append(modular["metrics"]["average_accuracy"] - apart["metrics"]["average_accuracy"])
        assert modular["costs"][-1]["published_memory"] <= 0.8 * apart["costs"][-1]["published_memory"]
        assert modular["metrics"]["forgetting"] == 0
    assert mean(gains) >= 0.06
