"""One optimizer for all candidates of a phase, and the moments that it goes on with at a task switch."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn as nn
from torch import Tensor
from torch.optim import Optimizer

from cl_lightning.engine.settings import Training
from cl_lightning.learners.base import Candidate


def make_optimizer(
    candidates: Sequence[Candidate], settings: Training, kept: Mapping[str, Any], device: torch.device
) -> Optimizer:
    """Adam or SGD. Candidates with equal hyper-parameters share a group: the same bits, fewer calls. ``kept``
    are the moments of the last phase, where they are carried on."""
    merged: dict[str, dict] = {}
    for group in (group for c in candidates for group in c.groups()):
        options = {key: value for key, value in group.items() if key != "params"}
        merged.setdefault(repr(sorted(options.items())), {"params": [], **options})["params"] += group[
            "params"
        ]
    common: dict[str, Any] = {
        "lr": settings.lr,
        "weight_decay": settings.weight_decay,
        "fused": device.type in ("cpu", "cuda"),
    }
    groups = list(merged.values())
    optimizer: Optimizer
    if settings.optimizer == "adam":
        optimizer = torch.optim.Adam(groups, **common)
    else:
        optimizer = torch.optim.SGD(groups, momentum=settings.momentum or 0.0, **common)
    begin_momentum(optimizer)
    carry_on(optimizer, candidates, kept)
    return optimizer


def begin_momentum(optimizer: Optimizer) -> None:
    """Momentum starts from 0, which gives the bits of starting from nothing: the fused kernel wants all
    buffers or none, whoever gets a gradient when."""
    for group in optimizer.param_groups:
        for p in group["params"] if group.get("momentum") else ():
            optimizer.state[p]["momentum_buffer"] = torch.zeros_like(p)


def carry_on(optimizer: Optimizer, candidates: Sequence[Candidate], kept: Mapping[str, Any]) -> None:
    """Go on with the kept moments, in networks that start with the weights that these belong to."""
    fused = optimizer.defaults["fused"]
    for network in (c.network for c in candidates if kept and weights_key(c.network) == kept["weights"]):
        for name, p in network.named_parameters():
            if p.requires_grad and name in kept["moments"]:
                state = kept["moments"][name].items()
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


def weights_key(network: nn.Module) -> int:
    """A checksum of a network's parameters."""
    key = 0
    for p in network.parameters():
        key = zlib.crc32(p.detach().cpu().contiguous().view(torch.uint8).numpy().data, key)
    return key
