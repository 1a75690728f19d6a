"""Examples of a task in what a learner stores: exact copies, in the number format of the memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from cl_lightning.data.task import Task


def copies_in(state: Mapping[str, Any], task: Task) -> dict[str, int]:
    """How many rows of the tensors in ``state``, a learner's ``state_dict``, are training or validation
    images of ``task``, by name.

    Found are images as they are lent, perhaps rounded to the memory's precision. Images that were augmented,
    turned or encoded, and copies that lie elsewhere, are not: this helps the honest to count.
    """
    images = torch.cat([split.x.cpu() for split in (task.train, task.val) if split is not None]).flatten(1)
    # an image of one colour is no evidence: so is empty memory
    images = images[images.amax(1) != images.amin(1)]
    found = {
        name: count for name, tensor in tensors_in(state) if (count := rows_in(tensor.detach().cpu(), images))
    }
    return found if len(images) else {}


def tensors_in(value: Any, name: str = "") -> list[tuple[str, Tensor]]:
    """
    >>> [name for name, _ in tensors_in({"memory": {"x": torch.zeros(1), "more": [torch.ones(1)]}})]
    ['memory.x', 'memory.more.0']
    """
    if isinstance(value, Tensor):
        return [(name, value)]
    parts = (
        value.items()
        if isinstance(value, Mapping)
        else enumerate(value)
        if isinstance(value, list | tuple)
        else ()
    )
    return [
        found
        for key, part in parts
        for found in tensors_in(part, f"{name}.{key}".removeprefix(".").replace("_extra_state.", ""))
    ]


def rows_in(tensor: Tensor, images: Tensor) -> int:
    pixels = images.shape[1]
    if not tensor.is_floating_point() or not tensor.numel() or tensor.numel() % pixels:
        return 0
    return int(torch.isin(keys(tensor.reshape(-1, pixels)), keys(images.to(tensor.dtype))).sum())


def keys(rows: Tensor) -> Tensor:
    """(n,) a 64-bit key of the numbers of each row."""
    odd = torch.randint(2**62, (rows.shape[1],), generator=torch.Generator().manual_seed(0)) * 2 + 1
    return torch.cat(
        [(part.float().contiguous().view(torch.int32).long() * odd).sum(1) for part in rows.split(1024)]
    )
