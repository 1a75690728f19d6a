"""Learning written out in plain torch: what learners are compared with.

A network is a list of tensors: weight, bias, weight, bias, ... Of the program, only the keys of its draws are
taken: the network of a task begins under (seed, "init", task), and the examples of the first task come in the
order of (seed, "task0", 0, "order", epoch).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import torch
import torch.nn as nn
from torch import Tensor

from cl_lightning.data.streams.stream import Stream
from cl_lightning.data.task import Split
from cl_lightning.learners import Learner
from cl_lightning.randomness import rng, seeded
from tests import toys

SEED, EPOCHS, SIZE, RATE = 3, 3, 10, 0.1
SETTINGS = toys.training(optimizer="sgd", lr=RATE, max_epochs=EPOCHS, batch_size=SIZE)
WIDTHS = (36, 16, 16, 4)  # of the network that toys.builder builds for four classes
OWN = ([0, 1], [2, 3], [4, 5])  # outputs of the tasks of ``pairs``

Net = list[Tensor]


def pairs() -> Stream:
    """Three tasks of two classes each; a loss is over these two alone."""
    return toys.pairs_of_classes(tasks=3, n_val=40)


def learned(learner: Learner, s: Stream) -> Any:
    """The learner after the whole stream, by the program."""
    return toys.learn(learner, s, SETTINGS).learner


def fresh(task: int, widths: Sequence[int] = WIDTHS) -> Net:
    """Linear layers as torch draws them."""
    with seeded(SEED, "init", task):
        layers = [nn.Linear(one, other) for one, other in pairwise(widths)]
    return copied([tensor for layer in layers for tensor in (layer.weight, layer.bias)])


def copied(net: Net) -> Net:
    return [w.detach().clone().requires_grad_() for w in net]


def features(net: Net, x: Tensor) -> Tensor:
    """Linear layers with a ReLU behind each."""
    h = x.flatten(1)
    for weight, bias in zip(net[::2], net[1::2]):
        h = (h @ weight.T + bias).clamp(min=0)
    return h


def logits(net: Net, x: Tensor) -> Tensor:
    """The same, but without the last ReLU."""
    return features(net[:-2], x) @ net[-2].T + net[-1]


def loss(net: Net, x: Tensor, y: Tensor, own: Sequence[int] | None = None) -> Tensor:
    """Mean cross-entropy over all outputs, or over those that are a task's own."""
    z = logits(net, x)
    if own is not None:
        z, y = z[:, own], y - own[0]
    return -z.log_softmax(1)[range(len(y)), y].mean()


def gradient(value: Tensor, net: Net) -> Tensor:
    """All in a row."""
    return row(torch.autograd.grad(value, net))


def mini_batches(examples: Split, task: int, phase: int = 0) -> Iterator[tuple[tuple, Tensor, Tensor]]:
    """The key, images and labels of each in turn."""
    step = 0
    for epoch in range(EPOCHS):
        order = torch.randperm(len(examples), generator=rng(SEED, f"task{task}", phase, "order", epoch))
        for rows in order.split(SIZE):
            yield (SEED, f"task{task}", phase, step), examples.x[rows], examples.y[rows]
            step += 1


@torch.no_grad()
def move(net: Net, gradient: Tensor, rate: float = RATE) -> None:
    for w, g in zip(net, gradient.split([w.numel() for w in net])):
        w -= rate * g.view_as(w)


def train(net: Net, examples: Split, task: int, own: Sequence[int] | None = None) -> None:
    """Plain gradient descent on all that is in the list."""
    for _, x, y in mini_batches(examples, task):
        move(net, gradient(loss(net, x, y, own), net))


def row(tensors: Sequence[Tensor]) -> Tensor:
    return torch.cat([tensor.detach().flatten() for tensor in tensors])


def same_logits(learner: Learner, nets: Sequence[Net], x: Tensor) -> bool:
    """What a learner says of images when it is told each task in turn."""
    said, expected = ([learner(x, task) for task in range(len(nets))], [logits(net, x) for net in nets])
    return torch.allclose(torch.stack(said), torch.stack(expected), atol=1e-3)


def equal(module: nn.Module, net: Net) -> bool:
    """Weight by weight in the module's order, but for rounding."""
    weights = list(module.parameters())
    assert [tuple(w.shape) for w in weights] == [tuple(w.shape) for w in net]
    return torch.allclose(row(weights), row(net), rtol=1e-3, atol=2e-5)
