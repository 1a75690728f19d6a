"""A whole training step of every learner on torch's ``meta`` device, which has no values: whatever would make
a GPU wait for the CPU raises there. So does a tensor that lies elsewhere than the network."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import Mock, patch

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from cl_lightning.config.resolvers import conf_dir
from cl_lightning.config.settings import Training
from cl_lightning.data.lease import Lease
from cl_lightning.data.module import StreamDataModule
from cl_lightning.data.streams.stream import Stream
from cl_lightning.data.task import Blocks
from cl_lightning.engine.hooks import hooks_of
from cl_lightning.engine.once import Once
from cl_lightning.engine.phase_run import PhaseRun
from cl_lightning.engine.phases import Phases
from cl_lightning.engine.stack import stackable
from cl_lightning.engine.trainer import OwnCandidates
from cl_lightning.engine.training import train_batch, train_block
from cl_lightning.learners import (
    AGEM,
    DEN,
    DGR,
    ER,
    EWC,
    GEM,
    HAT,
    IMM,
    MNTDP,
    MNTDPS,
    PNN,
    RCL,
    SI,
    VCL,
    VGR,
    Finetune,
    ICaRL,
    ICaRLOfGEM,
    Independent,
    Joint,
    Learner,
    LwF,
    MCDropout,
    Multimodal,
    NewHead,
    NewLeg,
    Phase,
    StopByKept,
    VCLCoreset,
)
from cl_lightning.learners.parts.memory import last_of_each_task, reservoir
from cl_lightning.learners.parts.stored import mapped
from cl_lightning.metrics.costs import Costs
from cl_lightning.parallel.ranks import Ranks
from cl_lightning.protocol import LearnerError, running
from cl_lightning.randomness import rng, seed_of, seeded
from cl_lightning.runs.resume import restore
from cl_lightning.store.files import Store
from cl_lightning.store.folder import task_key
from cl_lightning.store.records import Place, TaskRecord
from tests import toys

pytestmark = pytest.mark.filterwarnings("ignore:.*which is a no-op")  # weights that are loaded there
META = torch.device("meta")
LEARNERS: dict[str, tuple[type[Learner], dict[str, Any]]] = {
    "finetune": (Finetune, {}),
    "joint": (Joint, {}),
    "independent": (Independent, {}),
    "new_head": (NewHead, {}),
    "new_head, finetuned": (NewHead, {"trunk": "finetune"}),
    "new_leg": (NewLeg, {}),
    "new_leg, finetuned": (NewLeg, {"trunk": "finetune"}),
    "multimodal": (Multimodal, {}),
    "pnn": (PNN, {}),
    "hat": (HAT, {}),
    "er": (ER, {"size": 20}),
    "er, with a ring": (ER, {"size": 20, "policy": "ring"}),
    "er, in a single pass": (ER, {"size": 2, "policy": "single_pass", "per_class": True}),
    "ewc": (EWC, {}),
    "online_ewc": (EWC, {"free_heads": True, "drawn": True, "examples": 20, "merging": "mean"}),
    "si": (SI, {}),
    "lwf": (LwF, {}),
    "gem": (GEM, {"memories": 10}),
    "agem": (AGEM, {"memories": 10}),
    "mntdp_d": (MNTDP, {}),
    "mntdp_s": (MNTDPS, {}),
    "rcl": (RCL, {"trials": 1}),
    "den": (DEN, {}),
    "icarl": (ICaRL, {"total": 20}),
    "icarl_gem": (ICaRLOfGEM, {"total": 20}),
    "imm": (IMM, {}),
    "vcl": (VCL, {"draws": 3}),
    "vcl_coreset": (VCLCoreset, {"size": 4, "draws": 3}),
    "coreset_only": (VCLCoreset, {"size": 4, "draws": 3, "prior": "standard"}),
    "mc_dropout": (MCDropout, {"draws": 3}),
    "vgr": (VGR, {"draws": 3}),
    "dgr": (DGR, {}),
    "stop_by_kept": (StopByKept, {"images": 10}),
}
# Steps that read values back from the device, and why.
READS = {
    "gem": "the quadratic program is solved on the CPU: one Gram matrix a step",
    "mntdp_s": "which path a mini-batch takes is decided on the CPU",
    "multimodal": "which first layers a mini-batch needs is decided on the CPU",
}


SINGLE_PASS = "er, in a single pass"
REFUSE_MASKS = ("vcl", "vcl_coreset", "coreset_only", "dgr")  # in training


def stream(name: str = "") -> Stream:
    """One whose outputs are masked, in training, too, where the learner may be given one."""
    return toys.stream(
        head="multi_test" if name in REFUSE_MASKS else "multi_train_test",
        n_val=0 if name == SINGLE_PASS else 40,
    )


def settings(name: str, **options: Any) -> Training:
    return toys.training(single_pass=name == SINGLE_PASS, **options)


def after_one_task(name: str) -> Learner:
    """A learner with a task behind it, so that it has memories, importances, modules."""
    cls, options = LEARNERS[name]
    s, grid = stream(name), [{"lr": 0.01}, {"lr": 0.1}][: 1 if name == SINGLE_PASS else 2]
    learner = cls(build=toys.builder(s, dropout=0.2), head=s.head, grid=grid, **options)
    return toys.learn(learner, s, settings(name, max_epochs=1), tasks=1).learner


class NoWaiting(TorchDispatchMode):
    """Refuses copies to the device for which a GPU would be waited for: of indices that lie on the CPU, and
    of tensors without ``non_blocking``. A single number of the CPU is no copy."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        given = [part for part in tree_leaves((args, kwargs)) if isinstance(part, torch.Tensor)]
        made = [part for part in tree_leaves(out) if isinstance(part, torch.Tensor)]
        from_cpu = [part for part in given if part.device.type == "cpu" and part.dim()]
        if from_cpu and any(part.device == META for part in (*given, *made)):
            assert kwargs.get("non_blocking"), f"{func} copies {from_cpu[0].shape} to the device, and waits"
        return out


