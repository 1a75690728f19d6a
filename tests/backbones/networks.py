"""All networks, in sizes that are quick, and what is counted of them."""

from __future__ import annotations

from functools import partial

import torch
import torch.nn as nn

from cl_lightning.backbones import CNN, CONV, LWTA, MLP, AlexNet, ResNet, ResNet18
from cl_lightning.data.task import Head
from cl_lightning.metrics.flops import Flops

TEN = Head("domain", 10, (tuple(range(10)),) * 20)
PAIRS = Head("multi_train_test", 6, ((0, 1), (2, 3), (4, 5)))
SHAPE = (2, 20, 22)
WITH_DROPOUT = {"dropout": 0.4, "input_dropout": 0.2}

EVERY = {
    "MLP": partial(MLP, sizes=(8, 9)),
    "MLP with dropout": partial(MLP, sizes=(8, 9), **WITH_DROPOUT),
    "MLP without hidden layers": partial(MLP, sizes=()),
    "MLP with an input layer a task": partial(MLP, sizes=(8, 9), inputs="per_task", **WITH_DROPOUT),
    "LWTA": partial(LWTA, sizes=(8, 9), init="fan_in", **WITH_DROPOUT),
    "CONV": partial(CONV, dropout=0.5),
    "CNN": partial(CNN, dropout=0.25),
    "AlexNet": partial(AlexNet, widen=0.05),
    **{f"ResNet in {modules}": partial(ResNet, width=4, modules=modules) for modules in (3, 6, 7, 10)},
    "ResNet18": partial(ResNet18, width=2),
}
CONVOLUTIONAL = {name: make for name, make in EVERY.items() if name.startswith(("CONV", "AlexNet", "ResNet"))}


def parameters(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def buffers(module: nn.Module) -> int:
    return sum(b.numel() for b in module.buffers())


def macs(module: nn.Module, *shape: int) -> int:
    """Multiplications with an addition that one example of this shape takes."""
    with torch.no_grad(), Flops() as counted:
        module.eval()(torch.empty(1, *shape, device="meta"))
    return counted.total // 2


def on_meta(make, *arguments, **options) -> nn.Module:
    """A network without its numbers: large ones are counted at once."""
    with torch.device("meta"):
        return make(*arguments, **options)
