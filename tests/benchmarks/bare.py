"""What a careful person writes without a framework: tensors in memory, nn.Module, autograd, torch.optim.
Nothing else, but for the quadratic program of GEM, which is the same on both sides."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

from cl_lightning.learners.parts.quadratic import dual


def mlp(sizes: Sequence[int] = (100, 100)) -> nn.Module:
    layers: list[nn.Module] = [nn.Flatten()]
    for before, after in pairwise((784, *sizes)):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(sizes[-1], 10))


def optimizer(
    name: str, network: nn.Module, lr: float, fused: bool, momentum: float = 0
) -> torch.optim.Optimizer:
    if name == "adam":
        return torch.optim.Adam(network.parameters(), lr=lr, fused=fused)
    return torch.optim.SGD(network.parameters(), lr=lr, momentum=momentum, fused=fused)


def train(
    network: nn.Module,
    opt: torch.optim.Optimizer,
    x: torch.Tensor,
    y: torch.Tensor,
    batch_size: int,
    epochs: int,
) -> None:
    network.train()
    for _ in range(epochs):
        for rows in torch.randperm(len(y)).split(batch_size):
            opt.zero_grad()
            F.cross_entropy(network(x[rows]), y[rows]).backward()
            opt.step()


@torch.no_grad()
def accuracy(network: nn.Module, x: torch.Tensor, y: torch.Tensor, batch_size: int) -> float:
    network.eval()
    right = sum((network(a).argmax(1) == b).sum() for a, b in zip(x.split(batch_size), y.split(batch_size)))
    return float(right) / len(y)


def gem_step(
    network: nn.Module,
    opt: torch.optim.Optimizer,
    x: torch.Tensor,
    y: torch.Tensor,
    memories: list,
    margin: float = 0.5,
) -> None:
    """One GEM step as it is often written: a backward pass a memory, then everything about the projection on
    float64 copies."""
    parameters, rows = list(network.parameters()), []
    for old_x, old_y in memories:
        opt.zero_grad()
        F.cross_entropy(network(old_x), old_y).backward()
        rows.append(torch.cat([p.grad.reshape(-1) for p in parameters]))
    opt.zero_grad()
    F.cross_entropy(network(x), y).backward()
    g, G = torch.cat([p.grad.reshape(-1) for p in parameters]), torch.stack(rows)
    if (G @ g < 0).any():
        G64, g64 = G.double().numpy(), g.double().numpy()
        v = dual(G64 @ G64.T + 1e-3 * np.eye(len(G64)), G64 @ g64, margin)
        z = torch.from_numpy(v @ G64 + g64).float()
        for p, part in zip(parameters, z.split([p.numel() for p in parameters])):
            p.grad.copy_(part.view_as(p))
    opt.step()


def fisher(network: nn.Module, x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
    """Squared gradients, one example after another."""
    parameters = list(network.parameters())
    total = [torch.zeros_like(p) for p in parameters]
    for one, label in zip(x, y):
        for t, g in zip(
            total, torch.autograd.grad(F.cross_entropy(network(one[None]), label[None]), parameters)
        ):
            t += g**2
    return [t / len(y) for t in total]
