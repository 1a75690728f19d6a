"""What a learner is given: tasks, their examples, and mini-batches of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import torch

from cl_lightning.config.checking import check_value
from cl_lightning.data.lease import Lease
from cl_lightning.protocol import ProtocolError
from cl_lightning.randomness import Key, moved, rng

HeadMode = Literal["single", "domain", "multi_test", "multi_train_test"]


@dataclass(frozen=True, repr=False)
class Head:
    """What the outputs of a network mean over a stream.

    ============================  =====================  =======================
    mode                          loss over              test over
    ============================  =====================  =======================
    ``single``                    all outputs            all outputs
    ``domain``                    all: tasks share them  all
    ``multi_test``                all outputs            the task's own outputs
    ``multi_train_test``          the task's own         the task's own outputs
    ============================  =====================  =======================
    """

    mode: HeadMode
    num_outputs: int
    owned: tuple[tuple[int, ...], ...]  # by task: the outputs that are its own

    def __post_init__(self) -> None:
        check_value(Head, "mode", self.mode, "stream.head")

    def __repr__(self) -> str:
        """A part of fingerprints: with another text, runs that are finished would not be found again."""
        return f"Head(mode={self.mode!r}, outputs={self.num_outputs}, owned={self.owned})"

    @property
    def masks_training(self) -> bool:
        return self.mode == "multi_train_test"

    @property
    def masks_test(self) -> bool:
        return self.mode in ("multi_test", "multi_train_test")

    @cached_property
    def foreign(self) -> torch.Tensor:
        """(tasks, outputs): True where an output is not the task's own."""
        table = torch.ones(len(self.owned), self.num_outputs, dtype=torch.bool)
        for task, own in enumerate(self.owned):
            table[task, list(own)] = False
        return table

    @cached_property
    def _foreign_on(self) -> dict[torch.device, torch.Tensor]:
        """``foreign`` on each device where it was needed: copied there once."""
        return {}

    def mask(self, logits: torch.Tensor, task: torch.Tensor | int) -> torch.Tensor:
        """Logits (n, outputs) with -inf where an output is not the own of the example's task; ``task`` is
        (n,) or one for all."""
        device = logits.device
        if device not in self._foreign_on:
            self._foreign_on[device] = moved(self.foreign, device)
        return logits.masked_fill(self._foreign_on[device][task], -torch.inf)


