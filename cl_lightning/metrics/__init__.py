"""Numbers computed from what happened: pure functions."""

from cl_lightning.metrics.accuracy_matrix import (
    AccuracyMatrix,
    AverageAccuracy,
    AverageIncrementalAccuracy,
    BackwardTransfer,
    Forgetting,
    ForgettingFromBest,
    ForgettingRatio,
    ForwardTransfer,
    LearningAccuracy,
)

__all__ = [
    "AccuracyMatrix",
    "AverageAccuracy",
    "AverageIncrementalAccuracy",
    "BackwardTransfer",
    "Forgetting",
    "ForgettingFromBest",
    "ForgettingRatio",
    "ForwardTransfer",
    "LearningAccuracy",
]
