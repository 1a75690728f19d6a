"""Streams: ordered tasks, each a recipe until it is opened."""

from cl_lightning.data.streams.recipes import (
    drifting,
    overlapping,
    permuted,
    rotated,
    split,
    transformed,
    two_tasks,
)
from cl_lightning.data.streams.sequence import long, sequence

__all__ = [
    "drifting", "long", "overlapping", "permuted", "rotated", "sequence", "split", "transformed", "two_tasks",
]  # fmt: skip
