"""Whether later tasks look like earlier ones: what makes forgetting hard to avoid (Farquhar and Gal 2018,
first desideratum).

Measured by ``python -m cl_lightning.data describe``; a run's card goes by what the stream's recipe says.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.nn as nn
import torch.nn.functional as F

from cl_lightning.data.streams.stream import Stream
from cl_lightning.randomness import rng, seeded

SURE, SHARE = 0.9, 0.1  # a prediction is sure from this probability on; so many make tasks alike
TASKS, EXAMPLES, STEPS, BATCH, UNITS = 6, 1000, 300, 50, 100  # of the reference network; steps a task


@dataclass(frozen=True)
class Resemblance:
    """What was measured on the first task on whose images the reference network is sure of old classes; else
    on the one nearest to it."""

    task: int
    sure: float  # fraction of its images with probability >= 0.9 for one class of earlier tasks
    entropy: float  # of its predictions, mean over its images, in nats
    # Whether the stream permuted its pixels: other inputs by construction, however sure a network is.
    permuted: bool = False

    @property
    def alike(self) -> bool:
        return self.sure >= SHARE and not self.permuted


def resemblance(stream: Stream) -> Resemblance | None:
    """Finetunes a small network with one output vector through the first tasks; looks at each before training
    on it."""
    with seeded("resemblance", "init"):
        sizes = (math.prod(stream.shape), UNITS, UNITS, stream.head.num_outputs)
        layers = [layer for n, m in pairwise(sizes) for layer in (nn.Linear(n, m), nn.ReLU())]
        network = nn.Sequential(nn.Flatten(), *layers[:-1])
    best = None
    for index in range(min(TASKS, len(stream))):
        train = stream.task(index).train
        rows = torch.randperm(len(train), generator=rng("resemblance", index))[:EXAMPLES]
        x, y = train.x[rows], train.y[rows]
        if index:
            seen = look(network, x, stream, index)
            if seen.alike or seen.permuted:
                return seen
            best = max(best or seen, seen, key=lambda one: one.sure)
        if index < min(TASKS, len(stream)) - 1:
            fit(network, x, y, index)
    return best


@torch.no_grad()
def look(network: nn.Module, x: torch.Tensor, stream: Stream, index: int) -> Resemblance:
    old = sorted({output for own in stream.head.owned[:index] for output in own})
    p = network(x).softmax(1)
    sure = (p[:, old].amax(1) >= SURE).double().mean().item()
    entropy = torch.special.entr(p).sum(1).mean().item()
    return Resemblance(index, sure, entropy, stream.recipe(index).permuted)


def fit(network: nn.Module, x: torch.Tensor, y: torch.Tensor, index: int) -> None:
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
    with torch.enable_grad():
        for step in range(STEPS):
            rows = torch.randint(len(y), (BATCH,), generator=rng("resemblance", index, step))
            optimizer.zero_grad()
            F.cross_entropy(network(x[rows]), y[rows]).backward()
            optimizer.step()
