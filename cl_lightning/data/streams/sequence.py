"""Streams of tasks from several sources, each task described by itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate
from typing import Annotated, Any, Literal

import torch
from pydantic import Field

from cl_lightning.config.checking import Count, Names, Share, Size, Text, check_arguments
from cl_lightning.data.sources.cache import Images
from cl_lightning.data.streams.draws import Part, Shortage, Sizes, none_empty
from cl_lightning.data.streams.recipes import rotation
from cl_lightning.data.streams.show import PLAIN, Show
from cl_lightning.data.streams.stream import RECIPES_KEPT, Recipe, Stream, ordered, recipe, shape_of
from cl_lightning.data.task import Head, HeadMode
from cl_lightning.errors import Refusal
from cl_lightning.randomness import rng

COLOURS = ((255, 0, 0), (0, 255, 0), (0, 0, 255))  # of backgrounds
Classes = Annotated[Sequence[Text | Size], Field(min_length=1)]
Level = Annotated[int, Field(ge=0, le=255)]
Colour = Annotated[
    Sequence[Level], Field(min_length=3, max_length=3, description="[red, green, blue], each 0 to 255")
]
Tasks = Annotated[
    Sequence[Mapping[str, Any]],
    Field(
        min_length=1,
        description="a list of tasks, each a mapping, as in conf/stream/ctrl_short.yaml; a number of tasks "
        "is for stream=split, permuted or rotated",
    ),
]
Pair = Annotated[Sequence[Count], Field(min_length=2, max_length=2)]


@dataclass(frozen=True)
class TaskSpec:
    """One task of a sequence, as it is asked for. Sizes are totals over its classes; None: all there are."""

    source: Text
    # all, in their own order | how many, drawn in random order | which
    classes: Literal["all"] | Count | Classes = "all"
    like: Size | None = None  # the classes and their order of this earlier task (counted from 0)
    # shift: j becomes j + 1, the last one 0 | permute: at random
    labels: Literal["keep", "shift", "permute"] = "keep"
    n_train: Count | None = None
    n_val: Size | None = None  # None: the stream's
    n_test: Count | None = None
    colour: Literal[0, 1, 2] | Colour | None = None  # of the background: one of three drawn ones, or which
    permute: bool = False  # a permutation of the pixels of its own
    rotate: float = 0.0  # degrees, counter-clockwise
    asked_by: str = "stream.{}"  # how a user calls its sizes

    def __post_init__(self) -> None:
        if self.like is not None and self.classes != "all":
            raise Refusal(
                "stream.tasks has `like` and `classes` in one task: `like` means the classes of the other. "
                "Leave one out."
            )
        if self.like is None and self.labels != "keep":
            raise Refusal(
                f"stream.tasks.labels={self.labels} changes the labels of an earlier task: name it with "
                "`like`."
            )
        if self.permute and self.rotate:
            raise Refusal("stream.tasks has `permute` and `rotate` in one task. Leave one out.")


def parse_task(task_spec: Mapping[str, Any], index: int) -> TaskSpec:
    check_arguments(TaskSpec, task_spec, f"stream.tasks[{index}]", ["asked_by"])
    return TaskSpec(**task_spec, asked_by=f"stream.tasks[{index}].{{}}")


@recipe
def sequence(
    sources: Mapping[str, Images],
    seed: Size,
    tasks: Tasks,
    head: HeadMode = "multi_train_test",
    n_val: Size = 0,
    test_per_class: Count | None = 1000,
    held_out: Mapping[str, Count] | None = None,
    balanced: bool = True,
    on_shortage: Shortage = "error",
    n_test: Count | None = None,
    test_share: Part | None = None,
    order: Text | None = None,
    show: Show = PLAIN,
) -> Stream:
    """Tasks in the order listed. Each draws afresh from its source, so that two tasks of one source may share
    images.

    ``held_out``: for each source, how many images a class are for validation alone, whatever the task and
    seed (as in the CTrL benchmark, Veniat et al. 2021); of sources that it does not name each task takes its
    own.
    """
    entries = [parse_task(task_spec, index) for index, task_spec in enumerate(tasks)]
    sizes = Sizes(
        None, n_val, n_test, balanced, on_shortage, test_per_class=test_per_class, test_share=test_share
    )
    for one in entries:  # what cannot be drawn is said before the first task is learned
        replace(sizes, n_test=one.n_test or n_test, asked_by=one.asked_by)
    made = stream_of_specs(
        "sequence", sources, seed, len(entries), entries.__getitem__, head, sizes, held_out or {}, show
    )
    return ordered(made, order)


@recipe
def long(
    sources: Mapping[str, Images],
    seed: Size,
    tasks: Count,
    names: Names,
    classes_per_task: Count,
    large: Pair,
    small: Pair,
    at_most: Mapping[str, Pair],
    shares: Annotated[Sequence[Share], Field(min_length=1)],
    head: HeadMode,
    test_per_class: Count | None,
    held_out: Mapping[str, Count] | None,
    on_shortage: Shortage,
    n_test: Count | None = None,
    test_share: Part | None = None,
    order: Text | None = None,
    show: Show = PLAIN,
) -> Stream:
    """The S_long generator of Veniat et al. 2021: for each task a source, some of its classes, and a size are
    drawn.

    ``large`` and ``small`` are sizes of training and validation; ``shares`` the probabilities of a large task
    in equal parts of the stream, three in the paper. The same class list may come again. A longer stream has
    other sizes, but the same tasks else.
    """

    def task_spec(index: int) -> TaskSpec:
        draws = rng(seed, "long", index, "entry")
        name = names[int(torch.randint(len(names), (), generator=draws))]
        share = shares[sum(index >= tasks * k // len(shares) for k in range(1, len(shares)))]
        is_large = torch.rand((), generator=draws).item() < share
        n_train, n_val = map(min, large, at_most.get(name, large)) if is_large else small
        asked_by = "{} of stream." + ("large" if is_large else "small")
        return TaskSpec(name, classes_per_task, n_train=n_train, n_val=n_val, asked_by=asked_by)

    sizes = Sizes(None, 0, n_test, True, on_shortage, test_per_class=test_per_class, test_share=test_share)
    made = stream_of_specs("long", sources, seed, tasks, task_spec, head, sizes, held_out or {}, show)
    return ordered(made, order)


def stream_of_specs(
    kind: str,
    sources: Mapping[str, Images],
    seed: int,
    tasks: int,
    task_spec: Callable[[int], TaskSpec],
    head: HeadMode,
    sizes: Sizes,
    held_out: Mapping[str, int],
    show: Show,
) -> Stream:
    """A stream of tasks that are described one by one, when they are needed; ``sizes`` is what they do not
    say themselves."""

    @lru_cache(RECIPES_KEPT)
    def classes_of(index: int) -> list[int]:
        """Class numbers in the order of their labels."""
        one = task_spec(index)
        if one.like is None:
            return choose_classes(sources[one.source], one.classes, rng(seed, kind, index, "classes"))
        if not 0 <= one.like < index or task_spec(one.like).source != one.source:
            raise Refusal(
                f"stream.tasks[{index}].like={one.like} must be the number of an earlier task of "
                f"{one.source}, from 0."
            )
        return relabelled(classes_of(one.like), one.labels, rng(seed, kind, index, "labels"))

    used = {name: sources[name] for name in dict.fromkeys(task_spec(index).source for index in range(tasks))}
    shape = common_shape(show, used)
    owned = outputs_of([len(classes_of(index)) for index in range(tasks)], head)

    @lru_cache(RECIPES_KEPT)
    def a_task(index: int) -> Recipe:
        one, order = task_spec(index), classes_of(index)
        images = sources[one.source]
        none_empty(images, order)
        n_val, n_test = sizes.n_val if one.n_val is None else one.n_val, one.n_test or sizes.n_test
        own = replace(sizes, n_train=one.n_train, n_val=n_val, n_test=n_test, asked_by=one.asked_by)
        own = replace(own, held_out=held_out.get(one.source))
        drawn = own.draw(images, order, lambda purpose: (seed, kind, index, purpose))
        labels = torch.full((len(images.classes),), -1)
        labels[order] = torch.tensor(owned[index])
        if one.colour is not None and shape[0] != 3:
            raise Refusal(
                f"stream.tasks[{index}].colour needs images of three channels. Set stream.show.shape to [3, "
                "height, width]."
            )
        pixels = pixels_of(one, shape, rng(seed, kind, index, "permutation"))
        names, colour = tuple(images.classes[c] for c in order), background(one.colour, seed)
        name = f"{one.source} {' '.join(names)}"
        return Recipe(name, names, *drawn.rows, labels, pixels, images, colour, drawn.requested, one.permute)

    num_outputs = max(own[-1] for own in owned) + 1
    outputs = Head(head, num_outputs, owned)
    return Stream(kind, tuple(used.values()), outputs, a_task, seed, show, balanced=sizes.balanced)


def common_shape(show: Show, used: Mapping[str, Images]) -> tuple[int, int, int]:
    """The shape of all images of a stream: the one that it shows, else that of all its sources."""
    shape = shape_of(show, next(iter(used.values())))
    for name, images in used.items() if show.shape is None else ():
        if images.shape != shape:
            raise Refusal(
                f"Images of {name} are {images.shape}, those of the first task {shape}. Set "
                "stream.show.shape."
            )
    return shape


def outputs_of(counts: Sequence[int], head: HeadMode) -> tuple[tuple[int, ...], ...]:
    """The outputs of each task, which has so many classes.

    >>> outputs_of([2, 3], "multi_test"), outputs_of([2, 2], "domain")
    (((0, 1), (2, 3, 4)), ((0, 1), (0, 1)))
    """
    if head == "domain" and len(set(counts)) > 1:
        raise Refusal(
            "stream.head=domain shares outputs, but these tasks differ in their number of classes. Use "
            "multi_train_test."
        )
    first = [0] * len(counts) if head == "domain" else [0, *accumulate(counts)]
    return tuple(tuple(range(start, start + count)) for start, count in zip(first, counts))


def pixels_of(one: TaskSpec, shape: tuple[int, int, int], draws: torch.Generator) -> torch.Tensor | None:
    """Where each pixel of a task's images comes from; None: from its own place."""
    if one.permute:
        return torch.randperm(math.prod(shape), generator=draws)
    return rotation(shape, one.rotate) if one.rotate else None


