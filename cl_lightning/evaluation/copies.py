"""Raw examples that a learner's state holds: found by looking, whatever was declared."""

from __future__ import annotations

import torch
from torch import Tensor

from cl_lightning.data.lease import tensors_of
from cl_lightning.data.task import Split

ROWS_AT_ONCE = 1024


def copies_of(split: Split, holder: object) -> dict[str, int]:
    """How many examples of ``split`` are held, by the name of the tensor that holds them.

    Found are exact copies in any type: floating-point numbers of any precision, or whole numbers 0 to 255. Changed images
    (flipped, normalised, encoded) and copies outside of the learner are not.
    """
    images = split.x.detach().cpu().flatten(1)
    images = images[images.amax(1) != images.amin(1)]  # an image of one colour is no evidence: empty memory looks the same
    pixels, known, found = images.shape[1], {}, {}
    for name, tensor in tensors_of(holder):
        if tensor.device.type == "meta" or tensor.is_complex() or tensor.dtype == torch.bool:
            continue
        if not len(images) or tensor.numel() < pixels or tensor.numel() % pixels:
            continue
        if tensor.dtype not in known:
            known[tensor.dtype] = keys(images.to(tensor.dtype) if tensor.is_floating_point() else (images * 255).round().to(tensor.dtype))
        count = int(torch.isin(known[tensor.dtype], keys(tensor.detach().cpu().reshape(-1, pixels))).sum())
        if count:
            found[name] = count
    return found


def keys(rows: Tensor) -> Tensor:
    """(n,) a 64-bit key of the bits of each row."""
    bits = rows.contiguous().view({1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[rows.element_size()])
    odd = torch.randint(2**62, (rows.shape[1],), generator=torch.Generator().manual_seed(0)) * 2 + 1
    return torch.cat([(part.to(torch.int64) * odd).sum(1) for part in bits.split(ROWS_AT_ONCE)])
