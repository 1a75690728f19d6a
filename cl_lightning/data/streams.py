"""Stream recipes: which examples, transforms and heads make up each task. Pixels are made when a task is opened.

Everything drawn here depends on the stream's arguments and seed alone: not on the learner, not on global state.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
import torch
from PIL import Image

from cl_lightning.data.cache import Images, Pool
from cl_lightning.data.given import given, given_whole
from cl_lightning.data.lease import Lease
from cl_lightning.data.task import Head, Split, Task
from cl_lightning.errors import Refusal
from cl_lightning.protocol import not_for_learners
from cl_lightning.randomness import rng


@dataclass(frozen=True)
class Recipe:
    """One task before its pixels are made. Rows are row numbers in the source's pools; train and val rows never meet."""

    name: str
    classes: tuple[str, ...]
    train: torch.Tensor
    val: torch.Tensor
    test: torch.Tensor
    outputs: torch.Tensor  # (source classes,): the output number of each, -1 where it is not in the task
    pixels: torch.Tensor | None = None  # of all channels, flattened: which pixel of the source comes here; -1: none, black


@dataclass(frozen=True)
class Stream:
    """Ordered tasks of one source."""

    name: str
    images: Images
    head: Head
    recipe: Callable[[int], Recipe]

    def __len__(self) -> int:
        return len(self.head.owned)

    def task(self, index: int, past: tuple[Task, ...] = (), lease: Lease | None = None) -> Task:
        """A task with its training and validation examples: for the data module, which lends them."""
        not_for_learners("train", index)
        recipe = self.recipe(index)
        train, val = (self.split(index, self.images.train, rows, lease) for rows in (recipe.train, recipe.val))
        return Task(index, len(self), recipe.name, recipe.classes, self.head, train, val if len(val) else None, past)

    def closed(self, index: int) -> Task:
        """A task without examples: what is left of it when its data are closed."""
        nothing = Split(torch.empty(0, *self.images.shape), torch.empty(0, dtype=torch.int64), torch.empty(0, dtype=torch.int64))
        recipe = self.recipe(index)
        return Task(index, len(self), recipe.name, recipe.classes, self.head, nothing)

    def test(self, index: int) -> Split:
        """The test examples of a task: for the evaluator, and for nobody else."""
        not_for_learners("test", index)
        return self.split(index, self.images.test, self.recipe(index).test)

    def split(self, index: int, pool: Pool, rows: torch.Tensor, lease: Lease | None = None) -> Split:
        recipe = self.recipe(index)
        x = pool.x[rows].float().div_(255)
        if recipe.pixels is not None:
            flat = x.flatten(1)[:, recipe.pixels.clamp(min=0)]
            flat[:, recipe.pixels < 0] = 0
            x = flat.reshape(x.shape)
        return Split(x, recipe.outputs[pool.y[rows]], torch.full((len(rows),), index), lease)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the source's pixels, every drawn row, label and permutation, and the head: equal hashes, equal examples."""
        digest = hashlib.sha256(repr((self.images.digest, self.head)).encode())
        for recipe in map(self.recipe, range(len(self))):
            parts = (recipe.train, recipe.val, recipe.test, recipe.outputs, recipe.pixels)
            for tensor in (torch.empty(0) if part is None else part for part in parts):
                digest.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
                digest.update(tensor.contiguous().numpy().data)
        return digest.hexdigest()[:16]

    def describe(self) -> list[dict]:
        """What each task is made of, for the results."""
        return [
            {
                "name": recipe.name,
                "source": self.images.name,
                "classes": list(recipe.classes),
                "n_train": len(recipe.train),
                "n_val": len(recipe.val),
                "n_test": len(recipe.test),
                "head": {"mode": self.head.mode, "outputs": list(own)},
            }
            for recipe, own in zip(map(self.recipe, range(len(self))), self.head.owned)
        ]


