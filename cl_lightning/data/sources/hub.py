"""Real data sets in the Hugging Face Hub's parquet layout, from a local folder or from the Hub itself."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import torch

from cl_lightning.config.checking import Count, Fulfils, Names, Size, Text
from cl_lightning.data.sources.folder import SPLITS, ImageFolder, Splits
from cl_lightning.errors import Refusal

NUMBERS = "a mapping of train and test to numbers of images, or null"
Counts = Annotated[Mapping[str, Size | None], Fulfils(lambda counts: set(counts) == set(SPLITS), NUMBERS)]


@dataclass(frozen=True)
class ParquetImages:
    """``<root>/<folder>`` where it exists, else the Hub's ``repository`` at ``revision``. ``datasets`` is
    imported only to decode.

    The folder may hold parquet files or a folder a class (see ``ImageFolder``). ``image`` and ``label`` are
    columns, or lists of which the first present one is used. ``config`` is the Hub's name for one of several
    variants. ``splits`` names the Hub's splits that make up train and test. ``counts``, ``licence``,
    ``citation`` and ``tried`` are for ``python -m cl_lightning.data``.
    """

    folder: Text
    repository: Text | None
    revision: Text
    image: Text | Names
    label: Text | Names
    classes: Names
    root: Text | None = None
    config: Text | None = None
    side: Count | None = None
    splits: Splits | None = None
    counts: Counts | None = None
    licence: Text | None = None
    citation: Text | None = None
    tried: bool = False

    @property
    def place(self) -> Path | None:
        return Path(self.root).expanduser() / self.folder if self.root else None

    @cached_property
    def local(self) -> Path | None:
        """The folder of parquet files."""
        if self.place is None:
            return None
        variant = self.place / (self.config or ".")
        place = variant if variant.is_dir() else self.place
        return place if any(place.glob("**/*.parquet")) else None

    @cached_property
    def class_folders(self) -> ImageFolder | None:
        if self.local is not None or self.place is None:
            return None
        found = ImageFolder(self.folder, self.root, tuple(self.classes), self.side, self.splits)
        return found if found.parts("train")[0].is_dir() else None

    def identity(self) -> dict:
        if self.class_folders is not None:
            return self.class_folders.identity()
        columns = {"kind": "parquet", "image": self.image, "label": self.label}
        about = {**columns, "splits": dict(self.splits or SPLITS), "classes": list(self.classes)}
        if self.local is None:
            return {**about, "repository": self.repository, "config": self.config, "revision": self.revision}
        files = [file for split in SPLITS for file in self.files(split)]
        return {**about, "files": [[f.name, f.stat().st_size, f.stat().st_mtime_ns] for f in files]}

    def decode(self) -> dict[str, torch.Tensor]:
        if self.class_folders is not None:
            return self.class_folders.decode()
        from cl_lightning.data.sources.encoded import check_labels, decode_splits

        encoded, labels = {}, {}
        for split in SPLITS:
            table = self.table(split)
            image, label = self.column(table, "image"), self.column(table, "label")
            self.check_names(table, label)
            encoded[split] = self.encoded(table[image], split)
            numbers = check_labels(self.folder, split, table[label].to_pylist(), self.classes)
            labels[f"{split}_y"] = torch.tensor(numbers, dtype=torch.int64)
        pixels = decode_splits(self.folder, encoded, self.side)
        return {f"{split}_x": x for split, x in pixels.items()} | labels

    def table(self, split: str) -> Any:
        """The rows of a split, a ``pyarrow.Table``; images are not decoded yet."""
        return self.local_table(split) if self.local is not None else self.hub_table(split)

    def files(self, split: str) -> list[Path]:
        assert self.local is not None
        names = (self.splits or SPLITS)[split]
        word = re.compile(rf"(?<![a-zA-Z0-9])({'|'.join(map(re.escape, names))})(?![a-zA-Z0-9])")
        found = self.local.glob("**/*.parquet")
        files = sorted(file for file in found if word.search(file.name) or file.parent.name in names)
        if not files:
            raise Refusal(
                f"{self.local} holds no parquet file for the split {names[0]!r}. Its files must have "
                f"{names[0]!r} in their names, or be in a folder of that name."
            )
        return files

    def local_table(self, split: str) -> Any:
        import pyarrow
        import pyarrow.parquet

        from cl_lightning.data.sources.encoded import regular

        tables = []
        for file in self.files(split):
            try:
                tables.append(pyarrow.parquet.read_table(regular(file)))
            except Exception as reason:  # whatever the library raises
                if isinstance(reason, OSError) and reason.errno is not None:
                    raise  # the disk's fault, not the file's
                raise Refusal(
                    f"The parquet files of {self.folder!r} cannot be read: {str(reason).splitlines()[0]}\n"
                    f"{file} is damaged: download it again."
                ) from reason
        return pyarrow.concat_tables(tables)

    def hub_table(self, split: str) -> Any:
        where = f"in {self.place}" if self.root else "on this machine (data.root is not set)"
        if self.repository is None:
            raise Refusal(
                f"The images of {self.folder!r} are not {where}, and no repository of the Hub is known to "
                "hold them.\n"
                f"Put them into <data.root>/{self.folder}, as parquet files or a folder a class, or use "
                "data=synthetic."
            )
        import datasets

        datasets.disable_progress_bars()
        names = "+".join((self.splits or SPLITS)[split])
        try:
            rows = datasets.load_dataset(self.repository, self.config, revision=self.revision, split=names)
        except (OSError, ValueError) as reason:  # no network, offline mode, no such repository
            raise Refusal(
                f"The images of {self.folder!r} are not {where}, and the Hub's {self.repository} could not "
                f"be read: {(str(reason).splitlines() or ['no reason given'])[0]}\n"
                "Set CL_LIGHTNING_DATA (or data.root) to a folder that holds them, connect to the network, "
                "or use data=synthetic."
            ) from reason
        return rows.with_format("arrow")[:]

    def column(self, table: Any, which: str) -> str:
        wanted = getattr(self, which)
        wanted = [wanted] if isinstance(wanted, str) else list(wanted)
        present = [column for column in wanted if column in table.column_names]
        if not present:
            raise Refusal(
                f"The data set {self.folder!r} has no column {' or '.join(map(repr, wanted))}; it has "
                f"{', '.join(table.column_names)}. "
                f"Set data.sources.{self.folder}.image and .label to the right ones."
            )
        return present[0]

    def encoded(self, column: Any, split: str) -> list[bytes]:
        """The files of all images, as they were stored."""
        import pyarrow
        import pyarrow.compute

        kind = column.type
        if pyarrow.types.is_struct(kind) and any(field.name == "bytes" for field in kind):
            column = pyarrow.compute.struct_field(column, "bytes")
        binary = pyarrow.types.is_binary(column.type) or pyarrow.types.is_large_binary(column.type)
        if column.null_count or not binary:
            empty = f", {column.null_count} of them empty" if column.null_count else ""
            raise Refusal(
                f"The column of images of the {split} split of {self.folder!r} does not hold image files: it "
                f"is {kind}{empty}. Set data.sources.{self.folder}.image to the column that does."
            )
        return column.to_pylist()

    def check_names(self, table: Any, label: str) -> None:
        """Refuse other numbers for names of classes that stand in the file, too. (Names that do not may be
        misspelt, or in another script.)"""
        said = json.loads((table.schema.metadata or {}).get(b"huggingface", b"{}"))
        features = said.get("info", {}).get("features", {})
        theirs, ours = (features.get(label) or {}).get("names") or [], list(self.classes)
        for number, name in enumerate(theirs):
            if name in ours and ours.index(name) != number:
                raise Refusal(
                    f"Class {number} of {self.folder!r} is {name!r} in its files, but "
                    f"data.sources.{self.folder}.classes has it as number {ours.index(name)}. Give the "
                    f"classes in the order of the files, which begins with {', '.join(theirs[:5])}."
                )

    def numbers(self) -> Mapping[str, int | None]:
        """How many images each split has, or should have where they are not here."""
        if self.class_folders is not None:
            return self.class_folders.numbers()
        if self.local is None:
            return self.counts or {}
        import pyarrow.parquet

        rows = pyarrow.parquet.read_metadata
        return {split: sum(rows(file).num_rows for file in self.files(split)) for split in SPLITS}

    def location(self) -> str:
        if self.local is not None or self.class_folders is not None:
            return str(self.place)
        if self.repository:
            return f"Hub: {self.repository}@{self.revision}"
        return "nowhere: no Hub repository is known"
