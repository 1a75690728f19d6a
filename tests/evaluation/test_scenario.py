"""The field's word for a run is right for every head mode, told or not, whatever its tasks share."""

from __future__ import annotations

from dataclasses import asdict

import pytest
import torch

from cl_lightning.evaluation.evaluator import Evaluator
from cl_lightning.evaluation.scenario import scenario, scenario_in
from cl_lightning.learners import Finetune, Needs
from cl_lightning.protocol import Grants
from tests.toys import builder, one_epoch, pairs_of_classes, stream

TOLD, MASKED = "task ids given at test", "outputs of other tasks masked"
SHARED = "all tasks share the outputs, no task ids at test"
COMPETE = "outputs of all tasks compete, no task ids at test"
# By hand, from the outputs that the test goes over in each mode, and from what van de Ven et al. 2022 ask: is
# the task known (given, or given away by a mask), needless (all have the same outputs), or to be found out?
# Columns: mode; tasks of classes of their own, not told, told; tasks of the same classes, not told, told.
TABLE = [
    ("single", "class", COMPETE, "task", TOLD, "domain", SHARED, "task", TOLD),
    ("domain", "domain", SHARED, "task", TOLD, "domain", SHARED, "task", TOLD),
    ("multi_test", *("task", f"{MASKED} at test", "task", f"{TOLD}, {MASKED} at test") * 2),
    (
        "multi_train_test",
        *("task", f"{MASKED} in training and at test", "task", f"{TOLD}, {MASKED} in training and at test")
        * 2,
    ),
]
CASES = [
    pytest.param(mode, tasks, told, *row[2 * place : 2 * place + 2], id=f"{mode}-{tasks}-{told}")
    for mode, *row in TABLE
    for place, (tasks, told) in enumerate(
        (tasks, told) for tasks in ("of their own", "the same") for told in (False, True)
    )
]


class Prefers(Finetune):
    """Always the first output; were that taken away, the third."""

    asked: set[int | None] = set()

    def forward(self, x, task):
        self.asked.add(task)
        return torch.tensor([9.0, 0, 5, 0]).expand(len(x), 4)[:, : self.head.num_outputs]


@pytest.mark.parametrize(("mode", "tasks", "told", "word", "here"), CASES)
def test_the_word_is_the_fields_and_says_what_the_evaluator_does(
    mode: str, tasks: str, told: bool, word: str, here: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    s = pairs_of_classes(mode) if tasks == "of their own" else stream(tasks=2, head=mode)
    found = scenario(mode, s.head.owned, told)
    assert (found.name, found.here) == (f"{word}-incremental", here)
    assert str(found) == f"{word}-incremental ({here})"
    assert scenario_in(s.describe(), asdict(Needs(task_id_at_test=told))) == found
    if tasks == "the same":
        return
    monkeypatch.setattr(Prefers, "asked", set())
    monkeypatch.setattr(Prefers, "needs", Needs(task_id_at_test=told))
    learner = Prefers(build=builder(s), head=s.head, grid=[{}], seed=0)
    accuracies = Evaluator(s, one_epoch(), torch.device("cpu"), Grants()).row(learner, 2)
    given = Prefers.asked == {0, 1}
    masked = mode != "domain" and accuracies == [0.5, 0.5]  # there both tasks have the first output
    assert masked or accuracies == [0.5, 0.5 * (mode == "domain")]
    assert (word == "task") == (given or masked)
    assert ("given" in here, "masked" in here) == (given, masked)


def test_of_one_task_and_of_results_that_do_not_say_there_is_no_scenario() -> None:
    tasks, untold = [{"head": {"mode": "single", "outputs": [0]}}] * 2, {"task_id_at_test": False}
    assert scenario_in(tasks, untold) is not None
    for known, needs in ((tasks[:1], untold), ([{}] * 2, untold), (tasks, {})):
        assert scenario_in(known, needs) is None


def test_tasks_of_a_domain_stream_share_outputs_also_where_one_has_fewer() -> None:
    some, all_ = (0, 1), (0, 1, 2)
    assert scenario("domain", (some, all_), told=False).name == "domain-incremental"
    assert scenario("single", (some, all_), told=False).name == "class-incremental"
