"""The quadratic program of gradient episodic memory."""

from __future__ import annotations

import numpy as np


def dual(P: np.ndarray, q: np.ndarray, margin: float) -> np.ndarray:
    """v >= margin that minimises v'Pv/2 + q'v, for positive definite P in float64: v = w + margin with w >= 0
    by active sets.

    >>> dual(np.eye(2), np.array([-3.0, 1.0]), 0.5)
    array([3. , 0.5])
    """
    return nonnegative(P, q + margin * P.sum(1)) + margin


def nonnegative(P: np.ndarray, q: np.ndarray) -> np.ndarray:
    """w >= 0 that minimises w'Pw/2 + q'w (Lawson and Hanson 1974, on the normal equations)."""
    w, free = np.zeros(len(q)), np.zeros(len(q), dtype=bool)
    small = 1e-12 * max(1.0, np.abs(q).max())
    for _ in range(30 * len(q)):
        descent = -(P @ w + q)
        descent[free] = 0
        if descent.max() <= small:
            break
        free[descent.argmax()] = True
        while True:
            s = np.zeros(len(q))
            s[free] = np.linalg.solve(P[np.ix_(free, free)], -q[free])
            below = free & (s <= 0)
            if not below.any():
                w = s
                break
            shrink = (w[below] / (w[below] - s[below])).min()
            w = w + shrink * (s - w)
            free &= w > small
            w[~free] = 0
    return w
