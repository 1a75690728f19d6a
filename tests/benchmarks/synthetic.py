"""What the synthetic data sets promise, measured: ``python -m tests.benchmarks.synthetic [--only NAME]
[--skip transfer]``.

Seconds to draw a set, test accuracy of a residual network of width 16 after 4000 images (3760 of ``dtd``),
and transfer: what 400 images give a new network, and what they give a new head on the frozen trunk of a
network that learned 4000 others before.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn as nn
import torch.nn.functional as F
from hydra.utils import instantiate
from omegaconf import OmegaConf

from cl_lightning.backbones import Backbone, ResNet
from cl_lightning.config.resolvers import conf_dir
from cl_lightning.data.task import Head
from cl_lightning.randomness import rng

SIDE, WIDTH = 32, 16
LEARNABLE = (0.60, 0.95)  # accuracy at 4000 images
RELATED, UNRELATED = 0.10, 0.03  # a frozen trunk gains at least, at most
PAIRS = (
    ("cifar10", "cifar10"),
    ("cifar10", "mnist"),
    ("cifar10", "dtd"),
    ("cifar10", "fashion_mnist"),
    ("cifar10", "svhn"),
)


@dataclass
class Examples:
    """Normalised images (n, 3, 32, 32) and labels of a task: to learn from, to stop early by, to test
    with."""

    classes: int
    train: tuple[torch.Tensor, torch.Tensor]
    val: tuple[torch.Tensor, torch.Tensor]
    test: tuple[torch.Tensor, torch.Tensor]


def sources() -> Any:
    return OmegaConf.load(Path(conf_dir()) / "data" / "synthetic.yaml").sources


def examples(name: str, n: int, classes: int | None = None, shift: int = 0, seed: int = 0) -> Examples:
    """``n`` training images of the first ``classes`` classes of a random order, half as many to stop by (200
    to 400), about 2000 to test with. A label is shifted by ``shift``; another ``seed`` gives other images."""
    config, val = sources()[name], max(200, min(400, n // 2))
    every = len(instantiate(config, train=1, test=1).classes)
    classes = classes or every
    sizes = {"train": (n + val) * every // classes, "test": 2000 * min(every // classes, 2)}
    drawn = instantiate(config, **sizes, seed=seed).decode()
    number = torch.full((every,), -1)
    number[
        torch.randperm(every, generator=rng("classes"))[:classes] if classes < every else torch.arange(every)
    ] = torch.arange(classes)
    x, y, test_x, test_y = (
        fit(drawn["train_x"]),
        number[drawn["train_y"]],
        fit(drawn["test_x"]),
        number[drawn["test_y"]],
    )
    x, y, test_x, test_y = x[y >= 0], y[y >= 0], test_x[test_y >= 0], test_y[test_y >= 0]
    mean, std = x[:n].mean((0, 2, 3), keepdim=True), x[:n].std((0, 2, 3), keepdim=True).clamp_min(1e-3)
    x, test_x = (((part - mean) / std).contiguous(memory_format=torch.channels_last) for part in (x, test_x))
    y, test_y = (y + shift) % classes, (test_y + shift) % classes
    return Examples(classes, (x[:n], y[:n]), (x[n:], y[n:]), (test_x, test_y))


def fit(images: torch.Tensor | list[torch.Tensor]) -> torch.Tensor:
    """Three channels of 32 x 32 in [0, 1]: the shorter side is brought to 32, the middle is cut out."""
    if isinstance(images, list):
        return torch.cat([fit(image[None]) for image in images])
    scale, small = SIDE / min(images.shape[2:]), images.float() / 255
    size = [max(SIDE, round(side * scale)) for side in images.shape[2:]]
    if size != list(images.shape[2:]):
        small = F.interpolate(small, size=size, mode="bilinear", align_corners=False, antialias=True)
    top, left = (size[0] - SIDE) // 2, (size[1] - SIDE) // 2
    return small[:, :, top : top + SIDE, left : left + SIDE].expand(-1, 3, -1, -1)


def train(task: Examples, epochs: int, patience: int, batch_size: int = 32) -> tuple[Backbone, float]:
    """A network as it was after its best validation epoch, and its test accuracy."""
    torch.manual_seed(0)
    net, (x, y), generator = network(task.classes), task.train, rng("order")
    optimizer, best, best_epoch, state = (
        torch.optim.Adam(net.parameters(), 1e-3, fused=True),
        -1.0,
        0,
        net.state_dict(),
    )
    for epoch in range(epochs):
        for rows in torch.randperm(len(x), generator=generator).split(batch_size):
            optimizer.zero_grad()
            F.cross_entropy(net(x[rows]), y[rows]).backward()
            optimizer.step()
        score = accuracy(net, *task.val)
        if score > best:
            best, best_epoch, state = (
                score,
                epoch,
                {key: value.clone() for key, value in net.state_dict().items()},
            )
        if epoch - best_epoch >= patience:
            break
    net.load_state_dict(state)
    return net, accuracy(net, *task.test)


def with_frozen_trunk(net: Backbone, task: Examples, epochs: int = 100) -> float:
    """Test accuracy of a new head on the trunk of ``net``."""
    parts = {
        split: (features(net, part[0]), part[1]) for split, part in vars(task).items() if split != "classes"
    }
    torch.manual_seed(0)
    head, generator, best, test = nn.Linear(WIDTH, task.classes), rng("order"), -1.0, 0.0
    optimizer, (x, y) = torch.optim.Adam(head.parameters(), 1e-2), parts["train"]
    for _ in range(epochs):
        for rows in torch.randperm(len(x), generator=generator).split(32):
            optimizer.zero_grad()
            F.cross_entropy(head(x[rows]), y[rows]).backward()
            optimizer.step()
        score = accuracy(head, *parts["val"])
        if score > best:
            best, test = score, accuracy(head, *parts["test"])
    return test


@torch.no_grad()
def accuracy(net: nn.Module, x: torch.Tensor, y: torch.Tensor) -> float:
    net.eval()
    right = torch.cat([net(part) for part in x.split(250)]).argmax(1) == y
    net.train()
    return right.float().mean().item()


@torch.no_grad()
def features(net: Backbone, x: torch.Tensor) -> torch.Tensor:
    net.eval()
    return torch.cat([net.features(part) for part in x.split(250)])


def seconds_to_draw(name: str) -> str:
    """For as many training images as a set has, 50,000 at most."""
    n, began = min(sources()[name].train, 50_000), time.perf_counter()
    instantiate(sources()[name], train=n, test=1).decode()
    return f"{time.perf_counter() - began:.1f} for {n}"


def learnable(name: str, epochs: int = 12) -> tuple[Backbone, float]:
    return train(examples(name, min(4000, sources()[name].train)), epochs, patience=3)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only",
        nargs="+",
        choices=list(sources()),
        default=list(sources()),
        metavar="NAME",
        help="these sets alone",
    )
    parser.add_argument(
        "--skip",
        choices=["seconds", "accuracy", "transfer"],
        nargs="+",
        default=[],
        help="what not to measure",
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    print("| set | seconds to draw | accuracy at 4000 |\n| --- | --- | --- |", flush=True)
    trunks = {}
    for name in options.only:
        seconds = "" if "seconds" in options.skip else seconds_to_draw(name)
        score = ""
        if "accuracy" not in options.skip:
            trunks[name], reached = learnable(name)
            score = f"{reached:.3f}{'' if LEARNABLE[0] <= reached <= LEARNABLE[1] else ' (missed)'}"
        print(f"| {name} | {seconds} | {score} |", flush=True)
    if "transfer" not in options.skip:
        print(
            "\n| trunk | 400 images of | from scratch | frozen trunk | gain | promised |\n| --- | --- | --- "
            "| --- | --- | --- |",
            flush=True,
        )
        for trunk, name in PAIRS:
            if {trunk, name} & set(options.only):
                if trunk not in trunks:
                    trunks[trunk], _ = learnable(trunk)
                print(transfer(trunks[trunk], trunk, name), flush=True)


def transfer(trunk: Backbone, of: str, name: str) -> str:
    task = examples(name, 400, classes=10, shift=1, seed=1)
    _, scratch = train(task, epochs=60, patience=60)
    frozen = with_frozen_trunk(trunk, task)
    related = of == name
    promised = f"at least {RELATED}" if related else f"below {UNRELATED}"
    met = frozen - scratch >= RELATED if related else frozen - scratch < UNRELATED
    gain = f"{scratch:.3f} | {frozen:.3f} | {frozen - scratch:+.3f}"
    return f"| {of} | {name} | {gain} | {promised}{'' if met else ' (missed)'} |"


def network(classes: int) -> Backbone:
    head = Head("single", classes, (tuple(range(classes)),))
    return ResNet((3, SIDE, SIDE), head, width=WIDTH, channels_last=True)


if __name__ == "__main__":
    main()
