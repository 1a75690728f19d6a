"""Scoring of candidates on validation data: one that improved keeps a copy of its weights, one that has not
improved for long stops."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from time import perf_counter, process_time

import torch
import torch.nn as nn

from cl_lightning.engine.hooks import Shared, call
from cl_lightning.engine.optimizer import moments_of
from cl_lightning.engine.phase_run import CandidateState, PhaseRun
from cl_lightning.engine.schedule import fell_below
from cl_lightning.errors import Refusal
from cl_lightning.learners.base import Learner
from cl_lightning.metrics.accuracy_matrix import predicted
from cl_lightning.selection.rules import improves, out_of_patience


def score_if_due(learner: Learner, run: PhaseRun) -> None:
    """Keep weights for probes and score candidates where this is due: called before the first mini-batch and
    after each."""
    settings, step = run.settings, run.step
    if step in settings.probe_at or (settings.probe_every and step and step % settings.probe_every == 0):
        probe_now(run)
    if not run.is_scored or (run.patience is None and not run.keep_best and settings.waits is None):
        return
    if step == run.blocks.steps and not run.keep_best:  # the last weights are scored in the end
        return
    if step in settings.score_at or (step and step % run.score_every == 0):
        score(learner, run)


def probe_now(run: PhaseRun) -> None:
    """Measure all candidates as they are, or write down their weights."""
    began, began_cpu = perf_counter(), process_time()
    for i, c in ((i, run.candidates[i]) for i in run.active):
        if run.keep is not None:
            run.keep(i, copy_of_weights(c.network))
        elif run.probe is not None:
            run.probes[i][run.step] = run.probe(c, run.step)
    seconds, cpu = run.probing
    run.probing = seconds + perf_counter() - began, cpu + process_time() - began_cpu


def score(learner: Learner, run: PhaseRun) -> None:
    """Early stopping, for each candidate by itself. The untrained candidate counts."""
    run.scored_at = run.step
    drop_diverged(run)
    if not run.active:
        return
    with run.costs.timed("score"):
        for i, accuracy in zip(list(run.active), accuracies(learner, run)):
            standing = run.standings[i]
            if not run.candidates[i].parameters:  # pure re-use: it will not change
                run.standings[i] = CandidateState(accuracy)
                stop(run, i)
            elif improves(accuracy, standing.accuracy):
                run.standings[i] = CandidateState(accuracy, run.step, run.step)
                if run.keeps_best(i):
                    run.standings[i].weights = copy_of_weights(run.candidates[i].network)
                    run.standings[i].moments = kept_moments(run, i)
            elif out_of_patience(run.step - standing.step, run.patience) or fell_below(run, i):
                if not run.keeps_best(i):
                    run.standings[i] = CandidateState(accuracy, run.step, moments=kept_moments(run, i))
                stop(run, i)
        best = "val/best" if run.phase.score is None else "val/best_score"
        run.log(learner, {"val/alive": len(run.active), best: run.best_accuracy})


@torch.no_grad()
def accuracies(learner: Learner, run: PhaseRun) -> list[float]:
    """The validation accuracy of each active candidate, in evaluation mode; or what the phase's own score
    says."""
    val, active = run.val, run.active
    right = {i: torch.zeros((), dtype=torch.int64, device=learner.device) for i in active}
    nan_counts = {i: right[i].clone() for i in active}
    scores = {}
    set_mode(learner, run, training=False)
    with run.meter.counting(dict.fromkeys(active, ("score",))):
        if run.phase.score is not None:
            for i in active:
                given = call(learner, run, (*run.key, run.step), "score", run.candidates[i], val)
                scores[i] = finite(float(given), run, i)
                run.meter.note(i)
        else:
            assert val is not None
            for batch in val.batches(run.settings.eval_batch_size, run.task.index):
                batch = batch.to(learner.device)
                batch.key, batch.phase = (*run.key, run.step, *batch.key), run.phase.name
                batch = batch.without_ids() if run.blocks.hidden else batch
                if "shared" in run.hooks:
                    batch = replace(batch, lazy=Shared(learner, run, batch, active))
                for i in active:
                    logits = call(learner, run, batch.key, "logits", run.candidates[i], batch)
                    if run.task.head.masks_test:
                        logits = run.task.head.mask(logits, batch.task)
                    numbers = predicted(logits)
                    right[i] += (numbers == batch.y).sum()
                    nan_counts[i] += (numbers < 0).sum()
                    run.meter.note(i)
            scores = {i: right[i].item() / len(val) for i in active}
            warn_of_nan(run, {i: int(count) for i, count in nan_counts.items()})
    set_mode(learner, run, training=True)
    return [scores[i] for i in active]


def finite(score: float, run: PhaseRun, i: int) -> float:
    """A phase's own score; one that cannot be compared is refused."""
    if math.isfinite(score):
        return score
    raise Refusal(
        f"The score of {run.candidates[i].name} in phase {run.phase.name!r} of task {run.task.index} is "
        f"{score} after {run.step} "
        "mini-batches, which cannot be compared. A phase's own score must give a finite number."
    )


