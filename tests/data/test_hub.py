"""Real data sets in parquet files."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from cl_lightning.config.checking import resolve_target
from cl_lightning.data.sources.cache import open_images
from cl_lightning.data.sources.hub import ParquetImages
from cl_lightning.errors import Refusal
from tests.commands import configure


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data set of 6 + 4 grey images in the Hub's layout, pixel values equal to their row."""
    import datasets

    folder = tmp_path_factory.mktemp("data")
    features = datasets.Features(img=datasets.Image(), kind=datasets.ClassLabel(names=["x", "y"]))
    for split, count in (("train", 6), ("test", 4)):
        rows = {
            "img": [np.full((5, 5), i, dtype=np.uint8) for i in range(count)],
            "kind": [i % 2 for i in range(count)],
        }
        place = folder / "toy" / "data" / f"{split}-00000-of-00001.parquet"
        place.parent.mkdir(parents=True, exist_ok=True)
        datasets.Dataset.from_dict(rows, features=features).to_parquet(str(place))
    return folder


@pytest.fixture
def toy(root: Path) -> ParquetImages:
    return ParquetImages("toy", "nobody/toy", "main", "img", "kind", ("x", "y"), str(root))


def test_images_and_labels_keep_their_order_and_values(toy: ParquetImages, tmp_path: Path) -> None:
    images = open_images("toy", toy, tmp_path)
    assert images.train.x[:, 0, 0, 0].tolist() == [0, 1, 2, 3, 4, 5]
    assert images.test.y.tolist() == [0, 1, 0, 1]
    assert images.shape == (1, 5, 5)