def relabelled(order: list[int], labels: str, generator: torch.Generator) -> list[int]:
    """Classes in another order, as ``labels`` says. A drawn one differs, unless there is but one class."""
    new = [order[-1], *order[:-1]] if labels == "shift" else order
    while labels == "permute" and new == order and len(order) > 1:
        new = [order[i] for i in torch.randperm(len(order), generator=generator)]
    return new


def choose_classes(
    images: Images, classes: int | str | Sequence[str | int], generator: torch.Generator
) -> list[int]:
    """Class numbers: all in their own order, so many in random order, or those named."""
    known = len(images.classes)
    if classes == "all":
        return list(range(known))
    if isinstance(classes, int):
        if not 1 <= classes <= known:
            raise Refusal(
                f"A task asks for {classes} classes of {images.name}, which has {known}. Ask for fewer."
            )
        return torch.randperm(known, generator=generator)[:classes].tolist()
    numbers = [images.class_index(each) for each in classes]
    if not numbers or len(set(numbers)) < len(numbers):
        raise Refusal(
            f"stream.tasks.classes={list(classes)} must name at least one class of {images.name}, and none "
            "twice."
        )
    return numbers


def background(colour: int | Sequence[int] | None, seed: int) -> tuple[int, int, int] | None:
    """Red, green and blue of a background; a number is one of the stream's three colours, in an order drawn
    for it."""
    if isinstance(colour, int):
        return COLOURS[torch.randperm(len(COLOURS), generator=rng(seed, "colours"))[colour]]
    return None if colour is None else (colour[0], colour[1], colour[2])
