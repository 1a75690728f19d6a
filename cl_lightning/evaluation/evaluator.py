"""The evaluator: the only one that holds test data. It reports; nothing it measures goes back to a learner."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.nn as nn
from torch.nn.modules.module import register_module_forward_hook

from cl_lightning.data.stream import Stream
from cl_lightning.data.task import Split
from cl_lightning.engine.settings import Training
from cl_lightning.errors import Refusal
from cl_lightning.learners.base import Learner
from cl_lightning.metrics import AccuracyMatrix
from cl_lightning.metrics.accuracy_matrix import predicted
from cl_lightning.protocol import Grants, ProtocolError, running
from cl_lightning.randomness import rng, seeded

TASKS_EXAMINED, IMAGES_EXAMINED = 20, 50  # and so many of each
KEPT_BYTES = 1 << 30  # test tensors kept in memory between evaluations; the rest is made again


@dataclass(frozen=True)
class Examination:
    """What came of predicting test images a second time."""

    told: bool  # whether the learner is given the number of the task
    tasks: int
    images: int
    changed: int  # predictions that differ: told another task, or among images of all tasks
    layers: int  # different modules that gave the logits, over tasks
    unsteady: int = 0  # predictions that differ when the same images are predicted again with the same draws
    noise: int = 0  # predictions that differ when nothing but the draws is another
    masked: bool = False  # whether it gave logits of -inf


@dataclass(frozen=True)
class Known:
    """What a learner that does not forget said of a task's test images."""

    x: torch.Tensor  # some of them,
    logits: torch.Tensor  # and what it said of these
    numbers: torch.Tensor  # predicted for all
    y: torch.Tensor


