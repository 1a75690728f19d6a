"""Folders and arrays of one's own, and the entries of the real data sets."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from PIL import Image

from cl_lightning.config.checking import resolve_target
from cl_lightning.config.resolvers import conf_dir
from cl_lightning.data.sources.arrays import Arrays
from cl_lightning.data.sources.cache import open_images
from cl_lightning.data.sources.folder import SUFFIXES, ImageFolder
from cl_lightning.data.sources.hub import ParquetImages
from cl_lightning.data.sources.sizes import all_fit, fit
from cl_lightning.data.streams.given import given
from cl_lightning.errors import Refusal
from tests.commands import configure
from tests.conftest import REAL_DATA


def picture(value: int, height: int = 5, width: int = 5) -> Image.Image:
    return Image.fromarray(np.full((height, width), value, dtype=np.uint8))


@pytest.fixture
def pets(tmp_path: Path) -> ImageFolder:
    """Two images a class and split; pixel values tell which they are."""
    for split, base in (("train", 0), ("test", 100)):
        for number, name in enumerate(("dog", "cat")):
            place = tmp_path / "pets" / split / name
            place.mkdir(parents=True)
            for image in range(2):
                picture(base + 10 * number + image).save(place / f"{image}.png")
    return ImageFolder("pets", str(tmp_path))


# sizes


@pytest.mark.parametrize(
    ("width", "height", "scaled"),
    [(64, 40, (51, 32)), (40, 70, (32, 56)), (48, 48, (32, 32)), (10, 20, (32, 64))],
)
def test_the_shorter_side_is_scaled_and_the_middle_cut_out(
    width: int, height: int, scaled: tuple[int, int]
) -> None:
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8))
    whole = np.asarray(noise.resize(scaled, Image.Resampling.BICUBIC))
    left, top = round((scaled[0] - 32) / 2), round((scaled[1] - 32) / 2)
    assert np.array_equal(np.asarray(fit(noise, 32)), whole[top : top + 32, left : left + 32])


def test_an_image_of_that_size_stays_as_it_is() -> None:
    images = torch.randint(256, (4, 1, 32, 32), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    assert all_fit(list(images), 32).equal(images)


# folders


def test_classes_of_a_folder_are_in_the_order_of_their_names(pets: ImageFolder, tmp_path: Path) -> None:
    images = open_images("pets", pets, tmp_path / "cache")
    assert images.classes == ("cat", "dog")
    assert images.train.x[:, 0, 0, 0].tolist() == [10, 11, 0, 1]
    assert images.test.y.tolist() == [0, 0, 1, 1]


def test_given_classes_keep_their_order(pets: ImageFolder) -> None:
    assert replace(pets, classes=("dog", "cat")).decode()["train_x"][:, 0, 0, 0].tolist() == [0, 1, 10, 11]


def test_a_real_entry_takes_class_folders_too(pets: ImageFolder) -> None:
    entry = ParquetImages("pets", "nobody/pets", "main", "image", "label", ("dog", "cat"), pets.root)
    assert entry.decode()["test_x"][:, 0, 0, 0].tolist() == [100, 101, 110, 111]
    assert entry.numbers() == {"train": 4, "test": 4}
    assert entry.identity() == replace(pets, classes=("dog", "cat")).identity()


def test_a_slash_in_a_class_is_an_underscore_in_its_folder(pets: ImageFolder) -> None:
    for split in ("train", "test"):
        (pets.place / split / "cat").rename(pets.place / split / "cat_tom")
    assert replace(pets, classes=("cat/tom", "dog")).decode()["train_y"].tolist() == [0, 0, 1, 1]


def test_another_image_is_another_identity(pets: ImageFolder) -> None:
    before = pets.identity()
    picture(3).save(pets.place / "test" / "cat" / "new.jpg")
    assert pets.identity() != before


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (
            lambda place: (place / "train/cat").rename(place / "train/bird"),
            r"train.bird is the folder of no class.*cat, dog.*pets\.classes",
        ),
        (
            lambda place: (place / "test").rename(place / "val"),
            r"test is not there. The test images of 'pets'",
        ),
        (
            lambda place: [f.unlink() for f in (place / "test").rglob("*.png")],
            r"test holds no images: none that ends in \.png",
        ),
        (lambda place: (place / "test/dog/0.png").write_bytes(b"\x89PNG"), r"test.dog.0\.png cannot be read"),
        (
            lambda place: picture(0, 6, 9).save(place / "test/dog/0.png"),
            r"2 different shapes.*\(1, 6, 9\)(?s:.*)pets\.side",
        ),
    ],
)
def test_what_is_wrong_with_a_folder_is_named(fault: Any, says: str, pets: ImageFolder) -> None:
    source = replace(pets, classes=("cat", "dog"))
    fault(pets.place)
    with pytest.raises(Refusal, match=says):
        source.decode()


def test_an_image_starts_no_program(
    pets: ImageFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostScript is drawn by `gs`, whatever the file is called."""
    (tmp_path / "gs").write_text(f"#!/bin/sh\ntouch {tmp_path}/started\n")
    (tmp_path / "gs").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr("PIL.EpsImagePlugin.gs_binary", None)
    drawing = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 5 5\n%%EndComments\nshowpage\n%%EOF\n"
    (pets.place / "test/dog/0.png").write_bytes(drawing)
    with pytest.raises(Refusal, match=r"dog.0\.png cannot be read.*\n.*none of PNG, JPEG, BMP"):
        pets.decode()
    assert not (tmp_path / "started").exists()


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_all_named_formats_are_read(suffix: str, pets: ImageFolder) -> None:
    (pets.place / "test/dog/1.png").unlink()
    picture(101).save(pets.place / f"test/dog/1{suffix}")
    assert pets.decode()["test_x"].flatten(1).float().mean(1).tolist() == pytest.approx([110, 111, 100, 101])


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
def test_a_named_pipe_is_refused_and_not_waited_for(pets: ImageFolder, tmp_path: Path) -> None:
    (pets.place / "test/dog/0.png").unlink()
    os.mkfifo(pets.place / "test/dog/0.png")
    with pytest.raises(Refusal, match=r"0\.png is no regular file"):
        pets.decode()
    for name in ("order.txt", "order.npy"):
        os.mkfifo(tmp_path / name)
        with pytest.raises(Refusal, match=r"stream\.order=.*no regular file"):
            given("order", str(tmp_path / name), None)


