"""Which past examples are kept. Memories are dictionaries of tensors, made at full size: what they hold does
not grow unseen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from cl_lightning.data.task import Split, Task
from cl_lightning.errors import Refusal


def last_of_each_task(
    memory: dict[str, Any],
    task: Task,
    size: int,
    dtype: torch.dtype = torch.float32,
    rows: Sequence[int] | None = None,
) -> None:
    """The last ``size`` examples of every task, or ``rows`` of it: x (tasks, size, ...), y (tasks, size), and
    how many there are of each."""
    if not memory:
        memory["x"] = task.train.x.new_zeros(task.of, size, *task.train.x.shape[1:], dtype=dtype)
        memory["y"] = task.train.y.new_zeros(task.of, size)
        memory["counts"] = []
    if memory["y"].shape[1] != size:
        raise Refusal(
            f"The memory was made for {memory['y'].shape[1]} examples a task, not {size}. A branch keeps "
            "the sizes of its run."
        )
    kept = torch.tensor(range(max(len(task.train) - size, 0), len(task.train)) if rows is None else rows)
    x, y, _ = task.train.gather(kept)
    memory["x"][task.index, : len(kept)] = x.to(dtype)
    memory["y"][task.index, : len(kept)] = y
    memory["counts"] = [*memory["counts"], len(kept)]


def equal_shares(memory: dict[str, Any], task: Task, total: int, dtype: torch.dtype = torch.float32) -> None:
    """The last examples of every task so far, ``total`` in all: past tasks give up their oldest ones to the
    next. As ``last_of_each_task``, but for as many tasks as there were."""
    size, counts = total // (task.index + 1), memory.get("counts", [])
    old = [
        (memory["x"][k, max(n - size, 0) : n], memory["y"][k, max(n - size, 0) : n])
        for k, n in enumerate(counts)
    ]
    new = [*old, (task.train.x[-size:].to(dtype), task.train.y[-size:])]
    memory["x"] = task.train.x.new_zeros(len(new), size, *task.train.x.shape[1:], dtype=dtype)
    memory["y"] = task.train.y.new_zeros(len(new), size)
    memory["counts"] = [len(y) for _, y in new]
    for k, (x, y) in enumerate(new):
        memory["x"][k, : len(y)], memory["y"][k, : len(y)] = x, y


def ring_of_batches(n: int, size: int, batch_size: int) -> list[int]:
    """The example in each slot of a ring that takes of a mini-batch only what fits before its end.

    >>> ring_of_batches(10, size=4, batch_size=3)  # 0 1 2 | 3 (4 5) | 6 7 8 | 9
    [6, 7, 8, 9]
    >>> ring_of_batches(7, size=5, batch_size=3)  # 0 1 2 | 3 4 (5) | 6
    [6, 1, 2, 3, 4]
    """
    rows, place = [-1] * min(n, size), 0
    for first in range(0, n, batch_size):
        taken = range(first, min(first + batch_size, n, first + size - place))
        rows[place : place + len(taken)] = taken
        place = (place + len(taken)) % size
    return rows


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
        if len(old) > size:
            raise Refusal(
                f"The memory was made for {len(old)} examples, not {size}. A branch keeps the sizes of its "
                "run, or raises them."
            )
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
