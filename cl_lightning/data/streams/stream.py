"""A stream: ordered tasks, each a recipe until it is opened. Pixels are made then, and not before."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import _lru_cache_wrapper, cached_property, lru_cache, wraps
from pathlib import Path
from typing import Any, NoReturn, ParamSpec

import torch

from cl_lightning.data.lease import Lease
from cl_lightning.data.sources.cache import Images, Pool
from cl_lightning.data.streams.given import given_whole
from cl_lightning.data.streams.show import PLAIN, Show, recolour, resize, statistics
from cl_lightning.data.task import Head, Split, Task, tensors_in
from cl_lightning.errors import Refusal
from cl_lightning.protocol import not_for_learners
from cl_lightning.randomness import rng

# A change of what streams draw for the same arguments changes the number of their kind, and with it their
# fingerprints.
DRAWS, BALANCED_DRAWS = 1, 2
FILES = ("permutations", "angles", "order")  # arguments that may name files
LATER: dict[str, tuple[str, ...]] = {  # arguments that recipes got after DRAWS, by the recipe
    "order": ("split", "two_tasks", "sequence", "long"),
    "n_test": ("sequence", "long"),
}
OF_ALL = ("test_share", "val_share")  # such arguments of every recipe
AS_PRINTED = {"label_of_class": "outputs", "requested": "asked"}  # fields as fingerprints have them
SAID = ("permuted", "mixture")  # fields that tell of others, and draw nothing
WHOLE = (torch.int64, torch.int32)
RECIPES_KEPT = 32  # recipes are made again when needed: a long stream holds few

P = ParamSpec("P")


@dataclass(frozen=True)
class Recipe:
    """One task before its pixels are made. Rows are row numbers in the source's pools; train and val rows
    never meet."""

    name: str
    classes: tuple[str, ...]
    train: torch.Tensor
    val: torch.Tensor
    test: torch.Tensor
    label_of_class: torch.Tensor  # (source classes,) the output of each, -1 where it is not in the task
    # Of all channels, flattened: which pixel of the source comes here; -1: none, black.
    pixels: torch.Tensor | None = None
    images: Images | None = None  # None: the stream's first source
    colour: tuple[int, int, int] | None = None  # of the background
    requested: dict[str, int] = field(default_factory=dict)  # sizes that could not be filled
    permuted: bool = False  # whether ``pixels`` are the task's own permutation, and not, say, a rotation
    mixture: tuple[float, ...] = ()  # (source classes,) the share of each, where it changes smoothly


@dataclass(frozen=True)
class Stream:
    """Ordered tasks of one source or several."""

    name: str
    sources: tuple[Images, ...]
    head: Head
    make: Callable[[int], Recipe]
    seed: int
    show: Show = PLAIN
    made_of: tuple = ()  # the recipe function and its arguments
    balanced: bool = False  # whether its tasks have as many examples of each class
    _statistics: dict[int, tuple[torch.Tensor, torch.Tensor]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    _checked: set[int] = field(default_factory=set, init=False, repr=False, compare=False)  # tasks

    def __len__(self) -> int:
        return len(self.head.owned)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height, width of what a network gets."""
        return shape_of(self.show, self.sources[0])

    def recipe(self, index: int) -> Recipe:
        made = self.make(index)
        if index not in self._checked:
            check_recipe(self, index, made)
            self._checked.add(index)
        return made

    def images(self, recipe: Recipe) -> Images:
        return recipe.images or self.sources[0]

    # ---- examples ------------------------------------------------------------------------------------------

    def task(self, index: int, lease: Lease | None = None) -> Task:
        """A task with its training and validation examples: for the data module, which lends them."""
        not_for_learners("training", index)
        recipe = self.recipe(index)
        train = self.split(index, self.images(recipe).train, recipe.train, lease)
        val = self.validation(index, lease)
        return Task(index, len(self), recipe.name, recipe.classes, self.head, train, val)

    def validation(self, index: int, lease: Lease | None = None) -> Split | None:
        """A task's validation examples, if it has any: for the data module, which lends them, and for the
        evaluator."""
        not_for_learners("validation", index)
        recipe = self.recipe(index)
        val = self.split(index, self.images(recipe).train, recipe.val, lease, self.show.val_copies)
        return val if len(val) else None

    def task_without_data(self, index: int) -> Task:
        """A task without examples: what is left of it when its data are closed."""
        none = torch.empty(0, dtype=torch.int64)
        nothing, recipe = Split(torch.empty(0, *self.shape), none, none), self.recipe(index)
        return Task(index, len(self), recipe.name, recipe.classes, self.head, nothing)

    def test(self, index: int) -> Split:
        """The test examples of a task: for the evaluator, and for nobody else."""
        not_for_learners("test", index)
        recipe = self.recipe(index)
        return self.split(index, self.images(recipe).test, recipe.test)

    def split(
        self, index: int, pool: Pool, rows: torch.Tensor, lease: Lease | None = None, augmentations: int = 0
    ) -> Split:
        """Examples of a task, each image followed by its augmented copies if there are to be any."""
        recipe = self.recipe(index)
        x, y = self.render(recipe, pool.x.index_select(0, rows)), recipe.label_of_class[pool.y[rows]]
        if self.show.normalise and rows is recipe.train:
            self._statistics[index] = statistics(x)
        x = self.normalised(index, x)
        if augmentations and len(x):
            draws = (rng(self.seed, self.name, index, "copy", i) for i in range(augmentations))
            made = [self.show.augmented(x, self.black(index)[None], each) for each in draws]
            x, y = torch.stack([x, *made], 1).flatten(0, 1), y.repeat_interleave(augmentations + 1)
        return Split(x, y, torch.full((len(y),), index), lease)

    def render(self, recipe: Recipe, x: torch.Tensor) -> torch.Tensor:
        """Bytes of the source as the task's images, in ``show.values``, but not normalised."""
        if not x.is_floating_point():
            x = resize(x, self.shape, self.show.fit).float().div_(255)
        elif x.shape[1:] != self.shape:
            raise Refusal(
                "Vectors of features are no images, and have no shape. Leave stream.show.shape out."
            )
        if recipe.pixels is not None:
            flat = x.flatten(1)[:, recipe.pixels.clamp(min=0)]
            flat[:, recipe.pixels < 0] = 0
            x = flat.reshape(x.shape)
        if recipe.colour is not None:
            x = recolour(x, recipe.colour)
        low, high = self.show.values
        return x if (low, high) == (0, 1) else x.mul_(high - low).add_(low)

    def normalised(self, index: int, x: torch.Tensor) -> torch.Tensor:
        if not self.show.normalise:
            return x
        mean, deviation = self.statistics(index)
        return x.sub_(mean[:, None, None]).div_(deviation[:, None, None])

    def statistics(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean and deviation of each channel over the task's training images: what all its images are
        normalised by, whenever."""
        if index not in self._statistics:
            recipe = self.recipe(index)
            x = self.images(recipe).train.x[recipe.train]
            self._statistics[index] = statistics(self.render(recipe, x))
        return self._statistics[index]

    def black(self, index: int) -> torch.Tensor:
        """(channels,) What a black pixel of a task's images has become."""
        dark = torch.full((self.shape[0], 1, 1), float(self.show.values[0]))
        return self.normalised(index, dark)[:, 0, 0]

    # ---- what it is ----------------------------------------------------------------------------------------

    @property
    def draws(self) -> int:
        """The rules by which its rows were drawn."""
        return BALANCED_DRAWS if self.balanced else DRAWS

    @cached_property
    def fingerprint(self) -> str:
        """Equal fingerprints, equal examples: a hash of the source's pixels and the recipe's arguments.

        Of a stream that was not made by a function with ``@recipe``, a hash of every drawn row, label and
        permutation.
        """
        sources = [identity_of_images(images) for images in self.sources]
        digest = hashlib.sha256(repr((self.draws, sources, self.head, self.show, self.made_of)).encode())
        for each in () if self.made_of else map(self.recipe, range(len(self))):
            write_drawn(digest, each)
        return digest.hexdigest()[:16]

    def print_of(self, index: int) -> str:
        """Equal prints, equal tasks, whatever comes before and after: a hash of a task's images, drawn rows,
        labels and outputs."""
        recipe, head = self.recipe(index), self.head
        images, outputs = identity_of_images(self.images(recipe)), list(head.owned[index])
        shared = (DRAWS, images, self.show, head.mode, head.num_outputs, outputs)
        digest = hashlib.sha256(repr(shared).encode())
        write_drawn(digest, recipe)
        return digest.hexdigest()[:16]

    def describe(self) -> list[dict]:
        """What each task is made of, for the results."""
        return [self.describe_task(self.recipe(index), own) for index, own in enumerate(self.head.owned)]

    def describe_task(self, recipe: Recipe, own: Sequence[int]) -> dict:
        images = self.images(recipe)
        return {
            "name": recipe.name,
            "source": images.source,
            **({"instead_of": images.name} if images.source != images.name else {}),
            "classes": list(recipe.classes),
            "n_train": len(recipe.train),
            "n_val": len(recipe.val),
            "n_test": len(recipe.test),
            **({"asked": recipe.requested} if recipe.requested else {}),
            "head": {"mode": self.head.mode, "outputs": list(own)},
            **({"mixture": [round(share, 6) for share in recipe.mixture]} if recipe.mixture else {}),
        }


def check_recipe(stream: Stream, index: int, made: Recipe) -> None:
    """Refuse a task that nothing can be learned from, and one that is another when it is made again."""

    def refuse(why: str) -> NoReturn:
        raise Refusal(f"Task {index} of the stream {stream.name}: {why}")

    if not isinstance(made, Recipe):
        refuse(f"make({index}) returns {made!r:.50}. It must return a Recipe.")
    images, head = stream.images(made), stream.head
    own = torch.tensor([output for output in head.owned[index] if output < head.num_outputs])
    pools = {"train": images.train, "val": images.train, "test": images.test}
    for name in ("label_of_class", *pools):
        rows = getattr(made, name)
        if not isinstance(rows, torch.Tensor) or rows.dim() != 1 or rows.dtype not in WHOLE:
            refuse(f"{name} must be a row of whole numbers: torch.tensor([...], dtype=torch.int64).")
    if len(made.label_of_class) != len(images.classes):
        refuse(f"label_of_class must have one output for each of the {len(images.classes)} classes.")
    for name, pool in pools.items():
        rows = getattr(made, name)
        if not len(rows) and name != "val":
            refuse(f"{name} is empty. It must have at least one row.")
        if ((rows < 0) | (rows >= len(pool.y))).any():
            refuse(f"{name} has rows that {images.name} has not. They go from 0 to {len(pool.y) - 1}.")
        if not torch.isin(labels := made.label_of_class[pool.y[rows]], own).all():
            said = labels.unique().tolist()
            refuse(f"{name} has labels {said}, but its outputs are {own.tolist()}. Change label_of_class.")
    if torch.isin(made.train, made.val).any():
        refuse("train and val share rows. Validation must be of examples that are not trained on.")
    make = stream.make.__wrapped__ if isinstance(stream.make, _lru_cache_wrapper) else stream.make
    of_ours = make.__module__.startswith("cl_lightning.")  # tested to be pure
    if not of_ours and not all(map(torch.equal, tensors_in(vars(make(index))), tensors_in(vars(made)))):
        refuse(f"make({index}) gives other rows each time. Draw with a new rng(seed, {index}, ...).")


def shape_of(show: Show, images: Images) -> tuple[int, int, int]:
    channels, height, width = show.shape or images.shape
    return channels, height, width


def write_drawn(digest: Any, recipe: Recipe) -> None:
    """Add what was drawn for a task to a hash."""
    for key, value in ((f.name, getattr(recipe, f.name)) for f in fields(recipe) if f.name not in SAID):
        digest.update(
            f"{AS_PRINTED.get(key, key)} {value.digest if isinstance(value, Images) else value}".encode()
        )
        if isinstance(value, torch.Tensor):
            digest.update(value.contiguous().numpy().data)


def identity_of_images(images: Images) -> tuple:
    return images.digest, images.name, images.classes, images.substitute


def recipe(make: Callable[P, Stream]) -> Callable[P, Stream]:
    """A decorator for functions that make streams: the stream remembers the function and its arguments, so
    that its fingerprint needs no drawing."""

    @wraps(make)
    def made(*args: P.args, **kwargs: P.kwargs) -> Stream:
        bound = inspect.signature(make).bind(*args, **kwargs)
        bound.apply_defaults()
        arguments = {
            name: fingerprinted(name, value)
            for name, value in bound.arguments.items()
            if name not in ("images", "sources", "show")
            and not (name in OF_ALL and value is None)
            and not is_unused(make.__qualname__, name, value)
        }
        return replace(make(*args, **kwargs), made_of=(make.__qualname__, arguments))

    return made


def is_unused(recipe: str, name: str, value: Any) -> bool:
    """Whether a recipe's argument came later and is not used: left out, fingerprints stay as they were."""
    return value is None and recipe in LATER.get(name, ())


def ordered(stream: Stream, file: str | None, n_train: int | None = None) -> Stream:
    """The stream with the training examples that a file names: for each task rows of its source's training
    set, in their order. A row of the file that is shorter than others ends in -1."""
    if file is None:
        return stream
    below = max(len(images.train.y) for images in stream.sources)
    fixed = given_whole("order", file, below, len(stream), n_train, least=-1)
    rows = [row[row >= 0] for row in fixed]
    if any(len(row.unique()) < len(row) for row in rows):
        raise Refusal(
            f"stream.order={file} shows an example twice in one task. Name each row once; "
            "trainer.max_epochs repeats them."
        )

    @lru_cache(RECIPES_KEPT)
    def a_task(index: int) -> Recipe:
        made = stream.make(index)
        if len(made.val):
            raise Refusal(
                "stream.order gives the training examples, so there are none for validation. Set "
                "stream.n_val=0."
            )
        return replace(made, train=rows[index])

    return replace(stream, make=a_task)


def fingerprinted(name: str, value: Any) -> Any:
    """An argument as part of a fingerprint: a file by its content."""
    if name in FILES and isinstance(value, str) and Path(value).expanduser().is_file():
        return hashlib.sha256(Path(value).expanduser().read_bytes()).hexdigest()
    return list(value) if isinstance(value, Sequence) and not isinstance(value, str) else value