class Evaluator:
    """Measures rows of the accuracy matrix."""

    def __init__(self, stream: Stream, settings: Training, device: torch.device, grants: Grants) -> None:
        self.stream, self.settings, self.device, self.grants = stream, settings, device, grants
        self._kept: dict[int, Split] = {}
        self._known: dict[tuple[str, int, bool], Known] = {}  # of learners that do not forget: by predictor, task, and whether in probes
        self.told = False  # whether a predictor was ever given a task's number

    def asked(self, learned: int) -> range:
        """The tasks that ``trainer.evaluate`` wants measured after learning so many."""
        tasks = len(self.stream)
        if self.settings.evaluate == "final":
            return range(tasks if learned == tasks else 0)
        return range(learned if self.settings.evaluate == "seen" else tasks)

    def measure(self, predictors: Mapping[str, Learner], learned: int) -> dict[str, list[float | None]]:
        """One row a predictor: the accuracy on every task, None where it cannot predict or is not asked."""
        for predictor in predictors.values():
            self.grants.check(predictor)
        return {name: self.row(predictor, learned, name=name) for name, predictor in predictors.items()}

    def probe(self, predictor: Learner, learned: int) -> list[float | None]:
        """A row in the middle of a task: of all tasks, or of those begun if only seen ones are evaluated; on some of their images."""
        return self.row(predictor, learned, range(learned if self.settings.evaluate == "seen" else len(self.stream)), probing=True)

    @torch.no_grad()
    def row(
        self, predictor: Learner, learned: int, tasks: range | None = None, probing: bool = False, name: str = ""
    ) -> list[float | None]:
        matrix, answered = AccuracyMatrix(len(self.stream)), {}
        predictor.to(self.device).eval()
        for task in self.asked(learned) if tasks is None else tasks:
            if predictor.predicts(task):
                with seeded(predictor.seed, "evaluate", learned):  # the same for all tasks, so that draws tell nothing of the task
                    answered[task], y = self.answers(predictor, task, learned, probing, name)
                matrix.update(answered[task], y, learned, task)
        predictor.cpu()  # where it is between phases
        warn_of_nan(predictor, "test", answered)
        row = (matrix.right / matrix.total)[learned].tolist()
        return [None if value != value else value for value in row]

    @torch.no_grad()
    def validate(self, predictor: Learner) -> list[float | None]:
        """The accuracy on every task's validation examples, those that candidates were scored on, predicted as test examples are.
        None where a task has none, or cannot be predicted."""
        accuracies: list[float | None] = [None] * len(self.stream)
        answered = {}
        predictor.to(self.device).eval()
        for task in filter(predictor.predicts, range(len(self.stream))):
            val = self.stream.validation(task)
            if val is not None:
                with seeded(predictor.seed, "validate"):
                    answered[task] = self.predict(predictor, val, task)
                accuracies[task] = (answered[task] == val.y).sum().item() / len(val)
        predictor.cpu()
        warn_of_nan(predictor, "validation", answered)
        return accuracies

    def some(self, test: Split) -> Split:
        """Examples for a probe: all, or so many by chance, the same at each."""
        most = self.settings.probe_examples
        if most is None or most >= len(test):
            return test
        rows = torch.randperm(len(test), generator=rng("probe", len(test)))[:most].sort().values
        return Split(test.x[rows], test.y[rows], test.task[rows])

    def answers(self, predictor: Learner, task: int, learned: int, probing: bool, name: str) -> tuple[torch.Tensor, torch.Tensor]:
        """Predicted and true output numbers (n,). A learner that declares never to forget is asked for all images of a task once; from
        then on for some, whose logits must have kept their bits."""
        settled, key = not predictor.forgets and learned > task + probing, (name, task, probing)
        if settled and key in self._known:
            return self.unchanged(predictor, task, self._known[key])
        test = self.some(self.test(task)) if probing else self.test(task)
        numbers = self.predict(predictor, test, task)
        if settled:
            x = test.x[:IMAGES_EXAMINED].clone()
            self._known[key] = Known(x, self.again(predictor, x, self.given(predictor, task)), numbers, test.y.clone())
        return numbers, test.y

    def unchanged(self, predictor: Learner, task: int, known: Known) -> tuple[torch.Tensor, torch.Tensor]:
        if differ(known.logits, self.again(predictor, known.x, self.given(predictor, task))).any():
            raise ProtocolError(
                f"{type(predictor).__name__} declares forgets=False, but its predictions for task {task} have changed.",
                "Freeze all that they depend on, running statistics too, or leave forgets=True: every task is tested whole then.",
            )
        return known.numbers, known.y

    def given(self, predictor: Learner, task: int) -> int | None:
        return task if predictor.needs.task_id_at_test else None

    def predict(self, predictor: Learner, test: Split, task: int) -> torch.Tensor:
        """Output numbers (n,) on the CPU, -1 where logits are NaN. The learner is told the task only if it declared so."""
        head, numbers = self.stream.head, []
        for x in test.x.split(self.settings.eval_batch_size):
            self.grants.check(predictor)  # who asks for the task only now is found out now
            given = self.given(predictor, task)
            self.told |= given is not None
            with running(predictor, "forward"):
                logits = self.logits(predictor, x.to(self.device), given, task)
            if logits.shape != (len(x), head.outputs):
                raise Refusal(
                    f"{type(predictor).__name__}.forward gave logits of shape {tuple(logits.shape)} for {len(x)} images; this stream has "
                    f"{head.outputs} outputs, so they must be {(len(x), head.outputs)}."
                )
            numbers.append(predicted(head.mask(logits, task) if head.masks_test else logits).cpu())
        return torch.cat(numbers)

    # ---- what predictions depend on --------------------------------------------------------------------------

    @torch.no_grad()
    def examine(self, predictor: Learner) -> Examination:
        """Predict some test images again: told another task than their own or, if it is told none, mixed with images of all tasks."""
        predictor.to(self.device).eval()
        tasks = [task for task in spread(len(self.stream), TASKS_EXAMINED) if predictor.predicts(task)]
        told = predictor.needs.task_id_at_test or self.told
        images = [self.test(task).x[:IMAGES_EXAMINED] for task in tasks]
        layers, own, unsteady, noise = [], [], 0, 0
        for task, x in zip(tasks, images):
            with last_layer(predictor) as last:
                own.append(self.again(predictor, x, task if told else None))
            layers.append(last())
        masked = any((logits == -torch.inf).any() for logits in own)
        if told:
            others = [self.again(predictor, x, tasks[i - 1]) for i, x in enumerate(images)]
            changed = [differ(one, other) for one, other in zip(own, others)]
        else:
            order = torch.randperm(sum(map(len, images)), generator=rng("examine"))
            mixed = self.again(predictor, torch.cat([*images, torch.empty(0, *self.stream.shape)])[order], None)
            alone = torch.cat([*own, mixed[:0]])[order]
            changed = [predicted(alone) != predicted(mixed)] if len(mixed) else []
            unsteady = differing(own, [self.again(predictor, x, None) for x in images])
            noise = differing(own, [self.again(predictor, x, None, "other draws") for x in images])
        predictor.cpu()
        count = int(sum(part.sum() for part in changed))
        return Examination(told, len(tasks), sum(map(len, images)), count, len(set(layers)), unsteady, noise, masked)

    def again(self, predictor: Learner, x: torch.Tensor, task: int | None, draws: str = "") -> torch.Tensor:
        """Logits on the CPU, all drawn noise the same each time; nothing where it does not predict under this task."""
        with seeded(predictor.seed, "examine", draws), running(predictor, "forward"):
            try:
                return predictor(x.to(self.device), task).cpu()
            except (LookupError, ValueError, RuntimeError):
                if task is None:
                    raise
                return torch.empty(0)

    def logits(self, predictor: Learner, x: torch.Tensor, given: int | None, task: int) -> torch.Tensor:
        """What the predictor says, knowing no more than it declared."""
        try:
            return predictor(x, given)
        except ProtocolError:
            raise
        except Exception as reason:
            if given is not None or not works(predictor, x, task):
                raise
            raise ProtocolError(
                f"it works only when told which task the images are from ({type(reason).__name__}: {reason}), and did not declare so.",
                "Declare it: needs = Needs(task_id_at_test=True). The card will say that predictions need the task's number.",
            ) from reason

    def test(self, task: int) -> Split:
        """A task's test examples, as many of them kept in memory as fit."""
        if task in self._kept:
            return self._kept[task]
        split = self.stream.test(task)
        if sum(s.x.nbytes for s in (*self._kept.values(), split)) <= KEPT_BYTES:
            self._kept[task] = split  # the first stay: tasks are tested in turn, so the latest would always be the wrong ones
        return split


