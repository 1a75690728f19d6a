"""The one door into a learner's code while a phase is trained."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from cl_lightning.data.task import Batch, Lazy, tensors_in
from cl_lightning.engine.phase_run import PhaseRun
from cl_lightning.learners.base import Candidate, Learner, Phase, Phases
from cl_lightning.learners.parts.notes import ModulePaths
from cl_lightning.protocol import LearnerError, also_handed, place_of, running, running_first
from cl_lightning.randomness import Key, own_draws, seed_default_generators, seed_of

CASTS = ("loss", "logits", "shared")  # run under autocast, where it is asked for
WITHOUT_GRADIENT = ("shared", "after_step")
HOOKS = ("extend", "shared", "kind", "after_backward", "after_step")  # called only if a learner has its own


def hooks_of(learner: Learner) -> frozenset[str]:
    """The hooks of a mini-batch that a learner overrides."""
    names = (*HOOKS, "loss", "logits", "masked")
    return frozenset(name for name in names if getattr(type(learner), name) is not getattr(Learner, name))


A_GENERATOR = (
    lambda value, *_: isinstance(value, Generator),
    "be a generator: best = yield Phase(self.candidates(task))",
)
ONE_OR_MORE = "return one learner or more by name, or functions that make them: return {'': copied}"
# What each hook must give: a condition of its value, the learner and the hook's arguments; and the words.
GIVES: dict[str, tuple[Callable[..., bool], str]] = {
    "learn": A_GENERATOR,
    "predictors": A_GENERATOR,
    "yields": (
        lambda value, *_: isinstance(value, Phase),
        "yield phases: yield Phase(self.candidates(task))",
    ),
    "predictors returns": (
        lambda value, *_: (
            isinstance(value, Mapping)
            and bool(value)
            and (not isinstance(value, dict) or all(map(callable, value.values())))
        ),
        ONE_OR_MORE,
    ),
    "predictors returns one": (lambda value, *_: is_learner(value), ONE_OR_MORE),
    "extend": (
        lambda value, _, batch: isinstance(value, Batch) and value.key == batch.key,
        "return a Batch with the key of the one that it got: return batch.cat(x, y, task)",
    ),
    "logits": (
        lambda value, learner, _, batch: (
            isinstance(value, Tensor) and value.shape == (len(batch), learner.head.num_outputs)
        ),
        "return a tensor of shape (images, outputs of the stream)",
    ),
    "loss": (
        lambda value, *_: isinstance(value, Tensor) and value.numel() == 1,
        "return a tensor with one number: return super().loss(c, batch) + penalty",
    ),
    "kind": (
        lambda value, *_: isinstance(value, str | int | None),
        "return a text or a whole number that names the kind of work, or None",
    ),
    "score": (
        lambda value, *_: isinstance(value, Real) or (isinstance(value, Tensor) and value.numel() == 1),
        "return a number, the higher the better",
    ),
    "account": (
        lambda value, *_: isinstance(value, dict | ModulePaths),
        "return a dict of plain values by name",
    ),
    "published_memory": (lambda value, *_: isinstance(value, int), "return a whole number of bytes"),
}
SHORT = 40  # characters of a value in a sentence


def is_learner(value: object) -> bool:
    return isinstance(value, Learner)


def checked_return(
    learner: Learner, hook: str, value: Any, *arguments: Any, kind: str = "", function: Any = None
) -> Any:
    """What a hook gave; refused where it is not what the hook must give. ``kind``: which of the things that a
    generator gives."""
    fits, words = GIVES.get(kind or hook, (None, ""))
    if fits is None or fits(value, learner, *arguments):
        return value
    sentence = f"{type(learner).__name__}.{hook} must {words}; it gave {described(value)}."
    place = place_of(getattr(type(learner), hook) if function is None else function)
    raise LearnerError("\n".join(filter(None, (sentence, place))))


def described(value: Any) -> str:
    """
    >>> described(None), described(torch.zeros(2, 3)), described({"x": 1})
    ('None', 'a tensor of shape (2, 3)', "a dict, {'x': 1}")
    """
    if value is None:
        return "None"
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    text = repr(value)
    return f"a {type(value).__name__}" + f", {text}" * (len(text) <= SHORT)


def call(learner: Learner, run: PhaseRun, key: Key, name: str, *arguments: Any) -> Any:
    """Call a hook: guarded, seeded by ``key`` and its name alone, with or without gradient and autocast as
    the hook has it.

    Leaving autocast each time drops its copies of the weights, which change each step: hence the engine
    casts, not Lightning's precision plugin, which wraps a whole block.
    """
    if run.seeded[0] != (full := (*key, name)):
        run.seeded = full, seed_of(*full)
    seed_default_generators(run.seeded[1], learner.device)
    if name != "shared":
        run.asking = arguments[0]
    of_phase = run.phase.loss if name == "loss" else run.phase.score if name == "score" else None
    function = getattr(learner, name) if of_phase is None else of_phase
    guard = running if run.step else running_first
    with guard(learner, name, arguments, function=function):
        with torch.no_grad() if name in WITHOUT_GRADIENT else nullcontext():
            if name in CASTS and run.settings.precision == "bf16-mixed":
                with torch.autocast(learner.device.type, dtype=torch.bfloat16):
                    value = function(*arguments)
            else:
                value = function(*arguments)
        return checked_return(learner, name, value, *arguments, function=function)


def from_its_start(learner: Learner, name: str, argument: Any) -> Phases:
    """The generator that a hook returns. What the hook does before there is one is done with its first phase:
    guarded and seeded alike."""
    phases = checked_return(learner, name, getattr(learner, name)(argument))
    return checked_return(learner, name, (yield from phases), kind=f"{name} returns")


def shared_of(learner: Learner, run: PhaseRun, batch: Batch, candidates: Sequence[Candidate]) -> Any:
    with own_draws():  # the hook that reads it goes on with its own
        return call(learner, run, batch.key, "shared", batch, candidates)


class Shared(Lazy):
    """What all candidates use of a mini-batch, made when a hook first reads it. What each would need alone is
    counted with one example, for those that read it."""

    def __init__(self, learner: Learner, run: PhaseRun, batch: Batch, members: Sequence[int]) -> None:
        # No cycle leads back here: the memory of a device does not wait for Python's garbage collector.
        super().__init__(partial(shared_of, learner, run, batch, [run.candidates[i] for i in members]))
        self.learner, self.run, self.batch = learner, run, batch
        self.readers: set[int] = set()

    def value(self) -> Any:
        if self.run.meter.counter is not None:
            self.count(self.run.candidates.index(self.run.asking))
        if not self.made:
            with self.run.meter.paused():
                super().value()
            also_handed(tensors_in(self.made))
        return self.made[0]

    def count(self, i: int) -> None:
        if i not in self.readers:
            self.readers.add(i)
            self.run.meter.note(i)
            x, y, task = (part[:1] for part in self.batch.handed_tensors)
            one = replace(self.batch, x=x, y=y, task=task)
            shared_of(self.learner, self.run, one, [self.run.candidates[i]])
            self.run.meter.note_common([i], len(self.batch))
