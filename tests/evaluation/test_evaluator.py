"""Test data are the evaluator's, and it tells nobody what it need not."""

from __future__ import annotations

import pytest
import torch

from cl_lightning.data.streams import split
from cl_lightning.errors import Refusal
from cl_lightning.evaluation import evaluator as module
from cl_lightning.evaluation.evaluator import Evaluator
from cl_lightning.learners import Finetune, Needs
from cl_lightning.protocol import Grants, ProtocolError
from tests import toys
from tests.toys import builder

CPU = torch.device("cpu")


def a_split(head: str):
    return split(toys.images(), seed=0, tasks=2, classes_per_task=2, n_train=20, n_val=0, n_test=None, head=head)


class Says(Finetune):
    """Predicts output 0 first, then 1, 2, 3; notes what it is told."""

    def forward(self, x, task):
        self.told = [*getattr(self, "told", []), task]
        return torch.tensor([4.0, 3.0, 2.0, 1.0]).expand(len(x), 4)


class Needy(Says):
    needs = Needs(task_id_at_test=True)


@pytest.mark.parametrize(("head", "row"), [("single", [0.5, 0.0]), ("multi_test", [0.5, 0.5]), ("multi_train_test", [0.5, 0.5])])
def test_outputs_of_other_tasks_are_masked_where_the_head_mode_says(head: str, row: list[float]) -> None:
    s = a_split(head)
    assert Evaluator(s, toys.one_epoch(), CPU, Grants()).row(Says(build=builder(s)), 1) == row


def test_the_task_is_told_only_to_those_who_declared_the_need() -> None:
    s = a_split("single")
    plain, needy = Says(build=builder(s)), Needy(build=builder(s))
    for learner in (plain, needy):
        Evaluator(s, toys.one_epoch(), CPU, Grants()).row(learner, 1)
    assert plain.told == [None, None]
    assert needy.told == [0, 1]


def test_a_backbone_with_task_heads_declares_the_need_for_its_learner() -> None:
    s = a_split("multi_train_test")
    assert Finetune(build=builder(s, heads="per_task")).needs.task_id_at_test
    assert not Finetune(build=builder(s)).needs.task_id_at_test


@pytest.mark.parametrize(("evaluate", "asked"), [("all", [3, 3, 3, 3]), ("seen", [0, 1, 2, 3]), ("final", [0, 0, 0, 3])])
def test_tasks_that_are_not_asked_for_are_null(evaluate: str, asked: list[int]) -> None:
    s = toys.stream()
    evaluator = Evaluator(s, toys.one_epoch(evaluate=evaluate), CPU, Grants())
    for learned, count in enumerate(asked):
        row = evaluator.row(Finetune(build=builder(s)), learned)
        assert [value is not None for value in row] == [True] * count + [False] * (3 - count)


def test_batch_size_does_not_change_accuracies() -> None:
    s = toys.stream()
    one, other = (
        Evaluator(s, toys.one_epoch(eval_batch_size=size), CPU, Grants()).row(Finetune(build=builder(s)), 0) for size in (7, 1000)
    )
    assert one == other


def test_test_tensors_beyond_the_limit_are_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    s = toys.stream()
    evaluator = Evaluator(s, toys.one_epoch(), CPU, Grants())
    monkeypatch.setattr(module, "KEPT_BYTES", 2 * evaluator.test(0).x.nbytes)
    row = evaluator.row(Finetune(build=builder(s)), 0)
    assert list(evaluator._kept) == [0, 1]
    assert evaluator.row(Finetune(build=builder(s)), 0) == row


def test_logits_of_the_wrong_shape_are_refused() -> None:
    class Narrow(Finetune):
        def forward(self, x, task):
            return torch.zeros(len(x), 3)

    s = toys.stream()
    with pytest.raises(Refusal, match=r"Narrow\.forward.*4 outputs"):
        Evaluator(s, toys.one_epoch(), CPU, Grants()).row(Narrow(build=builder(s)), 0)


def test_dropout_is_off_at_test() -> None:
    s = toys.stream()
    learner = Finetune(build=builder(s, dropout=0.5)).train()
    evaluator = Evaluator(s, toys.one_epoch(), CPU, Grants())
    assert evaluator.row(learner, 0) == evaluator.row(learner, 0)
    assert not learner.training


# ---- learners that never forget ----------------------------------------------------------------------------------


def test_a_learner_that_never_forgets_is_asked_for_few_images_of_old_tasks() -> None:
    from cl_lightning.learners import Independent

    asked = []

    class Counting(Independent):
        def forward(self, x, task):
            asked.append((task, len(x)))
            return super().forward(x, task)

    s = toys.stream(tasks=3)
    learned = toys.learn(Counting(build=toys.builder(s), seed=0), s)
    whole = len(s.test(0))
    assert [asked.count((task, whole)) for task in range(3)] == [1, 1, 1]
    assert learned.matrix == toys.learn(Independent(build=toys.builder(s), seed=0), s).matrix


def test_a_learner_that_claims_never_to_forget_and_does_is_refused() -> None:
    class Boasts(Finetune):
        forgets = False

    s = toys.stream(tasks=2)
    with pytest.raises(ProtocolError, match=r"declares forgets=False, but its predictions for task 0 have changed"):
        toys.learn(Boasts(build=toys.builder(s), seed=0), s)


def test_predictors_of_one_learner_are_remembered_apart() -> None:
    import copy

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
    assert toys.learn(Two(build=toys.builder(s), seed=0), s).matrix == toys.learn(Independent(build=toys.builder(s), seed=0), s).matrix


def test_a_probe_looks_at_all_classes_whatever_their_order() -> None:
    s = toys.stream()
    some = Evaluator(s, toys.one_epoch(probe_examples=50), CPU, Grants()).some(s.test(0))
    assert len(some) == 50
    assert all(count > 3 for count in some.y.bincount().tolist())
