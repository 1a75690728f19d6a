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
from cl_lightning.data.streams.show import Show
from cl_lightning.data.streams.stream import Recipe, Stream, recipe

__all__ = [
    "Recipe", "Show", "Stream", "drifting", "long", "overlapping", "permuted", "recipe", "rotated",
    "sequence", "split", "transformed", "two_tasks",
]  # fmt: skip