def one_step_on(
    learner: Learner, device: torch.device, watched: AbstractContextManager, name: str = ""
) -> PhaseRun:
    """The first step in the second task: the engine's, without Lightning's loop around it."""
    learner.to(device)
    task = stream(name).task(1, lease=Lease(device))
    with (
        patch.object(MNTDP, "scores", lambda self, task: [1.0]),  # a search reads values, once a task
        patch.object(MNTDPS, "halves", lambda self, task: [task.train] * 2),  # and so do these
        patch.object(VGR, "past", lambda self, task: []),
        patch.object(VCLCoreset, "examples", lambda self, task: task.train),
    ):
        phase = next(learner.learn(task))
    blocks = Blocks(task.train, (0, "task1", 0), 10, 1, 1, 1)
    run = PhaseRun(
        phase, phase.candidates, task, settings(name, clip=1.0), blocks, hooks_of(learner), train_block
    )
    learner.phase_run = run
    learner.to(device)
    optimizer = run.make_optimizer(device)
    with watched:
        (batch,) = next(iter(blocks)).batches
        assert batch.x.device == device
        train_batch(learner, run, batch, optimizer)
    return run


def one_step_on_meta(learner: Learner, name: str = "") -> PhaseRun:
    return one_step_on(learner, META, NoWaiting(), name)


@pytest.mark.parametrize("name", LEARNERS)
def test_a_step_of_every_learner_stays_on_its_device(name: str) -> None:
    learner = after_one_task(name)
    expected = pytest.raises(LearnerError, match="meta tensor") if name in READS else nullcontext()
    with expected:
        run = one_step_on_meta(learner, name)
        assert len(run.candidates) > (name != SINGLE_PASS)
        assert all(p.device == META for c in run.candidates for p in c.network.parameters())
        assert run.costs.candidate_examples == 10 * len(run.trainable)


@pytest.mark.parametrize("name", LEARNERS)
def test_a_learner_that_goes_on_lies_on_its_device(name: str, tmp_path: Path) -> None:
    before, (cls, options) = after_one_task(name), LEARNERS[name]
    store = Store(tmp_path, "meta")
    saved = store.save_tensors(task_key(0), {"learner": before.state_dict(), "moments": {}})
    store.save(task_key(0), TaskRecord(0, [], [], Costs(), [], {}, {}, None, 0), saved)
    learner = cls(build=before.build, head=before.head, grid=before.grid, **options).to(META)
    restore(learner, store, 1)
    found = [*learner.parameters(), *learner.buffers()]
    mapped(found.append, learner.memory)
    assert len(found) > 0
    assert {tensor.device for tensor in found} == {META}


