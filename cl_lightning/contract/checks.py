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
import torch.fx.experimental._config as fx_config

from cl_lightning.config.settings import Training
from cl_lightning.contract.learning import Learned, learn
from cl_lightning.data.streams.stream import Stream
from cl_lightning.data.task import Blocks, Lazy, Split, Task, tensors_in
from cl_lightning.engine import phases
from cl_lightning.engine.hooks import hooks_of
from cl_lightning.engine.phase_run import PhaseRun
from cl_lightning.engine.phases import Phases
from cl_lightning.engine.proposals import settings_of, splits_of, state_of, val_of
from cl_lightning.engine.scoring import set_mode
from cl_lightning.engine.training import train_batch, train_block
from cl_lightning.learners.base import Candidate, Learner, Phase
from cl_lightning.learners.base import Phases as OfALearner
from cl_lightning.learners.finetune import Finetune
from cl_lightning.learners.parts.stored import mapped
from cl_lightning.metrics.costs import held_bytes
from cl_lightning.protocol import LearnerError, running
from cl_lightning.randomness import rng, seeded
from cl_lightning.store.records import Place

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


def learns(case: Case) -> None:
    assert case.base.after


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


def without_strength(case: Case) -> str | None:
    keys = case.make().without_strength
    if not keys:
        return "its class names no keys that make it finetune, as without_strength"
    what = f"With {', '.join(f'{key}={value}' for key, value in keys.items())} (without_strength)"
    if not equal(case.learned(case.make(**keys)).after, case.finetune.after):
        raise Broken(f"{what} it is not finetune, to the bit.\nKeys of draws must not name the learner.")
    return None


def first_task(case: Case) -> None:
    if case.make().first_as_finetune and not equal(case.base.after[:1], case.finetune.after[:1]):
        raise Broken(
            "first_as_finetune is True, but the first task is learned otherwise than finetune learns it, to "
            "the bit.\nIf that is meant, write first_as_finetune = False in the class. A phase before the "
            "task's own gives that one other draws, too."
        )


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


def company(case: Case) -> str | None:
    """Candidates alone and side by side; whoever uses a loser's network meets an error in training."""
    if not case.is_compared:
        return "the tasks have no validation data, and so no candidates"

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
    return None


