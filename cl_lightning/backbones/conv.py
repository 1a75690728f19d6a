"""Convolutional networks with linear layers on top."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Annotated

import torch.nn as nn
from pydantic import Field

from cl_lightning.backbones.base import Backbone, Layers, divided, output_layer
from cl_lightning.backbones.initialisers import tenth_unbiased
from cl_lightning.config.checking import Count, Positive, Rate
from cl_lightning.data.task import Head
from cl_lightning.errors import Refusal


class AlexNet(Backbone):
    """The network of Serrà et al. 2018 (HAT), six modules in Veniat et al. 2021 (table 9): 6,524,362
    parameters for 32x32 and ten classes.

    ``widen`` scales all layers but the head: HAT-wide of Veniat et al. has 2.5 and 3.2 (the paper says 6.5;
    only 3.2 gives its memory).
    """

    def __init__(
        self,
        input_shape: Sequence[int],
        head: Head,
        dropouts: Annotated[Sequence[Rate], Field(min_length=5, max_length=5)] = (0.2, 0.2, 0.5, 0.5, 0.5),
        widen: Positive = 1.0,
        heads: Layers = "shared",
        channels_last: bool = True,
        divide_by: Count = 1,
    ) -> None:
        widths = divided([int(widen * width) for width in (64, 128, 256, 2048, 2048)], divide_by, "widen")
        channels, *size = input_shape
        trunk: OrderedDict[str, nn.Module] = OrderedDict()
        for i, kernel in enumerate((4, 3, 2)):
            before = widths[i - 1] if i else channels
            add(trunk, f"conv{i + 1}", nn.Conv2d(before, widths[i], kernel), dropouts[i], nn.MaxPool2d(2))
            size = [(pixels - kernel + 1) // 2 for pixels in size]
        if min(size) < 1:
            raise Refusal(
                f"Nothing of images of {'x'.join(map(str, input_shape[1:]))} pixels is left behind AlexNet's "
                "three poolings. Take images of at least 19x19, or backbone=resnet."
            )
        trunk["flatten"] = nn.Flatten()
        add(trunk, "linear1", nn.Linear(widths[2] * size[0] * size[1], widths[3]), dropouts[3])
        add(trunk, "linear2", nn.Linear(widths[3], widths[4]), dropouts[4])
        starts = ("conv1", "conv2", "conv3", "linear1", "linear2", "head")
        super().__init__(trunk, output_layer(widths[4], head, heads), starts, channels_last=channels_last)


class CONV(Backbone):
    """CONV, and with ``dropout`` D-CONV, of Pfülb and Gepperth 2019: 3,274,634 parameters for 28x28.

    Their earlier paper prints conv-pool-dropout-ReLU and no layer of 1024 units; this is the order of the
    later one and of the released code, where dropout acts behind that layer alone.
    """

    def __init__(
        self,
        input_shape: Sequence[int],
        head: Head,
        dropout: Rate = 0.0,
        heads: Layers = "shared",
        channels_last: bool = True,
        divide_by: Count = 1,
    ) -> None:
        first, second, units = divided((32, 64, 1024), divide_by)
        channels, *size = input_shape
        height, width = (-(-pixels // 4) for pixels in size)  # halved twice, rounded up
        trunk: OrderedDict[str, nn.Module] = OrderedDict()
        add(trunk, "conv1", nn.Conv2d(channels, first, 5, padding=2), 0, nn.MaxPool2d(2, ceil_mode=True))
        add(trunk, "conv2", nn.Conv2d(first, second, 5, padding=2), 0, nn.MaxPool2d(2, ceil_mode=True))
        trunk["flatten"] = nn.Flatten()
        add(trunk, "linear1", nn.Linear(second * height * width, units), dropout)
        super().__init__(
            trunk,
            output_layer(units, head, heads),
            ("conv1", "conv2", "linear1", "head"),
            tenth_unbiased,
            channels_last,
        )


class CNN(Backbone):
    """The network of MC-dropout in Farquhar and Gal 2018: convolutions 3x3 of 32 and 64 channels, pooling,
    dropout, a layer of 128 units, dropout. The paper does not print the 128 units: they are those of Keras'
    example of the time, 1,199,882 parameters for 28x28.
    """

    def __init__(
        self,
        input_shape: Sequence[int],
        head: Head,
        dropout: Rate = 0.25,
        heads: Layers = "shared",
        channels_last: bool = True,
        divide_by: Count = 1,
    ) -> None:
        first, second, units = divided((32, 64, 128), divide_by)
        channels, *size = input_shape
        height, width = ((pixels - 4) // 2 for pixels in size)
        trunk: OrderedDict[str, nn.Module] = OrderedDict()
        add(trunk, "conv1", nn.Conv2d(channels, first, 3), 0)
        trunk["conv2"], trunk["conv2_relu"] = nn.Conv2d(first, second, 3), nn.ReLU()
        trunk["conv2_pool"], trunk["conv2_dropout"] = nn.MaxPool2d(2), nn.Dropout(dropout)
        trunk["flatten"] = nn.Flatten()
        add(trunk, "linear1", nn.Linear(second * height * width, units), dropout)
        starts = ("conv1", "conv2", "linear1", "head")
        super().__init__(trunk, output_layer(units, head, heads), starts, channels_last=channels_last)


def add(
    trunk: OrderedDict[str, nn.Module],
    name: str,
    layer: nn.Module,
    dropout: float,
    pool: nn.Module | None = None,
) -> None:
    """A layer, its ReLU, and what is asked for of dropout and pooling, in this order."""
    trunk[name], trunk[f"{name}_relu"] = layer, nn.ReLU()
    if dropout:
        trunk[f"{name}_dropout"] = nn.Dropout(dropout)
    if pool is not None:
        trunk[f"{name}_pool"] = pool
