"""Test data are the evaluator's, and it tells nobody what it need not."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

from cl_lightning.data.streams.show import Show
from cl_lightning.data.streams.stream import Stream
from cl_lightning.data.task import Split
from cl_lightning.errors import Refusal
from cl_lightning.evaluation import evaluator as module
from cl_lightning.evaluation.evaluator import Evaluator
from cl_lightning.learners import Finetune, Needs
from cl_lightning.protocol import Grants, ProtocolError
from tests import toys
from tests.toys import builder

CPU = torch.device("cpu")


def a_split(head: str, n_val: int = 0):
    return toys.pairs_of_classes(head, n_train=20, n_val=n_val)


class Says(Finetune):
    """Predicts output 0 first, then 1, 2, 3; notes what it is told."""

    heard: list = []  # of the class: testing is done by copies

    def forward(self, x, task):
        self.heard.append(task)
        return torch.tensor([4.0, 3.0, 2.0, 1.0]).expand(len(x), 4)


class Needy(Says):
    needs = Needs(task_id_at_test=True)


@pytest.mark.parametrize(
    ("head", "row"), [("single", [0.5, 0.0]), ("multi_test", [0.5, 0.5]), ("multi_train_test", [0.5, 0.5])]
)
def test_outputs_of_other_tasks_are_masked_where_the_head_mode_says(head: str, row: list[float]) -> None:
    s = a_split(head)
    assert Evaluator(s, toys.one_epoch(), CPU, Grants()).row(Says(build=builder(s), head=s.head), 1) == row


def test_the_task_is_told_only_to_those_who_declared_the_need() -> None:
    s = a_split("single")
    heard = []
    for cls in (Says, Needy):
        Says.heard.clear()
        Evaluator(s, toys.one_epoch(), CPU, Grants()).row(cls(build=builder(s), head=s.head), 1)
        heard.append(list(Says.heard))
    assert heard == [[None], [0, 1]], "one mini-batch of both tasks, or one of each"


def test_a_backbone_with_task_heads_declares_the_need_for_its_learner() -> None:
    s = a_split("multi_train_test")
    assert Finetune(build=builder(s, heads="per_task"), head=s.head).needs.task_id_at_test
    assert not Finetune(build=builder(s), head=s.head).needs.task_id_at_test


@pytest.mark.parametrize(
    ("evaluate", "asked"), [("all", [3, 3, 3, 3]), ("seen", [0, 1, 2, 3]), ("final", [0, 0, 0, 3])]
)
def test_tasks_that_are_not_asked_for_are_null(evaluate: str, asked: list[int]) -> None:
    s = toys.stream()
    evaluator = Evaluator(s, toys.one_epoch(evaluate=evaluate), CPU, Grants())
    for learned, count in enumerate(asked):
        row = evaluator.row(Finetune(build=builder(s), head=s.head), learned)
        assert [value is not None for value in row] == [True] * count + [False] * (3 - count)


class SeesBrightness(Finetune):
    """Says class 1 of bright images, class 0 of dark ones: permutations of pixels change nothing."""

    def forward(self, x, task):
        bright = (x.sum((1, 2, 3)) * 255 > LIGHT).long()
        return F.one_hot(bright, 4).float()


TEST = toys.images().test
LIGHT = int(TEST.x.sum((1, 2, 3)).median()) + 0.5  # between two sums of bytes: no rounding decides
RIGHT = (TEST.y == (TEST.x.sum((1, 2, 3)) > LIGHT)).sum().item() / 200


@pytest.mark.parametrize("size", [7, 200, 1000])
def test_an_accuracy_is_the_share_of_all_test_images_whatever_the_batches(size: int) -> None:
    s = toys.stream()
    evaluator = Evaluator(s, toys.one_epoch(eval_batch_size=size), CPU, Grants())
    assert 0.1 < RIGHT < 0.9
    assert evaluator.row(SeesBrightness(build=builder(s), head=s.head), 0) == [RIGHT] * 3


def test_test_tensors_beyond_the_limit_are_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    s = toys.stream()
    evaluator = Evaluator(s, toys.one_epoch(), CPU, Grants())
    monkeypatch.setattr(module, "KEPT_BYTES", 2 * evaluator.test(0).x.nbytes)
    for learned in range(2):
        assert evaluator.row(SeesBrightness(build=builder(s), head=s.head), learned) == [RIGHT] * 3
        assert list(evaluator._kept) == [0, 1]


def test_logits_of_the_wrong_shape_are_refused() -> None:
    class Narrow(Finetune):
        def forward(self, x, task):
            return torch.zeros(len(x), 3)

    s = toys.stream()
    with pytest.raises(Refusal, match=r"Narrow\.forward.*4 outputs"):
        Evaluator(s, toys.one_epoch(), CPU, Grants()).row(Narrow(build=builder(s), head=s.head), 0)


class NotesItsMode(Finetune):
    """With dropout and batch norm: what training mode would predict is something else."""

    modes: list = []  # of the class: testing is done by copies

    def forward(self, x, task):
        self.modes.append({module.training for module in self.modules()})
        return super().forward(x, task)


class ToldItsTask(NotesItsMode):
    needs = Needs(task_id_at_test=True)


class Normed(nn.Module):
    def __init__(self, s: Stream, **options: object) -> None:
        super().__init__()
        self.norm, self.network = nn.BatchNorm2d(1), builder(s, dropout=0.5)(**options)

    def forward(self, x, task=None):
        return self.network(self.norm(x), task)


@pytest.mark.parametrize("learner_class", [NotesItsMode, ToldItsTask])
@pytest.mark.parametrize("kind", ["test", "validation", "probes"])
def test_predictions_are_those_of_evaluation_mode(learner_class: type[NotesItsMode], kind: str) -> None:
    """A learner in training mode is tested in evaluation mode, each image's prediction is that by hand, and
    the learner stays as it is."""
    s = toys.stream(n_val=40)
    learner = learner_class(build=partial(Normed, s), head=s.head).train()
    with torch.no_grad():
        learner.network.norm.running_mean += 0.4
        x = s.test(2).x if kind != "validation" else s.task(2).val.x
        by_hand = copy.deepcopy(learner.network).eval()(x).argmax(1)
        assert not torch.equal(by_hand, copy.deepcopy(learner.network)(x).argmax(1))
    before = copy.deepcopy(learner.network.state_dict())
    found, learner.modes[:] = [], []
    evaluator = evaluator_of(s)
    evaluator.accuracies = lambda of_task: found.append(of_task) or []
    {"test": evaluator.row, "validation": evaluator.validate, "probes": evaluator.probe}[kind](
        learner, *([] if kind == "validation" else [3])
    )
    assert torch.equal(found[0][2].numbers, by_hand)
    assert len(learner.modes) > 0
    assert all(modes == {False} for modes in learner.modes)
    assert learner.training
    assert all(torch.equal(value, before[name]) for name, value in learner.network.state_dict().items())


# ---- learners that never forget ----------------------------------------------------------------------------


def test_frozen_predictions_are_asked_for_twice() -> None:
    from cl_lightning.learners import Independent

    asked = []

    class Counting(Independent):
        def forward(self, x, task):
            asked.append((task, len(x)))
            return super().forward(x, task)

    s = toys.stream(tasks=3)
    learned = toys.learn(Counting(build=toys.builder(s), head=s.head, seed=0), s)
    whole = len(s.test(0))
    assert [asked.count((task, whole)) for task in range(3)] == [3, 2, 1], (
        "when it was learned, and once more at the end; the first also to see whether its batches matter"
    )
    assert learned.matrix == toys.learn(Independent(build=toys.builder(s), head=s.head, seed=0), s).matrix


def test_what_is_frozen_and_draws_at_test_draws_the_same_however_many_tasks_were_learned() -> None:
    from cl_lightning.learners import Independent

    class Draws(Independent):
        def forward(self, x, task):
            return torch.randn(len(x), self.head.num_outputs)

    s = toys.stream(tasks=3)
    matrix = toys.learn(Draws(build=toys.builder(s), head=s.head, seed=0), s).matrix
    assert matrix[3][0] == matrix[2][0] == matrix[1][0]


def test_a_learner_that_claims_never_to_forget_and_does_is_refused() -> None:
    class Boasts(Finetune):
        frozen_predictions = True

    s = toys.stream(tasks=2)
    with pytest.raises(
        ProtocolError, match=r"declares frozen_predictions=True, but its predictions for task 0 have changed"
    ):
        toys.learn(Boasts(build=toys.builder(s), head=s.head, seed=0), s)


def test_predictors_of_one_learner_are_remembered_apart() -> None:
    from cl_lightning.learners import Independent

    class Two(Independent):
        def predictors(self, seen):
            halved = copy.deepcopy(self)
            with torch.no_grad():
                for p in halved.parameters():
                    p.mul_(0.5)
            return {"": self, "halved": halved}
            yield

    s = toys.stream(tasks=3)
    assert (
        toys.learn(Two(build=toys.builder(s), head=s.head, seed=0), s).matrix
        == toys.learn(Independent(build=toys.builder(s), head=s.head, seed=0), s).matrix
    )


def test_a_probe_looks_at_all_classes_whatever_their_order() -> None:
    s = toys.stream()
    test = s.test(0)
    class_by_class = Split(*(part[test.y.argsort()] for part in test.parts))
    for each in (test, class_by_class):
        some = Evaluator(s, toys.one_epoch(probe_examples=50), CPU, Grants()).subset(each)
        assert len(some) == 50
        assert all(count > 3 for count in some.y.bincount(minlength=4).tolist())


# ---- validation at the end of the stream -------------------------------------------------------------------


def evaluator_of(s: Stream, **settings: object) -> Evaluator:
    return Evaluator(s, toys.one_epoch(**settings), CPU, Grants())


def val_labels(s: Stream, task: int) -> list[int]:
    """Output numbers of a task's validation examples, read off its recipe."""
    recipe = s.recipe(task)
    return recipe.label_of_class[s.images(recipe).train.y[recipe.val]].tolist()


