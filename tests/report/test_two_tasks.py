"""What a run of two tasks comes to by the rules of Pfuelb and Gepperth, read from its probes by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands import finished

TWO = (
    "learner=finetune", "stream=two_tasks", "progress=false", "figures=false",
    "data.sources.mnist.train=2000",
    "data.sources.mnist.test=300", "backbone.sizes=[64]", "stream.n_val=50", 
    "trainer.max_epochs=10", "trainer.patience=null", "trainer.batch_size=20",
    "selection.grid.lr=[0.03,0.003]", "trainer.weight_decay=0", "trainer.probe=all", "trainer.probe_every=4",
)  # fmt: skip


@pytest.mark.parametrize(("kind", "examples"), [("D5-5a", 800), ("D9-1a", 150)])
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


def test_without_probes_there_are_no_such_metrics(tmp_path: Path) -> None:
    results = finished(tmp_path, *TWO[:-2], "stream.n_train=300", small=False)
    assert "prescient" not in results["metrics"]
    assert "average_accuracy" in results["metrics"]