def warn_of_nan(run: PhaseRun, nan_counts: dict[int, int]) -> None:
    """Warn of NaN logits, once a candidate: scoring comes often."""
    for i, count in nan_counts.items():
        if count and i not in run.warned:
            run.warned.add(i)
            warnings.warn(
                f"{run.candidates[i].name} gave NaN logits for {count} of {len(run.val or ())} validation "
                "images of task "
                f"{run.task.index} after {run.step} mini-batches. Such images count as wrong at every "
                "scoring.",
                stacklevel=2,
            )


def set_mode(learner: Learner, run: PhaseRun, training: bool) -> None:
    for i in run.active:
        call(learner, run, (*run.key, run.step), "set_mode", run.candidates[i], training)


def drop_diverged(run: PhaseRun) -> None:
    """Stop candidates whose weights are not finite. Only when candidates are scored: a look at values in
    every step would slow an accelerator down."""
    for i in list(run.active):
        if not all(p.isfinite().all() for p in run.candidates[i].network.parameters()):
            warnings.warn(
                f"{run.candidates[i].name} is dropped after {run.step} mini-batches of task "
                f"{run.task.index}: its weights are not "
                "finite. A lower learning rate or trainer.clip may help.",
                stacklevel=2,
            )
            run.standings[i].diverged = True
            stop(run, i)


def stop(run: PhaseRun, i: int) -> None:
    """Stop training a candidate; those that go on are stacked anew."""
    unstack(run)
    run.standings[i].steps = run.steps_of(i)
    run.active.remove(i)
    for p in run.candidates[i].network.parameters():
        p.grad = None


def unstack(run: PhaseRun) -> None:
    """Every network gets storage of its own again."""
    for stack in run.stacks:
        stack.release()
    run.stacks = []


def score_last(learner: Learner, run: PhaseRun) -> None:
    """Score the candidates that were not scored at this step: at the end of training, while Lightning still
    has everything on its device."""
    unstack(run)
    drop_diverged(run)
    if not run.is_scored or not run.active:
        return
    if run.keep_best and run.scored_at != run.step:
        score(learner, run)
    if run.scored_at == run.step and all(map(run.keeps_best, run.active)):
        return
    for i, accuracy in zip(run.active, accuracies(learner, run)):
        if not run.keeps_best(i):  # the last weights stay
            run.standings[i] = CandidateState(accuracy, run.steps_of(i), run.steps_of(i))


def restore_best(run: PhaseRun) -> None:
    """Every candidate gets its best weights."""
    for i in run.active:
        run.standings[i].steps = run.steps_of(i)
        if run.standings[i].moments is None:
            run.standings[i].moments = kept_moments(run, i)
    for c, standing in zip(run.candidates, run.standings):
        if standing.weights is not None:
            c.network.load_state_dict(standing.weights)
            standing.weights = None
        c.network.eval()


def kept_moments(run: PhaseRun, i: int) -> dict[str, dict] | None:
    """Momentum or Adam's moments of a candidate, where the next task goes on with them."""
    carries = run.settings.optimizer_state == "carry" and run.optimizer is not None
    return moments_of(run.optimizer, run.candidates[i].network) if carries else None  # type: ignore[arg-type]


def copy_of_weights(network: nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in network.state_dict().items()}