@pytest.mark.parametrize(
    ("head", "answers"), [("single", [0, 0]), ("multi_test", [0, 2]), ("multi_train_test", [0, 2])]
)
def test_validation_at_the_end_is_that_of_the_validation_examples_masked_as_at_test(
    head: str, answers: list[int]
) -> None:
    s = a_split(head, n_val=15)
    by_hand = [val_labels(s, task).count(answer) / 15 for task, answer in enumerate(answers)]
    assert evaluator_of(s).validate(Says(build=builder(s), head=s.head)) == by_hand
    assert by_hand[0] != 0.5, "as on test examples"
    assert (by_hand[1] == 0) == (head == "single")


def test_at_the_end_the_task_is_told_only_to_those_who_declared_the_need() -> None:
    s = a_split("single", n_val=15)
    heard = []
    for cls in (Says, Needy):
        Says.heard.clear()
        evaluator_of(s).validate(cls(build=builder(s), head=s.head))
        heard.append(list(Says.heard))
    assert heard == [[None], [0, 1]]


def test_at_the_end_a_task_without_validation_examples_or_that_cannot_be_predicted_is_null() -> None:
    class NotTheLast(Says):
        def predicts(self, task):
            return task < 2

    whole = toys.stream(tasks=3, n_val=40)

    def some(index: int):
        recipe = whole.recipe(index)
        return replace(recipe, val=recipe.val[:0]) if index == 0 else recipe

    s = replace(whole, make=some)
    assert evaluator_of(s).validate(NotTheLast(build=builder(s), head=s.head)) == [
        None,
        val_labels(s, 1).count(0) / 40,
        None,
    ]
    assert evaluator_of(toys.stream(n_val=0)).validate(Says(build=builder(s), head=s.head)) == [
        None,
        None,
        None,
    ]


