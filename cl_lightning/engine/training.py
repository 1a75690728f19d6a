"""What happens to a mini-batch: one Lightning step, read straight down.

All candidates of a phase see the same mini-batches, each as if it were alone: what it draws depends on (seed,
task, phase, step, hook) only, no tensor is written by two of them, and each leaves with its own best weights.
``PhaseRun`` holds the data, these functions the work.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from time import perf_counter, process_time

import torch
from pytorch_lightning.core.optimizer import LightningOptimizer
from torch.nn.functional import nll_loss
from torch.optim import Optimizer

from cl_lightning.data.task import Batch, Block
from cl_lightning.engine.hooks import Shared, call
from cl_lightning.engine.phase_run import PhaseRun
from cl_lightning.engine.read_only import read_only
from cl_lightning.engine.schedule import fall_by_epoch
from cl_lightning.engine.scoring import score_if_due, set_mode
from cl_lightning.engine.stack import stacks_of
from cl_lightning.learners.base import Candidate, Learner
from cl_lightning.metrics.flops import uncounted
from cl_lightning.protocol import LearnerError, running
from cl_lightning.randomness import seed_numpy_and_python, seed_of


def train_block(learner: Learner, run: PhaseRun, block: Block) -> None:
    """One Lightning step: a block of mini-batches."""
    wrapped = learner.optimizers()
    assert isinstance(wrapped, LightningOptimizer)
    with training_time(run):
        if not run.before:
            seed_numpy_and_python(seed_of(*run.key))
            run.before = read_only(learner)
            set_mode(learner, run, training=True)
            if run.step == 0:
                score_if_due(learner, run)
        for batch in block.batches:
            if not run.active:
                break
            train_batch(learner, run, batch, wrapped.optimizer)
            run.step += 1
            score_if_due(learner, run)
    # Private: Lightning must count this block as one step; the public way, optimizer.step() through the
    # wrapper, would also step the optimizer.
    wrapped._on_before_step()
    wrapped._on_after_step()  # private, as above
    if not run.active:
        learner.trainer.should_stop = True


def train_batch(learner: Learner, run: PhaseRun, batch: Batch, optimizer: Optimizer) -> None:
    """One mini-batch: every candidate that has something to train takes a step."""
    living = run.trainable
    seen = lent = len(batch)
    candidates = [run.candidates[i] for i in living]
    if "extend" in run.hooks:
        with run.meter.counting(dict.fromkeys(living, ("extend", batch.x.shape)), run.checks(batch)):
            batch = call(learner, run, batch.key, "extend", batch)
            run.meter.note_common(living)
        seen = len(batch)
    fall_by_epoch(run, batch)
    for p in run.parameters:
        p.grad = None  # not 0: parameters that this batch does not use are neither stepped nor decayed
    part = (f"part {batch.part}",) if batch.part else ()
    kinds: dict[int, tuple] = dict.fromkeys(living, ("batch", batch.x.shape, *part))
    if "kind" in run.hooks:
        for i, c in zip(living, candidates):
            kinds[i] += (call(learner, run, batch.key, "kind", c, batch),)
    with run.meter.counting(kinds, run.checks(batch)):
        if "shared" in run.hooks:
            batch = replace(batch, lazy=Shared(learner, run, batch, living))
        gradients(learner, run, living, batch)
        if "after_backward" in run.hooks:
            for i, c in zip(living, candidates):
                call(learner, run, batch.key, "after_backward", c, batch)
                run.meter.note(i)
        if run.step == 0:
            check_gradients(learner, optimizer, candidates)
        with run.meter.paused():  # nothing is multiplied here, and a first step makes thousands of tensors
            if run.settings.clip is not None:
                for c in candidates:
                    torch.nn.utils.clip_grad_norm_(c.network.parameters(), run.settings.clip)
            optimizer.step()
        if "after_step" in run.hooks:
            for i, c in zip(living, candidates):
                call(learner, run, batch.key, "after_step", c, batch)
                run.meter.note(i)
    run.costs.examples += lent
    run.costs.replayed += seen - lent
    run.costs.candidate_examples += lent * len(living)


def gradients(learner: Learner, run: PhaseRun, living: list[int], batch: Batch) -> None:
    """Loss and backward pass of each candidate, or of all of a topology where a stack has the very same
    bits."""
    logs = run.settings.log_every > 0 and run.step % run.settings.log_every == 0
    masked = partial(learner.masked, batch=batch)  # Learner's own where there is a stack
    losses: dict[int, float] = {}
    apart = living
    for stack in run.stacks if run.meter.counter is None else ():
        if stack.agreed.get(batch.x.shape):
            log_p = stack.learn_from(batch.x, batch.y, masked)
            apart = [i for i in apart if i not in stack.members] if len(stack.members) < len(apart) else []
            if logs:
                losses |= {i: nll_loss(log_p[k], batch.y).item() for k, i in enumerate(stack.members)}
    for i in apart:
        loss = call(learner, run, batch.key, "loss", run.candidates[i], batch)
        run.meter.note(i, loss=True)
        if loss.requires_grad:
            try:
                loss.backward()
            except Exception:
                with running(learner, "loss", function=run.phase.loss):  # whose mistake it is
                    raise
        if logs:
            losses[i] = loss.item()
        run.meter.note(i)
    if logs:
        run.log_losses(learner, dict(sorted(losses.items())))
    if run.shapes and apart:
        run.stacks = run.stacks or stacks_of(run.candidates, living, run.shapes)
        with uncounted():
            for stack in run.stacks:
                if batch.x.shape not in stack.agreed:
                    stack.prove(batch.x, batch.y, masked)


def check_gradients(learner: Learner, optimizer: Optimizer, candidates: Sequence[Candidate]) -> None:
    """Refuse candidates that the first mini-batch teaches nothing, or with layers that no optimizer has."""
    held = {p for group in optimizer.param_groups for p in group["params"]}
    for c in candidates:
        if late := [name for name, p in c.network.named_parameters() if p.requires_grad and p not in held]:
            raise LearnerError(
                f"The network of the candidate {c.name} made {late[0]} while it was trained. No optimizer "
                "has it: it would never be trained.\n"
                "Make all layers in __init__; nn.LazyLinear finds its size out by itself."
            )
        if all(p.grad is None for p in c.parameters):
            raise LearnerError(
                f"The loss of {type(learner).__name__} does not depend on the network of the candidate "
                f"{c.name}: it would learn nothing.\n"
                "Use self.logits(c, batch) or c.network in loss, not self.network, and no torch.no_grad()."
            )


@contextmanager
def training_time(run: PhaseRun) -> Iterator[None]:
    """Seconds of training are those of a block without its scoring; the processor's are of both. Probes are
    in neither."""
    began, began_cpu, scored = perf_counter(), process_time(), run.costs.seconds.get("score", 0.0)
    probed, probed_cpu = run.probing
    yield
    apart, apart_cpu = run.probing[0] - probed, run.probing[1] - probed_cpu
    scoring = run.costs.seconds.get("score", 0.0) - scored
    run.costs.spend("train", perf_counter() - began - scoring - apart)
    run.costs.spend("cpu", process_time() - began_cpu - apart_cpu)
