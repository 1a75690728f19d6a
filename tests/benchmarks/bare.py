"""What a careful person writes without a framework: tensors in memory, nn.Module, autograd, torch.optim. Nothing else."""

from __future__ import annotations

import torch
import torch.nn as nn
import torch.nn.functional as F


def mlp() -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(784, 100), nn.ReLU(), nn.Linear(100, 100), nn.ReLU(), nn.Linear(100, 10)
    )  # fmt: skip


def optimizer(name: str, network: nn.Module, lr: float, fused: bool) -> torch.optim.Optimizer:
    if name == "adam":
        return torch.optim.Adam(network.parameters(), lr=lr, fused=fused)
    return torch.optim.SGD(network.parameters(), lr=lr, fused=fused)


def train(network: nn.Module, opt: torch.optim.Optimizer, x: torch.Tensor, y: torch.Tensor, batch_size: int, epochs: int) -> None:
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
