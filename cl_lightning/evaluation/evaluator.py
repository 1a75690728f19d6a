"""The evaluator: the only code that sees test data. It calls learners, and gives nothing back."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import NamedTuple

import torch

from cl_lightning.config.settings import Training
from cl_lightning.data.streams.stream import Stream
from cl_lightning.data.task import Split
from cl_lightning.errors import Refusal
from cl_lightning.learners.base import Learner
from cl_lightning.metrics.accuracy_matrix import predicted
from cl_lightning.metrics.measures import MEASURES, averaged
from cl_lightning.protocol import Grants, LearnerError, ProtocolError, copied, running
from cl_lightning.randomness import rng, seeded
from cl_lightning.store.records import Row

# Test images kept in memory between evaluations, and as many mixed; others are made again.
KEPT_BYTES = 1 << 30
MIXED_BYTES = 1 << 28  # images of several tasks that are mixed at once
LOOKED_AT = 256  # images that are predicted in two orders
MASKED = -1e8  # a logit below this takes an output out of the choice


class Predictions(NamedTuple):
    """What was predicted for a task's images, and what they are: output numbers (n,)."""

    numbers: torch.Tensor
    y: torch.Tensor
    values: Mapping[str, torch.Tensor]  # (n,) of each measure

    @property
    def accuracy(self) -> float:
        return (self.numbers == self.y).sum().item() / len(self.y)

    def measure(self, name: str) -> float | None:
        """Over all images; None where it is no finite number."""
        values = self.values[name].double()
        value = (values.median() if MEASURES[name].median else values.mean()).item()
        return value if math.isfinite(value) else None

    def to_keep(self) -> dict[str, torch.Tensor]:
        """Small arrays of all images, in the order of the task's test data."""
        short = torch.int16 if self.y.max() < 1 << 15 else torch.int32
        return {
            "label": self.y.to(short),
            "predicted": self.numbers.to(short),  # -1: its logits were NaN
            "probability": self.values["confidence"],
            "entropy": self.values["entropy"],
        }


class Measured(NamedTuple):
    """What a test came to."""

    rows: dict[str, Row]  # accuracies by predictor
    measures: dict[str, dict[str, Row]]  # by name, then by predictor
    predictions: dict[str, dict[int, dict[str, torch.Tensor]]]  # to be kept, by predictor and task


