"""What a run of two tasks comes to by the rules of Pfuelb and Gepperth, read from its probes by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from cl_lightning.data.streams.stream import Stream
from cl_lightning.metrics.table import metrics_of
from cl_lightning.report.parts.alphas import figure as alphas
from cl_lightning.report.parts.two_tasks import by_rate, figure
from tests.commands import finished, run
from tests.report.whole import task, whole_results

TWO = (
    "learner=finetune", "stream=two_tasks", "progress=false", "figures=false",
    "data.sources.mnist.train=2000",
    "data.sources.mnist.test=300", "backbone.sizes=[64]", "stream.n_val=50", 
    "trainer.max_epochs=10", "trainer.patience=null", "trainer.batch_size=20",
    "selection.grid.lr=[0.03,0.003]", "trainer.weight_decay=0", "trainer.probe=all", "trainer.probe_every=4",
)  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "examples"), [pytest.param("D5-5a", 800, marks=pytest.mark.all), ("D9-1a", 150)]
)
def test_the_rules_by_hand_of_a_runs_probes(tmp_path: Path, kind: str, examples: int) -> None:
    results = finished(tmp_path, *TWO, f"stream.kind={kind}", f"stream.n_train={examples}", small=False)
    first, second = (task["n_test"] for task in results["stream"]["tasks"])
    curves: dict[str, list[tuple[float, float]]] = {}
    for probe in results["probes"]:
        if probe["task"] == 1:
            d1, d2 = probe["accuracies"]
            both = (first * d1 + second * d2) / (first + second)
            curves.setdefault(probe["candidate"], []).append((d2, both))
    assert list(curves) == ["lr=0.03", "lr=0.003"]
    learned = {name: rows for name, rows in curves.items() if max(d2 for d2, _ in rows) >= 0.5}
    metrics = results["metrics"]
    assert metrics["prescient"] == pytest.approx(max(both for rows in learned.values() for _, both in rows))
    best = max(learned, key=lambda name: max(d2 for d2, _ in learned[name]))
    assert metrics["best_on_both"] == pytest.approx(max(both for _, both in learned[best]))
    assert metrics["last_on_both"] == pytest.approx(learned[best][-1][1])
    at_learned = []
    for rows in learned.values():
        most = max(d2 for d2, _ in rows)
        at_learned.append(next(both for d2, both in rows if d2 > 0.99 * most))
    assert metrics["realistic"] == pytest.approx(max(at_learned))
    assert metrics["last_on_both"] <= metrics["best_on_both"] <= metrics["prescient"]
    if kind == "D9-1a":
        assert metrics["last_on_both"] < 0.3, "one class of ten is left, and weighs a tenth"
    else:
        assert metrics["last_on_both"] != metrics["prescient"]


def test_the_baseline_is_joint_training_with_what_was_chosen_for_the_first_task(tmp_path: Path) -> None:
    """The same network as that of a run of joint training with this rate; omega is best in parts of it."""
    kind = ("stream.kind=D9-1a", "stream.n_train=150")
    results = finished(tmp_path / "two", *TWO, *kind, "reference=joint", small=False)
    rate = next(each for each in results["selected"] if each["where"] == "task0")["hparams"]["lr"]
    alone = ("learner=joint", "learner.at=last_task", "selection=none", f"trainer.lr={rate}")
    own = [word for word in TWO[1:] if not word.startswith("selection.grid")]
    joint = finished(tmp_path / "joint", *own, *kind, *alone, small=False)
    first, second = (task["n_test"] for task in results["stream"]["tasks"])
    d1, d2 = joint["accuracy_matrix"][-1]
    baseline = (first * d1 + second * d2) / (first + second)
    assert results["reference"] == {
        "task": 1,
        "accuracy": pytest.approx(baseline),
        "transfer": None,
        "joint": True,
    }
    metrics = results["metrics"]
    assert metrics["omega_all"] == pytest.approx(metrics["best_on_both"] / baseline)
    d1, d2 = results["accuracy_matrix"][-1]
    assert metrics["end_on_both"] == pytest.approx((first * d1 + second * d2) / (first + second))
    (causality,) = (each for each in results["card"] if each["rule"] == "causality")
    assert causality["verdict"] == "violated"
    assert "choose by test data, as in their papers" in causality["evidence"]
    values = by_rate(results)
    last = {each["candidate"]: each["accuracies"] for each in results["probes"] if each["task"] == 1}
    for rate in (0.03, 0.003):
        d1, d2 = last[f"lr={rate}"]
        assert values[f"last at {rate}"] == pytest.approx((first * d1 + second * d2) / (first + second))
        assert values[f"best at {rate}"] >= values[f"last at {rate}"]
    drawn = figure(results)
    assert [panel.get_title() for panel in drawn.axes] == ["lr=0.03", "lr=0.003"]
    both = {line.get_label(): line.get_ydata()[-1] for line in drawn.axes[0].lines}
    assert both["both"] == pytest.approx(values["last at 0.03"])
    assert both["learned together"] == pytest.approx(baseline)


def test_of_named_predictors_the_best_end_is_told_beside_the_honest_one() -> None:
    """Alphas 0, 1/2 and 1 by hand, nine test images of the first task for each of the second."""
    tasks = [{**task(), "n_test": 90}, {**task(), "n_test": 10}]
    ends = {"alpha=0": [0.9, 0.0], "alpha=0.5": [0.8, 0.6], "alpha=1": [0.1, 1.0]}
    predictors = {name: {"accuracy_matrix": [[0.0, 0.0], [0.0, 0.0], end]} for name, end in ends.items()}
    drawn = alphas(whole_results(stream={"tasks": tasks}, predictors=predictors))
    lines = {line.get_label(): list(line.get_ydata()) for line in drawn.axes[0].lines}
    assert lines["both"] == pytest.approx([0.81, 0.78, 0.19])
    assert list(drawn.axes[0].lines[0].get_xdata()) == [0.0, 0.5, 1.0]
    found = metrics_of([[0.0, 0.0], [0.9, 0.0], [0.8, 0.6]], ends=[0.78, *lines["both"]])
    assert (found["end_on_both"], found["best_end_on_both"]) == (0.78, pytest.approx(0.81))
    assert "best_end_on_both" not in metrics_of([[0.0], [0.9]], ends=[0.9])
    assert alphas(whole_results()) is None


def test_without_probes_there_are_no_such_metrics(tmp_path: Path) -> None:
    results = finished(tmp_path, *TWO[:-2], "stream.n_train=300", small=False)
    assert "prescient" not in results["metrics"]
    assert "average_accuracy" in results["metrics"]


def test_other_test_labels_choose_no_other_topology_rate_or_weights(tmp_path: Path, monkeypatch) -> None:
    """Of the realistic protocol: what is learned on is chosen by validation data. Its judgement, which reads
    test data, is another."""
    found = []
    stages = (
        "selection.stages=[{lr: [0.03, 0.003], backbone.sizes: [[32], [64]]}, {lr: [0.03, 0.003]}]",
        "trainer.restore=best",
    )
    own = [word for word in TWO if not word.startswith("selection.grid")]
    for name in ("plain", "garbled"):
        results = run(tmp_path / name, *own, *stages, "stream.kind=D5-5a", "stream.n_train=200", small=False)
        found.append((results["selected"], results["validation_at_end"], results["probes"]))
        original = Stream.test

        def test(self, index, original=original):
            split = original(self, index)
            split.y.copy_(split.y[torch.randperm(len(split.y), generator=torch.Generator().manual_seed(0))])
            return split

        monkeypatch.setattr(Stream, "test", test)
    assert found[0][:2] == found[1][:2]
    assert found[0][2] != found[1][2]