def permuted(
    images: Images,
    seed: int,
    tasks: int,
    n_train: int | None,
    n_val: int,
    n_test: int | None,
    head: str = "domain",
    first_identity: bool = False,
    permutations: str | None = None,
    order: str | None = None,
) -> Stream:
    """All classes under one fixed permutation of the pixels a task; every task draws its own examples (Goodfellow et al. 2014).

    ``permutations`` (tasks x pixels; position i gets pixel p[i]) and ``order`` (tasks x examples, rows of the training set) are files.
    """
    at_least_one(tasks=tasks)
    pixels = images.train.x[0].numel()
    fixed = given_whole("permutations", permutations, pixels, tasks, pixels) if permutations else None
    if fixed is not None and any(len(row.unique()) < pixels for row in fixed):
        raise Refusal(f"stream.permutations={permutations} has a row that is no permutation: some of its {pixels} pixels come twice.")

    def source_pixels(index: int) -> torch.Tensor | None:
        if fixed is not None:
            return fixed[index]
        return None if first_identity and index == 0 else torch.randperm(pixels, generator=rng(seed, "permuted", index, "permutation"))

    return transformed("permuted", lambda i: f"permutation {i}", images, seed, tasks, n_train, n_val, n_test, head, order, source_pixels)


def rotated(
    images: Images,
    seed: int,
    tasks: int,
    n_train: int | None,
    n_val: int,
    n_test: int | None,
    head: str = "domain",
    degrees: float = 180.0,
    angles: str | Sequence[float] | None = None,
    order: str | None = None,
) -> Stream:
    """All classes turned by one fixed angle a task, drawn uniformly from the task's own part of 0 to ``degrees`` (Lopez-Paz and
    Ranzato 2017): counter-clockwise about the centre, nearest pixel, black where nothing comes.

    ``angles`` (tasks) is a file or a list; ``order`` as in ``permuted``.
    """
    at_least_one(tasks=tasks)
    strata = (torch.arange(tasks) + torch.cat([torch.rand(1, generator=rng(seed, "rotated", i, "angle")) for i in range(tasks)])) / tasks
    turns = strata * degrees
    if angles is not None:
        numbers = isinstance(angles, str) or all(isinstance(angle, int | float) and math.isfinite(angle) for angle in angles)
        if not numbers or (not isinstance(angles, str) and len(angles) != tasks):
            raise Refusal(f"stream.angles={angles} must be {tasks} numbers, one a task, or a file.")
        turns = given("angles", angles, tasks) if isinstance(angles, str) else torch.tensor(angles, dtype=torch.float64)

    def source_pixels(index: int) -> torch.Tensor:
        return turned(images.shape, turns[index].item())

    return transformed(
        "rotated", lambda i: f"rotation by {turns[i]:.2f} degrees", images, seed, tasks, n_train, n_val, n_test, head, order, source_pixels
    )


def turned(shape: tuple[int, int, int], degrees: float) -> torch.Tensor:
    """Where each pixel of a turned image comes from, over all channels; -1 where from outside."""
    channels, height, width = shape
    numbers = Image.fromarray(np.arange(1, height * width + 1, dtype=np.int32).reshape(height, width))
    one = torch.from_numpy(np.array(numbers.rotate(degrees, Image.Resampling.NEAREST), dtype=np.int64)).flatten() - 1
    return torch.cat([torch.where(one < 0, one, one + c * height * width) for c in range(channels)])


def transformed(
    kind: str,
    name: Callable[[int], str],
    images: Images,
    seed: int,
    tasks: int,
    n_train: int | None,
    n_val: int,
    n_test: int | None,
    head: str,
    order: str | None,
    source_pixels: Callable[[int], torch.Tensor | None],
) -> Stream:
    """Tasks that share all classes and differ in where pixels come from."""
    if head not in ("domain", "single"):
        raise Refusal(
            f"stream.head={head} gives each task outputs of its own, but these tasks share their classes. Use stream.head=domain."
        )
    none_empty(images, range(len(images.classes)))
    classes, whole = len(images.classes), torch.arange(len(images.train.y))
    fixed = given_whole("order", order, len(whole), tasks, n_train) if order else None
    if fixed is not None and any(len(row.unique()) < len(row) for row in fixed):
        raise Refusal(f"stream.order={order} shows an example twice in one task. Name each row once; trainer.max_epochs repeats them.")
    if fixed is not None and n_val:
        raise Refusal("stream.order gives the training examples, so there are none for validation. Set stream.n_val=0.")

    @cache
    def recipe(index: int) -> Recipe:
        def key(purpose: str) -> tuple:
            return (seed, kind, index, purpose)

        train, val = draw_train_and_val(whole, n_train, n_val, key) if fixed is None else (fixed[index], whole[:0])
        test = draw(torch.arange(len(images.test.y)), n_test, "n_test", rng(*key("test")))
        return Recipe(name(index), images.classes, train, val, test, torch.arange(classes), source_pixels(index))

    return Stream(kind, images, Head(head, classes, (tuple(range(classes)),) * tasks), recipe)


