"""How the learning rates of a phase fall. They lie in the optimizer's groups, and so in its checkpoints."""

from __future__ import annotations

from cl_lightning.data.task import Batch
from cl_lightning.engine.phase_run import PhaseRun
from cl_lightning.selection.rules import out_of_patience


def fall_by_epoch(run: PhaseRun, batch: Batch) -> None:
    """Divide all rates where an epoch begins after which this is due."""
    s = run.settings.falls
    if s is None or s.after is not None or batch.index_in_epoch or run.optimizer is None:
        return
    times = sum(epoch <= batch.epoch for epoch in s.at) if s.at else batch.epoch
    for group in run.optimizer.param_groups:
        group["lr"] = group["initial_lr"] / s.by**times


def fell_below(run: PhaseRun, i: int) -> bool:
    """Divide the rates of a candidate that was not better for long. Returns whether it is to stop."""
    s = run.settings.falls
    if s is None or s.after is None or run.optimizer is None:
        return False
    own = [group for group in run.optimizer.param_groups if group["candidate"] == i]
    since = max(run.standings[i].step, *(group["fell_at"] for group in own))
    if out_of_patience(run.step - since, s.after * run.blocks.per_epoch):
        for group in own:
            group["lr"] /= s.by
            group["fell_at"] = run.step
    return s.until is not None and max(group["lr"] for group in own) < s.until
