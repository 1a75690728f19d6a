"""Raw examples that are held somewhere: found by looking, whatever was declared."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from cl_lightning.data.lease import tensors_of
from cl_lightning.data.task import Split

ROWS_AT_ONCE = 1024


def copies_of(splits: Sequence[Split], holder: object) -> dict[str, int]:
    """How many rows of the tensors and arrays in ``holder`` are examples of ``splits``, by their names.

    Found are exact copies in any type, floating-point numbers of any precision or whole numbers 0 to 255, also with labels or the
    like behind the pixels. Changed images (flipped, normalised, encoded) and copies outside of the holder are not.
    """
    images = torch.cat([split.x.detach().cpu().flatten(1) for split in splits])
    images = images[images.amax(1) != images.amin(1)]  # an image of one colour is no evidence: empty memory looks the same
    known: dict[torch.dtype, Tensor] = {}
    found = {}
    for name, tensor in tensors_of(holder):
        rows = as_rows(tensor, images.shape[1])
        if rows is None or not len(images):
            continue
        if rows.dtype not in known:
            known[rows.dtype] = keys(images.to(rows.dtype) if rows.is_floating_point() else (images * 255).round().to(rows.dtype))
        count = int(torch.isin(keys(rows), known[rows.dtype]).sum())
        if count:
            found[name] = count
    return found


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