def test_a_winner_that_another_process_has_trained_lies_on_the_device(tmp_path: Path) -> None:
    s, learners = toys.stream(tasks=1), []
    for device in (torch.device("cpu"), META):
        grid = [{"lr": 0.01}, {"lr": 0.1}]
        learner = Independent(build=toys.builder(s), head=s.head, grid=grid).to(device)
        data = StreamDataModule(s, device=device)
        with data.open(0, to=learner) as task:  # the second time it is read from the store
            Phases(data, Store(tmp_path, "meta"), toys.training(max_epochs=1)).learn(learner, task)
        learners.append(learner)
    assert {p.device for p in learners[0].parameters()} == {torch.device("cpu")}
    assert {p.device for p in learners[1].parameters()} == {META}


class Remembers(Finetune):
    """Keeps the result of long work, which is read from a file."""

    def on_task_end(self, task):
        self.memory["mean"] = self.once("mean", lambda: torch.zeros(3))


def test_the_result_of_long_work_lies_on_the_device(tmp_path: Path) -> None:
    learner = Remembers(build=toys.builder(toys.stream()), head=toys.stream().head).to(META)
    once = Once(Store(tmp_path, "meta"), Costs(), learner, Place("task", 0))
    with running(learner, "on_task_end", (), once):
        learner.on_task_end(None)
    assert learner.memory["mean"].device == META


def test_networks_are_stacked_on_the_cpu_alone() -> None:
    s = toys.stream()
    learner = Finetune(build=toys.builder(s, sizes=(64, 64)), head=s.head, grid=[{}, {"lr": 0.1}])
    phase = Phase(learner.candidates(None))
    assert all(stackable(learner, phase))
    assert not any(stackable(learner.to(META), phase))


def test_draws_between_phases_are_seeded_on_the_gpu_too(monkeypatch) -> None:
    """What torch is asked to do, where there is no GPU to see it."""
    asked: list[tuple[Any, ...]] = []
    for name, answer in (("is_initialized", True), ("current_device", 1), ("device_count", 2)):
        monkeypatch.setattr(torch.cuda, name, lambda answer=answer: answer)
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda device: f"state of {device}")
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda state, device: asked.append((state, device)))
    monkeypatch.setattr(torch.cuda, "manual_seed", lambda seed: asked.append(("seed", seed)))
    monkeypatch.setattr(torch, "manual_seed", lambda seed: None)
    with seeded(0, "key"):
        assert asked == [("seed", seed_of(0, "key"))]
    assert asked[1:] == [("state of 1", 1)]


def test_every_learner_that_has_a_choice_is_among_them() -> None:
    choices = {path.stem for path in (Path(conf_dir()) / "learner").glob("*.yaml")}
    assert choices <= {*LEARNERS, "independent_gem"}


class ReadsBack(Finetune):
    def loss(self, c, batch):
        loss = super().loss(c, batch)
        return loss if loss.item() < 100 else loss * 0


class CopiesAndWaits(Finetune):
    def extend(self, batch):
        return batch.cat(batch.x[torch.arange(2)], batch.y[:2], batch.task[:2])


def test_a_step_that_copies_and_waits_would_be_noticed() -> None:
    s = stream()
    with pytest.raises(LearnerError, match=r"copies .* and waits"):
        one_step_on_meta(CopiesAndWaits(build=toys.builder(s), head=s.head, grid=[{}]))


def test_a_step_that_reads_a_value_back_would_be_noticed() -> None:
    s = stream()
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


def test_between_phases_a_learner_stays_on_its_device() -> None:
    s = stream()
    learner = Finetune(build=toys.builder(s), head=s.head).to(META)
    strategy = OwnCandidates(META, Ranks())
    strategy.connect(learner)
    strategy.accelerator = Mock()
    strategy.teardown()
    assert {p.device for p in learner.parameters()} == {META}