def test_at_the_end_the_examples_are_those_that_candidates_were_scored_on_with_their_augmented_copies() -> (
    None
):
    seen = []

    class Looks(Needy):
        def forward(self, x, task):
            seen.append(x.clone())
            return super().forward(x, task)

    s = toys.stream(tasks=2, n_val=10, show=Show(flip=True, crop=1, val_copies=2))
    evaluator_of(s).validate(Looks(build=builder(s), head=s.head))
    lent = [s.task(task).val.x for task in range(2)]
    assert [len(x) for x in lent] == [30, 30]
    assert all(torch.equal(one, other) for one, other in zip(seen, lent, strict=True))


def test_validation_at_the_end_leaves_the_learner_the_draws_and_later_rows_as_they_were() -> None:
    class Noisy(Finetune):
        def forward(self, x, task):
            return super().forward(x, task) + torch.randn(len(x), 1) * torch.randn(4)

    s = toys.stream()
    learner, evaluator = Noisy(build=builder(s, dropout=0.5), head=s.head), evaluator_of(s)
    before, row = (
        {name: value.clone() for name, value in learner.network.state_dict().items()},
        evaluator.row(learner, 3),
    )
    torch.manual_seed(5)
    drawn = torch.get_rng_state()
    first = evaluator.validate(learner)
    assert torch.equal(torch.get_rng_state(), drawn)
    assert all(torch.equal(value, before[name]) for name, value in learner.network.state_dict().items())
    assert all(p.grad is None for p in learner.parameters())
    assert evaluator.row(learner, 3) == row
    assert evaluator.validate(learner) == first


