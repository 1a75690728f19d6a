"""Raw examples that are held somewhere: found by looking, whatever was declared."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor

from cl_lightning.data.lease import tensors_of
from cl_lightning.data.show import PLAIN, Show
from cl_lightning.data.task import Split

ROWS_AT_ONCE = 1024
SMALLEST, LARGEST = 4, 8  # pixels a side of the part of an image by which an augmented copy is recognised


def copies_of(splits: Sequence[Split], holder: object, show: Show = PLAIN) -> dict[str, int]:
    """How many rows of the tensors and arrays in ``holder`` are examples of ``splits``, by their names.

    Found are exact copies in any type, floating-point numbers of any precision or whole numbers 0 to 255 (the grey levels behind
    ``show.values``), also with labels or the like behind the pixels; and images flipped and shifted as ``show`` does it in training.
    Images that were changed otherwise, and copies outside of the holder, are not.
    """
    images = torch.cat([split.x.detach().cpu() for split in splits])
    images = images[images.flatten(1).amax(1) != images.flatten(1).amin(1)]  # an image of one colour is no evidence: so is empty memory
    found = {}
    known: dict[torch.dtype, tuple[Tensor, Tensor]] = {}  # keys of images, and their middles
    for name, tensor in tensors_of(holder):
        rows = as_rows(tensor, images[0].numel()) if len(images) else None
        if rows is None:
            continue
        if rows.dtype not in known:
            cast = images.to(rows.dtype) if rows.is_floating_point() else grey_levels(images, show).to(rows.dtype)
            known[rows.dtype] = keys(cast.flatten(1)), middle_of(cast, show) if show.augments else images[:0]
        whole, middles = known[rows.dtype]
        copied = torch.isin(keys(rows), whole)
        if show.augments:
            copied |= augmented_copies(rows.reshape(-1, *images.shape[1:]), middles, show)
        if copied.any():
            found[name] = int(copied.sum())
    return found


def grey_levels(x: Tensor, show: Show) -> Tensor:
    low, high = show.values
    return ((x - low) / (high - low) * 255).round()


def middle_of(x: Tensor, show: Show) -> Tensor:
    """(n, pixels) The part in the middle that no shift brings to the border; nothing of images where it is too small or of one colour."""
    top, left, side = middle(x.shape[2:], show)
    parts = x[:, :, top : top + side, left : left + side].flatten(1)
    return parts[parts.amax(1) != parts.amin(1)] if side >= SMALLEST else parts[:0]


def middle(size: Sequence[int], show: Show) -> tuple[int, int, int]:
    height, width = size
    side = max(0, min(LARGEST, height - 4 * show.crop, width - 4 * show.crop))
    return (height - side) // 2, (width - side) // 2, side


def augmented_copies(rows: Tensor, middles: Tensor, show: Show) -> Tensor:
    """(n,) Whether the middle of a known image is somewhere in the middle of an image, perhaps mirrored."""
    top, left, side = middle(rows.shape[2:], show)
    copied = torch.zeros(len(rows), dtype=torch.bool)
    if not len(middles) or not torch.isin(rows, middles[:, 0].unique()).any():  # weights have no number in common with images
        return copied
    shifts, wanted = range(-show.crop, show.crop + 1), keys(middles)
    for seen in (rows, rows.flip(-1))[: 1 + show.flip]:
        for down, right in itertools.product(shifts, shifts):
            part = seen[:, :, top + down : top + down + side, left + right : left + right + side].flatten(1)
            copied |= torch.isin(keys(part), wanted)
    return copied


def as_rows(tensor: Tensor, pixels: int) -> Tensor | None:
    """(n, pixels) of a tensor that may hold images."""
    if tensor.layout != torch.strided or tensor.device.type == "meta" or tensor.is_complex() or tensor.dtype == torch.bool:
        return None
    tensor = tensor.detach().cpu()
    if tensor.numel() >= pixels and tensor.numel() % pixels == 0:
        return tensor.reshape(-1, pixels)
    return tensor[:, :pixels] if tensor.dim() == 2 and tensor.shape[1] > pixels else None


def keys(rows: Tensor) -> Tensor:
    """(n,) a 64-bit key of the bits of each row."""
    bits = rows.contiguous().view({1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[rows.element_size()])
    odd = torch.randint(2**62, (rows.shape[1],), generator=torch.Generator().manual_seed(0)) * 2 + 1
    return torch.cat([(part.to(torch.int64) * odd).sum(1) for part in bits.split(ROWS_AT_ONCE)])
