"""A stream and a source of one's own, and one's own arrays: what docs/own_stream.md shows."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn as nn

from cl_lightning.data.sources.arrays import Arrays
from cl_lightning.data.sources.cache import Images, open_images
from cl_lightning.data.streams import long, sequence, split, two_tasks
from cl_lightning.errors import Refusal
from tests import docs
from tests.commands import command

SMALL = ("trainer.max_epochs=1", "progress=false", "figures=false", "logger=none", "selection=none")
BARS = "+data.sources.bars={_target_: my_sources.Bars}"


def results_in(folder: Path) -> dict:
    (path,) = folder.glob("**/results.json")
    return json.loads(path.read_text())


def test_the_pages_stream_of_the_pages_source_is_learned(tmp_path: Path) -> None:
    docs.written(tmp_path, "docs/own_stream.md")
    command(
        "--config-dir=my_conf", "stream=mirrored", "learner=finetune", BARS, "stream.tasks=3",
        *SMALL, "trainer.max_epochs=5", "trainer.optimizer=adam", cwd=tmp_path,
    )  # fmt: skip
    results = results_in(tmp_path)
    assert [task["name"] for task in results["stream"]["tasks"]] == ["mirrored 0", "mirrored 1", "mirrored 0"]
    assert [task["n_val"] for task in results["stream"]["tasks"]] == [50] * 3
    assert results["metrics"]["average_accuracy"] > 0.6


def test_a_task_of_the_page_is_mirrored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    docs.written(tmp_path, "docs/own_stream.md")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("my_sources", "my_streams"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import my_sources
    import my_streams

    images = open_images("bars", my_sources.Bars(40, 10), tmp_path / "cache")
    stream = my_streams.mirrored(images, seed=0, tasks=2, n_train=20, n_val=10)
    for index in (0, 1):
        rows, task = stream.recipe(index).train, stream.task(index)
        as_they_are = images.train.x[rows].float() / 255
        assert torch.equal(task.train.x, as_they_are.flip(3) if index else as_they_are)


# ---- arrays ------------------------------------------------------------------------------------------------


def numbered(folder: Path, classes: int = 6, each: int = 10, **changed: np.ndarray) -> Arrays:
    """Images of one pixel, which is their number; training, validation and test apart."""
    made = {}
    for start, split_ in enumerate(("train", "val", "test")):
        y = np.arange(classes * each) % classes
        made[f"{split_}_x"] = (80 * start + np.arange(len(y)) % 80).astype(np.uint8)[:, None, None]
        made[f"{split_}_y"] = y
    np.savez(folder / "own.npz", **made | changed)
    return Arrays(str(folder / "own.npz"))


def opened(folder: Path, **options: int) -> Images:
    return open_images("own", numbered(folder, **options), folder / "cache")


def a_split(images: Images, tasks: int | None = None, **options):
    given = {"n_train": 10, "n_val": 4, "n_test": None, "head": "multi_train_test", **options}
    return split(images, seed=0, tasks=tasks, classes_per_task=2, **given)


@pytest.mark.parametrize("balanced", [False, True])
def test_validation_examples_of_the_file_are_validated_on_and_never_trained_on(
    balanced: bool, tmp_path: Path
) -> None:
    stream = a_split(opened(tmp_path), balanced=balanced)
    for index in range(3):
        task = stream.task(index)
        assert (len(task.train), len(task.val)) == (10, 4)
        assert (task.train.x * 255).max() < 80
        assert (task.val.x * 255).round().min() >= 80
        assert (task.val.x * 255).round().max() < 160


def test_too_few_validation_examples_are_refused_or_taken_as_they_are(tmp_path: Path) -> None:
    images = opened(tmp_path)
    with pytest.raises(Refusal, match=r"needs 50 examples for n_val, but own has 20"):
        a_split(images, n_val=50).recipe(0)
    made = a_split(images, n_val=50, n_train=None, on_shortage="shrink").recipe(0)
    assert (len(made.train), len(made.val), made.requested) == (20, 20, {"n_val": 50})


def test_the_same_images_without_validation_of_their_own_are_another_stream(tmp_path: Path) -> None:
    from dataclasses import replace

    images = opened(tmp_path)
    plain = replace(images, for_validation=0)
    assert images.for_validation == 60
    assert images.digest != open_images("own", numbered(tmp_path, val_x=None), tmp_path / "cache").digest
    assert len(a_split(plain, n_train=None, n_val=0).recipe(0).train) == 40
    assert len(a_split(images, n_train=None, n_val=0).recipe(0).train) == 20


@pytest.mark.parametrize(("classes", "tasks"), [(2, 1), (6, 3), (7, 3)])
def test_without_a_number_of_tasks_there_are_as_many_as_the_classes_fill(
    classes: int, tasks: int, tmp_path: Path
) -> None:
    assert len(a_split(opened(tmp_path, classes=classes))) == tasks


def test_too_many_tasks_are_told_how_many_there_can_be(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match=r"5 tasks of 2 classes need 10 .* as in stream\.tasks=3"):
        a_split(opened(tmp_path), tasks=5)


# ---- features ----------------------------------------------------------------------------------------------


def feature_file(folder: Path) -> np.ndarray:
    draws = np.random.default_rng(0)
    y = np.arange(120) % 4
    x = (draws.normal(size=(120, 5)) + 5 * np.eye(4, 5)[y] - 7).astype(np.float32)
    np.savez(folder / "features.npz", train_x=x, train_y=y, test_x=x, test_y=y)
    return x


def test_vectors_of_features_reach_the_learner_as_they_are(tmp_path: Path) -> None:
    x = feature_file(tmp_path)
    images = open_images("features", Arrays(str(tmp_path / "features.npz")), tmp_path / "cache")
    stream = a_split(images, n_train=None, n_val=0)
    assert stream.shape == (5, 1, 1)
    assert torch.equal(stream.task(1).train.x.flatten(1), torch.from_numpy(x)[stream.recipe(1).train])
    assert torch.equal(images.train.x.flatten(1), torch.from_numpy(x)), "the source stays as it was"


def test_a_linear_layer_learns_the_pages_features(tmp_path: Path) -> None:
    feature_file(tmp_path)
    command(
        "+data.sources.features={_target_: cl_lightning.data.sources.Arrays, file: features.npz}",
        "stream=split", "stream.source=features", "stream.tasks=null", "stream.on_shortage=shrink",
        "stream.show.normalise=true", "backbone.sizes=[]", "learner=er", *SMALL, "trainer.max_epochs=20",
        "trainer.lr=0.05",
        cwd=tmp_path,
    )  # fmt: skip
    assert results_in(tmp_path)["metrics"]["average_accuracy"] > 0.9


def test_features_are_no_images(tmp_path: Path) -> None:
    from cl_lightning.data.sources.sheet import write_sheets
    from cl_lightning.data.streams.show import Show

    feature_file(tmp_path)
    images = open_images("features", Arrays(str(tmp_path / "features.npz")), tmp_path / "cache")
    with pytest.raises(Refusal, match="nothing to look at"):
        write_sheets(images, tmp_path / "sheet.png")
    with pytest.raises(Refusal, match=r"Leave stream\.show\.shape out"):
        a_split(images, n_train=None, n_val=0, show=Show(shape=(1, 2, 2))).task(0)


def test_the_pages_functions_write_such_a_file(tmp_path: Path) -> None:
    scope: dict = {}
    exec(docs.block_after(docs.page("own_stream"), "## Features", "python"), scope)
    loader = [(torch.ones(4, 1, 3, 3) * i, torch.arange(4)) for i in range(2)]
    scope["save"](nn.AvgPool2d(3), loader, loader, tmp_path / "features.npz")
    images = open_images("features", Arrays(str(tmp_path / "features.npz")), tmp_path / "cache")
    assert images.train.x.flatten().tolist() == [0.0] * 4 + [1.0] * 4


# ---- sizes and orders of all streams -----------------------------------------------------------------------


def order_file(folder: Path, rows: list[list[int]]) -> str:
    (folder / "order.txt").write_text("\n".join(" ".join(map(str, row)) for row in rows))
    return str(folder / "order.txt")


def test_a_file_gives_the_examples_of_a_split_in_its_order(tmp_path: Path) -> None:
    images = opened(tmp_path)
    order = order_file(tmp_path, [[7, 0, 1], [3, 8, -1], [5, 4, 11]])
    stream = a_split(images, n_train=None, n_val=0, order=order)
    assert [stream.recipe(i).train.tolist() for i in range(3)] == [[7, 0, 1], [3, 8], [5, 4, 11]]
    assert stream.fingerprint != a_split(images, n_train=None, n_val=0).fingerprint
    with pytest.raises(Refusal, match=r"Set stream\.n_val=0"):
        a_split(images, n_train=None, order=order).recipe(0)
    with pytest.raises(Refusal, match="its outputs are"):
        a_split(images, n_train=None, n_val=0, order=order_file(tmp_path, [[2], [2], [4]])).recipe(0)
    with pytest.raises(Refusal, match="shows an example twice"):
        a_split(images, n_train=None, n_val=0, order=order_file(tmp_path, [[0, 0], [2, 3], [4, 5]]))


def test_so_it_does_of_sequences_of_two_tasks_and_of_long_streams(tmp_path: Path) -> None:
    images, order = opened(tmp_path, classes=10), order_file(tmp_path, [[2, 1], [6, 7]])
    sources = {"own": images}
    of_two = two_tasks(images, 0, "D5-5a", None, 0, None, order=order)
    tasks = [{"source": "own", "classes": [1, 2]}, {"source": "own", "classes": [6, 7]}]
    listed = sequence(sources, 0, tasks, n_test=4, test_per_class=None, order=order)
    pairs = (10, 0)
    drawn = long(
        sources, 0, 2, ["own"], 10, pairs, pairs, {}, [1.0], "domain", None, None, "shrink", n_test=20,
        order=order,
    )  # fmt: skip
    for stream in (of_two, listed, drawn):
        assert [stream.recipe(i).train.tolist() for i in range(2)] == [[2, 1], [6, 7]]
    assert [len(listed.recipe(i).test) for i in range(2)] == [4, 4]
    assert [len(drawn.recipe(i).test) for i in range(2)] == [20, 20]


def test_a_task_of_a_sequence_may_have_another_number_of_test_examples(tmp_path: Path) -> None:
    tasks = [{"source": "own", "classes": [1, 2], "n_test": 2}, {"source": "own", "classes": [0, 3]}]
    stream = sequence({"own": opened(tmp_path)}, 0, tasks, n_test=6, test_per_class=None)
    assert [len(stream.recipe(i).test) for i in range(2)] == [2, 6]
