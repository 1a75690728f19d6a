"""A whole training step of every learner on torch's ``meta`` device, which has no values: whatever would make
a GPU wait for the CPU raises there. So does a tensor that lies elsewhere than the network."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch

from cl_lightning.conf_dir import conf_dir
from cl_lightning.data.lease import Lease
from cl_lightning.data.task import Blocks
from cl_lightning.engine.hooks import hooks_of
from cl_lightning.engine.phase_run import PhaseRun
from cl_lightning.engine.training import train_batch
from cl_lightning.learners import (
    AGEM,
    ER,
    EWC,
    GEM,
    MNTDP,
    Finetune,
    Independent,
    Joint,
    Learner,
    Multimodal,
    NewHead,
)
from cl_lightning.learners.parts.memory import last_of_each_task, reservoir
from cl_lightning.protocol import LearnerError
from cl_lightning.randomness import rng
from tests import toys

META = torch.device("meta")
LEARNERS: dict[str, tuple[type[Learner], dict[str, Any]]] = {
    "finetune": (Finetune, {}),
    "joint": (Joint, {}),
    "independent": (Independent, {}),
    "new_head": (NewHead, {}),
    "new_head, finetuned": (NewHead, {"trunk": "finetune"}),
    "multimodal": (Multimodal, {}),
    "er": (ER, {"size": 20}),
    "er, with a ring": (ER, {"size": 20, "policy": "ring"}),
    "ewc": (EWC, {}),
    "gem": (GEM, {"memories": 10}),
    "agem": (AGEM, {"memories": 10}),
    "mntdp_d": (MNTDP, {}),
}
# Steps that read values back from the device, and why.
READS = {
    "gem": "the quadratic program is solved on the CPU: one Gram matrix a step",
    "multimodal": "which first layers a mini-batch needs is decided on the CPU",
}


def after_one_task(name: str) -> Learner:
    """A learner with a task behind it, so that it has memories, importances, modules."""
    cls, options = LEARNERS[name]
    s = toys.stream()
    learner = cls(
        build=toys.builder(s, dropout=0.2), head=s.head, grid=[{"lr": 0.01}, {"lr": 0.1}], **options
    )
    return toys.learn(learner, s, toys.training(max_epochs=1), tasks=1).learner


def one_step_on_meta(learner: Learner) -> PhaseRun:
    """The first step in the second task: the engine's, without Lightning's loop around it."""
    learner.to(META)
    task = toys.stream().task(1, lease=Lease(META))
    with patch.object(MNTDP, "scores", lambda self, task: [1.0]):  # a search reads values, once a task
        phase = next(learner.learn(task))
    blocks = Blocks(task.train, (0, "task1", 0), 10, 1, 1, 1)
    settings = toys.training(clip=1.0)
    run = PhaseRun(phase, phase.candidates, task, settings, blocks, hooks_of(learner))
    learner.phase_run = run
    learner.to(META)
    optimizer = run.make_optimizer(META)
    (batch,) = next(iter(blocks)).batches
    assert batch.x.device == META
    train_batch(learner, run, batch, optimizer)
    return run


@pytest.mark.parametrize("name", LEARNERS)
def test_a_step_of_every_learner_stays_on_its_device(name: str) -> None:
    learner = after_one_task(name)
    expected = pytest.raises(LearnerError, match="meta tensor") if name in READS else nullcontext()
    with expected:
        run = one_step_on_meta(learner)
        assert len(run.candidates) > 1
        assert all(p.device == META for c in run.candidates for p in c.network.parameters())
        assert run.costs.candidate_examples == 10 * len(run.trainable)


def test_every_learner_that_has_a_choice_is_among_them() -> None:
    choices = {path.stem for path in (Path(conf_dir()) / "learner").glob("*.yaml")}
    assert choices <= {*LEARNERS, "independent_gem"}


class ReadsBack(Finetune):
    def loss(self, c, batch):
        loss = super().loss(c, batch)
        return loss if loss.item() < 100 else loss * 0


def test_a_step_that_reads_a_value_back_would_be_noticed() -> None:
    s = toys.stream()
    with pytest.raises(LearnerError, match="meta tensor"):
        one_step_on_meta(ReadsBack(build=toys.builder(s), head=s.head, grid=[{}, {"lr": 0.1}]))


def test_what_learners_store_of_a_task_lies_where_its_examples_were_lent() -> None:
    task = toys.stream().task(0, lease=Lease(META))
    for store in (
        lambda memory: last_of_each_task(memory, task, 5),
        lambda memory: reservoir(memory, task, 5, rng(0)),
    ):
        memory: dict[str, Any] = {}
        store(memory)
        assert {part.device for part in memory.values() if isinstance(part, torch.Tensor)} == {META}
