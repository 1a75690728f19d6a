"""Weights under a mask, which keep what they were before a step."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from cl_lightning.learners.base import Candidate


def note(c: Candidate, weights: Iterable[Tensor]) -> None:
    """In ``after_backward``: notes what weights are before the step."""
    vars(c)["noted"] = [(w, w.detach().clone()) for w in weights]


@torch.no_grad()
def hold(c: Candidate, masks: Iterable[Tensor]) -> None:
    """In ``after_step``: takes back the part ``mask`` of the step of each weight that was noted, whatever
    made it: gradient, momentum, Adam's moments or decay. Where a mask is 1, the weight has the bits that it
    had before; where it is 0, those that it has now.

    >>> w, c = torch.tensor([1.0, 1.0, 1.0]), Candidate(torch.nn.Identity())
    >>> note(c, [w])
    >>> w.data += 2.0
    >>> hold(c, [torch.tensor([0.0, 0.5, 1.0])])
    >>> w.tolist()
    [3.0, 2.0, 1.0]
    """
    for (w, before), mask in zip(vars(c).pop("noted"), masks, strict=True):
        w.lerp_(before, mask)