class Evaluator:
    """Measures rows of the accuracy matrix.

    A learner that is not told the task is tested on mini-batches in which the images of all tasks are mixed,
    so that it cannot find out. It is tested as a copy that is thrown away, on images of its own.
    """

    def __init__(self, stream: Stream, settings: Training, device: torch.device, grants: Grants) -> None:
        self.stream, self.settings, self.device, self.grants = stream, settings, device, grants
        # Whether a learner took outputs out of the choice by itself, in what was predicted so far.
        self.masks = False
        self._kept: dict[int, Split] = {}
        self._mixed: list[tuple[list[Split], list]] = []  # splits that are kept, and mixed batches of them
        self._frozen: dict[tuple[str, int, bool], Predictions] = {}  # that are declared never to change again

    @property
    def tasks(self) -> range:
        return range(len(self.stream))

    def tasks_to_test(self, learned: int) -> range:
        """The tasks that ``trainer.evaluate`` wants measured after learning so many."""
        tasks = len(self.stream)
        if self.settings.evaluate == "final":
            return range(tasks if learned == tasks else 0)
        return range(learned if self.settings.evaluate == "seen" else tasks)

    def measure(self, predictors: Iterable[tuple[str, Learner]], learned: int) -> Measured:
        """One row a predictor: the accuracy on every task, None where it cannot predict or was not to be
        tested. Predictors are asked for one after the other, and only where there is something to test."""
        if not self.tasks_to_test(learned):
            return Measured({"": self.accuracies({})}, {}, {})
        names, keeps = self.settings.measures, self.settings.keep_predictions
        test = Measured({}, {name: {} for name in names}, {})
        asked = dict.fromkeys((*names, *("confidence", "entropy") * keeps))
        for name, predictor in predictors:
            if not test.rows and (learned == 1 or self.settings.evaluate == "final"):
                self.look(predictor)
            found = self.found(predictor, learned, name=name, asked=tuple(asked))
            del predictor  # before the next one is made
            test.rows[name] = self.accuracies(found)
            for measure, rows in test.measures.items():
                rows[name] = [found[task].measure(measure) if task in found else None for task in self.tasks]
            if keeps:
                test.predictions[name] = {task: of_task.to_keep() for task, of_task in sorted(found.items())}
        return test

    def look(self, predictor: Learner) -> None:
        """Warn where predictions for some images of the first task depend on what else is in their batch."""
        tested, test = self.copy_of(predictor), self.test(0)
        if not self.able(tested, [0]):
            return

        def numbers(rows: torch.Tensor, seed: int = 0) -> torch.Tensor:
            x, y, task = test.gather(rows)
            some = Split(x, y, task)
            return self.predictions(tested, [0], lambda _: some, ("look", seed))[0].numbers

        together = numbers(torch.arange(min(len(test), LOOKED_AT)))
        order = together.argsort()  # so that each part is of few classes
        apart = torch.cat([numbers(part) for part in order.tensor_split(1 + len(order) // 16)])
        changed = int((apart != together[order]).sum())
        if changed > len(order) // 50 and together.equal(numbers(torch.arange(len(order)), seed=1)):
            warnings.warn(
                f"{type(predictor).__name__} predicts {changed} of {len(order)} test images otherwise in "
                "other company: is batch normalisation in training mode, or does forward mix the images?",
                stacklevel=2,
            )

    def probe(self, predictor: Learner, learned: int) -> Row:
        """A row in the middle of a task: of all tasks, or of those begun if only seen ones are evaluated; on
        some of their images."""
        seen = range(learned if self.settings.evaluate == "seen" else len(self.stream))
        return self.row(predictor, learned, seen, probing=True)

    def row(
        self, predictor: Learner, learned: int, tasks: Sequence[int] | None = None, probing: bool = False
    ) -> Row:
        return self.accuracies(self.found(predictor, learned, tasks, probing))

    def found(
        self,
        predictor: Learner,
        learned: int,
        tasks: Sequence[int] | None = None,
        probing: bool = False,
        name: str = "",
        asked: tuple[str, ...] = (),
    ) -> dict[int, Predictions]:
        """What it predicts, by task, with the measures that are asked for. What is frozen is known."""
        tasks = self.tasks_to_test(learned) if tasks is None else tasks
        if not tasks:  # a copy of a learner that grows takes long
            return {}
        tested = self.copy_of(predictor)
        able = self.able(tested, tasks)
        frozen = [task for task in able if predictor.frozen_predictions and learned > task + probing]
        # The last row: what is declared frozen is looked at again.
        whole = learned == len(self.stream) and not probing
        keys = {task: (name, task, probing) for task in frozen if not whole}
        known = {task: self._frozen[key] for task, key in keys.items() if key in self._frozen}
        rest = [task for task in able if task not in known]
        split_of = (lambda task: self.subset(self.test(task))) if probing else self.test
        # A network that draws at test draws the same for what is declared frozen, whatever was learned since.
        key = ("evaluate",) if predictor.frozen_predictions else ("evaluate", learned)
        found = known | self.predictions(tested, rest, split_of, key, asked)
        for task in frozen:
            before = self._frozen.setdefault((name, task, probing), found[task])
            if not torch.equal(before.numbers, found[task].numbers):
                raise ProtocolError(
                    f"{type(predictor).__name__} declares frozen_predictions=True, but its predictions for "
                    f"task {task} have changed.",
                    "Freeze all that they depend on, running statistics too, or leave it out: every task is "
                    "tested whole then.",
                )
        warn_of_nan(predictor, "test", found)
        return found

    def validate(self, predictor: Learner) -> Row:
        """The accuracy on every task's validation examples, those that candidates were scored on, predicted
        as test examples are. None where a task has none, or cannot be predicted."""
        tested = self.copy_of(predictor)
        with_val = [task for task in range(len(self.stream)) if len(self.stream.recipe(task).val)]
        able = self.able(tested, with_val)
        found = self.predictions(tested, able, self.stream.validation, ("validate",))
        warn_of_nan(predictor, "validation", found)
        return self.accuracies(found)

    def accuracies(self, found: Mapping[int, Predictions]) -> Row:
        return [found[task].accuracy if task in found else None for task in self.tasks]

    def copy_of(self, predictor: Learner) -> Learner:
        """A copy of the predictor, which is asked and tested in its place, and thrown away."""
        self.grants.check(predictor)
        return copied(predictor).to(self.device).eval()

    def able(self, tested: Learner, tasks: Iterable[int]) -> list[int]:
        """The tasks that it can predict: asked before it sees any image."""
        with running(tested, "predicts"):
            return [task for task in tasks if tested.predicts(task)]

    # ---- predictions ---------------------------------------------------------------------------------------

    @torch.no_grad()
    def predictions(
        self,
        tested: Learner,
        tasks: Sequence[int],
        split_of: Callable,
        key: tuple,
        asked: tuple[str, ...] = (),
    ) -> dict[int, Predictions]:
        """Predictions by task, on the CPU, -1 where logits are NaN, with these measures. The learner is told
        the task only if it declared so."""
        found: dict[int, Predictions] = {}
        if tested.needs.task_id_at_test:
            for task in tasks:
                split = split_of(task)
                with seeded(tested.seed, *key):  # the same for all: draws tell nothing of the task
                    batches = self.batches(split.x, split.y, split.task)
                    told = joined([self.predict(tested, x, y, t, task, asked) for x, y, t in batches])
                found[task] = Predictions(told.pop(""), split.y, told)
            return found
        for window in windows(tasks, split_of):
            with seeded(tested.seed, *key):
                columns = self.mixed(tested, list(window.values()), asked)
            for task, *of_task in zip(window, *columns.values()):
                values = dict(zip(columns, of_task))
                found[task] = Predictions(values.pop(""), window[task].y, values)
        return found

    def mixed(
        self, tested: Learner, splits: list[Split], asked: tuple[str, ...]
    ) -> dict[str, Sequence[torch.Tensor]]:
        """Columns of ``predict``, each by split: every batch has a part of each, in an order of its own."""
        y_of, task_of = (torch.cat(part) for part in zip(*(split.parts[1:] for split in splits)))
        batches = [
            (rows, self.predict(tested, x, y_of[rows], task_of[rows], None, asked))
            for rows, x in self.mixed_batches(splits)
        ]
        order = torch.cat([rows for rows, _ in batches]).argsort()
        columns = joined([part for _, part in batches])
        return {name: column[order].split([*map(len, splits)]) for name, column in columns.items()}

    def mixed_batches(self, splits: list[Split]) -> Iterable[tuple[torch.Tensor, torch.Tensor]]:
        """Numbers of the images in a batch, and the images. Those of kept splits are kept themselves."""
        known = [batches for mixed, batches in self._mixed if mixed == splits]
        if known:
            return known[0]
        self._mixed = [each for each in self._mixed if set(splits).isdisjoint(each[0])]
        count = -(-sum(map(len, splits)) // self.settings.eval_batch_size)
        made = batches_of(splits, count)
        if not set(splits).issubset(self._kept.values()):
            return made
        self._mixed.append((splits, list(made)))
        return self._mixed[-1][1]

    def batches(self, *tensors: torch.Tensor) -> Iterator[tuple[torch.Tensor, ...]]:
        return zip(*(tensor.split(self.settings.eval_batch_size) for tensor in tensors))

    def predict(
        self,
        tested: Learner,
        x: torch.Tensor,
        y: torch.Tensor,
        task_of: torch.Tensor,
        task_id: int | None,
        asked: tuple[str, ...],
    ) -> dict[str, torch.Tensor]:
        """Of one batch, of which it gets a copy: output numbers (n,) under the name "", and the values (n,)
        of measures by name. ``y`` and ``task_of`` (n,) are for measures and the evaluator's masks alone."""
        head = self.stream.head
        logits = self.draws(tested, x, task_id)
        self.masks = self.masks or bool((logits < MASKED).any())
        y, task_of = y.to(logits.device), task_of.to(logits.device)
        logits = head.mask(logits, task_of) if head.masks_test else logits
        columns = {"": predicted(averaged(logits))}
        if asked:
            log_p = logits.float().log_softmax(-1)
            columns |= {name: MEASURES[name].function(log_p, y) for name in asked}
        return {name: column.cpu() for name, column in columns.items()}

    def draws(self, tested: Learner, x: torch.Tensor, task_id: int | None) -> torch.Tensor:
        """The draws of logits (draws, n, outputs) that a learner gives for a batch."""
        hook = "forward" if type(tested).samples is Learner.samples else "samples"
        try:
            with running(tested, hook):
                logits = tested.samples(x.to(self.device, copy=True), task_id)
        except LearnerError as error:
            hint = (
                "If it must be told the task of the images, declare so: needs = Needs(task_id_at_test=True)."
            )
            raise LearnerError(f"{error}\n{hint}" if task_id is None else str(error)) from error.__cause__
        wanted = (len(x), self.stream.head.num_outputs)
        if logits.ndim != 3 or not len(logits) or logits.shape[1:] != wanted:
            shape = tuple(logits.shape[hook == "forward" :])
            raise Refusal(
                f"{type(tested).__name__}.{hook} gave logits of shape {shape} for {len(x)} images; this "
                f"stream has {wanted[1]} outputs, so they must be "
                f"{wanted if hook == 'forward' else ('draws', *wanted)}."
            )
        return logits

    # ---- images --------------------------------------------------------------------------------------------

    def subset(self, test: Split) -> Split:
        """Examples for a probe: all, or so many by chance, the same at each."""
        most = self.settings.probe_examples
        if most is None or most >= len(test):
            return test
        rows = torch.randperm(len(test), generator=rng("probe", len(test)))[:most].sort().values
        return Split(test.x[rows], test.y[rows], test.task[rows])

    def test(self, task: int) -> Split:
        """A task's test examples, as many of them kept in memory as fit."""
        if task in self._kept:
            return self._kept[task]
        split = self.stream.test(task)
        if sum(s.x.nbytes for s in (*self._kept.values(), split)) <= KEPT_BYTES:
            # The first stay: tasks are tested in turn, so the latest would always be the wrong ones.
            self._kept[task] = split
        return split


def joined(parts: Sequence[Mapping[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """Columns of batches, one behind the other."""
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


def batches_of(splits: Sequence[Split], count: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """So many batches, a part of each split in each: numbers of the images among all, and the images."""
    sizes = [len(split) for split in splits]
    rows_of = zip(*(rows.tensor_split(count) for rows in torch.arange(sum(sizes)).split(sizes)))
    images_of = zip(*(split.x.tensor_split(count) for split in splits))
    for rows, x in zip(map(torch.cat, rows_of), map(torch.cat, images_of)):
        order = shuffled(len(rows))
        yield rows.index_select(0, order), x.index_select(0, order)


@cache
def shuffled(count: int) -> torch.Tensor:
    """The order of so many images in a mixed batch."""
    return torch.randperm(count, generator=rng("mixed", count))


def windows(tasks: Iterable[int], split_of: Callable[[int], Split]) -> Iterator[dict[int, Split]]:
    """Consecutive tasks whose images fit in memory together."""
    window: dict[int, Split] = {}
    for task in tasks:
        split = split_of(task)
        if window and sum(other.x.nbytes for other in window.values()) + split.x.nbytes > MIXED_BYTES:
            yield window
            window = {}
        window[task] = split
    if window:
        yield window


def warn_of_nan(predictor: Learner, split: str, found: Mapping[int, Predictions]) -> None:
    """Say how many images of which tasks count as wrong because their logits are NaN."""
    nan_counts = {task: int((of_task.numbers < 0).sum()) for task, of_task in found.items()}
    parts = [f"{count} of {len(found[task].y)} of task {task}" for task, count in nan_counts.items() if count]
    if parts:
        warnings.warn(
            f"{type(predictor).__name__} gave NaN logits for {split} images, which count as wrong: "
            f"{', '.join(parts)}. A lower learning rate or trainer.clip may help.",
            stacklevel=2,
        )
