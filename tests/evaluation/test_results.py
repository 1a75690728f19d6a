"""What results.json says of a run whose every accuracy is known beforehand."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

from cl_lightning.data.sources.cache import Images, Pool
from cl_lightning.data.streams.recipes import split
from cl_lightning.evaluation.evaluator import Evaluator
from cl_lightning.learners import Finetune
from cl_lightning.report.groups import groups_in
from cl_lightning.runs import run as experiment
from tests.commands import run

LR = 0.05
STEPS = 4  # mini-batches a task
TEST = (20, 10, 20)  # images of each task
AFTER = ((2, 3, 6), (18, 4, 3), (19, 8, 10), (12, 7, 13))  # right answers by task, after 0, 1, 2, 3 tasks
DURING = ((5, 9, 12), (5, 4, 7), (6, 10, 11))  # to the task that is learned, after 1, 2, 3 mini-batches of it

MATRIX = [[0.10, 0.30, 0.30], [0.90, 0.40, 0.15], [0.95, 0.80, 0.50], [0.60, 0.70, 0.65]]
METRICS = {  # no two alike, with and without sign
    "average_accuracy": (0.60 + 0.70 + 0.65) / 3,  # pooled over images it would be 0.64
    "learning_accuracy": (0.90 + 0.80 + 0.65) / 3,
    "backward_transfer": ((0.60 - 0.90) + (0.70 - 0.80)) / 2,
    "forward_transfer": ((0.40 - 0.30) + (0.50 - 0.30)) / 2,
    "forgetting": ((0.90 - 0.60) + (0.80 - 0.70)) / 2,
    "forgetting_from_best": ((0.95 - 0.60) + (0.80 - 0.70)) / 2,
}
CURVES = [  # of each task while it is learned; after its four mini-batches the last value counts on
    [0.10, 0.25, 0.45, 0.60, 0.90, 0.90],
    [0.40, 0.50, 0.40, 0.70, 0.80, 0.80],
    [0.50, 0.30, 0.50, 0.55, 0.65, 0.65],
]


def right(learned: int, step: int, task: int) -> int:
    """How many of a task's test images are answered rightly, ``step`` mini-batches after ``learned``
    tasks."""
    learned, step = (learned + 1, 0) if step == STEPS else (learned, step)
    return DURING[learned][step - 1] if step and task == learned else AFTER[learned][task]


class Steps(nn.Module):
    """Counts its mini-batches: under Adam, a gradient of 1 makes every step as long as the learning rate."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Parameter(torch.zeros(1))

    def forward(self, x, task=None):
        """The first pixel is the class, the second the number in the task. Wrong is the task's other
        class."""
        learned, step = divmod(round(-self.down.item() / LR), STEPS)
        label, number = ((x[:, 0, 0, i] * 255).round().long() for i in range(2))
        known = torch.tensor([right(learned, step, task) for task in range(3)])
        return F.one_hot(torch.where(number < known[label // 2], label, label ^ 1), 6).float()


class Recites(Finetune):
    """Answers as the tables say."""

    def fresh(self, *key, **options):
        return Steps()

    def loss(self, c, batch):
        return c.network.down.sum()


def pool(counts: tuple[int, ...]) -> Pool:
    """Tasks of two classes. Images of odd ones are white, of even ones black, but for the first two
    pixels."""
    y = torch.cat([2 * task + torch.arange(count) % 2 for task, count in enumerate(counts)])
    x = (y % 2 * 255).to(torch.uint8)[:, None, None, None].expand(-1, 1, 6, 6).clone()
    x[:, 0, 0, 0], x[:, 0, 0, 1] = y, torch.cat([torch.arange(count) for count in counts])
    return Pool(x, y)


@pytest.fixture
def recited(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    source = Images("known", tuple("abcdef"), pool((40, 40, 40)), pool(TEST), "known")
    sizes = {"n_train": 20, "n_val": 8, "n_test": None}
    s = split(source, seed=0, tasks=3, classes_per_task=2, head="multi_train_test", **sizes)
    monkeypatch.setattr(experiment, "build_stream", lambda cfg: s)
    learner = "learner._target_=tests.evaluation.test_results.Recites"
    short = ("selection=none", "trainer.patience=null", "trainer.max_epochs=2", "trainer.batch_size=10")
    return lambda *overrides: run(tmp_path, learner, *short, f"trainer.lr={LR}", *overrides)


def near(rows: list[list[float | None]]) -> list:
    return [[None if value is None else pytest.approx(value) for value in row] for row in rows]


def test_rows_are_tasks_learned_and_columns_tasks_tested(recited) -> None:
    assert recited()["accuracy_matrix"] == near(MATRIX)


def test_metrics_are_those_of_their_names(recited, tmp_path: Path) -> None:
    metrics = recited()["metrics"]
    assert {name: metrics[name] for name in METRICS} == pytest.approx(METRICS)
    (group,) = groups_in([tmp_path])
    for column in ("average_accuracy", "backward_transfer", "forward_transfer", "forgetting_from_best"):
        assert group.values[column] == [pytest.approx(METRICS[column])], column


SEEN = [[None] * 3, [0.90, None, None], [0.95, 0.80, None], MATRIX[3]]
FINAL = [[None] * 3] * 3 + [MATRIX[3]]


@pytest.mark.parametrize(
    ("evaluate", "matrix", "known"),
    [
        ("seen", SEEN, METRICS.keys() - {"forward_transfer"}),
        ("final", FINAL, {"average_accuracy"}),
    ],
)
def test_what_was_not_asked_is_null_and_so_are_metrics_that_need_it(recited, evaluate, matrix, known) -> None:
    results = recited(f"trainer.evaluate={evaluate}", "trainer.probe_at=[2]")
    assert results["accuracy_matrix"] == near(matrix)
    for name, value in METRICS.items():
        assert results["metrics"][name] == (pytest.approx(value) if name in known else None), name
    for probe in results["probes"]:  # of all tasks, or of those begun
        begun = probe["task"] + 1 if evaluate == "seen" else 3
        assert [accuracy is not None for accuracy in probe["accuracies"]] == [j < begun for j in range(3)]


def test_probes_follow_each_task_and_their_area_is_the_mean_of_the_first_six(recited) -> None:
    results = recited("trainer.probe_at=[0,1,2,3,4,5]")
    assert [(p["task"], p["step"]) for p in results["probes"]] == [(t, b) for t in range(3) for b in range(5)]
    for probe in results["probes"]:
        task, step = probe["task"], probe["step"]
        expected = list(MATRIX[task + (step == STEPS)])
        expected[task] = CURVES[task][step]
        assert probe["accuracies"] == pytest.approx(expected)
    area = sum(sum(curve) / 6 for curve in CURVES) / 3
    assert results["metrics"]["learning_curve_area"] == pytest.approx(area)


def test_the_area_needs_a_look_before_the_first_mini_batch(recited) -> None:
    assert "learning_curve_area" not in recited("trainer.probe_at=[1,2,3]")["metrics"]


def test_a_probe_of_some_images_counts_these_alone(recited, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same five of each task at every probe; whole rows stay whole."""
    looked_at: list[tuple[int, tuple[int, ...]]] = []
    original = Evaluator.predict

    def noting(self, tested, x, y, task_of, told, asked):
        numbers = (x[:, 0, 0, 1] * 255).round().int()
        for task in range(3) if len(x) == 15 else ():  # five of each task, mixed
            looked_at.append((task, tuple(sorted(numbers[task_of == task].tolist()))))
        return original(self, tested, x, y, task_of, told, asked)

    monkeypatch.setattr(Evaluator, "predict", noting)
    results = recited("trainer.probe_at=[1,3]", "trainer.probe_examples=5")
    some = {task: numbers for task, numbers in looked_at if len(numbers) == 5}
    assert sorted(task for task, numbers in looked_at if numbers == some[task]) == sorted([0, 1, 2] * 6)
    assert all(len(set(numbers)) == 5 and max(numbers) < TEST[task] for task, numbers in some.items())
    for probe in results["probes"]:
        expected = [sum(n < right(probe["task"], probe["step"], j) for n in some[j]) / 5 for j in range(3)]
        assert probe["accuracies"] == pytest.approx(expected)
    assert results["accuracy_matrix"] == near(MATRIX)


def test_transfer_is_the_accuracy_at_the_end_less_that_of_learning_the_last_task_alone(recited) -> None:
    """Whoever looks at pixels learns black and white at once: more than is known of task 2 at the end."""
    results = recited("reference=true", "backbone.sizes=[32]")
    reference = results["reference"]
    assert reference["task"] == 2
    assert reference["accuracy"] >= 0.9
    assert reference["transfer"] == pytest.approx(0.65 - reference["accuracy"])
