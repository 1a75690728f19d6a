"""Every synthetic set is a benchmark, so its properties are promises. ``python -m
tests.benchmarks.synthetic`` measures the rest."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import pytest
import torch
from hydra.utils import instantiate

from tests.benchmarks.synthetic import LEARNABLE, examples, fit, sources, train

NAMES = list(sources())
PAPERS = {  # name: classes, training and test images, shape
    "mnist": (10, 60_000, 10_000, (1, 28, 28)),
    "fashion_mnist": (10, 60_000, 10_000, (1, 28, 28)),
    "svhn": (10, 73_257, 26_032, (3, 32, 32)),
    "cifar10": (10, 50_000, 10_000, (3, 32, 32)),
    "cifar100": (100, 50_000, 10_000, (3, 32, 32)),
    "dtd": (47, 47 * 80, 47 * 40, None),
    "notmnist": (10, 529_114, 18_724, (1, 28, 28)),
    "emnist": (10, 345_035, 57_918, (1, 28, 28)),
    "kmnist": (10, 60_000, 10_000, (1, 28, 28)),
    "devanagari": (46, 78_200, 13_800, (1, 32, 32)),
    "madbase": (10, 60_000, 10_000, (1, 28, 28)),
    "fruits_360": (10, 6_148, 2_052, (3, 100, 100)),
}


def hashes(images: torch.Tensor | Sequence[torch.Tensor]) -> set[bytes]:
    return {hashlib.sha256(image.numpy().tobytes()).digest() for image in images}


def small(name: str, **other: int) -> dict:
    return instantiate(sources()[name], **{"train": 230, "test": 115, **other}).decode()


def test_there_is_a_stand_in_for_every_data_set_of_the_papers() -> None:
    assert set(NAMES) == set(PAPERS)


@pytest.mark.parametrize("name", NAMES)
def test_numbers_of_classes_and_images_and_the_shape_are_those_of_the_paper(name: str) -> None:
    classes, train_size, test_size, shape = PAPERS[name]
    source, drawn = instantiate(sources()[name]), small(name)
    assert len(set(source.classes)) == len(source.classes) == classes
    assert (source.train, source.test) == (train_size, test_size)
    assert all(image.dtype == torch.uint8 for image in drawn["train_x"])
    assert (len(drawn["train_x"]), len(drawn["train_y"]), len(drawn["test_x"]), len(drawn["test_y"])) == (
        230,
        230,
        115,
        115,
    )
    assert shape is None or drawn["train_x"].shape[1:] == drawn["test_x"].shape[1:] == shape


@pytest.mark.parametrize("name", NAMES)
def test_images_are_a_pure_function_of_the_arguments(name: str) -> None:
    torch.manual_seed(1)
    first = small(name, train=60, test=20)
    torch.manual_seed(2)
    again, other = small(name, train=60, test=20), small(name, train=60, test=20, seed=1)
    for key in first:
        assert all(torch.equal(a, b) for a, b in zip(first[key], again[key]))
    assert not hashes(first["train_x"]) & hashes(other["train_x"])


@pytest.mark.parametrize("name", NAMES)
def test_no_image_comes_twice(name: str) -> None:
    drawn = small(name, train=600, test=300)
    assert len(hashes(drawn["train_x"]) | hashes(drawn["test_x"])) == 900


@pytest.mark.parametrize("name", NAMES)
def test_a_new_version_or_argument_is_another_entry_of_the_cache(name: str) -> None:
    source = instantiate(sources()[name])
    others = [instantiate(sources()[other]).identity() for other in NAMES if other != name]
    assert {"version", "train", "test", "seed"} <= set(source.identity())
    assert instantiate(sources()[name], seed=1).identity() != source.identity()
    assert source.identity()["kind"] not in [other["kind"] for other in others]


@pytest.mark.parametrize("name", [name for name in NAMES if name != "emnist"])
def test_classes_are_balanced_in_any_number_of_images(name: str) -> None:
    source = instantiate(sources()[name])
    for count in (source.train, source.test, 1234):
        sizes = source.ordered(count).bincount(minlength=len(source.classes))
        assert sizes.sum() == count
        assert sizes.max() - sizes.min() <= 1


def test_emnist_is_ordered_by_frequency_and_imbalanced_by_2_percent_of_all_images() -> None:
    source = instantiate(sources()["emnist"])
    for count in (source.train, source.test):
        sizes = source.ordered(count).bincount().tolist()
        assert sum(sizes) == count
        assert sizes == sorted(sizes, reverse=True)
        assert (sizes[0] - sizes[-1]) / count == pytest.approx(0.0202, abs=1e-4)


def test_dtd_comes_in_many_sizes_and_proportions() -> None:
    shapes = [tuple(image.shape[1:]) for image in small("dtd")["train_x"]]
    assert len(set(shapes)) > 100
    assert all(40 <= side <= 72 for shape in shapes for side in shape)
    assert max(max(shape) / min(shape) for shape in shapes) > 1.4
    assert fit(small("dtd")["test_x"]).shape == (115, 3, 32, 32)


def test_class_names_are_those_of_the_real_sets() -> None:
    names = {name: instantiate(sources()[name]).classes for name in NAMES}
    assert names["cifar100"][:3] == ("apple", "aquarium_fish", "baby")
    assert names["cifar100"][-2:] == ("woman", "worm")
    assert names["fashion_mnist"][0] == "T-shirt/top"
    assert [list(names[name]) for name in ("cifar10", "cifar100", "dtd")] == [
        sorted(names[name]) for name in ("cifar10", "cifar100", "dtd")
    ]
    assert names["mnist"] == names["svhn"] == tuple("0123456789")
    assert sorted(names["emnist"]) == list("0123456789")


@pytest.mark.all
@pytest.mark.parametrize("name", ["fashion_mnist", "svhn"])
def test_a_residual_network_learns_it_from_4000_images_and_not_perfectly(name: str) -> None:
    _, reached = train(examples(name, 4000), epochs=6, patience=6)
    assert LEARNABLE[0] <= reached <= LEARNABLE[1]
