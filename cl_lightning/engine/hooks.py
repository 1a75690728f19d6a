"""The one door into a learner's code while a phase is trained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from cl_lightning.data.task import Batch
from cl_lightning.engine.phase_run import PhaseRun
from cl_lightning.learners.base import Learner
from cl_lightning.metrics.flops import uncounted
from cl_lightning.protocol import running
from cl_lightning.randomness import Key, seed_default_generators, seed_of

CASTS = ("loss", "logits", "shared")  # run under autocast, where it is asked for
WITHOUT_GRADIENT = ("shared", "after_step")
HOOKS = ("extend", "shared", "after_backward", "after_step")  # called only where a learner has its own


def hooks_of(learner: Learner) -> frozenset[str]:
    """The hooks that a learner overrides."""
    return frozenset(name for name in HOOKS if getattr(type(learner), name) is not getattr(Learner, name))


def call(learner: Learner, run: PhaseRun, key: Key, name: str, *arguments: Any) -> Any:
    """Call a hook: guarded, seeded by ``key`` and its name alone, with or without gradient and autocast as
    the hook has it.

    Leaving autocast each time drops its copies of the weights, which change each step: hence the engine
    casts, not Lightning's precision plugin, which wraps a whole block.
    """
    if run.seeded[0] != (full := (*key, name)):
        run.seeded = full, seed_of(*full)
    seed_default_generators(run.seeded[1], learner.device)
    function = (
        run.phase.loss if name == "loss" else run.phase.score if name == "score" else None
    ) or getattr(learner, name)
    with running(learner, name, arguments):
        if name in WITHOUT_GRADIENT:
            function = torch.no_grad()(function)
        if name in CASTS and run.settings.precision == "bf16-mixed":
            with torch.autocast(learner.device.type, dtype=torch.bfloat16):
                return function(*arguments)
        return function(*arguments)


def compute_shared(learner: Learner, run: PhaseRun, batch: Batch, members: Sequence[int]) -> None:
    """Compute once what all candidates use. What each would need alone is counted with one example."""
    if run.meter.counter is not None:
        one = replace(batch, x=batch.x[:1], y=batch.y[:1], task=batch.task[:1])
        for i in members:
            call(learner, run, batch.key, "shared", one, [run.candidates[i]])
            run.meter.note_common([i], len(batch))
    with uncounted():
        batch.shared = call(learner, run, batch.key, "shared", batch, [run.candidates[i] for i in members])
