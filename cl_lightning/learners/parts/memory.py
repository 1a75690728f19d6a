"""Which past examples are kept. Memories are dictionaries of tensors, made at full size: what they hold does
not grow unseen."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from cl_lightning.data.task import Split, Task
from cl_lightning.errors import Refusal


def last_of_each_task(
    memory: dict[str, Any], task: Task, size: int, dtype: torch.dtype = torch.float32
) -> None:
    """The last ``size`` examples of every task: x (tasks, size, ...), y (tasks, size), and how many there are
    of each."""
    if not memory:
        memory["x"] = task.train.x.new_zeros(task.of, size, *task.train.x.shape[1:], dtype=dtype)
        memory["y"] = task.train.y.new_zeros(task.of, size)
        memory["counts"] = []
    if memory["y"].shape[1] != size:
        raise Refusal(
            f"The memory was made for {memory['y'].shape[1]} examples a task, not {size}. A branch keeps "
            "the sizes of its run."
        )
    count = min(size, len(task.train))
    memory["x"][task.index, :count] = task.train.x[len(task.train) - count :].to(dtype)
    memory["y"][task.index, :count] = task.train.y[len(task.train) - count :]
    memory["counts"] = [*memory["counts"], count]


def reservoir(memory: dict[str, Any], task: Task, size: int, generator: torch.Generator) -> None:
    """A reservoir that holds each example so far with the same probability (Vitter 1985): the n-th enters
    with probability size / n, in a slot drawn. Slots that are added go to the next examples."""
    make_room(memory, task, size)
    slots = slots_in_turn(memory, len(task.train), size, generator)
    chosen = {slot: row for row, slot in enumerate(slots) if slot < size}
    for name, part in named(task.train).items():
        memory[name][list(chosen)] = part[list(chosen.values())]
    memory["seen"] += len(slots)
    memory["filled"] = max(memory["filled"], min(size, memory["filled"] + len(slots)))


def make_room(memory: dict[str, Any], task: Task, size: int) -> None:
    """Make a reservoir of ``size`` slots, or of so many more than it has."""
    for name, part in named(task.train).items():
        old = memory.get(name, part[:0])
        if name not in memory or len(old) < size:
            memory[name] = torch.cat([old, part.new_zeros(size - len(old), *part.shape[1:])])
    memory.setdefault("filled", 0)
    memory.setdefault("seen", 0)


def slots_in_turn(memory: dict[str, Any], n: int, size: int, generator: torch.Generator) -> list[int]:
    """The slot of a reservoir that each of the next ``n`` examples enters; ``size``: none."""
    draws, filled = torch.rand(n, generator=generator, dtype=torch.float64).tolist(), memory["filled"]
    free = size - filled
    return [
        filled + i if i < free else min(int(draw * (memory["seen"] + i + 1)), size)
        for i, draw in enumerate(draws)
    ]


def ring_of_each_class(memory: dict[str, Any], task: Task, size: int) -> None:
    """The last ``size`` examples of every class of every task; grows with the classes."""
    y = task.train.y
    rows = torch.cat(
        [(y == output).nonzero()[:, 0][-size:] if size else y[:0] for output in y.unique().tolist()]
    )
    for name, part in named(task.train).items():
        memory[name] = torch.cat([memory[name], part[rows]]) if name in memory else part[rows]
    memory["filled"] = memory.get("filled", 0) + len(rows)


def named(split: Split) -> dict[str, Tensor]:
    return {"x": split.x, "y": split.y, "task": split.task}
