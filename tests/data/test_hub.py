"""Real data sets in parquet files."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from cl_lightning.data.cache import open_images
from cl_lightning.data.hub import ParquetImages
from cl_lightning.errors import Refusal


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data set of 6 + 4 grey images in the Hub's layout, pixel values equal to their row."""
    import datasets

    folder = tmp_path_factory.mktemp("data")
    features = datasets.Features(img=datasets.Image(), kind=datasets.ClassLabel(names=["x", "y"]))
    for split, count in (("train", 6), ("test", 4)):
        rows = {"img": [np.full((5, 5), i, dtype=np.uint8) for i in range(count)], "kind": [i % 2 for i in range(count)]}
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
from cl_lightning.data.cache import open_images
from cl_lightning.data.hub import ParquetImages
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

    from cl_lightning.data.sizes import as_bytes

    picture = np.arange(27, dtype=np.uint8).reshape(3, 3, 3)
    assert torch.tensor(as_bytes(Image.fromarray(picture))).permute(1, 2, 0).equal(torch.from_numpy(picture))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mnist", "fashion_mnist"])
def test_real_data_have_their_published_numbers(name: str, real_data: str, cache_folder: str) -> None:
    from hydra import compose, initialize_config_dir

    from cl_lightning.experiment import partial_of
    from cl_lightning.runs import conf_dir

    with initialize_config_dir(conf_dir(), version_base="1.3"):
        source = compose("config", ["data=real", f"data.root={real_data}"]).data.sources[name]
    images = open_images(name, partial_of(source, f"data.sources.{name}")(), cache_folder)
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
        ([GREY, GREY], [0, 7], "Image 1 of the train split of 'toy' has the label 7, but there are classes 0 to 1"),
    ],
)
def test_what_is_wrong_with_images_is_said_with_their_number(images: list, labels: list, says: str, tmp_path: Path) -> None:
    with pytest.raises(Refusal, match=says):
        open_images("toy", parquet(tmp_path, images, labels), tmp_path / "cache")
    assert not list((tmp_path / "cache").glob("*/meta.json"))


def test_a_damaged_parquet_file_is_named(tmp_path: Path) -> None:
    source = parquet(tmp_path, [GREY], [0])
    file = next(tmp_path.glob("toy/data/train*"))
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(Refusal, match=r"(?s)parquet files of 'toy' cannot be read.*train-0\.parquet is damaged"):
        source.decode()
