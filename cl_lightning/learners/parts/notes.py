"""What learners tell reports of a task, where reports know what to make of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class ModulePaths:
    """The path of modules that a task was given, and where it comes from. Modules have numbers, from 0 in the
    order of their birth."""

    path: Sequence[int]  # the task's modules, from the input to the head
    reused: int  # how many of them, from the input on, are an earlier task's
    sources: Sequence[int] = ()  # past tasks whose paths could be re-used, the best first
    scores: Sequence[
        float
    ] = ()  # of each past task in the search for the nearest; empty where nothing was searched
    prefixes: Mapping[str, Sequence[int]] = field(
        default_factory=dict
    )  # by candidate: the modules that it re-used