POINTS: dict[str, tuple[Any, str, bool, int]] = {  # after a call or before; every so many calls, 0: at each
    "inside a phase": (phases, "train_block", False, 3),
    "after a phase": (Phases, "recall_or_train", True, 0),
    "before a boundary": (Phases, "learn", True, 0),
}
REMEDIES = {
    "inside a phase": "What training records is a buffer of c.network. Draw from batch.rng(purpose), or with "
    "torch.",
    "after a phase": "Between yields learn may depend only on the learner at the task's start, the open "
    "task, outcomes and rng(key): not on attributes that hooks of the phase have set.",
    "before a boundary": "on_task_start and on_task_end run again, and may depend on what learn may: not on "
    "what a class or a module keeps.",
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
            same(case.base, ended, f"Killed {words} and started again", REMEDIES[words])


def auxiliary(case: Case) -> str | None:
    """With moments that are carried from task to task."""
    if case.settings.single_pass:
        return "a single pass has one phase a task"
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
    return None


def stands_for_numbers(tensor: torch.Tensor) -> torch.Tensor:
    """What ``.cpu()``, the one way to look at values in a step, gives on a device without values."""
    if not tensor.is_floating_point():
        return torch.zeros(tensor.shape, dtype=tensor.dtype)
    square = tensor.dim() == 2 and tensor.shape[0] == tensor.shape[1]
    return (torch.eye(len(tensor)) if square else -torch.ones(tensor.shape)).to(tensor.dtype)


class Tried(Exception):
    """A phase was tried on another device."""


def other_device(case: Case) -> None:
    """All but one task are learned on the CPU; then mini-batches of the last one, of each of its phases, are
    taken with all tensors on a device where nothing is computed: a tensor left on the CPU, or a value looked
    at in the middle of a step other than by ``.cpu()``, raises."""
    last, original = min(1, len(case.stream) - 1), Phases.recall_or_train
    settings = replace(case.settings, max_epochs=1)
    of_last = [p.name for p in case.base.phases if (p.place.part, p.place.index) == ("task", last)]
    for kind in dict.fromkeys(map(kind_of, of_last)):
        learner = case.make()
        made = dict(vars(learner))

        def tries(self: Phases, learner: Learner, phase: Phase, task: Task, place: Place) -> Any:
            if (place.part, place.index, kind_of(phase.name)) != ("task", last, kind):  # noqa: B023
                return original(self, learner, phase, task, place)
            try:
                try_on_meta(learner, phase, task, settings, made)  # noqa: B023
            except LearnerError as error:
                raise Broken(
                    f"{error}\nMake tensors where others are: x.new_zeros(3), or device=x.device; in "
                    "__init__ by register_buffer.\nValues that a step decides by are read by tensor.cpu()."
                ) from error
            raise Tried

        with patch.object(Phases, "recall_or_train", tries), suppress(Tried):
            learn(learner, case.stream, settings, tasks=last + 1)


def kind_of(name: str) -> str:
    """Of phases that are numbered one is enough."""
    return name.rstrip("0123456789")


def try_on_meta(
    learner: Learner, phase: Phase, task: Task, settings: Training, made: Mapping[str, Any]
) -> None:
    meta, own = torch.device("meta"), replace(settings_of(phase, settings), stack=False)
    splits, most = splits_of(phase, task), own.max_steps
    key = (0, "task", 0)
    blocks = Blocks(splits, key, own.batch_size, 1, own.block, task.index, max_steps=most, phase=phase.name)
    run = PhaseRun(phase, phase.candidates, task, own, blocks, hooks_of(learner), train_block)
    for name, value in vars(learner).items():  # what on_task_start made would lie where the task does
        if name not in learner.of_base and value is not made.get(name):
            setattr(learner, name, on_device(meta, value))
    no_autocast = patch.object(torch, "autocast", lambda *_, **__: nullcontext())  # it does not know meta
    # Private: no public way lets x[mask] run, which makes a GPU wait, and is no mistake.
    masks = patch.object(fx_config, "meta_nonzero_assume_all_nonzero", True)
    with patch.object(torch.Tensor, "cpu", stands_for_numbers), no_autocast, masks, torch.enable_grad():
        learner.phase_run = run
        learner.to(meta)
        if run.trainable:
            optimizer = learner.configure_optimizers()
            set_mode(learner, run, training=True)
            for block in blocks:
                for batch in block.to(meta).batches:
                    train_batch(learner, run, batch, optimizer)
        set_mode(learner, run, training=False)
        val = val_of(phase, task) if phase.score is None else None
        with torch.no_grad(), running(learner, "logits"):
            for batch in () if val is None else val.batches(10, task.index):
                batch = replace(batch.to(meta), phase=phase.name)
                batch.lazy = Lazy(partial(learner.shared, replace(batch), phase.candidates))
                learner.logits(phase.candidates[0], batch)
        told = 0 if learner.needs.task_id_at_test else None
        if learner.predicts(0):
            with torch.no_grad(), running(learner, "forward"):
                learner(torch.zeros(5, *task.train.x.shape[1:], device=meta), told)


def on_device(device: torch.device, value: Any) -> Any:
    if isinstance(value, Split):
        x, y, task = (part.to(device) for part in value.parts)
        return Split(x, y, task)
    return mapped(lambda tensor: tensor.to(device), value) if tensors_in(value) else value


# What each asks. It raises where that is not so, and gives a reason where there was nothing to try.
CHECKS: dict[str, Callable[[Case], str | None]] = {
    "it learns a small stream": learns,
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
