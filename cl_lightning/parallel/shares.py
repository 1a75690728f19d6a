"""How a phase's candidates are shared out: to trainings one after another, to devices, to jobs of a sweep."""

from __future__ import annotations

import math
from collections.abc import Sequence

from cl_lightning.learners.base import Candidate


def divided(
    candidates: Sequence[Candidate], numbers: Sequence[int], at_once: int | None, devices: int = 1
) -> list[list[int]]:
    """Shares of the candidates with these numbers: at most ``at_once`` in each, and a whole number of rounds
    for so many devices.

    Those that train much and those that train little are dealt out like cards, so that all shares take about
    the same time. Results do not depend on who is in which share.
    """
    if not numbers:
        return []
    rounds = math.ceil(len(numbers) / (devices * (at_once or len(numbers))))
    count = min(rounds * devices, len(numbers))
    heaviest_first = sorted(numbers, key=lambda i: -sum(p.numel() for p in candidates[i].parameters))
    return dealt(heaviest_first, count)


def dealt(numbers: Sequence[int], count: int) -> list[list[int]]:
    """Numbers dealt out in turn, forth and back.

    >>> dealt([5, 4, 3, 2, 1, 0], 2)
    [[1, 2, 5], [0, 3, 4]]
    """
    forth_and_back = [*range(count), *reversed(range(count))]
    shares: list[list[int]] = [[] for _ in range(count)]
    for place, number in enumerate(numbers):
        shares[forth_and_back[place % (2 * count)]].append(number)
    return [sorted(share) for share in shares]
