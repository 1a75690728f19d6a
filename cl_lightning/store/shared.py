"""The store of a run on several ranks: rank 0 reads and writes, the others hear what it has read."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

from cl_lightning.parallel.ranks import Ranks
from cl_lightning.store.files import Saved, Store, adapter

T = TypeVar("T")


class SharedStore(Store):
    """Every rank makes the same calls in the same order, since all run the same program. What ``get_or_make``
    is given to make, all of them make."""

    def __init__(self, folder: Path, run: str, ranks: Ranks) -> None:
        super().__init__(folder, run)
        self.ranks = ranks

    @property
    def own(self) -> Store:
        return Store(self.folder, self.run)

    def _content(self, key: str) -> dict[str, Any] | None:
        return self.ranks.broadcast(super()._content(key) if self.ranks.is_writer else None)

    def _whole(self, content: dict[str, Any]) -> Saved | None:
        found = super()._whole(content) if self.ranks.is_writer else None
        told = self.ranks.broadcast(found and vars(found))
        return told and Saved(**told)

    def records(self, folder: str, kind: type[T]) -> list[T]:
        found = self.own.records(folder, kind) if self.ranks.is_writer else []
        told = self.ranks.broadcast(adapter(list[kind]).dump_python(found, mode="json"))  # type: ignore[valid-type]
        return adapter(list[kind]).validate_python(told)  # type: ignore[valid-type]

    def tensors(self, key: str) -> Any:
        return self.ranks.broadcast(self.own.tensors(key) if self.ranks.is_writer else None)

    def save(self, key: str, record: T, saved: Saved | None = None) -> T:
        return super().save(key, record, saved) if self.ranks.is_writer else record

    def save_tensors(self, name: str, tensors: Any) -> Saved:
        return super().save_tensors(name, tensors) if self.ranks.is_writer else Saved("", 0, "")

    def drop(self, key: str) -> None:
        if self.ranks.is_writer:
            super().drop(key)
