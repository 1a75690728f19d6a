"""One optimizer for all candidates of a phase, and the moments that it goes on with at a task switch."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
import torch.nn as nn
from torch import Tensor
from torch.optim import Optimizer

from cl_lightning.config.settings import Training
from cl_lightning.engine.proposals import state_of
from cl_lightning.learners.base import Candidate, Learner

Moments = Mapping[tuple, dict[str, dict[str, Tensor]]]  # by checksums of the weights that they belong to


def make_optimizer(
    candidates: Sequence[Candidate], settings: Training, kept: Moments, device: torch.device
) -> Optimizer:
    """Adam or SGD. Candidates with equal hyper-parameters share a group: the same bits, fewer calls; but not
    where each has a learning rate that falls by itself. ``kept`` are the moments that are carried on."""
    merged: dict[str, dict] = {}
    for i, group in ((i, group) for i, c in enumerate(candidates) for group in c.groups()):
        options = {key: value for key, value in group.items() if key != "params"}
        if settings.waits is not None:
            options |= {"candidate": i, "fell_at": 0}
        key = repr(sorted(options.items()))
        merged.setdefault(key, {"params": [], **options})["params"] += group["params"]
    common: dict[str, Any] = {
        "lr": settings.lr,
        "weight_decay": settings.weight_decay,
        "fused": device.type in ("cpu", "cuda"),
    }
    groups = list(merged.values())
    optimizer: Optimizer
    if settings.optimizer == "adam":
        b1, b2 = settings.betas or (0.9, 0.999)
        optimizer = torch.optim.Adam(groups, betas=(b1, b2), **common)
    else:
        optimizer = torch.optim.SGD(groups, momentum=settings.momentum or 0.0, **common)
    for group in optimizer.param_groups:
        group["initial_lr"] = group["lr"]
    begin_momentum(optimizer)
    carry_on(optimizer, candidates, kept)
    return optimizer


def begin_momentum(optimizer: Optimizer) -> None:
    """Momentum starts from 0, which gives the bits of starting from nothing: the fused kernel wants all
    buffers or none, whoever gets a gradient when."""
    for group in optimizer.param_groups:
        for p in group["params"] if group.get("momentum") else ():
            optimizer.state[p]["momentum_buffer"] = torch.zeros_like(p)


def carry_on(optimizer: Optimizer, candidates: Sequence[Candidate], kept: Moments) -> None:
    """Go on with the kept moments, in networks that start with the weights that these belong to."""
    fused = optimizer.defaults["fused"]
    for network in (c.network for c in candidates if kept):
        moments = kept.get(weights_key(network.parameters()), {})
        for name, p in network.named_parameters():
            if p.requires_grad and name in moments:
                state = moments[name].items()
                optimizer.state[p] = {
                    key: value.clone().to(p.device if value.dim() or fused else "cpu") for key, value in state
                }


def moments_of(optimizer: Optimizer, network: nn.Module) -> dict[str, dict[str, Tensor]]:
    """The optimizer's state for a network, by the names of its parameters."""
    state, named = optimizer.state, network.named_parameters()
    return {
        name: {key: value.clone() for key, value in state[p].items() if value is not None}
        for name, p in named
        if p in state
    }


def weights_key(weights: Iterable[Tensor]) -> tuple[int, ...]:
    """A checksum of each tensor."""
    flat = (w.detach().cpu().reshape(-1) for w in weights)
    return tuple(zlib.crc32(w.view(torch.uint8).numpy().data) for w in flat)


def held_by(learner: Learner, moments: Moments) -> Moments:
    """The moments whose weights the learner has, wherever it keeps them: no phase can begin with others."""
    here = set(weights_key(state_of(learner))) if moments else set()
    return {weights: each for weights, each in moments.items() if here.issuperset(weights)}
