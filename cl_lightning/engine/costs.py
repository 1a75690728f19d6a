"""What the candidates of a phase cost: counted in the first mini-batch of every shape, and multiplied."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

from cl_lightning.metrics.flops import Flops, uncounted

# One candidate's costs by kind of work: how often it was done, operations for it alone, operations it shares.
Counts = Mapping[str, Sequence[int]]
Kind = tuple  # its name and the shape of its mini-batch
UNCOUNTED = nullcontext()  # made once, since every mini-batch needs one


class Meter:
    """Operations of each candidate, by kind of work: a mini-batch of a shape, or one scoring.

    A candidate's numbers depend on no other, so that they are the same alone, in company and in groups.
    ``own`` is what is done for it alone; ``common`` what it would need of ``extend`` and ``shared`` if it
    were alone.
    """

    def __init__(self, candidates: int) -> None:
        self.own: list[dict[Kind, int]] = [{} for _ in range(candidates)]
        self.common: list[dict[Kind, int]] = [{} for _ in range(candidates)]
        self.times: list[dict[Kind, int] | None] = [None] * candidates  # of those that have left
        self.so_far: dict[Kind, int] = {}  # how often each kind was done since the beginning
        self.counter: Flops | None = None  # open while the first of a kind is counted
        self.kind: Kind = ()

    def counting(self, *kind: object) -> AbstractContextManager[None]:
        """A guard around one piece of work: the first of its kind is counted."""
        times = self.so_far.get(kind, 0)
        self.so_far[kind] = times + 1
        return UNCOUNTED if times else self.counting_first(kind)

    def paused(self) -> AbstractContextManager[None]:
        """A guard around what multiplies nothing, and would only slow the counter down."""
        return UNCOUNTED if self.counter is None else uncounted()

    @contextmanager
    def counting_first(self, kind: Kind) -> Iterator[None]:
        self.kind = kind
        with Flops() as self.counter:
            try:
                yield
            finally:
                self.counter = None

    def note(self, i: int) -> None:
        """What was done since the last note was for one candidate alone."""
        if self.counter is not None:
            self.own[i][self.kind] = self.own[i].get(self.kind, 0) + self.counter.since_last()

    def note_common(self, members: Sequence[int], times: int = 1) -> None:
        """What was done since the last note is needed by each of these, so many times over."""
        if self.counter is not None:
            counted = self.counter.since_last() * times
            for i in members:
                self.common[i][self.kind] = self.common[i].get(self.kind, 0) + counted

    def leave(self, i: int) -> None:
        self.times[i] = dict(self.so_far)

    def counts(self) -> list[dict[str, list[int]]]:
        """One entry a candidate: for every kind how often, own, common."""
        found = []
        for own, common, left in zip(self.own, self.common, self.times):
            times = self.so_far if left is None else left
            rows = {
                kind: [times.get(kind, 0), own.get(kind, 0), common.get(kind, 0)]
                for kind in {**own, **common}
            }
            found.append({name_of_kind(kind): row for kind, row in rows.items()})
        return found

    def state(self) -> dict:
        return {"own": self.own, "common": self.common, "times": self.times, "so_far": self.so_far}

    def restore(self, state: dict) -> None:
        self.own, self.common, self.times, self.so_far = (
            state[name] for name in ("own", "common", "times", "so_far")
        )


def name_of_kind(kind: Kind) -> str:
    """
    >>> name_of_kind(("batch", (10, 1, 28, 28))), name_of_kind(("score",))
    ('batch 10 x 1 x 28 x 28', 'score')
    """
    name, *shapes = kind
    return " ".join([name, *(" x ".join(map(str, shape)) for shape in shapes)])


def alone(counts: Sequence[Counts], kinds: str = "") -> int:
    """Operations as if every candidate had been trained alone; of the kinds whose names begin so.

    >>> alone([{"batch 10": [3, 5, 2]}, {"batch 10": [1, 5, 2]}])
    28
    """
    rows = (row for of_one in counts for kind, row in of_one.items() if kind.startswith(kinds))
    return sum(times * (own + common) for times, own, common in rows)


def executed(counts: Sequence[Counts]) -> int:
    """Operations when all train side by side. Shared work counts once, with the most that any candidate still
    in training needs.

    >>> executed([{"batch 10": [3, 5, 2]}, {"batch 10": [1, 5, 4]}])
    28
    """
    total = 0
    for kind in sorted({kind for of_one in counts for kind in of_one}):
        rows = sorted((of_one[kind] for of_one in counts if kind in of_one), key=lambda row: -row[0])
        total += sum(times * own for times, own, _ in rows)
        most = 0
        for (times, _, common), behind in zip(rows, [*(row[0] for row in rows[1:]), 0]):
            most = max(most, common)
            total += (times - behind) * most
    return total
