"""Checks of the candidates that a learner proposes, before they are trained."""

from __future__ import annotations

import torch

from cl_lightning.data.task import Task
from cl_lightning.engine.settings import Training
from cl_lightning.errors import Refusal
from cl_lightning.learners.base import Learner, Phase, mapped


def check_phase(learner: Learner, phase: Phase, task: Task, settings: Training) -> None:
    """Refuse what cannot be trained or compared, before training."""
    who, names = type(learner).__name__, [c.name for c in phase.candidates]
    if not names or len(set(names)) < len(names):
        raise Refusal(
            f"{who} proposed the candidates {names} for task {task.index}. A phase needs at least one, and "
            "each a name of its own."
        )
    owners: dict[int, str] = {}
    for c in phase.candidates:
        for name, tensor in c.network.state_dict(keep_vars=True).items():
            other = (
                owners.setdefault(storage_of(tensor), c.name)
                if isinstance(tensor, torch.Tensor) and tensor.numel()
                else c.name
            )
            if other != c.name:
                raise Refusal(
                    f"{who} proposed {other} and {c.name} for task {task.index}, which share the tensor "
                    f"{name}: each would train the "
                    "other's weights. Give every candidate a network of its own: copy.deepcopy(self.network)."
                )
    for tensor in (*learner.parameters(), *learner.buffers()):
        owner = owners.get(storage_of(tensor)) if tensor.numel() else None
        if owner is not None:
            raise Refusal(
                f"{who} proposed a network of its own as the candidate {owner} for task {task.index}: "
                "training would change the "
                "learner before a winner is chosen. Propose a copy: copy.deepcopy(self.network)."
            )
    if phase.train is not None and not len(phase.train):
        raise Refusal(
            f"{who} proposed a phase of task {task.index} whose `train` is empty. Leave it out (None) for "
            "the task's own examples."
        )
    if phase.val is not None or task.val is not None or phase.score is not None:
        return
    if len(phase.candidates) > 1:
        raise Refusal(
            f"{len(phase.candidates)} candidates are to be compared, but the task has no validation data to "
            "compare them on. "
            f"{'Set' if settings.single_pass else 'Set n_val of the stream or its tasks above 0, or'} "
            "selection=none."
        )
    if phase.patience is not None or settings.patience is not None:
        raise Refusal(
            "Early stopping needs validation data, and the task has no validation data. "
            "Set n_val of the stream or its tasks above 0, or trainer.patience=null to train to the end."
        )


def storage_of(tensor: torch.Tensor) -> int:
    # Private: tells storages apart on every device; data_ptr is 0 on meta.
    return tensor.untyped_storage()._cdata


def state_versions(learner: Learner) -> list[tuple]:
    """Where all tensors of a learner lie, and how often each was written to."""
    found: list[tuple] = []

    def note(tensor: torch.Tensor) -> torch.Tensor:
        found.append((storage_of(tensor), tensor._version))  # private: torch has no public count of writes
        return tensor

    mapped(note, [*learner.parameters(), *learner.buffers(), learner.memory])
    return found
