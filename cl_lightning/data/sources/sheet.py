"""Contact sheets: a row of images a class."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cl_lightning.data.sources.cache import Images
from cl_lightning.errors import Refusal
from cl_lightning.randomness import rng

ROWS = 20  # classes a page
COLUMNS = 12
CELL = 56  # pixels an image is enlarged to, at least
GAP = 2


def write_sheets(images: Images, file: Path) -> list[Path]:
    """Draw pages of up to 20 classes each: ``mnist.png``, then ``mnist-2.png`` and so on. Returns what was
    written."""
    if images.train.x.is_floating_point():
        raise Refusal(f"{images.name} holds vectors of features: there is nothing to look at.")
    pages = math.ceil(len(images.classes) / ROWS)
    more = (file.with_name(f"{file.stem}-{page}{file.suffix}") for page in range(2, pages + 1))
    files = [file, *more]
    for page, place in enumerate(files):
        classes = range(page * ROWS, min((page + 1) * ROWS, len(images.classes)))
        sheet(images, classes).save(place, format="PNG")
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
            picture = Image.fromarray(pixels).convert("RGB")
            picture = picture.resize((width * scale, height * scale), Image.Resampling.NEAREST)
            page.paste(picture, (margin + column * step_x, top))
    return page


def some_of(images: Images, number: int) -> list[np.ndarray]:
    rows = (images.train.y == number).nonzero()[:, 0]
    chosen = rows[torch.randperm(len(rows), generator=rng("sheet", number))[:COLUMNS]]
    return [image.permute(1, 2, 0).squeeze(2).contiguous().numpy() for image in images.train.x[chosen]]
