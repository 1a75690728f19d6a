"""The table of measures: what a test measures of predictions besides their accuracy, a row each.

A learner gives one or more draws of logits (``Learner.samples``). A prediction is the mean of the draws'
probabilities, not of their logits. All are in nats, and means over a task's test images unless they say
otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor


class Measure(NamedTuple):
    """A number for each image, and a formula in which p_k is the prediction of draw k, p their mean, c an
    output and y the right one."""

    name: str  # in trainer.measures and results.json
    function: Callable[[Tensor, Tensor], Tensor]  # of log p_k (draws, n, outputs) and y (n,), gives (n,)
    formula: str
    source: str
    median: bool = False  # over images, in the place of the mean


def averaged(logits: Tensor) -> Tensor:
    """What is predicted from draws of logits (draws, n, outputs): the log of the mean of their probabilities
    (n, outputs). One draw stays as it is."""
    return logits[0] if len(logits) == 1 else log_mean(logits.log_softmax(-1))


def log_mean(log_p: Tensor) -> Tensor:
    """log p of log p_k, without leaving logarithms: a small p is not 0."""
    return log_p.logsumexp(0) - math.log(len(log_p))


def entropy_in(log_p: Tensor) -> Tensor:
    """H = - sum over c of p(c) log p(c), where an output that cannot be chosen adds nothing."""
    p = log_p.exp()
    return -(p * log_p).masked_fill(p == 0, 0.0).sum(-1)


def entropy(log_p: Tensor, y: Tensor) -> Tensor:
    return entropy_in(log_mean(log_p))


def expected_entropy(log_p: Tensor, y: Tensor) -> Tensor:
    return entropy_in(log_p).mean(0)


def mutual_information(log_p: Tensor, y: Tensor) -> Tensor:
    return entropy(log_p, y) - expected_entropy(log_p, y)


def nll(log_p: Tensor, y: Tensor) -> Tensor:
    return -log_mean(log_p).gather(1, y[:, None])[:, 0]


def brier(log_p: Tensor, y: Tensor) -> Tensor:
    p = log_mean(log_p).exp()
    return (p * p).sum(1) - 2 * p.gather(1, y[:, None])[:, 0] + 1


def confidence(log_p: Tensor, y: Tensor) -> Tensor:
    return log_mean(log_p).exp().amax(1)


ROWS = (
    Measure("entropy", entropy, "H(p) = - sum over c of p(c) log p(c)", "Farquhar and Gal 2018"),
    Measure("entropy_median", entropy, "H(p), the median over images", "Farquhar and Gal 2018", median=True),
    Measure("expected_entropy", expected_entropy, "mean over k of H(p_k): what draws agree on", "Gal 2016"),
    Measure(
        "mutual_information", mutual_information,
        "H(p) - mean over k of H(p_k): how far draws differ; 0 with one draw", "Farquhar and Gal 2018",
    ),
    Measure("nll", nll, "- log p(y); null where an image's is infinite", "Nguyen et al. 2018"),
    Measure("brier", brier, "sum over c of (p(c) - [c = y])^2", "Brier 1950"),
    Measure("confidence", confidence, "max over c of p(c)", "Guo et al. 2017"),
)  # fmt: skip
MEASURES = {row.name: row for row in ROWS}
