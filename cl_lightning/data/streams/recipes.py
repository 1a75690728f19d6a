"""Recipes for streams of one source: permuted, rotated, split.

Everything drawn here depends on the stream's arguments and seed alone: not on the learner, not on global
state.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import Annotated, Literal

import numpy as np
import torch
from PIL import Image

from cl_lightning.config.checking import Count, Fulfils, Size, Text
from cl_lightning.data.sources.cache import Images, Pool
from cl_lightning.data.streams.draws import Part, Shortage, Sizes, none_empty, of_classes
from cl_lightning.data.streams.given import given, given_whole
from cl_lightning.data.streams.show import PLAIN, Show
from cl_lightning.data.streams.stream import RECIPES_KEPT, Recipe, Stream, ordered, recipe, shape_of
from cl_lightning.data.task import Head, HeadMode
from cl_lightning.errors import Refusal
from cl_lightning.randomness import rng

Order = Literal["native", "frequency", "random"] | Sequence[Size]


@recipe
def permuted(
    images: Images,
    seed: Size,
    tasks: Count,
    n_train: Count | None,
    n_val: Size,
    n_test: Count | None,
    head: HeadMode = "domain",
    first_identity: bool = False,
    permutations: Text | None = None,
    order: Text | None = None,
    balanced: bool = False,
    on_shortage: Shortage = "error",
    test_share: Part | None = None,
    show: Show = PLAIN,
) -> Stream:
    """All classes under one fixed permutation of the pixels a task; every task draws its own examples
    (Goodfellow et al. 2014).

    ``permutations`` (tasks x pixels; position i gets pixel p[i]) and ``order`` (tasks x examples, rows of the
    training set) are files.
    """
    pixels = math.prod(shape_of(show, images))
    fixed = given_whole("permutations", permutations, pixels, tasks, pixels) if permutations else None
    if fixed is not None and any(len(row.unique()) < pixels for row in fixed):
        raise Refusal(
            f"stream.permutations={permutations} has a row that is no permutation: some of its {pixels} "
            "pixels come twice."
        )

    sizes = Sizes(n_train, n_val, n_test, balanced, on_shortage, test_share=test_share)
    own, name = permutations_of("permuted", pixels, seed, first_identity), "permutation {}".format
    of_task = own if fixed is None else fixed.__getitem__
    return transformed(
        "permuted", images, seed, tasks, sizes, head, show, name, of_task, permutes=True, order=order
    )


def permutations_of(
    kind: str, pixels: int, seed: int, first_identity: bool
) -> Callable[[int], torch.Tensor | None]:
    """A function that draws the permutation of a task; None for the first one if it stays as it is."""

    def permutation(index: int) -> torch.Tensor | None:
        if first_identity and index == 0:
            return None
        return torch.randperm(pixels, generator=rng(seed, kind, index, "permutation"))

    return permutation


@recipe
def rotated(
    images: Images,
    seed: Size,
    tasks: Count,
    n_train: Count | None,
    n_val: Size,
    n_test: Count | None,
    head: HeadMode = "domain",
    degrees: float = 180.0,
    angles: Text | Sequence[float] | None = None,
    order: Text | None = None,
    balanced: bool = False,
    on_shortage: Shortage = "error",
    test_share: Part | None = None,
    show: Show = PLAIN,
) -> Stream:
    """All classes turned by one fixed angle a task, drawn uniformly from the task's own part of 0 to
    ``degrees`` (Lopez-Paz and Ranzato 2017): counter-clockwise about the centre, nearest pixel, black where
    nothing comes.

    ``angles`` (tasks) is a file or a list; ``order`` as in ``permuted``.
    """
    fixed: list[float] = []
    if angles is not None:
        if not isinstance(angles, str) and len(angles) != tasks:
            raise Refusal(f"stream.angles={angles} must be {tasks} numbers, one a task, or a file.")
        fixed = given("angles", angles, tasks).tolist() if isinstance(angles, str) else list(angles)

    def turn(index: int) -> float:
        part = (torch.tensor([index]) + torch.rand(1, generator=rng(seed, "rotated", index, "angle"))) / tasks
        return fixed[index] if fixed else (part * degrees).item()

    def name(index: int) -> str:
        return f"rotation by {turn(index):.2f} degrees"

    def source_pixels(index: int) -> torch.Tensor:
        return rotation(shape_of(show, images), turn(index))

    sizes = Sizes(n_train, n_val, n_test, balanced, on_shortage, test_share=test_share)
    return transformed(
        "rotated", images, seed, tasks, sizes, head, show, name, source_pixels, permutes=False, order=order
    )


def rotation(shape: tuple[int, int, int], degrees: float) -> torch.Tensor:
    """Where each pixel of a turned image comes from, over all channels; -1 where from outside."""
    channels, height, width = shape
    numbers = Image.fromarray(np.arange(1, height * width + 1, dtype=np.int32).reshape(height, width))
    turned = np.array(numbers.rotate(degrees, Image.Resampling.NEAREST), dtype=np.int64)
    one = torch.from_numpy(turned).flatten() - 1
    return torch.cat([torch.where(one < 0, one, one + c * height * width) for c in range(channels)])


def transformed(
    kind: str,
    images: Images,
    seed: int,
    tasks: int,
    sizes: Sizes,
    head: HeadMode,
    show: Show,
    name: Callable[[int], str],
    source_pixels: Callable[[int], torch.Tensor | None],
    permutes: bool,
    order: str | None = None,
) -> Stream:
    """Tasks that share all classes and differ in where pixels come from: each is permuted (``permutes``) or
    turned. Under ``multi_*`` heads each has outputs of its own."""
    classes, apart = range(len(images.classes)), head in ("multi_test", "multi_train_test")
    owned = tuple(tuple(c + apart * index * len(classes) for c in classes) for index in range(tasks))
    none_empty(images, classes)

    @lru_cache(RECIPES_KEPT)
    def a_task(index: int) -> Recipe:
        drawn = sizes.draw(images, classes, lambda purpose: (seed, kind, index, purpose))
        labels, pixels = torch.tensor(owned[index]), source_pixels(index)
        made = Recipe(name(index), images.classes, *drawn.rows, labels, pixels, requested=drawn.requested)
        return replace(made, permuted=permutes and pixels is not None)

    outputs = Head(head, owned[-1][-1] + 1, owned)
    made = Stream(kind, (images,), outputs, a_task, seed, show, balanced=sizes.balanced)
    return ordered(made, order, sizes.n_train)


@recipe
def split(
    images: Images,
    seed: Size,
    tasks: Count | None,
    classes_per_task: Count,
    n_train: Count | None,
    n_val: Size,
    n_test: Count | None,
    head: HeadMode,
    class_order: Order = "native",
    balanced: bool = False,
    on_shortage: Shortage = "error",
    order: Text | None = None,
    test_share: Part | None = None,
    show: Show = PLAIN,
) -> Stream:
    """Disjoint groups of classes. In a ``domain`` stream every task has outputs 0, 1, ... Without ``tasks``
    there are as many as the classes fill."""
    classes = order_classes(images, class_order, seed)
    most = len(classes) // classes_per_task
    count = max(most, 1) if tasks is None else tasks
    if count > most:
        fits = f"stream.tasks={most}" if most else f"stream.tasks=1 stream.classes_per_task={len(classes)}"
        raise Refusal(
            f"{count} tasks of {classes_per_task} classes need {count * classes_per_task} classes, but "
            f"{len(classes)} of {images.name} are at hand. Lower stream.tasks or stream.classes_per_task, as "
            f"in {fits}."
        )
    groups = [classes[i * classes_per_task : (i + 1) * classes_per_task] for i in range(count)]
    sizes = Sizes(n_train, n_val, n_test, balanced, on_shortage, test_share=test_share)
    return split_by_groups("split", images, seed, groups, sizes, head, show, order)


@recipe
def overlapping(
    images: Images,
    seed: Size,
    tasks: Count,
    classes_per_task: Count,
    shared: Count,
    n_train: Count | None,
    n_val: Size,
    n_test: Count | None,
    head: Literal["single", "multi_test"] = "single",
    class_order: Order = "native",
    balanced: bool = False,
    on_shortage: Shortage = "error",
    test_share: Part | None = None,
    show: Show = PLAIN,
) -> Stream:
    """Groups of classes of which each has ``shared`` of the last one, as Farquhar and Gal 2018 ask for; each
    task draws its own examples of them."""
    order, new = order_classes(images, class_order, seed), classes_per_task - shared
    wanted = classes_per_task + (tasks - 1) * new
    if new < 1 or wanted > len(order):
        raise Refusal(
            f"{tasks} tasks of {classes_per_task} classes, {shared} of them the last one's, need {wanted} "
            f"classes, and {len(order)} of {images.name} are at hand; stream.shared must be smaller than "
            "stream.classes_per_task. Lower one of the three."
        )
    groups = [order[i * new : i * new + classes_per_task] for i in range(tasks)]
    sizes = Sizes(n_train, n_val, n_test, balanced, on_shortage, test_share=test_share)
    return split_by_groups("overlapping", images, seed, groups, sizes, head, show)


@recipe
def drifting(
    images: Images,
    seed: Size,
    tasks: Count,
    groups: Count,
    classes_per_group: Count,
    n_train: Count | None,
    n_val: Size,
    n_test: Count | None,
    class_order: Order = "native",
    test_share: Part | None = None,
    show: Show = PLAIN,
) -> Stream:
    """A mixture of classes that changes smoothly from the first group to the last (Farquhar and Gal 2018):
    between two tasks next to each other a share of (groups - 1) / (tasks - 1) of the examples changes
    classes. No image is in two tasks. All outputs count always."""
    order = order_classes(images, class_order, seed)
    if not 2 <= groups < tasks or groups * classes_per_group > len(order):
        raise Refusal(
            f"{groups} groups of {classes_per_group} classes over {tasks} tasks: a mixture that changes "
            f"smoothly needs more tasks than groups, two groups or more, and no more than the {len(order)} "
            f"classes of {images.name}."
        )
    sizes = Sizes(n_train, n_val, n_test, test_share=test_share)
    classes_of = [order[g * classes_per_group :][:classes_per_group] for g in range(groups)]
    none_empty(images, [c for group in classes_of for c in group])
    place = [Fraction(index * (groups - 1), tasks - 1) for index in range(tasks)]
    shares = [[max(Fraction(0), 1 - abs(at - g)) for at in place] for g in range(groups)]  # in each task
    groups_of = [[g for g in range(groups) if shares[g][index]] for index in range(tasks)]
    owned = tuple(tuple(sorted(c for g in own for c in classes_of[g])) for own in groups_of)

    def part(index: int, g: int, purpose: str, pool: Pool, n: int | None) -> torch.Tensor:
        """The rows of a group that a task gets: after those of earlier tasks."""
        rows = of_classes(pool, classes_of[g])
        counts = [(Fraction(len(rows)) / sum(shares[g]) if n is None else n) * share for share in shares[g]]
        begin, end = (round(sum(counts[:until])) for until in (index, index + 1))
        if round(sum(counts)) > len(rows):
            raise Refusal(
                f"The tasks need {round(sum(counts))} {purpose} images of classes {classes_of[g]}, and "
                f"{len(rows)} are there. Lower stream.n_train or stream.n_test, or leave it at null."
            )
        return rows[torch.randperm(len(rows), generator=rng(seed, "drifting", g, purpose))][begin:end]

    @lru_cache(RECIPES_KEPT)
    def a_task(index: int) -> Recipe:
        own = groups_of[index]
        train = torch.cat([part(index, g, "training", images.train, n_train) for g in own])
        train = train[torch.randperm(len(train), generator=rng(seed, "drifting", index, "order"))]
        tested = [part(index, g, "test", images.test, n_test) for g in own]
        test = torch.cat([rows[: sizes.tested(len(rows))] for rows in tested]).sort().values
        labels, mixture = torch.full((len(images.classes),), -1), [0.0] * len(images.classes)
        labels[list(owned[index])] = torch.tensor(owned[index])
        for c in images.train.y[train].tolist():
            mixture[c] += 1 / len(train)
        percent, first = round(100 * shares[own[0]][index]), " ".join(map(str, classes_of[own[0]]))
        name, names = f"{percent} % of classes {first}", tuple(images.classes[c] for c in owned[index])
        return Recipe(name, names, train[n_val:], train[:n_val], test, labels, mixture=tuple(mixture))

    return Stream("drifting", (images,), Head("single", len(images.classes), owned), a_task, seed, show)


FIRST_TASKS = {
    "D5-5a": (0, 1, 2, 3, 4),
    "D5-5b": (0, 2, 4, 6, 8),
    "D5-5c": (3, 4, 6, 8, 9),
    "D5-5d": (0, 2, 5, 6, 7),
    "D5-5e": (0, 1, 3, 4, 5),
    "D5-5f": (0, 3, 4, 8, 9),
    "D5-5g": (0, 5, 6, 7, 8),
    "D5-5h": (0, 2, 3, 6, 8),
    "D9-1a": (0, 1, 2, 3, 4, 5, 6, 7, 8),
    "D9-1b": (1, 2, 3, 4, 5, 6, 7, 8, 9),
    "D9-1c": (0, 2, 3, 4, 5, 6, 7, 8, 9),
}
PERMUTED_TASKS = "DP10-10"
KINDS = (*FIRST_TASKS, PERMUTED_TASKS)
Kind = Annotated[str, Fulfils(lambda kind: kind in KINDS, f"one of {', '.join(KINDS)}")]


@recipe
def two_tasks(
    images: Images,
    seed: Size,
    kind: Kind,
    n_train: Count | None,
    n_val: Size,
    n_test: Count | None,
    head: HeadMode = "single",
    class_order: Order = "native",
    first_identity: bool = True,
    balanced: bool = False,
    on_shortage: Shortage = "error",
    order: Text | None = None,
    test_share: Part | None = None,
    val_share: Part | None = None,
    show: Show = PLAIN,
) -> Stream:
    """The sequential learning tasks of Pfuelb and Gepperth 2018 and 2019: ten classes in two tasks.

    D5-5a to h and D9-1a to c part the classes; in DP10-10 both tasks have all ten, the second (and, unless
    ``first_identity``, as the text of 2018 has it, the first) under a permutation of the pixels. Of sources
    with more classes the first ten of ``class_order`` are used: ``frequency`` is the papers' order for
    EMNIST, notMNIST and Fruits-360.
    """
    classes = order_classes(images, class_order, seed)[:10]
    if len(classes) < 10:
        raise Refusal(
            f"stream.kind={kind} needs ten classes, but {len(classes)} of {images.name} are at hand. Choose "
            "another stream.source."
        )
    ten = images.subset(classes)
    sizes = Sizes(n_train, n_val, n_test, balanced, on_shortage, test_share=test_share, val_share=val_share)
    if kind != PERMUTED_TASKS:
        first = FIRST_TASKS[kind]
        groups = [first, [c for c in range(10) if c not in first]]
        return split_by_groups(kind, ten, seed, groups, sizes, head, show, order)

    of_task = permutations_of(kind, math.prod(shape_of(show, images)), seed, first_identity)
    name = "permutation {}".format
    return transformed(kind, ten, seed, 2, sizes, head, show, name, of_task, permutes=True, order=order)


def split_by_groups(
    name: str,
    images: Images,
    seed: int,
    groups: Sequence[Sequence[int]],
    sizes: Sizes,
    head: HeadMode,
    show: Show,
    order: str | None = None,
) -> Stream:
    """A task a group of classes; no class is in two."""
    none_empty(images, [c for group in groups for c in group])
    domain = head == "domain"
    if domain and len({len(group) for group in groups}) > 1:
        raise Refusal(
            "stream.head=domain shares outputs, but these tasks have different numbers of classes. Use "
            "stream.head=single."
        )
    owned = tuple(tuple(range(len(group))) if domain else tuple(group) for group in groups)

    @lru_cache(RECIPES_KEPT)
    def a_task(index: int) -> Recipe:
        group = list(groups[index])
        drawn = sizes.draw(images, group, lambda purpose: (seed, "split", tuple(group), purpose))
        labels = torch.full((len(images.classes),), -1)
        labels[group] = torch.tensor(owned[index])
        names = tuple(images.classes[c] for c in group)
        return Recipe(f"classes {' '.join(names)}", names, *drawn.rows, labels, requested=drawn.requested)

    outputs = Head(head, len(groups[0]) if domain else len(images.classes), owned)
    made = Stream(name, (images,), outputs, a_task, seed, show, balanced=sizes.balanced)
    return ordered(made, order, sizes.n_train)


def order_classes(images: Images, class_order: Order, seed: int) -> list[int]:
    """Class numbers in the order in which tasks use them: the source's own, by number of training images, by
    chance, or as given."""
    known = range(len(images.classes))
    if class_order == "native":
        return list(known)
    if class_order == "frequency":
        counts = images.counts().tolist()
        return sorted(known, key=lambda c: -counts[c])
    if class_order == "random":
        return torch.randperm(len(known), generator=rng(seed, "class order")).tolist()
    if len(set(class_order)) != len(class_order) or not set(class_order) <= set(known):
        raise Refusal(
            f"stream.class_order={class_order} must be native, frequency, random, or name classes 0 to "
            f"{len(known) - 1} of {images.name}, each at most once."
        )
    return list(class_order)