def split(
    images: Images,
    seed: int,
    tasks: int,
    classes_per_task: int,
    n_train: int | None,
    n_val: int,
    n_test: int | None,
    head: str,
    class_order: Sequence[int] | None = None,
) -> Stream:
    """Disjoint groups of classes, in the order given. In a ``domain`` stream every task has outputs 0, 1, ..."""
    at_least_one(tasks=tasks, classes_per_task=classes_per_task)
    order = list(class_order) if class_order is not None else list(range(len(images.classes)))
    if len(set(order)) != len(order) or not set(order) <= set(range(len(images.classes))):
        raise Refusal(f"stream.class_order={order} must name classes 0 to {len(images.classes) - 1} of {images.name}, each at most once.")
    if tasks * classes_per_task > len(order):
        raise Refusal(
            f"{tasks} tasks of {classes_per_task} classes need {tasks * classes_per_task} classes, but {len(order)} of {images.name} are "
            "at hand. Lower stream.tasks or stream.classes_per_task."
        )
    none_empty(images, order[: tasks * classes_per_task])
    groups = [order[i * classes_per_task : (i + 1) * classes_per_task] for i in range(tasks)]
    domain = head == "domain"
    owned = tuple(tuple(range(classes_per_task)) if domain else tuple(group) for group in groups)

    @cache
    def recipe(index: int) -> Recipe:
        group = groups[index]

        def key(purpose: str) -> tuple:
            return (seed, "split", tuple(group), purpose)

        def of_group(y: torch.Tensor) -> torch.Tensor:
            return torch.isin(y, torch.tensor(group)).nonzero()[:, 0]

        train, val = draw_train_and_val(of_group(images.train.y), n_train, n_val, key)
        test = draw(of_group(images.test.y), n_test, "n_test", rng(*key("test")))
        outputs = torch.full((len(images.classes),), -1)
        outputs[group] = torch.tensor(owned[index])
        names = tuple(images.classes[c] for c in group)
        return Recipe(f"classes {' '.join(names)}", names, train, val, test, outputs)

    return Stream("split", images, Head(head, classes_per_task if domain else len(images.classes), owned), recipe)


def draw_train_and_val(
    rows: torch.Tensor, n_train: int | None, n_val: int, key: Callable[[str], tuple]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Disjoint rows for training and validation; ``n_train`` None takes all that validation leaves."""
    wanted = n_val + (n_train if n_train is not None else 1)
    if wanted > len(rows):
        raise Refusal(
            f"A task needs {wanted} training and validation examples, but only {len(rows)} are there. Lower stream.n_train or stream.n_val."
        )
    if n_val < 0 or (n_train is not None and n_train < 1):
        raise Refusal(f"stream.n_train={n_train} must be at least 1 (null: all), stream.n_val={n_val} at least 0.")
    shuffled = rows[torch.randperm(len(rows), generator=rng(*key("train")))]
    return shuffled[n_val:][:n_train], shuffled[:n_val]


def draw(rows: torch.Tensor, count: int | None, name: str, generator: torch.Generator) -> torch.Tensor:
    """``count`` of ``rows`` without replacement; None is all of them, in their own order."""
    if count is None:
        return rows
    if not 1 <= count <= len(rows):
        raise Refusal(f"stream.{name}={count} must lie between 1 and the {len(rows)} examples there are (null: all).")
    return rows[torch.randperm(len(rows), generator=generator)[:count]]


def none_empty(images: Images, classes: Sequence[int]) -> None:
    """Every class has something to learn from and to be tested on."""
    for split, pool in (("training", images.train), ("test", images.test)):
        counts = pool.y.bincount(minlength=len(images.classes))
        for number in classes:
            if not counts[number]:
                raise Refusal(
                    f"Class {number} ({images.classes[number]}) of {images.name} has no {split} images. Leave it out with "
                    "stream.class_order, or complete the data set."
                )


def at_least_one(**counts: int) -> None:
    for name, count in counts.items():
        if count < 1:
            raise Refusal(f"stream.{name}={count} must be at least 1.")
