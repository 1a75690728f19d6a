"""Contact sheets: a row of images a class, or, of several data sets, a row each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cl_lightning.data.sources.cache import Images, Pool, decoded
from cl_lightning.randomness import rng

ROWS = 20  # classes a page
COLUMNS = 12
CELL = 56  # pixels an image is enlarged to, at least
GAP = 2
LINE = 10  # images of a data set among others
PLACE = 64  # pixels of the square that each of them lies in
FEW = 500  # images that are drawn of a data set to choose them from


def write_sheets(images: Images, file: Path) -> list[Path]:
    """Draw pages of up to 20 classes each: ``mnist.png``, then ``mnist-2.png`` and so on. Returns what was
    written."""
    pages = math.ceil(len(images.classes) / ROWS)
    files = [
        file if page == 0 else file.with_name(f"{file.stem}-{page + 1}{file.suffix}") for page in range(pages)
    ]
    for page, place in enumerate(files):
        sheet(images, range(page * ROWS, min((page + 1) * ROWS, len(images.classes)))).save(
            place, format="PNG"
        )
    return files


def sheet(images: Images, classes: range) -> Any:
    """Training images drawn at random, the same ones each time, beside the names of their classes."""
    from PIL import Image, ImageDraw, ImageFont

    _, height, width = images.shape
    scale = max(1, math.ceil(CELL / max(height, width)))
    font = ImageFont.load_default()
    names = [f"{number} {images.classes[number]}" for number in classes]
    margin = 10 + max(math.ceil(font.getlength(name)) for name in names)
    step_x, step_y = width * scale + GAP, height * scale + GAP
    page = Image.new("RGB", (margin + COLUMNS * step_x, len(names) * step_y + GAP), "white")
    pen = ImageDraw.Draw(page)
    for row, (number, name) in enumerate(zip(classes, names)):
        top = GAP + row * step_y
        pen.text((5, top + (height * scale) // 2), name, fill="black", font=font, anchor="lm")
        for column, pixels in enumerate(some_of(images, number)):
            picture = (
                Image.fromarray(pixels)
                .convert("RGB")
                .resize((width * scale, height * scale), Image.Resampling.NEAREST)
            )
            page.paste(picture, (margin + column * step_x, top))
    return page


def some_of(images: Images, number: int) -> list[np.ndarray]:
    rows = (images.train.y == number).nonzero()[:, 0]
    chosen = rows[torch.randperm(len(rows), generator=rng("sheet", number))[:COLUMNS]]
    x = images.train.x[chosen]
    return [
        image[0].numpy() if len(image) == 1 else image.permute(1, 2, 0).contiguous().numpy() for image in x
    ]


def write_overview(sets: Sequence[Images], file: Path) -> Path:
    """Draw one page with a row of every data set, images of different classes as far as there are."""
    from PIL import Image, ImageDraw, ImageFont

    font = ImageFont.load_default()
    names = [
        f"{images.name}\n{len(images.classes)} classes, {'x'.join(map(str, images.shape))}" for images in sets
    ]
    margin = 10 + max(math.ceil(font.getlength(line)) for name in names for line in name.splitlines())
    step = PLACE + GAP
    page = Image.new("RGB", (margin + LINE * step, len(names) * step + GAP), "white")
    pen = ImageDraw.Draw(page)
    for row, (images, name) in enumerate(zip(sets, names)):
        pen.multiline_text((5, GAP + row * step + PLACE // 4), name, fill="black", font=font)
        for column, pixels in enumerate(of_all_classes(images)):
            picture = in_place(Image.fromarray(pixels).convert("RGB"))
            page.paste(
                picture,
                (
                    margin + column * step + (PLACE - picture.width) // 2,
                    GAP + row * step + (PLACE - picture.height) // 2,
                ),
            )
    page.save(file, format="PNG", optimize=True)
    return file


def in_place(picture: Any) -> Any:
    """Enlarged or reduced by a whole number."""
    from PIL import Image

    longest = max(picture.size)
    if longest > PLACE:
        return picture.reduce(math.ceil(longest / PLACE))
    return picture.resize([side * (PLACE // longest) for side in picture.size], Image.Resampling.NEAREST)


def of_all_classes(images: Images) -> list[np.ndarray]:
    spread = [column * len(images.classes) // LINE for column in range(LINE)]
    return [
        pixels
        for number in dict.fromkeys(spread)
        for pixels in some_of(images, number)[: spread.count(number)]
    ]


def few_of(name: str, source: Any) -> Images:
    """A data set that is drawn here, drawn small and not kept."""
    arrays = {
        key: torch.from_numpy(array)
        for key, array in decoded(replace(source, train=min(FEW, source.train), test=1)).items()
    }
    train, test = (Pool(arrays[f"{split}_x"], arrays[f"{split}_y"]) for split in ("train", "test"))
    return Images(name, tuple(source.classes), train, test, digest="")