def works(predictor: Learner, x: torch.Tensor, task: int) -> bool:
    """Whether it predicts when told the task."""
    try:
        predictor(x, task)
    except Exception:
        return False
    return True


def differing(ones: Sequence[torch.Tensor], others: Sequence[torch.Tensor]) -> int:
    """Predictions that are not the same."""
    return int(sum((predicted(one) != predicted(other)).sum() for one, other in zip(ones, others)))


def differ(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """(n,) For each image, whether its logits differ; NaN is the same as NaN.

    >>> differ(torch.tensor([[0., torch.nan], [1., 2.]]), torch.tensor([[0., torch.nan], [1., 3.]])).tolist()
    [False, True]
    """
    if one.shape != other.shape:
        return torch.ones(len(one), dtype=torch.bool)
    return ((one != other) & ~(one.isnan() & other.isnan())).any(1)


def warn_of_nan(predictor: Learner, split: str, answered: Mapping[int, torch.Tensor]) -> None:
    """Say how many images of which tasks count as wrong because their logits are NaN; ``answered`` has the predictions, by task."""
    lost = {task: int((numbers < 0).sum()) for task, numbers in answered.items()}
    parts = [f"{count} of {len(answered[task])} of task {task}" for task, count in lost.items() if count]
    if parts:
        warnings.warn(
            f"{type(predictor).__name__} gave NaN logits for {split} images, which count as wrong: {', '.join(parts)}. "
            "A lower learning rate or trainer.clip may help.",
            stacklevel=2,
        )


def spread(n: int, most: int) -> list[int]:
    """At most so many of 0 .. n - 1, the first and the last among them.

    >>> spread(3, 20), spread(9, 3)
    ([0, 1, 2], [0, 4, 8])
    """
    return list(range(n)) if n <= most else [round(i * (n - 1) / (most - 1)) for i in range(most)]


@contextmanager
def last_layer(predictor: nn.Module) -> Iterator[Callable[[], str]]:
    """Afterwards: the name of the predictor's module with weights that was called last; empty if none was."""
    called, names = [""], {module: name for name, module in predictor.named_modules()}

    def note(module: nn.Module, *_: object) -> None:
        if module in names and next(module.parameters(recurse=False), None) is not None:
            called[0] = names[module]

    handle = register_module_forward_hook(note)
    try:
        yield lambda: called[0]
    finally:
        handle.remove()