class Split:
    """Examples: x (n, channels, height, width) in [0, 1], y (n,) output numbers, task (n,) the task each
    belongs to.

    What a task lends is closed with it, and raises from then on.
    """

    def __init__(
        self, x: torch.Tensor, y: torch.Tensor, task: torch.Tensor, lease: Lease | None = None
    ) -> None:
        self._parts: tuple[torch.Tensor, ...] | None = (x, y, task)
        if lease is not None:
            self._parts = lease.lend(x, y, task)
        self._length = len(y)
        if not len(x) == len(y) == len(task):
            raise ValueError(f"a Split has as many y and task as x, not {len(x)}, {len(y)} and {len(task)}")

    @property
    def parts(self) -> tuple[torch.Tensor, ...]:
        if self._parts is None:
            raise ProtocolError(
                "the data of a task that is closed were read.",
                "Read them between on_task_start and on_task_end; keep what you need later in self.memory, "
                "where it is counted.",
            )
        return self._parts

    @property
    def x(self) -> torch.Tensor:
        return self.parts[0]

    @property
    def y(self) -> torch.Tensor:
        return self.parts[1]

    @property
    def task(self) -> torch.Tensor:
        return self.parts[2]

    def __len__(self) -> int:
        return self._length

    @property
    def handed_tensors(self) -> tuple[torch.Tensor, ...]:
        """The tensors that nobody may write to; none when closed."""
        return self._parts or ()

    def close(self) -> None:
        self._parts = None

    def gather(self, rows: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Copies of some rows: x, y, task."""
        rows = moved(rows, self.y.device)
        return tuple(part.index_select(0, rows) for part in self.parts)

    @classmethod
    def union(cls, splits: Sequence[Split]) -> Split:
        x, y, task = (torch.cat(parts) for parts in zip(*(split.parts for split in splits)))
        return cls(x, y, task)

    def batches(self, size: int, learning: int = 0) -> Iterator[Batch]:
        """All examples in their own order, for scoring and evaluation."""
        parts = zip(self.x.split(size), self.y.split(size), self.task.split(size))
        for step, (x, y, task) in enumerate(parts):
            yield Batch(x, y, task, key=("in order", step), learning=learning)


@dataclass(frozen=True)
class Task:
    """One problem of a stream, as a learner sees it: without its test data."""

    index: int
    of: int  # tasks in the stream
    name: str
    classes: tuple[str, ...]
    head: Head
    train: Split
    val: Split | None = None
    past: tuple[Task, ...] = ()  # lent to learners that declare needs.past_data, and to no other

    @property
    def handed_tensors(self) -> tuple[torch.Tensor, ...]:
        """The tensors that nobody may write to."""
        splits = (split for task in (*self.past, self) for split in (task.train, task.val))
        return tuple(tensor for split in splits if split is not None for tensor in split.handed_tensors)


def tensors_in(value: Any) -> list[torch.Tensor]:
    """The tensors in nested plain values, but for those whose changes torch does not count
    (``inference_mode``)."""
    if isinstance(value, torch.Tensor):
        return [] if value.is_inference() else [value]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return [tensor for part in parts for tensor in tensors_in(part)]


class Lazy:
    """A value that is made when it is first asked for."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = make
        self.made: list[Any] = []  # the value, once there is one

    def value(self) -> Any:
        if not self.made:
            self.made.append(self.make())
        return self.made[0]


@dataclass
class Batch:
    """A mini-batch. ``task`` is one id an example: rows replayed from memory keep theirs. Where boundaries
    are hidden it is None, and ``learning`` is 0."""

    x: torch.Tensor
    y: torch.Tensor
    task: torch.Tensor
    key: Key = ()  # (seed, task, phase, step)
    epoch: int = 0
    index_in_epoch: int = 0
    batches_per_epoch: int = 1  # HAT anneals with index_in_epoch / batches_per_epoch
    learning: int = 0  # the task that is open: rows of others may have joined
    part: int = 0  # which of the phase's splits it is of, where these come in turn
    steps: int | None = None  # mini-batches that the phase has, at most; None outside of training
    phase: str = ""  # the phase's name
    lazy: Lazy | None = field(default=None, repr=False)  # what Learner.shared makes of it

    def __len__(self) -> int:
        return self.y.shape[0]

    @property
    def handed_tensors(self) -> tuple[torch.Tensor, ...]:
        """The tensors that nobody may write to: all candidates use them."""
        own = (self.x, self.y) if self.task is None else (self.x, self.y, self.task)
        return own if self.lazy is None or not self.lazy.made else (*own, *tensors_in(self.lazy.made))

    @property
    def shared(self) -> Any:
        """What ``Learner.shared`` makes of it, when a hook first asks for it."""
        return None if self.lazy is None else self.lazy.value()

    def rng(self, purpose: str) -> torch.Generator:
        return rng(*self.key, purpose)

    def cat(self, x: torch.Tensor, y: torch.Tensor, task: torch.Tensor | None = None) -> Batch:
        tasks = self.task if self.task is None or task is None else torch.cat([self.task, task])
        return replace(self, x=torch.cat([self.x, x]), y=torch.cat([self.y, y]), task=tasks)

    def to(self, device: torch.device) -> Batch:
        return replace(self, x=self.x.to(device), y=self.y.to(device), task=self.task.to(device))

    def without_ids(self) -> Batch:
        """What a learner sees of it that is not told where tasks begin and end."""
        return replace(self, task=None, learning=0)  # type: ignore[arg-type]


@dataclass
class Block:
    """K mini-batches that the engine takes in one Lightning step: what ``training_step`` gets as its
    batch."""

    batches: list[Batch]

    def to(self, device: torch.device, **_: object) -> Block:
        """Called by Lightning to move the batch to its device."""
        same = torch.device(device) == self.batches[0].x.device
        return self if same else Block([batch.to(device) for batch in self.batches])


@dataclass
class Blocks:
    """The mini-batches of one phase in blocks of ``block``: a pure function of ``key`` and the step, whoever
    asks and whenever.

    Several splits give a mini-batch each in turn. An epoch is over when the longest was gone through; a
    shorter one then has begun anew, each time in a new order of all its examples. So has the only one, but
    for its first epoch if that is ``in_order``; the last mini-batch of an epoch may be short.
    """

    train: Split | Sequence[Split]
    key: Key  # (seed, task, phase)
    batch_size: int
    epochs: int
    block_size: int
    learning: int = 0  # the task that is open
    start_step: int = 0  # step to begin with: a phase that goes on where it was interrupted
    in_order: bool = False  # whether the first epoch keeps the order of the examples
    max_steps: int | None = None  # mini-batches
    phase: str = ""  # its name
    hidden: bool = False  # whether learners get mini-batches without ids
    _orders: dict[int, tuple[int, torch.Tensor]] = field(default_factory=dict, repr=False)  # by split

    @property
    def splits(self) -> Sequence[Split]:
        return (self.train,) if isinstance(self.train, Split) else self.train

    @property
    def per_epoch(self) -> int:
        return len(self.splits) * -(-max(map(len, self.splits)) // self.batch_size)

    @property
    def steps(self) -> int:
        steps = self.epochs * self.per_epoch
        return steps if self.max_steps is None else min(steps, self.max_steps)

    def __len__(self) -> int:
        return -(-self.steps // self.block_size)

    def __iter__(self) -> Iterator[Block]:
        for first in range(self.start_step, self.steps, self.block_size):
            yield Block(list(self.batches(first, min(first + self.block_size, self.steps))))

    def batches(self, first: int, last: int) -> Iterator[Batch]:
        """The mini-batches of steps first .. last - 1."""
        of, per_epoch, steps = len(self.splits), self.per_epoch, self.steps
        parts = [self.of_part(k, -((k - first) // of), -((k - last) // of)) for k in range(of)]
        for step in range(first, last):
            (x, y, task), (epoch, index) = next(parts[step % of]), divmod(step, per_epoch)
            key = (*self.key, step)
            yield Batch(x, y, task, key, epoch, index, per_epoch, self.learning, step % of, steps, self.phase)

    def of_part(self, part: int, first: int, last: int) -> Iterator[tuple[torch.Tensor, ...]]:
        """The mini-batches first .. last - 1 of one split. Rows are gathered once for all of an epoch; a
        mini-batch is a slice of that."""
        split = self.splits[part]
        per_epoch = -(-len(split) // self.batch_size)
        while first < last:
            epoch, index = divmod(first, per_epoch)
            count = min(last - first, per_epoch - index)
            rows = self.order(epoch, part)[index * self.batch_size : (index + count) * self.batch_size]
            yield from zip(*(values.split(self.batch_size) for values in split.gather(rows)))
            first += count

    def order(self, epoch: int, part: int = 0) -> torch.Tensor:
        known, n = self._orders.get(part), len(self.splits[part])
        if known is None or known[0] != epoch:
            key = (*self.key, "order", epoch, *([part] if part else []))
            shuffled = torch.randperm(n, generator=rng(*key))
            known = epoch, torch.arange(n) if self.in_order and epoch == 0 else shuffled
            self._orders[part] = known
        return known[1]
