"""How fast tasks are learned (Chaudhry et al. 2019)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def learning_curve_area(curves: Sequence[Mapping[int, float]], beta: int = 5) -> float | None:
    """LCA: test accuracy after b mini-batches, mean over b = 0 .. beta and over tasks; a curve that ends
    early keeps its last value.

    ``curves``: for each task, its own accuracy by mini-batch. None where a task was not looked at before its
    first mini-batch.

    >>> learning_curve_area([{0: 0.1, 1: 0.4}, {0: 0.5}], beta=1)
    0.375
    """
    areas = []
    for curve in curves:
        if 0 not in curve:
            return None
        values = [curve[max(step for step in curve if step <= b)] for b in range(beta + 1)]
        areas.append(sum(values) / len(values))
    return sum(areas) / len(areas) if areas else None
