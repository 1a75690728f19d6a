"""A network's gradient as one vector, for learners that edit it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import torch
import torch.nn as nn
from torch import Tensor

Heads = Literal["project", "still"]


def trained(network: nn.Module) -> list[nn.Parameter]:
    return [p for p in network.parameters() if p.requires_grad]


def used(parameters: Sequence[nn.Parameter], *others: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Gradients of the parameters that the mini-batch used, these parameters, and what of other lists is
    theirs."""
    rows = zip([p.grad for p in parameters], parameters, *others)
    return map(list, zip(*[row for row in rows if row[0] is not None]))


def gradient(parameters: Sequence[nn.Parameter], out: Tensor | None = None) -> Tensor:
    """(n,) all ``.grad`` in a row; 0 where the loss does not depend on a parameter."""
    return flat([p.grad for p in parameters], parameters, out)


def gradient_of(loss: Tensor, parameters: Sequence[nn.Parameter], out: Tensor | None = None) -> Tensor:
    """(n,) of another loss, written to ``out``."""
    return flat(torch.autograd.grad(loss, parameters, allow_unused=True), parameters, out)


def flat(
    gradients: Sequence[Tensor | None], parameters: Sequence[nn.Parameter], out: Tensor | None = None
) -> Tensor:
    rows = [
        torch.zeros_like(p).reshape(-1) if g is None else g.reshape(-1) for g, p in zip(gradients, parameters)
    ]
    return torch.cat(rows, out=out)


def set_gradient(parameters: Sequence[nn.Parameter], z: Tensor, heads: Heads = "project") -> None:
    """Write ``z`` into ``.grad``. A parameter on which the loss did not depend is left without a gradient,
    neither stepped nor decayed: if ``z`` gives it nothing, and always where ``heads`` stay ``still``."""
    for p, part in zip(parameters, z.split([p.numel() for p in parameters])):
        if p.grad is not None or (heads == "project" and part.any().cpu()):
            p.grad = part.view_as(p)