def test_no_folder_says_how_it_should_look(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match=r"holds no folder a class.*train/<class>/"):
        ImageFolder("pets", str(tmp_path))


# arrays


X = np.arange(4 * 3 * 6 * 5, dtype=np.uint8).reshape(4, 3, 6, 5)
Y = np.array([0, 1, 2, 1])


def saved(folder: Path, **changed: Any) -> Arrays:
    arrays = {"train_x": X, "train_y": Y, "test_x": X[:2], "test_y": Y[:2]} | changed
    np.savez(folder / "own.npz", **{key: value for key, value in arrays.items() if value is not None})
    return Arrays(str(folder / "own.npz"))


def test_bytes_and_floats_in_all_layouts_are_the_same_images(tmp_path: Path) -> None:
    last = {"train_x": X.transpose(0, 2, 3, 1), "test_x": X[:2].transpose(0, 2, 3, 1)}
    floats = {"train_x": X / 255, "test_x": (X[:2] / 255).astype(np.float32)}
    for changed in ({}, last, floats):
        assert open_images("own", saved(tmp_path, **changed), tmp_path).train.x.equal(torch.from_numpy(X))
    grey = saved(tmp_path, train_x=X[:, 0], test_x=X[:2, 0])
    assert open_images("own", grey, tmp_path).shape == (1, 6, 5)


