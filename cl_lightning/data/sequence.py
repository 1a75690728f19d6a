"""Streams of tasks from several sources, each task described by itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate
from typing import Any

import torch

from cl_lightning.data.cache import Images
from cl_lightning.data.draws import Sizes, none_empty
from cl_lightning.data.show import PLAIN, Show
from cl_lightning.data.stream import RECIPES_KEPT, Recipe, Stream, recipe, shape_of
from cl_lightning.data.streams import at_least_one, turned
from cl_lightning.data.task import Head
from cl_lightning.errors import Refusal
from cl_lightning.randomness import rng
from cl_lightning.ranges import NUMBER, SWITCH, TEXT, check_keys, each, null, one_of, whole, written

COLOURS = ((255, 0, 0), (0, 255, 0), (0, 0, 255))  # of backgrounds
LABELS = ("keep", "shift", "permute")
LISTED = {
    "source": TEXT,
    "classes": one_of("all") | whole(1) | each(TEXT | whole(0), least=1),
    "like": whole(0) | null("classes of its own"),
    "labels": one_of(*LABELS),
    "n_train": whole(1) | null("all"),
    "n_val": whole(0) | null("the stream's"),
    "n_test": whole(1) | null("all"),
    "colour": whole(0) | each(whole(0), least=3) | null("as it is"),
    "permute": SWITCH,
    "rotate": NUMBER,
}


@dataclass(frozen=True)
class Listed:
    """One task of a sequence, as it is asked for. Sizes are totals over its classes; None: all there are."""

    source: str
    classes: int | str | Sequence[str | int] = "all"  # all, in their own order | how many, drawn in random order | which
    like: int | None = None  # the classes and their order of this earlier task (counted from 0)
    labels: str = "keep"  # shift: label j becomes j + 1, the last one 0 | permute: in another random order
    n_train: int | None = None
    n_val: int | None = None  # None: the stream's
    n_test: int | None = None
    colour: int | Sequence[int] | None = (
        None  # of the background: red, green, blue of 0 to 255, or the first, second, third of three drawn ones
    )
    permute: bool = False  # a permutation of the pixels of its own
    rotate: float = 0.0  # degrees, counter-clockwise
    asked_by: str = "stream.{}"  # how a user calls its sizes

    def __post_init__(self) -> None:
        if self.like is not None and self.classes != "all":
            raise Refusal("stream.tasks has `like` and `classes` in one task: it takes the classes of the other. Leave one out.")
        if self.like is None and self.labels != "keep":
            raise Refusal(f"stream.tasks.labels={self.labels} changes the labels of an earlier task: name it with `like`.")
        if self.permute and self.rotate:
            raise Refusal("stream.tasks has `permute` and `rotate` in one task. Leave one out.")


def listed(entry: Mapping[str, Any], index: int) -> Listed:
    check_keys(entry, list(LISTED), f"stream.tasks[{index}]")
    for key in entry:
        if not LISTED[key].holds(entry[key]):
            raise Refusal(f"stream.tasks[{index}].{key}={written(entry[key])} must be {LISTED[key].words}.")
    if "source" not in entry:
        raise Refusal(f"stream.tasks[{index}].source is missing. Name one of data.sources.")
    return Listed(**entry, asked_by=f"stream.tasks[{index}].{{}}")


@recipe
def sequence(
    sources: Mapping[str, Images],
    seed: int,
    tasks: Sequence[Mapping[str, Any]],
    head: str = "multi_train_test",
    n_val: int = 0,
    test_per_class: int | None = None,
    held_out: Mapping[str, int] | None = None,
    balanced: bool = True,
    on_shortage: str = "error",
    test_share: float | None = None,
    show: Show = PLAIN,
) -> Stream:
    """Tasks in the order listed. Each draws afresh from its source, so that two tasks of one source may share images.

    ``held_out``: for each source, how many images a class are for validation alone, whatever the task and seed (as in the CTrL
    benchmark, Veniat et al. 2021); of sources that it does not name each task takes its own.
    """
    if not isinstance(tasks, Sequence):
        raise Refusal(f"stream.tasks={tasks} must be a list of tasks here, as in stream.tasks=[{{source: mnist}}, {{source: svhn}}].")
    at_least_one(tasks=len(tasks))
    entries = [listed(entry, index) for index, entry in enumerate(tasks)]
    sizes = Sizes(None, n_val, None, balanced, on_shortage, test_per_class=test_per_class, test_share=test_share)
    for one in entries:  # what cannot be drawn is said before the first task is learned
        replace(sizes, n_test=one.n_test, asked_by=one.asked_by)
    return of_listed("sequence", sources, seed, len(entries), entries.__getitem__, head, sizes, held_out or {}, show)


@recipe
def long(
    sources: Mapping[str, Images],
    seed: int,
    tasks: int,
    names: Sequence[str],
    classes_per_task: int,
    large: Sequence[int],
    small: Sequence[int],
    at_most: Mapping[str, Sequence[int]],
    shares: Sequence[float],
    head: str = "domain",
    test_per_class: int | None = None,
    held_out: Mapping[str, int] | None = None,
    on_shortage: str = "error",
    test_share: float | None = None,
    show: Show = PLAIN,
) -> Stream:
    """The S_long generator of Veniat et al. 2021: for each task a source, some of its classes, and a size are drawn.

    ``large`` and ``small`` are sizes of training and validation; ``shares`` the probabilities of a large task in equal parts of the
    stream, three in the paper. The same class list may come again. A longer stream has other sizes, but the same tasks else.
    """
    at_least_one(tasks=tasks)

    def entry(index: int) -> Listed:
        draws = rng(seed, "long", index, "entry")
        name = names[int(torch.randint(len(names), (), generator=draws))]
        share = shares[sum(index >= tasks * k // len(shares) for k in range(1, len(shares)))]
        is_large = torch.rand((), generator=draws).item() < share
        n_train, n_val = map(min, large, at_most.get(name, large)) if is_large else small
        return Listed(name, classes_per_task, n_train=n_train, n_val=n_val, asked_by="{} of stream." + ("large" if is_large else "small"))

    sizes = Sizes(None, 0, None, True, on_shortage, test_per_class=test_per_class, test_share=test_share)
    return of_listed("long", sources, seed, tasks, entry, head, sizes, held_out or {}, show)


def of_listed(
    kind: str,
    sources: Mapping[str, Images],
    seed: int,
    tasks: int,
    entry: Callable[[int], Listed],
    head: str,
    sizes: Sizes,
    held_out: Mapping[str, int],
    show: Show,
) -> Stream:
    """A stream of tasks that are described one by one, when they are needed; ``sizes`` is what they do not say themselves."""

    @lru_cache(RECIPES_KEPT)
    def classes_of(index: int) -> list[int]:
        """Class numbers in the order of their labels."""
        one = entry(index)
        if one.like is None:
            return chosen(sources[one.source], one.classes, rng(seed, kind, index, "classes"))
        if not 0 <= one.like < index or entry(one.like).source != one.source:
            raise Refusal(f"stream.tasks[{index}].like={one.like} must be the number of an earlier task of {one.source}, from 0.")
        order = classes_of(one.like)
        if one.labels == "shift":
            return [order[-1], *order[:-1]]
        if one.labels == "permute":
            return another_order(order, rng(seed, kind, index, "labels"))
        return order

    shape = shape_of(show, sources[entry(0).source])
    for other in {entry(index).source for index in range(tasks)} if show.shape is None else ():
        if sources[other].shape != shape:
            raise Refusal(f"Images of {other} are {sources[other].shape}, those of the first task {shape}. Set stream.show.shape.")

    counts = [len(classes_of(index)) for index in range(tasks)]
    if head == "domain" and len(set(counts)) > 1:
        raise Refusal("stream.head=domain shares outputs, but these tasks differ in their number of classes. Use multi_train_test.")
    first = [0] * tasks if head == "domain" else [0, *accumulate(counts)]
    owned = tuple(tuple(range(start, start + count)) for start, count in zip(first, counts))

    @lru_cache(RECIPES_KEPT)
    def a_task(index: int) -> Recipe:
        one, order = entry(index), classes_of(index)
        images = sources[one.source]
        none_empty(images, order)
        n_val = sizes.n_val if one.n_val is None else one.n_val
        own = replace(sizes, n_train=one.n_train, n_val=n_val, n_test=one.n_test, held_out=held_out.get(one.source), asked_by=one.asked_by)
        drawn = own.draw(images, order, lambda purpose: (seed, kind, index, purpose))
        outputs = torch.full((len(images.classes),), -1)
        outputs[order] = torch.tensor(owned[index])
        pixels = None
        if one.colour is not None and shape[0] != 3:
            raise Refusal(f"stream.tasks[{index}].colour needs images of three channels. Set stream.show.shape to [3, height, width].")
        if one.permute:
            pixels = torch.randperm(math.prod(shape), generator=rng(seed, kind, index, "permutation"))
        elif one.rotate:
            pixels = turned(shape, one.rotate)
        names, colour = tuple(images.classes[c] for c in order), background(one.colour, seed)
        name = f"{one.source} {' '.join(names)}"
        return Recipe(name, names, drawn.train, drawn.val, drawn.test, outputs, pixels, images, colour, drawn.asked, one.permute)

    used = tuple(dict.fromkeys(entry(index).source for index in range(tasks)))
    return Stream(kind, tuple(sources[name] for name in used), Head(head, max(own[-1] for own in owned) + 1, owned), a_task, seed, show)


def another_order(order: list[int], generator: torch.Generator) -> list[int]:
    """Drawn until it differs; of one class there is no other."""
    new = order
    while new == order and len(order) > 1:
        new = [order[i] for i in torch.randperm(len(order), generator=generator)]
    return new


def chosen(images: Images, classes: int | str | Sequence[str | int], generator: torch.Generator) -> list[int]:
    """Class numbers: all in their own order, so many in random order, or those named."""
    known = len(images.classes)
    if classes == "all":
        return list(range(known))
    if isinstance(classes, int):
        if not 1 <= classes <= known:
            raise Refusal(f"A task asks for {classes} classes of {images.name}, which has {known}. Ask for fewer.")
        return torch.randperm(known, generator=generator)[:classes].tolist()
    numbers = [images.number(each) for each in classes]
    if not numbers or len(set(numbers)) < len(numbers):
        raise Refusal(f"stream.tasks.classes={list(classes)} must name at least one class of {images.name}, and none twice.")
    return numbers


def background(colour: int | Sequence[int] | None, seed: int) -> tuple[int, int, int] | None:
    """Red, green and blue of a background; a number is one of the stream's three colours, in an order drawn for it."""
    if colour is None:
        return None
    if isinstance(colour, int):
        if not 0 <= colour < len(COLOURS):
            raise Refusal(f"stream.tasks.colour={colour} must be 0, 1 or 2, or red, green and blue of 0 to 255.")
        return COLOURS[torch.randperm(len(COLOURS), generator=rng(seed, "colours"))[colour]]
    if len(colour) != 3 or not all(isinstance(part, int) and 0 <= part <= 255 for part in colour):
        raise Refusal(f"stream.tasks.colour={list(colour)} must be red, green and blue of 0 to 255.")
    red, green, blue = colour
    return red, green, blue
