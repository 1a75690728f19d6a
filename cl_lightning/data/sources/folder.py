"""Folders of images: ``<root>/<folder>/{train,test}/<class name>/*.png`` and other formats that Pillow
reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch

from cl_lightning.config.checking import Count, Fulfils, Names, Text
from cl_lightning.errors import Refusal

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".ppm", ".pgm", ".tif", ".tiff", ".webp")
SPLITS = {"train": ("train",), "test": ("test",)}
LISTS = "a mapping of train and test to lists of names"
Splits = Annotated[Mapping[str, Names], Fulfils(lambda splits: set(splits) == set(SPLITS), LISTS)]


@dataclass(frozen=True)
class ImageFolder:
    """A folder a class. Classes are numbered in the order of their names, unless given; a / in a given name
    is a _ in its folder's.

    ``splits`` names the folders that make up train and test. ``licence`` and ``citation`` are for ``python -m
    cl_lightning.data list``.
    """

    folder: Text
    root: Text | None = None
    classes: tuple[Text, ...] = ()
    side: Count | None = None
    splits: Splits | None = None
    licence: Text | None = None
    citation: Text | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "classes", tuple(self.classes or self.found()))

    @property
    def place(self) -> Path:
        return Path(self.root or ".").expanduser() / self.folder

    def parts(self, split: str) -> list[Path]:
        return [self.place / part for part in (self.splits or SPLITS)[split]]

    def found(self) -> list[str]:
        folders = [child for part in self.parts("train") if part.is_dir() for child in part.iterdir()]
        names = {folder.name for folder in folders if folder.is_dir()}
        if not names:
            raise Refusal(
                f"{self.parts('train')[0]} holds no folder a class. Images are looked for in "
                f"{self.place}/train/<class>/ and {self.place}/test/<class>/, as in "
                f"{self.parts('train')[0]}/cat/1.png."
            )
        return sorted(name for name in names if not name.startswith("."))

    def files(self, split: str) -> list[tuple[Path, int]]:
        """All images of a split with their class numbers, in the order of classes and names."""
        numbers = {name.replace("/", "_"): number for number, name in enumerate(self.classes)}
        found = []
        for part in self.parts(split):
            if not part.is_dir():
                raise Refusal(
                    f"{part} is not there. The {split} images of {self.folder!r} are looked for in a folder "
                    "a class in it."
                )
            for child in sorted(part.iterdir()):
                images = [f for f in child.rglob("*") if f.suffix.lower() in SUFFIXES]  # of a file none
                if images and child.name not in numbers:
                    raise Refusal(
                        f"{child} is the folder of no class. The classes of {self.folder!r} are "
                        f"{', '.join(list(self.classes)[:12])}{', ...' * (len(self.classes) > 12)}: rename "
                        f"the folder, or set data.sources.{self.folder}.classes."
                    )
                found += [(file, numbers[child.name]) for file in images]
        if not found:
            raise Refusal(
                f"{self.parts(split)[0]} holds no images: none that ends in {', '.join(SUFFIXES)} in a "
                "folder a class."
            )
        return sorted(found, key=lambda pair: (pair[1], str(pair[0])))

    def identity(self) -> dict:
        def about(file: Path, label: int) -> list:
            status = file.stat()
            return [str(file.relative_to(self.place)), status.st_size, status.st_mtime_ns, label]

        splits = {split: [about(*pair) for pair in self.files(split)] for split in SPLITS}
        return {"kind": "folder", "classes": list(self.classes), **splits}

    def decode(self) -> dict[str, torch.Tensor]:
        from cl_lightning.data.sources.encoded import decode_splits

        files = {split: self.files(split) for split in SPLITS}
        of_splits = {split: [file for file, _ in pairs] for split, pairs in files.items()}
        pixels = decode_splits(self.folder, of_splits, self.side)
        labels = {f"{split}_y": torch.tensor([label for _, label in pairs]) for split, pairs in files.items()}
        return {f"{split}_x": x for split, x in pixels.items()} | labels

    def numbers(self) -> dict[str, int]:
        """How many images each split has."""
        return {split: len(self.files(split)) for split in SPLITS}

    def location(self) -> str:
        return str(self.place)