def test_a_second_start_imports_no_datasets(toy: ParquetImages, tmp_path: Path) -> None:
    open_images("toy", toy, tmp_path)
    code = f"""
import sys
from cl_lightning.data.sources.cache import open_images
from cl_lightning.data.sources.hub import ParquetImages
open_images("toy", {toy!r}, {str(tmp_path)!r})
assert not {{"datasets", "pyarrow", "PIL"}} & set(sys.modules), "decoding libraries were imported"
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_wrong_column_is_named_with_those_there_are(toy: ParquetImages) -> None:
    with pytest.raises(Refusal, match=r"no column 'image'; it has img, kind"):
        replace(toy, image="image").decode()


def test_without_folder_and_network_it_says_what_to_do(toy: ParquetImages) -> None:
    with pytest.raises(Refusal, match=r"(?s)could not be read.*CL_LIGHTNING_DATA.*data=synthetic"):
        replace(toy, root=None).decode()


def test_a_changed_file_is_another_identity(toy: ParquetImages, root: Path) -> None:
    before = toy.identity()
    path = next(root.glob("toy/data/train*"))
    stat = path.stat()
    path.touch()
    assert toy.identity() != before
    import os

    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert toy.identity() == before


def test_colour_stays_in_three_channels(tmp_path: Path) -> None:
    from PIL import Image

    from cl_lightning.data.sources.sizes import as_bytes

    picture = np.arange(27, dtype=np.uint8).reshape(3, 3, 3)
    assert torch.tensor(as_bytes(Image.fromarray(picture))).permute(1, 2, 0).equal(torch.from_numpy(picture))


@pytest.mark.all
@pytest.mark.slow
@pytest.mark.parametrize("name", ["mnist", "fashion_mnist"])
def test_real_data_have_their_published_numbers(name: str, real_data: str, cache_folder: str) -> None:
    source = configure("data=real", f"data.root={real_data}").data.sources[name]
    images = open_images(name, resolve_target(source, f"data.sources.{name}")(), cache_folder)
    assert images.train.x.shape == (60_000, 1, 28, 28)
    assert images.test.x.shape == (10_000, 1, 28, 28)
    assert images.test.y.bincount(minlength=10).sum() == 10_000
    assert (images.train.y.bincount() == 6000).all() == (name == "fashion_mnist")


def parquet(folder: Path, images: list[bytes | np.ndarray], labels: list[int]) -> ParquetImages:
    """A data set of such images, encoded ones as they are."""
    import datasets

    features = datasets.Features(img=datasets.Image(), kind=datasets.Value("int64"))
    cells = [{"bytes": image, "path": None} if isinstance(image, bytes) else image for image in images]
    for split in ("train", "test"):
        place = folder / "toy" / "data" / f"{split}-0.parquet"
        place.parent.mkdir(parents=True, exist_ok=True)
        datasets.Dataset.from_dict({"img": cells, "kind": labels}, features=features).to_parquet(str(place))
    return ParquetImages("toy", "nobody/toy", "main", "img", "kind", ("x", "y"), str(folder))


GREY = np.zeros((5, 5), dtype=np.uint8)


@pytest.mark.parametrize(
    ("images", "labels", "says"),
    [
        ([GREY, b"\x89PNG no image", GREY], [0, 1, 0], "Image 1 of the train split of 'toy' cannot be read"),
        ([GREY, np.zeros((6, 5), dtype=np.uint8)], [0, 1], r"2 different shapes.*\(1, 5, 5\) to \(1, 6, 5\)"),
        (
            [GREY, GREY],
            [0, 7],
            "Image 1 of the train split of 'toy' has the label 7, but there are classes 0 to 1",
        ),
    ],
)
def test_what_is_wrong_with_images_is_said_with_their_number(
    images: list, labels: list, says: str, tmp_path: Path
) -> None:
    with pytest.raises(Refusal, match=says):
        open_images("toy", parquet(tmp_path, images, labels), tmp_path / "cache")
    assert not list((tmp_path / "cache").glob("*/meta.json"))


def test_with_a_side_images_of_several_sizes_become_one(tmp_path: Path) -> None:
    source = parquet(tmp_path, [GREY, np.zeros((6, 9), dtype=np.uint8)], [0, 1])
    assert replace(source, side=4).decode()["train_x"].shape == (2, 1, 4, 4)


def test_grey_among_colour_images_becomes_colour(tmp_path: Path) -> None:
    colour = np.stack([GREY, GREY + 1, GREY + 2], axis=2)
    x = parquet(tmp_path, [GREY + 7, colour], [0, 1]).decode()["train_x"]
    assert x[:, :, 0, 0].tolist() == [[7, 7, 7], [0, 1, 2]]


def test_more_than_eight_bits_are_refused_and_not_cut(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match=r"Image 1 of the train split .* more than 8 bits"):
        parquet(tmp_path, [GREY, np.full((5, 5), 40_000, dtype=np.uint16)], [0, 1]).decode()


def test_of_several_columns_the_first_that_is_there_is_taken(toy: ParquetImages) -> None:
    assert replace(toy, image=["image", "img", "kind"]).decode()["train_x"].equal(toy.decode()["train_x"])


def test_a_column_without_image_files_is_named_with_its_type(toy: ParquetImages) -> None:
    with pytest.raises(
        Refusal, match=r"does not hold image files: it is int64. Set data\.sources\.toy\.image"
    ):
        replace(toy, image="kind").decode()


def test_classes_in_another_order_than_in_the_files_are_refused(toy: ParquetImages) -> None:
    with pytest.raises(
        Refusal,
        match=r"Class 0 of 'toy' is 'x' in its files, but data\.sources\.toy\.classes has it as number 1",
    ):
        replace(toy, classes=("y", "x")).decode()


def test_classes_spelt_otherwise_than_in_the_files_are_taken(toy: ParquetImages) -> None:
    assert replace(toy, classes=("ex", "y")).decode()["train_y"].tolist() == [0, 1, 0, 1, 0, 1]


def test_renamed_classes_are_not_taken_from_an_older_entry_of_the_cache(
    toy: ParquetImages, tmp_path: Path
) -> None:
    assert open_images("toy", toy, tmp_path).classes == ("x", "y")
    assert open_images("toy", replace(toy, classes=("ex", "y")), tmp_path).classes == ("ex", "y")


def test_splits_say_which_files_make_up_train_and_test(toy: ParquetImages) -> None:
    swapped = replace(toy, splits={"train": ["test"], "test": ["train", "test"]}).decode()
    assert [len(swapped[f"{split}_y"]) for split in ("train", "test")] == [4, 10]
    for name in ("validation", "tra"):
        with pytest.raises(Refusal, match=f"no parquet file for the split '{name}'"):
            replace(toy, splits={"train": [name], "test": ["test"]}).decode()


def test_a_configuration_of_the_repository_is_a_sub_folder(
    toy: ParquetImages, root: Path, tmp_path: Path
) -> None:
    import shutil

    shutil.copytree(root / "toy" / "data", tmp_path / "toy" / "cropped")
    shutil.copytree(root / "toy" / "data", tmp_path / "toy" / "full")
    assert len(replace(toy, root=str(tmp_path), config="cropped").decode()["train_y"]) == 6
    assert len(replace(toy, root=str(tmp_path)).decode()["train_y"]) == 12


def test_a_set_that_no_repository_holds_says_where_to_put_it(toy: ParquetImages, tmp_path: Path) -> None:
    with pytest.raises(Refusal, match=r"(?s)no repository of the Hub is known.*<data\.root>/toy"):
        replace(toy, root=str(tmp_path), repository=None).decode()


def test_what_the_hub_is_asked_for(toy: ParquetImages, monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    asked = []

    def load_dataset(*arguments, **options):
        asked.append((arguments, options))
        names = datasets.Features(image=datasets.Image(), label=datasets.ClassLabel(names=["x", "y"]))
        return datasets.Dataset.from_dict({"image": [GREY, GREY + 1], "label": [0, 1]}, features=names)

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    source = replace(
        toy,
        root=None,
        config="small",
        image="image",
        label="label",
        splits={"train": ["train", "extra"], "test": ["test"]},
    )
    arrays = source.decode()
    assert arrays["train_x"][:, 0, 0, 0].tolist() == arrays["test_y"].tolist() == [0, 1]
    assert asked == [
        (("nobody/toy", "small"), {"revision": "main", "split": split}) for split in ("train+extra", "test")
    ]
    with pytest.raises(Refusal, match="Class 0 of 'toy' is 'x' in its files"):
        replace(source, classes=("y", "x")).decode()


def test_a_damaged_parquet_file_is_named(tmp_path: Path) -> None:
    source = parquet(tmp_path, [GREY], [0])
    file = next(tmp_path.glob("toy/data/train*"))
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(
        Refusal, match=r"(?s)parquet files of 'toy' cannot be read.*train-0\.parquet is damaged"
    ):
        source.decode()
