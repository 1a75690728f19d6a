"""Whether a data set is what it should be: counts, labels, copies, and the bytes in the cache."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from cl_lightning.data.sources.cache import SPLITS, Images, cache_folder, damage, is_complete, open_images


@dataclass(frozen=True)
class Findings:
    """``wrong`` are faults; ``notes`` are worth knowing."""

    wrong: list[str]
    notes: list[str]


def check_source(name: str, source: Any, cache: str | Path) -> Findings:
    """Open a source, decoding it where it never was, and look at everything."""
    folder = cache_folder(name, source, cache)
    broken = damage(folder, source.classes) if is_complete(folder) else None
    if broken:
        return Findings([f"{folder} is damaged: {broken}. Delete it, and it is made again."], [])
    images = open_images(name, source, cache)
    wrong, notes = [*wrong_labels(images)], [summary(images)]
    for split in SPLITS:
        (wrong if expected_exactly(source) else notes).extend(
            other_count(source, split, len(getattr(images, split).y))
        )
    return Findings(wrong, [*notes, duplicates(images)])


def summary(images: Images) -> str:
    counts = {split: getattr(images, split).y.bincount(minlength=len(images.classes)) for split in SPLITS}
    totals = " and ".join(f"{int(counts[split].sum())} {split}" for split in SPLITS)
    spread = ", ".join(
        f"{int(counts[split].min())} to {int(counts[split].max())} {split}" for split in SPLITS
    )
    shape = "x".join(map(str, images.shape))
    return f"{totals} images of {len(images.classes)} classes, {shape}; a class has {spread}"


def wrong_labels(images: Images) -> Iterator[str]:
    for split in SPLITS:
        labels = getattr(images, split).y
        if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < len(images.classes):
            first, last, classes = int(labels.min()), int(labels.max()), len(images.classes)
            yield f"{split} labels go from {first} to {last}, but there are classes 0 to {classes - 1}"
            continue
        missing = (labels.bincount(minlength=len(images.classes)) == 0).nonzero()[:, 0].tolist()
        if missing:
            names = ", ".join(images.classes[number] for number in missing[:5])
            yield f"no {split} images of {names}{', ...' * (len(missing) > 5)}"


def expected_exactly(source: Any) -> bool:
    """A folder of one's own may hold a part of a set; the Hub and generators give all of it."""
    is_here = getattr(source, "is_here", None)
    return is_here is None or not is_here()


def other_count(source: Any, split: str, count: int) -> Iterator[str]:
    expected = (getattr(source, "counts", None) or {}).get(split, getattr(source, split, None))
    if isinstance(expected, int) and count != expected:
        yield f"{count} {split} images; a set of this name should have {expected}"


def duplicates(images: Images) -> str:
    """How many images are exact copies of others: many sets have some."""
    train, test = (
        [blake2b(image.data, digest_size=16).digest() for image in pool.x.numpy()]
        for pool in (images.train, images.test)
    )
    known = set(train)
    both, twice = sum(image in known for image in test), len(train) - len(known)
    return f"{both} test images are also in train, {twice} train images are copies"
