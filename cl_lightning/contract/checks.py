"""What every learner promises: a function each, which raises a sentence where it is not kept."""

from __future__ import annotations

import copy
import io
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, redirect_stderr, suppress
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import torch

from cl_lightning.config.settings import Training
from cl_lightning.contract.learning import Learned, learn
from cl_lightning.data.streams.stream import Stream
from cl_lightning.data.task import Blocks, Lazy, Split, Task
from cl_lightning.engine import phases
from cl_lightning.engine.hooks import hooks_of
from cl_lightning.engine.phase_run import PhaseRun
from cl_lightning.engine.phases import Phases
from cl_lightning.engine.proposals import splits_of, state_of
from cl_lightning.engine.scoring import set_mode
from cl_lightning.engine.training import train_batch, train_block
from cl_lightning.learners.base import Candidate, Learner, Phase
from cl_lightning.learners.base import Phases as OfALearner
from cl_lightning.learners.finetune import Finetune
from cl_lightning.metrics.costs import held_bytes
from cl_lightning.protocol import running
from cl_lightning.randomness import rng, seeded

GRID = ({"lr": 0.03}, {"lr": 0.003}, {"lr": 0.0003})
MOST = 100  # kills


class Broken(Exception):
    """A promise that a learner does not keep."""


class Case:
    """A learner on a stream that is learned in a second. ``make`` makes it anew, with keys of its own
    changed."""

    def __init__(self, make: Callable[..., Learner], stream: Stream, settings: Training) -> None:
        self.make, self.stream, self.settings = make, stream, settings

    def learned(self, learner: Learner | None = None, global_seed: int = 1, **options: Any) -> Learned:
        """What comes of it; ``options`` of the trainer, and of ``learn``."""
        torch.manual_seed(global_seed)
        random.seed(global_seed)
        of_learn = {key: options.pop(key) for key in ("folder", "fresh") if key in options}
        settings = replace(self.settings, **options)
        return learn(learner or self.make(), self.stream, settings, **of_learn)

    @cached_property
    def base(self) -> Learned:
        return self.learned()

    @cached_property
    def finetune(self) -> Learned:
        """What finetune comes to with the same networks."""
        own = self.make()
        return self.learned(Finetune(build=own.build, head=own.head, grid=own.grid, seed=own.seed))

    @property
    def is_compared(self) -> bool:
        return all(len(self.stream.recipe(index).val) for index in range(len(self.stream)))


def same(one: Learned, other: Learned, what: str, remedy: str, predictions: bool = True) -> None:
    """Refuse two ways of learning that do not come to the same bits."""
    differs = [i for i, pair in enumerate(zip(one.after, other.after)) if not equal(pair[:1], pair[1:])]
    if differs:
        raise Broken(f"{what}, it has other weights after task {differs[0]}.\n{remedy}")
    if not equal(state_of(one.learner), state_of(other.learner)):
        raise Broken(f"{what}, it ends with another memory, or other buffers.\n{remedy}")
    if predictions and one.matrix != other.matrix:
        raise Broken(f"{what}, it predicts otherwise, with the same weights.\n{remedy}")


def equal(ones: Sequence[torch.Tensor], others: Sequence[torch.Tensor]) -> bool:
    return len(ones) == len(others) and all(map(torch.equal, ones, others))


# ---- checks ------------------------------------------------------------------------------------------------


def same_bits(case: Case) -> None:
    """With other test data, and other states of the global generators."""
    original = Stream.test

    def noise(stream: Stream, index: int) -> Split:
        test = original(stream, index)
        return Split(torch.rand(test.x.shape, generator=rng("noise", index)), test.y, test.task)

    with patch.object(Stream, "test", noise):
        other = case.learned(global_seed=2)
    try:
        same(case.base, other, "With noise for test images", "It looks at test data.", predictions=False)
    except Broken:
        same(case.base, case.learned(global_seed=2), "Learning twice from the same seed",
             "Draw with batch.rng(purpose), rng(key) or torch's default generator.")  # fmt: skip
        raise


