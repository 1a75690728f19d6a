"""How images reach a learner: their shape, their values, and what is done to them while training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
import torch.nn.functional as F

from cl_lightning.config.checking import Count, Fulfils, Size
from cl_lightning.errors import Refusal
from cl_lightning.randomness import moved

ROUNDING = 1e-3  # grey levels by which arithmetic may fall short of a whole one
FLAT = 1e-3  # a channel that deviates less than this counts as constant, and is not divided by its deviation

Fit = Literal["scale", "pad"]
IMAGE = "[channels, height, width] with 1 or 3 channels"
Shape = Annotated[Sequence[Count], Fulfils(lambda shape: len(shape) == 3 and shape[0] in (1, 3), IMAGE)]
GREYS = "two numbers, of black and of white, the first the smaller"
Values = Annotated[Sequence[float], Fulfils(lambda values: len(values) == 2 and values[0] < values[1], GREYS)]


@dataclass(frozen=True)
class Show:
    """The same for all images of a stream: ``stream.show``."""

    shape: Shape | None = None  # channels, height, width; None: the source's own
    fit: Fit = "scale"  # scale: bilinear, cut to whole grey levels | pad: black around the image
    values: Values = (0.0, 1.0)  # of black and of white
    normalise: bool = False  # each task by the mean and deviation of its own training images, a channel each
    flip: bool = False  # training images, half of them, left to right, anew each time
    # Training images: so many black pixels around, then a window of the old size, anew each time.
    crop: Size = 0
    val_copies: Size = 0  # so many augmented copies of each validation image, made once

    def __post_init__(self) -> None:
        if self.val_copies and not self.augments:
            raise Refusal(
                "stream.show.val_copies asks for augmented copies, but neither stream.show.flip nor .crop "
                "is set."
            )

    @property
    def augments(self) -> bool:
        return self.flip or self.crop > 0

    def augmented(self, x: torch.Tensor, black: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        """Images (n, channels, height, width) flipped and shifted by chance; ``black`` (n or 1, channels)
        comes in at the border."""
        if self.flip:
            flipped = torch.rand(len(x), generator=generator) < 0.5
            x = torch.where(moved(flipped, x.device)[:, None, None, None], x.flip(-1), x)
        if self.crop:
            (n, channels, height, width), p = x.shape, self.crop
            border = black[:, :, None, None].to(x.dtype)
            wide = border.expand(n, channels, height + 2 * p, width + 2 * p).clone()
            wide[:, :, p : p + height, p : p + width] = x
            # A view: (n, channels, 2p + 1, 2p + 1, height, width).
            windows = wide.unfold(2, height, 1).unfold(3, width, 1)
            down, right = moved(torch.randint(2 * p + 1, (2, n), generator=generator), x.device)
            x = windows[torch.arange(n, device=x.device), :, down, right]
        return x


PLAIN = Show()


def resize(x: torch.Tensor, shape: tuple[int, int, int], fit: Fit) -> torch.Tensor:
    """Bytes (n, channels, height, width) in another shape: scaled or padded, grey in three channels, colours
    as their luminance."""
    channels, height, width = shape
    if x.shape[1] == 3 and channels == 1:
        luminance = x.float() * torch.tensor([0.299, 0.587, 0.114])[:, None, None]
        x = luminance.sum(1, keepdim=True).round().to(torch.uint8)
    h, w = x.shape[2:]
    if (h, w) != (height, width) and fit == "pad":
        if h > height or w > width:
            raise Refusal(
                f"stream.show.fit=pad cannot bring images of {h} x {w} pixels to {height} x {width}. Use "
                "stream.show.fit=scale."
            )
        top, left = (height - h) // 2, (width - w) // 2
        x = F.pad(x, (left, width - w - left, top, height - h - top))
    elif (h, w) != (height, width):
        x = F.interpolate(x.float(), (height, width), mode="bilinear", align_corners=False, antialias=True)
        x = x.add_(ROUNDING).clamp_(0, 255).to(torch.uint8)
    return x.expand(-1, channels, -1, -1) if x.shape[1] != channels else x


def recolour(x: torch.Tensor, colour: Sequence[int]) -> torch.Tensor:
    """Images with values in [0, 1] on a background of ``colour`` (0 to 255 a channel): black becomes the
    colour, white stays white."""
    return x + (1 - x) * (torch.tensor(colour, dtype=x.dtype) / 255)[:, None, None]


def statistics(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and unbiased deviation of each channel over all pixels; 1 for a channel that is constant."""
    rows, count = x.flatten(2), x.numel() // x.shape[1]
    # Products: a reduction over three dimensions takes ten times as long.
    mean = (rows @ torch.ones(rows.shape[2])).double().sum(0) / count
    squares = torch.einsum("ncp,ncp->nc", rows, rows).double().sum(0)
    deviation = ((squares - count * mean**2).clamp(min=0) / max(1, count - 1)).sqrt().float()
    return mean.float(), torch.where(deviation < FLAT, torch.ones_like(deviation), deviation)
