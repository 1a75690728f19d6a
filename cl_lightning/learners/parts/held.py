"""Weights under a mask, which keep what they were before a step."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor


@torch.no_grad()
def hold(weights: Iterable[Tensor], before: Iterable[Tensor], masks: Iterable[Tensor]) -> None:
    """Takes back the part ``mask`` of each weight's last step, whatever made it: gradient, momentum, Adam's
    moments or decay. Where a mask is 1, the weight has the bits that it had before; where it is 0, those that
    it has now.

    >>> w = torch.tensor([3.0, 3.0, 3.0])
    >>> hold([w], [torch.ones(3)], [torch.tensor([0.0, 0.5, 1.0])])
    >>> w.tolist()
    [3.0, 2.0, 1.0]
    """
    for w, old, mask in zip(weights, before, masks, strict=True):
        w.lerp_(old, mask)