def without_strength(case: Case) -> None:
    keys = case.make().without_strength
    if keys:
        what = f"With {', '.join(f'{key}={value}' for key, value in keys.items())} (without_strength)"
        if not equal(case.learned(case.make(**keys)).after, case.finetune.after):
            raise Broken(f"{what} it is not finetune, to the bit.\nKeys of draws must not name the learner.")


def first_task(case: Case) -> None:
    says, is_so = case.make().first_as_finetune, equal(case.base.after[:1], case.finetune.after[:1])
    if says != is_so:
        words = "as finetune learns it" if is_so else "otherwise than finetune learns it"
        raise Broken(f"first_as_finetune is {says}, but the first task is learned {words}, to the bit.")


def nothing_hidden(case: Case) -> None:
    fresh = case.learned(fresh=case.make)
    remedy = "Keep tensors and plain values in self.memory, modules in a GrowingList."
    same(case.base, fresh, "When every task begins in a fresh learner that has loaded the last one", remedy)


def checkpoint(case: Case) -> None:
    learner, empty = case.base.learner, case.make()
    state = learner.state_dict()
    with TemporaryDirectory() as folder:
        torch.save(state, Path(folder) / "whole.pt")
        held, stored = sum(held_bytes(learner).values()), (Path(folder) / "whole.pt").stat().st_size
    if not 0 < held <= stored <= held + 4096 + 1024 * len(state):  # besides bytes a file has names
        raise Broken(f"It holds {held} bytes, and its checkpoint has {stored}.")
    empty.load_state_dict(state)
    x, told = case.stream.test(0).x, 0 if learner.needs.task_id_at_test else None
    said = []
    for each in (empty, learner):
        with torch.no_grad(), seeded("draws at test"):
            said.append(each.eval()(x, told))
    if not torch.equal(*said):
        raise Broken("A new learner that has loaded its checkpoint predicts otherwise.")


def company(case: Case) -> None:
    """Candidates alone and side by side; whoever uses a loser's network meets an error in training."""
    if not case.is_compared:
        return

    def learned(at_once: int | None) -> Learned:
        learner = case.make()
        learner.stages = [[dict(point) for point in GRID]]
        return case.learned(learner, candidates_at_once=at_once)

    together, alone = learned(None), learned(1)
    words = "When its candidates are trained one after the other, and not side by side"
    same(together, alone, words, "Nothing of a candidate may depend on others, or on their number.")
    for one, other in zip(together.phases, alone.phases):
        if one.candidates != other.candidates:
            raise Broken(f"{words}, candidates of phase {one.name!r} come to other scores.")


POINTS: dict[str, tuple[Any, str, bool, int]] = {  # after a call or before; every so many calls, 0: at each
    "inside a phase": (phases, "train_block", False, 3),
    "after a phase": (Phases, "recall_or_train", True, 0),
    "before a boundary": (Phases, "learn", True, 0),
}


class Killed(BaseException):
    """The end of a program, as a kill would be for what is on the disk."""


@contextmanager
def killed_at(owner: Any, name: str, after: bool, left: int) -> Iterator[None]:
    original, calls = getattr(owner, name), iter(range(left - 1, -1, -1))

    def dies(*arguments: Any, **options: Any) -> Any:
        found = original(*arguments, **options) if after else None
        if next(calls, None) == 0:
            raise Killed
        return found if after else original(*arguments, **options)

    with patch.object(owner, name, dies):
        yield


def kills(case: Case, points: Mapping[str, tuple[Any, str, bool, int]] = POINTS) -> None:
    for words, (owner, name, after, every) in points.items():
        with TemporaryDirectory() as folder, redirect_stderr(io.StringIO()):
            for start in range(1, MOST):
                try:
                    with killed_at(owner, name, after, every or start):
                        ended = case.learned(checkpoint_minutes=0, folder=Path(folder))
                        break
                except Killed:
                    continue
            else:
                raise Broken(f"Killed again and again {words}, it comes to no end.")
            same(case.base, ended, f"Killed {words} and started again",
                 "Between yields learn may depend only on the learner at the task's start, the open task, "
                 "outcomes and rng(key).")  # fmt: skip