def test_classes_are_numbered_unless_named(tmp_path: Path) -> None:
    assert saved(tmp_path).classes == ("0", "1", "2")
    assert replace(saved(tmp_path), classes=("a", "b", "c")).classes == ("a", "b", "c")


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"test_y": None}, "has no array test_y"),
        ({"train_x": X.astype(np.int64)}, r"train_x .* must hold bytes .*type int64"),
        ({"train_x": X.astype(np.float32)}, r"must hold bytes \(uint8\) or floats in \[0, 1\]"),
        ({"train_x": np.full_like(X, np.nan, dtype=np.float32)}, r"floats in \[0, 1\]"),
        ({"train_x": X[:0]}, "at least one image"),
        ({"train_x": X[:, :2]}, r"must have the shape .* 1 or 3 channels; it has the shape \(4, 2, 6, 5\)"),
        ({"test_x": X[:2, :, :5]}, "differ in shape"),
        ({"train_y": Y[:3]}, "train_y .* must be 4 class numbers"),
        ({"test_y": np.array([0, 3])}, r"test_y\[1\] .* is 3, but there are classes 0 to 2"),
        ({"train_y": np.array([0, 1, 2**40, 1])}, f"class number {2**40}, but only 4 labels"),
        ({"test_y": np.array([0.0, 1.0])}, "must be 2 class numbers"),
        ({"train_x": np.array([{}] * 4, dtype=object)}, "is no .npz file of plain arrays"),
    ],
)
def test_what_is_wrong_with_arrays_is_named(changed: dict, says: str, tmp_path: Path) -> None:
    with pytest.raises(Refusal, match=says):
        saved(tmp_path, **changed).decode()


def test_no_file_and_a_file_of_something_else_are_named(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match=r"is not there\. It should be a file written by numpy\.savez"):
        Arrays(str(tmp_path / "none.npz"))
    (tmp_path / "text.npz").write_text("no archive")
    with pytest.raises(Refusal, match=r"is no \.npz file"):
        Arrays(str(tmp_path / "text.npz"))


# entries


ENTRIES = sorted((Path(conf_dir()) / "data" / "sources").glob("*.yaml"))


def entry_named(name: str, root: str | None = None) -> ParquetImages:
    return resolve_target(
        configure("data=real", f"data.root={root or 'null'}").data.sources[name], f"data.sources.{name}"
    )()


def test_every_entry_is_among_the_real_sources_under_its_own_name() -> None:
    sources = configure("data=real").data.sources
    assert sorted(sources) == [path.stem for path in ENTRIES]
    assert all(source.folder == name for name, source in sources.items())


@pytest.mark.parametrize("name", [path.stem for path in ENTRIES])
def test_an_entry_has_distinct_classes_a_licence_and_a_citation(name: str) -> None:
    source = entry_named(name)
    assert len(set(source.classes)) == len(source.classes) >= 10
    assert all(isinstance(label, str) for label in source.classes)
    assert source.licence
    assert source.citation
    assert set(source.counts or {}) == {"train", "test"}


@pytest.mark.parametrize(
    ("name", "classes"),
    [("cifar100", 100), ("dtd", 47), ("emnist", 62), ("fruits_360", 131), ("devanagari", 46), ("svhn", 10)],
)
def test_published_numbers_of_classes(name: str, classes: int) -> None:
    assert len(entry_named(name).classes) == classes


PARTS = ("kmnist", "notmnist", "devanagari", "emnist_letters")  # folders may hold a part of these


@pytest.mark.all
@pytest.mark.slow
@pytest.mark.parametrize("name", [path.stem for path in ENTRIES])
def test_a_local_set_loads_with_the_classes_of_its_entry_and_the_counts_of_its_card(
    name: str, cache_folder: str
) -> None:
    card = Path(REAL_DATA) / name / "README.md"
    if not REAL_DATA or not card.is_file():
        pytest.skip(f"CL_LIGHTNING_DATA has no {name} with a data set card")
    source = entry_named(name, REAL_DATA)
    images = open_images(name, source, cache_folder)
    told = {
        split["name"]: split["num_examples"]
        for split in yaml.safe_load(card.read_text().split("---")[1])["dataset_info"]["splits"]
    }
    assert {"train": len(images.train.y), "test": len(images.test.y)} == told
    assert name in PARTS or told == source.counts
    assert len(images.train.y.unique()) == len(images.test.y.unique()) == len(source.classes)
