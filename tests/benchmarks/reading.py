"""Decoding a data set once, and opening a task of one that is in the cache."""

from __future__ import annotations

import io
import time
from pathlib import Path

import numpy as np
import torch

from cl_lightning.data.module import StreamDataModule
from cl_lightning.data.sources.cache import open_images
from cl_lightning.data.sources.hub import ParquetImages
from cl_lightning.data.sources.synthetic import Digits, Objects
from cl_lightning.data.streams.sequence import sequence
from cl_lightning.data.streams.show import Show


def seconds_to_decode(folder: Path, images: int) -> float:
    """PNG images of digits in parquet files."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from PIL import Image

    arrays = Digits(train=images, test=10).decode()
    (folder / "digits").mkdir()
    for split in ("train", "test"):
        rows = []
        for image in arrays[f"{split}_x"][:, 0].numpy().astype(np.uint8):
            Image.fromarray(image).save(file := io.BytesIO(), "png")
            rows.append({"bytes": file.getvalue(), "path": None})
        pq.write_table(
            pa.table({"image": rows, "label": arrays[f"{split}_y"].tolist()}),
            folder / "digits" / f"{split}.parquet",
        )
    source = ParquetImages("digits", "none", "main", "image", "label", tuple("0123456789"), root=str(folder))
    began = time.process_time()
    source.decode()
    return time.process_time() - began


def seconds_to_open(folder: Path, n: int, repeats: int) -> float:
    """A task of so many training and half as many validation images in colour, of a data set in the cache,
    normalised."""
    source = Objects(train=2 * n, test=n // 4)
    open_images("objects", source, folder)
    times = []
    for _ in range(repeats):
        images = open_images("objects", source, folder)
        tasks = [{"source": "objects", "n_train": n, "n_val": n // 2}]
        stream = sequence({"objects": images}, 0, tasks, show=Show(shape=[3, 32, 32], normalise=True))
        began = time.process_time()
        with StreamDataModule(stream).open(0) as task:
            assert task.train.x.dtype == torch.float32
            times.append(time.process_time() - began)
    return sorted(times)[len(times) // 2]
