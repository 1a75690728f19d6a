"""Examples of a task in what a learner stores: exact copies, in the number format of the memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import torch
from torch import Tensor

from cl_lightning.config.trees import leaves
from cl_lightning.data.task import Task


def copies_in(state: Mapping[str, Any], task: Task) -> dict[str, int]:
    """How many rows of the tensors in ``state``, a learner's ``state_dict``, are training or validation
    images of ``task``, by name.

    Found are images as they are lent, perhaps rounded to the memory's precision. Images that were augmented,
    turned or encoded, and copies that lie elsewhere, are not: this helps the honest to count.
    """
    images = torch.cat([split.x.cpu() for split in (task.train, task.val) if split is not None]).flatten(1)
    # An image of one colour is no evidence: so is empty memory.
    images = images[images.amax(1) != images.amin(1)]
    tensors = {path: leaf.detach().cpu() for path, leaf in leaves(state) if isinstance(leaf, Tensor)}
    looked_for = cache(lambda dtype: keys(images.to(dtype)))
    found = {path: rows_in(tensor, images.shape[1], looked_for) for path, tensor in tensors.items()}
    return {path.replace("_extra_state.", ""): count for path, count in found.items() if count}


def rows_in(tensor: Tensor, pixels: int, looked_for: Callable[[torch.dtype], Tensor]) -> int:
    """How many of its rows of so many pixels have one of the keys that are looked for in its precision."""
    if not tensor.is_floating_point() or not tensor.numel() or tensor.numel() % pixels:
        return 0
    return int(torch.isin(keys(tensor.reshape(-1, pixels)), looked_for(tensor.dtype)).sum())


def keys(rows: Tensor) -> Tensor:
    """(n,) a 64-bit key of the numbers of each row."""
    odd = torch.randint(2**62, (rows.shape[1],), generator=torch.Generator().manual_seed(0)) * 2 + 1
    return torch.cat(
        [(part.float().contiguous().view(torch.int32).long() * odd).sum(1) for part in rows.split(1024)]
    )
