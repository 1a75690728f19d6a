"""Votes of nearest neighbours."""

from __future__ import annotations

import torch

from cl_lightning.data.task import Split


def vote_accuracy(
    known: torch.Tensor, labels: torch.Tensor, queries: torch.Tensor, predictions: torch.Tensor, k: int
) -> float:
    """Accuracy of the ``k`` nearest of ``known`` (n, features) for ``asked``; Euclidean, equal votes, ties to
    the smallest label.

    >>> one = torch.tensor([[0.0], [1.0], [5.0]])
    >>> vote_accuracy(one, torch.tensor([0, 0, 1]), torch.tensor([[0.4], [6.0]]), torch.tensor([0, 1]), k=1)
    1.0
    """
    nearest = (
        torch.cdist(queries, known, compute_mode="donot_use_mm_for_euclid_dist")
        .topk(min(k, len(known)), largest=False)
        .indices
    )
    votes = torch.zeros(len(queries), int(labels.max()) + 1, device=queries.device)
    votes.scatter_add_(1, labels[nearest], torch.ones_like(nearest, dtype=votes.dtype))
    return (votes.argmax(1) == predictions).sum().item() / len(predictions)


def some_of_each_class(split: Split, count: int, generator: torch.Generator) -> Split:
    """About so many examples, in the classes' own proportions and with every class among them."""
    if len(split) <= count:
        return split
    fraction, rows = count / len(split), []
    for label in split.y.unique():
        own = (split.y == label).nonzero()[:, 0]
        rows.append(own[torch.randperm(len(own), generator=generator)[: max(1, round(fraction * len(own)))]])
    x, y, task = split.gather(torch.cat(rows).sort().values)
    return Split(x, y, task)
