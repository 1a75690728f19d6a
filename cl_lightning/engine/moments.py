"""Momentum and Adam's moments: where they begin, and how they go on at a task switch (``trainer.optimizer_state``)."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn as nn
from torch import Tensor
from torch.optim import Optimizer

from cl_lightning.learners.base import Candidate


def begin_momentum(optimizer: Optimizer) -> None:
    """From 0, which gives the bits of beginning from nothing: the fused kernel wants all buffers or none, whoever gets a gradient when."""
    for group in optimizer.param_groups:
        for p in group["params"] if group.get("momentum") else ():
            optimizer.state[p]["momentum_buffer"] = torch.zeros_like(p)


def carry_on(optimizer: Optimizer, candidates: Sequence[Candidate], kept: Mapping[str, Any]) -> None:
    """Begin with what was kept of the last phase, where a network begins with the weights that it belongs to."""
    fused = optimizer.defaults["fused"]
    for network in (c.network for c in candidates if kept and weights_key(c.network) == kept["weights"]):
        for name, p in network.named_parameters():
            if p.requires_grad and name in kept["moments"]:
                state = kept["moments"][name].items()
                optimizer.state[p] = {key: value.clone().to(p.device if value.dim() or fused else "cpu") for key, value in state}


def moments_of(optimizer: Optimizer, network: nn.Module) -> dict[str, dict[str, Tensor]]:
    """Of a network, by the names of its parameters."""
    state, named = optimizer.state, network.named_parameters()
    return {name: {key: value.clone() for key, value in state[p].items() if value is not None} for name, p in named if p in state}


def weights_key(network: nn.Module) -> int:
    """A checksum of a network's parameters."""
    key = 0
    for p in network.parameters():
        key = zlib.crc32(p.detach().cpu().contiguous().view(torch.uint8).numpy().data, key)
    return key
