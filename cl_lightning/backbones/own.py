"""A network of one's own: any module that gives logits."""

from __future__ import annotations

import copy
import inspect
from contextlib import suppress
from typing import Any

import torch
import torch.nn as nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from cl_lightning.backbones.base import Backbone
from cl_lightning.errors import Refusal
from cl_lightning.protocol import running

OF_BACKBONE = ("path_modules", "features", "trunk", "head")  # what some learners take networks apart by


class OwnNetwork(nn.Module):
    """A module that is no ``Backbone``, called as one is: with images and the task they belong to. It gets
    the task only if its ``forward`` takes a second argument."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        self.takes_task = takes_two(network)

    def forward(self, x: torch.Tensor, task: torch.Tensor | int | None = None) -> torch.Tensor:
        return self.network(x, task) if self.takes_task else self.network(x)

    def __getattr__(self, name: str) -> Any:
        if name in self.__dict__.get("_modules", {}):
            return super().__getattr__(name)
        network = self.__dict__.get("_modules", {}).get("network")
        if name in OF_BACKBONE and not hasattr(network, name):
            raise Refusal(
                f"This learner asks the network for its {name}, and {type(network).__name__} has none: it "
                "must know the network's modules.\nDerive it from cl_lightning.backbones.Backbone, as "
                "docs/own_network.md shows; or choose a learner that does not take networks apart, such as "
                "finetune, ewc or er."
            )
        return getattr(network, name)


def takes_two(network: nn.Module) -> bool:
    """Whether a network's ``forward`` can be called with two things."""
    try:
        inspect.signature(network.forward).bind(None, None)
    except TypeError:
        return False
    return True


def tried(network: nn.Module, images: torch.Tensor) -> tuple[Any, list[str]]:
    """A network's output for these images, and the kinds of layers that it made for them and did not keep."""
    late: dict[nn.Parameter, nn.Module] = {}
    noting = register_module_parameter_registration_hook(lambda layer, _, p: late.update({p: layer}))
    with torch.no_grad(), noting:
        found = network(images, 0)
    held = set(network.parameters())
    return found, [type(layer).__name__ for p, layer in late.items() if p.requires_grad and p not in held]


def as_backbone(made: Any, shape: tuple[int, ...], num_outputs: int) -> Any:
    """What ``backbone._target_`` made, ready for learners. One's own is called once with a black image: lazy
    layers get their sizes, and what it gives must fit the stream."""
    if isinstance(made, Backbone) or not isinstance(made, nn.Module):
        return made
    network, training = OwnNetwork(made), made.training
    with running(made, "forward"):
        found, lost = tried(network.eval(), torch.zeros(1, *shape))
    if lost:  # some fuse layers where they do not train
        lost = []
        with suppress(Exception):
            _, lost = tried(copy.deepcopy(network).train(), torch.zeros(2, *shape))
    if lost:
        raise Refusal(
            f"{type(made).__name__}.forward makes {lost[0]} anew each time: it would never be trained.\n"
            f"Make it once in __init__, as in self.layer = nn.{lost[0]}(...), and call self.layer in forward."
        )
    if not isinstance(found, torch.Tensor) or found.shape != (1, num_outputs):
        said = f"the shape {tuple(found.shape)}" if isinstance(found, torch.Tensor) else f"{found!r:.50}"
        raise Refusal(
            f"{type(made).__name__} gives {said} for one image, and this stream wants (1, {num_outputs}): "
            "logits of all outputs.\nEnd in nn.Linear(..., head.num_outputs); head is given where __init__ "
            "names it."
        )
    return network.train(training)
