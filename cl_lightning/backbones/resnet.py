"""Residual networks for small images."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn as nn
import torch.nn.functional as F

from cl_lightning.backbones.base import Backbone, Layers, divided, output_layer
from cl_lightning.config.checking import Count
from cl_lightning.data.task import Head

STRIDES = (1, 1, 2, 1, 2, 1, 2, 1)  # of the eight blocks

Modules = Literal[3, 6, 7, 10]

STARTS: dict[Modules, tuple[str, ...]] = {  # number of modules -> the parts with which they begin
    3: ("stem", "block3", "block7"),
    6: ("stem", "block1", "block3", "block5", "block7", "head"),
    7: ("stem", "block1", "block3", "block5", "block7", "block8", "head"),
    10: ("stem", *(f"block{i}" for i in range(1, 9)), "head"),
}


class ResNet(Backbone):
    """The network of Veniat et al. 2021 (table 8): eight blocks of one width, 607,050 parameters with width
    64 and ten classes.

    ``modules`` says how many modules it is cut into, and changes nothing else: 7 as in the paper, 6 as
    the default of its code, 10 with a block each, 3 for its ablation "merging adjacent modules". The paper
    does not say which it merged: here {1, 2}, {3, 4} and {5, 6, head}, so that a new head costs the blocks
    before it, too.
    """

    def __init__(
        self,
        input_shape: Sequence[int],
        head: Head,
        width: Count = 64,
        modules: Modules = 7,
        heads: Layers = "shared",
        channels_last: bool = True,
        divide_by: Count = 1,
    ) -> None:
        widths = divided([width], divide_by, "width") * len(STRIDES)
        super().__init__(
            trunk(input_shape[0], widths),
            output_layer(widths[-1], head, heads),
            STARTS[modules],
            channels_last=channels_last,
        )


class ResNet18(Backbone):
    """The reduced ResNet-18 of Lopez-Paz and Ranzato 2017: 1,109,240 parameters with 20 feature maps and 100
    outputs.

    The paper says "three times less feature maps": 20 of 64 in its code. Takes images in [0, 1].
    """

    def __init__(
        self,
        input_shape: Sequence[int],
        head: Head,
        width: Count = 20,
        heads: Layers = "shared",
        channels_last: bool = True,
        divide_by: Count = 1,
    ) -> None:
        (narrow,) = divided([width], divide_by, "width")
        widths = [narrow * factor for factor in (1, 1, 2, 2, 4, 4, 8, 8)]
        super().__init__(
            trunk(input_shape[0], widths),
            output_layer(widths[-1], head, heads),
            STARTS[10],
            channels_last=channels_last,
        )


def trunk(channels: int, widths: Sequence[int]) -> OrderedDict[str, nn.Module]:
    """A convolution, blocks of these widths, and the average over what is left of the image."""
    parts: OrderedDict[str, nn.Module] = OrderedDict(stem=Convolution(channels, widths[0], 3, rectified=True))
    for i, (before, width, stride) in enumerate(zip([widths[0], *widths], widths, STRIDES), start=1):
        parts[f"block{i}"] = Block(before, width, stride)
    parts["pool"] = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return parts


class Block(nn.Module):
    """The basic block of He et al. 2016; its shortcut is a projection where the shape changes."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        same = stride == 1 and channels == width
        # oneDNN's projection with a stride writes past its memory for fewer than 8 channels where AVX2 is all
        # there is.
        self.every = stride if channels < 8 else 1  # one of so many pixels is projected, selected by hand
        self.first = Convolution(channels, width, 3, stride, rectified=True)
        self.second = Convolution(width, width, 3)
        self.shortcut = nn.Identity() if same else Convolution(channels, width, 1, stride // self.every)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.second(self.first(x)) + self.shortcut(x[..., :: self.every, :: self.every]))


class Convolution(nn.Sequential):
    """Without bias, batch-normalised."""

    def __init__(
        self, channels: int, width: int, size: int, stride: int = 1, rectified: bool = False
    ) -> None:
        parts = OrderedDict[str, nn.Module](
            conv=nn.Conv2d(channels, width, size, stride, padding=size // 2, bias=False)
        )
        parts["bn"] = nn.BatchNorm2d(width)
        if rectified:
            parts["relu"] = nn.ReLU()
        super().__init__(parts)
