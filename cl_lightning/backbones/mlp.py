"""Multi-layer perceptrons."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from itertools import pairwise

import torch
import torch.nn as nn

from cl_lightning.backbones.base import Backbone, Layers, TaskInputs, divided, output_layer
from cl_lightning.backbones.initialisers import INITIALISERS, Init
from cl_lightning.config.checking import Count, Rate
from cl_lightning.data.task import Head
from cl_lightning.errors import Refusal


class MLP(Backbone):
    """Linear layers with ReLU between them, and dropout of the input and behind each ReLU if asked for."""

    activation: tuple[str, type[nn.Module]] = ("relu", nn.ReLU)
    units = 1  # in a layer, for each of its size

    def __init__(
        self,
        input_shape: Sequence[int],
        head: Head,
        sizes: Sequence[Count],
        dropout: Rate = 0.0,
        heads: Layers = "shared",
        init: Init = "torch",
        inputs: Layers = "shared",
        divide_by: Count = 1,
        input_dropout: Rate = 0.0,
    ) -> None:
        if inputs == "per_task" and not sizes:
            raise Refusal(
                "backbone.inputs=per_task makes a first hidden layer a task. Give at least one of "
                "backbone.sizes."
            )
        pixels = torch.Size(input_shape).numel()
        widths = [pixels, *(self.units * size for size in divided(sizes, divide_by, "sizes"))]
        trunk: OrderedDict[str, nn.Module] = OrderedDict(flatten=nn.Flatten())
        if input_dropout:
            trunk["input_dropout"] = nn.Dropout(input_dropout)
        name, activation = self.activation
        for i, (before, width) in enumerate(pairwise(widths), start=1):
            trunk[f"linear{i}"], trunk[f"{name}{i}"] = nn.Linear(before, width), activation()
            if dropout:
                trunk[f"dropout{i}"] = nn.Dropout(dropout)
        if inputs == "per_task":
            trunk["linear1"] = TaskInputs(pixels, widths[1], len(head.owned))
        starts = [*(f"linear{i}" for i in range(1, len(widths))), "head"]
        super().__init__(trunk, output_layer(widths[-1], head, heads), starts, INITIALISERS[init])


class WinnersTakeAll(nn.Module):
    """The greater of each two neighbouring units keeps its value, whatever its sign, and the other
    is 0.

    Both stay where they are equal. Gradients flow through what stays.
    """

    def forward(self, h: torch.Tensor) -> torch.Tensor:
        pairs = h.unflatten(1, (-1, 2))
        return pairs.masked_fill(pairs < pairs.flip(-1), 0).flatten(1)


class LWTA(MLP):
    """Local winner-take-all (Srivastava et al. 2013) as in Pfülb and Gepperth 2019. ``sizes`` counts blocks,
    each of two units.

    The papers give "2" once as the number of blocks and once as their size; the released code uses it as
    their size.
    """

    activation = ("winners", WinnersTakeAll)
    units = 2