# ---- logits that are no numbers ----------------------------------------------------------------------------


class Breaks(Says):
    """Says output 0 of everything, but NaN of every image that is dark in its first pixel."""

    def forward(self, x, task):
        return super().forward(x, task).masked_fill(dark(x)[:, None], torch.nan)


def dark(x: torch.Tensor) -> torch.Tensor:
    return x[:, 0, 0, 0] < 0.5


LOOKS: dict[str, tuple[Callable, Callable]] = {  # what is measured of task 0, and on which examples
    "test": (lambda evaluator, learner: evaluator.row(learner, 0)[0], lambda s: s.test(0)),
    "test again": (
        lambda evaluator, learner: [evaluator.row(learner, n)[0] for n in (1, 2)][-1],
        lambda s: s.test(0),
    ),
    "probes": (lambda evaluator, learner: evaluator.probe(learner, 1)[0], lambda s: s.test(0)),
    "validation": (lambda evaluator, learner: evaluator.validate(learner)[0], lambda s: s.task(0).val),
}


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("frozen", [True, False])
def test_images_whose_logits_are_nan_are_wrong_and_one_sentence_counts_them(look: str, frozen: bool) -> None:
    s = toys.stream(tasks=2)
    measured, examples = LOOKS[look]
    learner, split = Breaks(build=builder(s), head=s.head), examples(s)
    learner.frozen_predictions = frozen
    broken, n = dark(split.x), len(split.x)
    with pytest.warns(UserWarning, match="NaN") as told:
        accuracy = measured(evaluator_of(s), learner)
    assert accuracy == ((split.y == 0) & ~broken).sum().item() / n
    assert ((split.y == 0) & broken).any(), "nothing would be gained by calling them class 0"
    kind = "validation" if look == "validation" else "test"
    assert all(
        f"Breaks gave NaN logits for {kind} images, which count as wrong: " in str(each.message)
        for each in told
    )
    assert f"{int(broken.sum())} of {n} of task 0" in str(told[-1].message)
    assert len(told) == (2 if look == "test again" else 1), "one sentence a row, whatever the number of tasks"


def test_outputs_that_are_masked_may_be_nan_and_infinite_logits_are_numbers() -> None:
    class InOthers(Says):
        def forward(self, x, task):
            return torch.tensor([1.0, -torch.inf, torch.nan, torch.nan]).expand(len(x), 4)

    s = a_split("multi_test")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert evaluator_of(s).row(InOthers(build=builder(s), head=s.head), 0, range(1)) == [0.5, None]
