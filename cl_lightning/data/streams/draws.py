"""Which images of a source are drawn for a task."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal

import torch
from pydantic import Field

from cl_lightning.data.sources.cache import Images, Pool
from cl_lightning.errors import Refusal
from cl_lightning.randomness import rng

Shortage = Literal["error", "shrink"]
Part = Annotated[float, Field(gt=0, le=1)]  # something of all there is


@dataclass(frozen=True)
class Draw:
    """Row numbers in a source's training pool (train and val, which never meet) and in its test pool."""

    train: torch.Tensor
    val: torch.Tensor
    test: torch.Tensor
    requested: dict[str, int] = field(default_factory=dict)  # sizes that could not be filled

    @property
    def rows(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return self.train, self.val, self.test


@dataclass(frozen=True)
class Sizes:
    """How many examples a task gets, over all its classes. None: all that are left."""

    n_train: int | None
    n_val: int
    n_test: int | None
    balanced: bool = False  # as many of each class
    on_shortage: Shortage = "error"  # shrink: use what there is, and say so in the results
    # Images a class that only validation draws from, the same for all tasks and seeds; None: no such pool.
    held_out: int | None = None
    test_per_class: int | None = None  # at most so many, where n_test is None
    asked_by: str = "stream.{}"  # how a user calls n_train, n_val and n_test
    # This part of each class's test images: keeps the proportions of classes and of tasks.
    test_share: Part | None = None
    val_share: Part | None = None  # this part of a task's training images, in the place of n_val

    def __post_init__(self) -> None:
        if self.val_share is not None and (self.n_val or self.balanced):
            raise Refusal(
                f"stream.val_share={self.val_share} is a part of the training images that there are. Set "
                "stream.n_val=0 and stream.balanced=false beside it, or stream.val_share=null."
            )
        if self.test_share is not None and self.n_test is not None:
            raise Refusal(
                f"{self.asked_by.format('n_test')}={self.n_test} is a number of test examples, and "
                f"stream.test_share={self.test_share} a "
                "part of those there are: a task cannot have both. Set one of them to null."
            )
        if not self.balanced and (self.held_out is not None or self.test_per_class is not None):
            raise Refusal(
                "stream.held_out and stream.test_per_class are numbers a class. Set stream.balanced=true, "
                "or leave both at null."
            )

    def draw(self, images: Images, classes: Sequence[int], key: Callable[[str], tuple]) -> Draw:
        """Rows of ``classes``. Training and validation rows are in a random order: a single pass, a ring of
        memory and a statistic of the first examples see all classes."""
        if self.balanced:
            return self.by_class(images, classes, key)
        shrink = self.on_shortage == "shrink"
        requested: dict[str, int] = {}
        train, test = of_classes(images.train, classes), of_classes(images.test, classes)
        n_train, n_val, n_test = self.n_train, self.n_val, self.n_test
        if self.val_share is not None:
            n_val = round(self.val_share * len(train))
        apart = images.for_validation > 0
        if shrink and not apart and n_train is not None and n_train + n_val > len(train):
            requested |= {"n_train": n_train, "n_val": n_val}
            n_val = n_val * len(train) // (n_train + n_val)
            n_train = len(train) - n_val
        if shrink and n_test is not None and n_test > len(test):
            requested["n_test"], n_test = n_test, len(test)
        wanted = n_val + (n_train if n_train is not None else 1)
        if wanted > len(train) and not apart:
            raise Refusal(
                f"A task needs {wanted} training and validation examples, but only {len(train)} are there. "
                "Lower stream.n_train or stream.n_val, or set stream.on_shortage=shrink."
            )
        shuffled = drawn_from(train, None, *key("train"))
        if apart:
            own_train, own_val = self.with_validation(images, train, key, requested)
            shuffled, n_val = torch.cat([own_val, own_train]), len(own_val)
        if self.test_share is not None:
            own = {c: of_classes(images.test, [c]) for c in classes}
            parts = [drawn_from(rows, self.tested(len(rows)), *key("test"), c) for c, rows in own.items()]
            drawn = torch.cat(parts).sort().values
        elif n_test is None:
            drawn = test
        elif n_test <= len(test):
            drawn = drawn_from(test, n_test, *key("test"))
        else:
            raise Refusal(
                f"stream.n_test={n_test} must lie between 1 and the {len(test)} examples there are (null: "
                "all)."
            )
        return Draw(shuffled[n_val:][:n_train], shuffled[:n_val], drawn, requested)

    def with_validation(
        self, images: Images, rows: torch.Tensor, key: Callable[[str], tuple], requested: dict[str, int]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Training and validation rows where the source has validation examples of its own: as many of each
        as are asked for."""
        drawn = []
        for name, own in zip(("n_train", "n_val"), images.parted(rows)):
            wanted = getattr(self, name)
            if wanted is not None and wanted > len(own):
                if self.on_shortage == "error":
                    raise Refusal(
                        f"A task needs {wanted} examples for {name}, but {images.name} has {len(own)} of its "
                        f"classes. Lower {self.asked_by.format(name)}, or set stream.on_shortage=shrink."
                    )
                requested[name] = wanted
            order = torch.randperm(len(own), generator=rng(*key(name.removeprefix("n_"))))
            drawn.append(own[order[:wanted]])
        return drawn[0], drawn[1]

    def by_class(self, images: Images, classes: Sequence[int], key: Callable[[str], tuple]) -> Draw:
        totals = {"n_train": self.n_train, "n_val": self.n_val, "n_test": self.n_test}
        each = {n: a_class(self.asked_by.format(n), total, len(classes)) for n, total in totals.items()}
        parts: dict[str, list[torch.Tensor]] = {name: [] for name in totals}
        for c in classes:
            train, val = self.pools(images, c, each["n_train"], each["n_val"] or 0, key)
            if not len(train):
                raise Refusal(
                    f"Class {c} ({images.classes[c]}) of {images.name} has {len(val)} images: with "
                    f"{each['n_val']} for validation none are "
                    f"left to train on. Lower {self.asked_by.format('n_val')}."
                )
            for name, rows in (("n_train", train), ("n_val", val), ("n_test", of_classes(images.test, [c]))):
                wanted = each[name]
                if name == "n_test" and wanted is None:
                    wanted = self.tested(len(rows))
                if wanted is not None and wanted > len(rows) and self.on_shortage == "error":
                    raise Refusal(
                        f"A task needs {wanted} examples of class {c} ({images.classes[c]}) of "
                        f"{images.name} for {name}, but {len(rows)} "
                        f"are there. Lower {self.asked_by.format(name)}, or set stream.on_shortage=shrink."
                    )
                parts[name].append(drawn_from(rows, wanted, *key(name.removeprefix("n_")), c).sort().values)
        drawn = {name: torch.cat(rows) for name, rows in parts.items()}
        for name, purpose in (("n_train", "train"), ("n_val", "val")):
            drawn[name] = drawn_from(drawn[name], None, *key(purpose), "order")
        asked = {name: total for name, total in totals.items() if total is not None}
        requested = {name: total for name, total in asked.items() if len(drawn[name]) < total}
        return Draw(drawn["n_train"], drawn["n_val"], drawn["n_test"], requested)

    def tested(self, there: int) -> int:
        """How many test images of a class a task gets where the stream gives no number: ``test_share`` of
        those that may be used, at least one."""
        most = there if self.test_per_class is None else min(self.test_per_class, there)
        return most if self.test_share is None else max(1, round(self.test_share * most))

    def pools(
        self, images: Images, c: int, n_train: int | None, n_val: int, key: Callable[[str], tuple]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The rows of a class that training draws from, and those that validation draws from."""
        rows = of_classes(images.train, [c])
        if images.for_validation:
            return images.parted(rows)
        if self.held_out is None:
            short = self.on_shortage == "shrink" and n_train and n_train + n_val > len(rows)
            count = n_val * len(rows) // (n_train + n_val) if n_train and short else min(n_val, len(rows))
            shuffled = drawn_from(rows, None, *key("pools"), c)
        else:
            most = 2 * len(rows) // 5  # small classes keep more for training
            count, shuffled = min(self.held_out, most), drawn_from(rows, None, "held out", images.name, c)
        return shuffled[count:].sort().values, shuffled[:count].sort().values


def drawn_from(rows: torch.Tensor, count: int | None, *key: object) -> torch.Tensor:
    """So many of the rows (None: all) in the order that a key gives them."""
    return rows[torch.randperm(len(rows), generator=rng(*key))[:count]]


def a_class(name: str, total: int | None, classes: int) -> int | None:
    """A class's part of what is drawn for all."""
    if total is not None and total % classes:
        raise Refusal(
            f"{total} examples cannot be shared equally by {classes} classes ({name}). Choose a multiple of "
            f"{classes}."
        )
    return None if total is None else total // classes


def of_classes(pool: Pool, classes: Sequence[int]) -> torch.Tensor:
    """The rows of some classes, in their own order."""
    rows = [pool.by_class[c] for c in classes if c in pool.by_class]
    return torch.cat([torch.empty(0, dtype=torch.int64), *rows]).sort().values


def none_empty(images: Images, classes: Sequence[int]) -> None:
    """Every class has something to learn from and to be tested on."""
    for split, pool in (("training", images.train), ("test", images.test)):
        for number in classes:
            if number not in pool.by_class:
                raise Refusal(
                    f"Class {number} ({images.classes[number]}) of {images.name} has no {split} images. "
                    "Leave it out with stream.class_order, or complete the data set."
                )
