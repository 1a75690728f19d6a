"""What the candidates of a phase cost: counted in the first mini-batch of every shape, and multiplied."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

from cl_lightning.metrics.flops import Flops, uncounted

# One candidate's costs by kind of work: how often it was done, operations for it alone, operations it shares,
# and those of its own that are a forward pass in training.
Counts = Mapping[str, Sequence[int]]
Kind = tuple  # its name, the shape of its mini-batch, and what the learner says of it
UNCOUNTED = nullcontext()  # made once, since every mini-batch needs one


class Meter:
    """Operations of each candidate, by kind of work: a mini-batch of a shape, or one scoring.

    A candidate's numbers depend on no other, so that they are the same alone, in company and in groups.
    """

    def __init__(self, candidates: int) -> None:
        # Of each candidate, by kind: how often, what is done for it alone, what it would need of ``extend``
        # and ``shared`` if it were alone, and its loss; a new row from where a check finds other numbers.
        self.rows: list[dict[Kind, list[list[int]]]] = [{} for _ in range(candidates)]
        self.counter: Flops | None = None  # open while something is counted
        self.noted: dict[int, list[int]] = {}  # by candidate, what was

    def counting(self, kinds: Mapping[int, Kind], check: bool = False) -> AbstractContextManager[None]:
        """A guard around one piece of work, of such a kind for each candidate: the first of its kind is
        counted, and a later one where this is to be checked."""
        known = [rows for i, kind in kinds.items() if (rows := self.rows[i].get(kind))]
        if check or len(known) < len(kinds):
            return self.counted(kinds, check)
        for rows in known:
            rows[-1][0] += 1
        return UNCOUNTED

    def paused(self) -> AbstractContextManager[None]:
        """A guard around what multiplies nothing, and would only slow the counter down."""
        return UNCOUNTED if self.counter is None else uncounted()

    @contextmanager
    def counted(self, kinds: Mapping[int, Kind], check: bool) -> Iterator[None]:
        self.noted = {i: [0, 0, 0] for i in kinds}
        with Flops() as self.counter:
            try:
                yield
            finally:
                self.counter = None
        for i, kind in kinds.items():
            rows = self.rows[i].setdefault(kind, [])
            if not rows or (check and rows[-1][1:] != self.noted[i]):
                rows.append([0, *self.noted[i]])
            rows[-1][0] += 1

    def note(self, i: int, loss: bool = False) -> None:
        """What was done since the last note was for one candidate alone: its loss, or anything else."""
        if self.counter is not None:
            counted = self.counter.since_last()
            self.noted[i][0] += counted
            self.noted[i][2] += counted * loss

    def note_common(self, members: Sequence[int], times: int = 1) -> None:
        """What was done since the last note is needed by each of these, so many times over."""
        if self.counter is not None:
            counted = self.counter.since_last() * times
            for i in members:
                self.noted[i][1] += counted

    def counts(self) -> list[dict[str, list[int]]]:
        """One entry a candidate: for every kind how often, own, common."""
        return [
            {name_of_kind(kind, k): row for kind, rows in of_one.items() for k, row in enumerate(rows)}
            for of_one in self.rows
        ]


def name_of_kind(kind: Kind, changes: int = 0) -> str:
    """
    >>> name_of_kind(("batch", (10, 1, 28, 28), "past")), name_of_kind(("score",), changes=1)
    ('batch 10 x 1 x 28 x 28 past', 'score (2)')
    """
    parts = (" x ".join(map(str, part)) if isinstance(part, tuple) else str(part) for part in kind)
    return " ".join([*parts, *([f"({changes + 1})"] if changes else [])])


def alone(counts: Sequence[Counts], kinds: str = "") -> int:
    """Operations as if every candidate had been trained alone; of the kinds whose names begin so.

    >>> alone([{"batch 10": [3, 5, 2]}, {"batch 10": [1, 5, 2]}])
    28
    """
    rows = (row for of_one in counts for kind, row in of_one.items() if kind.startswith(kinds))
    return sum(times * (own + common) for times, own, common, *_ in rows)


def executed(counts: Sequence[Counts]) -> int:
    """Operations when all train side by side. Shared work counts once, with the most that any candidate still
    in training needs.

    >>> executed([{"batch 10": [3, 5, 2]}, {"batch 10": [1, 5, 4]}])
    28
    """
    total = 0
    for kind in sorted({kind for of_one in counts for kind in of_one}):
        rows = sorted((of_one[kind] for of_one in counts if kind in of_one), key=lambda row: -row[0])
        total += sum(times * own for times, own, *_ in rows)
        most = 0
        for (times, _, common, *_), behind in zip(rows, [*(row[0] for row in rows[1:]), 0]):
            most = max(most, common)
            total += (times - behind) * most
    return total


def forward(of_one: Counts) -> int:
    """Operations of one candidate's forward passes in training, by itself.

    >>> forward({"batch 10": [3, 15, 2, 5], "score": [9, 5, 2, 0]})
    21
    """
    rows = (row for kind, row in of_one.items() if kind.startswith("batch"))
    return sum(times * (common + loss) for times, _, common, loss in rows)
