"""What the definition of a learner may not be: refused when the class is made, before anything runs."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from difflib import get_close_matches
from itertools import combinations
from types import CodeType, FunctionType
from typing import Any

import pytorch_lightning as pl

from cl_lightning.data.task import Head
from cl_lightning.errors import Refusal

OF_BASE: dict[str, type] = {"head": Head, "grid": list, "stages": list, "seed": int, "memory": dict}
FINAL = (
    "training_step",
    "configure_optimizers",
    "on_save_checkpoint",
    "on_load_checkpoint",
    "get_extra_state",
    "set_extra_state",
    # What Lightning's loop would call, and the engine does itself, or the evaluator.
    "backward",
    "configure_gradient_clipping",
    "lr_scheduler_step",
    "on_after_backward",
    "on_after_batch_transfer",
    "on_before_backward",
    "on_before_optimizer_step",
    "on_before_zero_grad",
    "optimizer_step",
    "optimizer_zero_grad",
    "train_dataloader",
    "val_dataloader",
    *(
        name
        for name in dir(pl.LightningModule)
        if name.removeprefix("on_").startswith(("validation_", "test_", "predict_"))
    ),
)


def check_class(cls: Any, base: type) -> None:
    """Refuse a class derived from ``base``, the learner's, that would not do what it says."""
    refuse_two_in_one(cls, base)
    refuse_misspelt(cls, base)
    if isinstance(cls.grid_keys, str):
        raise Refusal(
            f"{cls.__name__}.grid_keys={cls.grid_keys!r} is a text, and must be a tuple of names: "
            f"grid_keys = ({cls.grid_keys!r},)"
        )
    for name in FINAL:
        if getattr(cls, name) is not getattr(base, name):
            raise Refusal(
                f"{cls.__name__} overrides {name}, which is the engine's: several candidates share a "
                "Lightning step.\n"
                "Override loss, logits, after_backward or after_step instead; docs/learners.md lists "
                "all hooks."
            )


def check_attribute(learner: object, name: str, value: Any) -> None:
    """Refuse another thing by a name that the base has for its own."""
    if name in OF_BASE and not isinstance(value, OF_BASE[name]):
        raise Refusal(
            f"{type(learner).__name__} sets self.{name} to a {type(value).__name__}. Every learner has a "
            f"self.{name}, a {OF_BASE[name].__name__}, that the program uses.\nGive yours another name."
        )


def refuse_two_in_one(cls: type, base: type) -> None:
    """Refuse a class with two learners as bases that both have a hook of their own: Python would run one of
    them, and leave the other out without a word. A class that overrides the hook itself decides."""
    for hook in (name for name in hooks(base) if name not in vars(cls)):
        owners = {owner_of(each, hook): each for each in cls.__bases__ if issubclass(each, base)}
        owners.pop(base, None)
        for one, other in combinations(owners, 2):
            if not issubclass(one, other) and not issubclass(other, one):
                raise Refusal(
                    f"{cls.__name__} joins {owners[one].__name__} and {owners[other].__name__}, which both "
                    f"override {hook}: only that of {owners[one].__name__} would run.\n"
                    f"Write {hook} in {cls.__name__} and call both there, or derive from one of them."
                )


def refuse_misspelt(cls: type, base: type) -> None:
    """Refuse a method that is called almost as a hook is, and that no other code of the class names: it would
    never run."""
    own = {
        name: inspect.unwrap(value) for name, value in vars(cls).items() if isinstance(value, FunctionType)
    }
    named = {name for function in own.values() for name in names_in(function.__code__)}
    for name in own:
        if name[0] == "_" or name in named or any(hasattr(each, name) for each in cls.__bases__):
            continue
        if close := get_close_matches(name, hooks(base), cutoff=0.75):
            raise Refusal(
                f"{cls.__name__}.{name} would never run: it is no hook, and nothing in the class calls it. "
                f"Did you mean {close[0]}?\nA method of your own that others call begins with _, or has "
                "another name."
            )


def hooks(base: type) -> list[str]:
    """The methods that a learner may override."""
    methods = [name for name, value in vars(base).items() if isinstance(value, FunctionType)]
    return [name for name in methods if name[0] != "_" and name not in FINAL]


def names_in(code: CodeType) -> Iterator[str]:
    """The attributes and globals that a function names, and functions inside of it."""
    yield from code.co_names
    for part in code.co_consts:
        if isinstance(part, CodeType):
            yield from names_in(part)


def owner_of(cls: type, name: str) -> type:
    """The class in whose body an attribute is defined."""
    return next(each for each in cls.__mro__ if name in vars(each))
