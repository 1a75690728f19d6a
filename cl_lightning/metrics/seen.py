"""Whether uncertainty tells tasks that a learner has seen from others (Farquhar and Gal 2018, C.8)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

THETAS = [1 + step / 10 for step in range(91)]  # 1.0, 1.1 ... 10.0


def roc(rows: Sequence[Sequence[float]]) -> list[tuple[float, float]]:
    """The false and the true positive rate for each theta, the greatest first, with the ends of the curve.

    ``rows[s][u]``: mutual information on task u after s tasks. A task is called new where it is more than
    theta times that on the task that was learned last; that one itself is not judged. Pairs are pooled over
    all tests.

    >>> sorted(set(roc([[0, 0], [0.1, 0.3], [0.2, 0.1]])))  # 3 times on the new task, twice on the old one
    [(0.0, 0.0), (0.0, 1.0), (1.0, 1.0)]
    """
    pairs = [
        (task >= learned, value, row[learned - 1])
        for learned, row in enumerate(rows[1:], 1)
        for task, value in enumerate(row)
        if task != learned - 1
    ]

    def rate(of_new: bool, theta: float) -> float:
        called = [value > theta * last for is_new, value, last in pairs if is_new == of_new]
        return sum(called) / len(called)

    points = [(rate(False, theta), rate(True, theta)) for theta in reversed(THETAS)]
    return [(0.0, 0.0), *points, (1.0, 1.0)]


def auc_of_seen(measures: Mapping[str, Sequence[Sequence[float | None]]]) -> float | None:
    """The area under ``roc`` by trapezoids; None where mutual information was not measured on all tasks, or
    there is one task alone."""
    found = measures.get("mutual_information", [])
    rows = [[value for value in row if value is not None] for row in found]
    if len(rows) < 3 or any(len(row) < len(rows) - 1 for row in rows[1:]):
        return None
    return sum((b[0] - a[0]) * (a[1] + b[1]) / 2 for a, b in pairwise(roc(rows)))