def auxiliary(case: Case) -> None:
    """With moments that are carried from task to task."""
    if case.settings.single_pass:  # which has one phase a task
        return
    cls, plain = type(case.make()), case.learned(optimizer_state="carry")
    original, phases_of = cls.learn, Counter(p.place.index for p in plain.phases if p.place.part == "task")

    def with_one_more(self: Learner, task: Task) -> OfALearner:
        of_task, outcome, count = original(self, task), None, 0
        with suppress(StopIteration):
            while True:
                phase, count = of_task.send(outcome), count + 1  # type: ignore[arg-type]
                first = phase.candidates[0]
                network = copy.deepcopy(first.network)
                outcome = yield phase
                if count == phases_of[task.index]:  # the last one: no later one gets another number
                    c = Candidate(network, dict(first.hparams), "auxiliary")
                    yield Phase([c], "auxiliary", phase.train, loss=phase.loss, epochs=1, auxiliary=True)

    with patch.object(cls, "learn", with_one_more):
        other = case.learned(optimizer_state="carry")
    same(plain, other, "With an auxiliary phase behind each task's",
         "Its hooks run there, too: batch.phase has the phase's name.")  # fmt: skip


def stands_for_numbers(tensor: torch.Tensor) -> torch.Tensor:
    """What ``.cpu()``, the one way to look at values in a step, gives on a device without values."""
    if not tensor.is_floating_point():
        return torch.zeros(tensor.shape, dtype=tensor.dtype)
    square = tensor.dim() == 2 and tensor.shape[0] == tensor.shape[1]
    return (torch.eye(len(tensor)) if square else -torch.ones(tensor.shape)).to(tensor.dtype)


def other_device(case: Case) -> None:
    """A task is learned on the CPU, then mini-batches of the next are taken with all tensors on a device
    where nothing is computed: a tensor left on the CPU, or a value looked at in the middle of a step other
    than by ``.cpu()``, raises."""
    s, meta = case.stream, torch.device("meta")
    learner = learn(case.make(), s, replace(case.settings, max_epochs=1), tasks=1).learner
    task = s.task(1, past=(s.task(0),) if learner.needs.past_data else ())
    learner.on_task_start(task)
    phase = next(learner.learn(task))
    settings = replace(case.settings, stack=False)
    blocks = Blocks(splits_of(phase, task), (0, "task1", 0), settings.batch_size, 1, settings.block, 1)
    run = PhaseRun(phase, phase.candidates, task, settings, blocks, hooks_of(learner), train_block)
    no_autocast = patch.object(torch, "autocast", lambda *_, **__: nullcontext())  # it does not know meta
    with patch.object(torch.Tensor, "cpu", stands_for_numbers), no_autocast:
        learner.phase_run = run
        learner.to(meta)
        optimizer = learner.configure_optimizers()
        set_mode(learner, run, training=True)
        for block in blocks:
            for batch in block.to(meta).batches:
                train_batch(learner, run, batch, optimizer)
        set_mode(learner, run, training=False)
        told = 0 if learner.needs.task_id_at_test else None
        with torch.no_grad(), running(learner, "logits"):
            for batch in task.train.batches(10):
                batch = batch.to(meta)
                batch.lazy, batch.learning = (
                    Lazy(partial(learner.shared, replace(batch), phase.candidates)),
                    1,
                )
                learner.logits(phase.candidates[0], batch)
        with torch.no_grad(), running(learner, "forward"):
            learner(torch.zeros(5, *s.shape, device=meta), told)


CHECKS: dict[str, Callable[[Case], None]] = {
    "the same seed gives the same bits, whatever the test data": same_bits,
    "without strength it is finetune": without_strength,
    "the first task is learned as it says": first_task,
    "nothing is hidden from a fresh learner": nothing_hidden,
    "a checkpoint holds all of it": checkpoint,
    "candidates end alone as side by side": company,
    "kills change nothing": kills,
    "an auxiliary phase, and carried moments, change nothing else": auxiliary,
    "every hook runs on another device": other_device,
}
