"""Runs of several learners on two streams, made by hand: what figures and pages are tried on."""

from __future__ import annotations

import random
from typing import Any

from cl_lightning.metrics.table import metrics_of
from cl_lightning.report.schema import Results
from tests.report.whole import task, task_costs, whole_results


def run(learner: str, seed: int, stream: str = "rotations", tasks: int = 5, height: float = 0.5) -> Results:
    """A learner that forgets; its accuracies are drawn by name, stream and seed."""
    draw = random.Random(f"{learner} {stream} {seed}")
    matrix: list[list[float | None]] = [
        [round(height + 0.3 * draw.random() - 0.02 * max(0, i - j), 3) for j in range(tasks)]
        for i in range(tasks + 1)
    ]
    costs: list[dict[str, Any]] = []
    for i in range(tasks):
        held = {"parameters": 4_000_000 * (i + 1 if learner == "modular" else 1), "memory.x": 1000 * i}
        flops = {"published_flops": 10**12 * (i + 1), "flops": 10**13 * (i + 1)}
        costs.append({**task_costs(i, train=1.5, cpu=1.0), "held": held, **flops})
    notes: list[dict[str, Any]] = [{} for _ in range(tasks)]
    if learner == "modular":
        notes = [
            {"kind": "module_paths", "path": [0, *range(3 * i + 1, 3 * i + 4)], "reused": 1, "sources": [0]}
            for i in range(tasks)
        ]
    metrics = {**metrics_of(matrix), "learning_curve_area": draw.random() / 2}
    named = [{**task(), "name": f"{stream} {i}"} for i in range(tasks)]
    return whole_results(
        name=stream, learner=learner, seed=seed, fingerprint=f"{learner}{stream}", accuracy_matrix=matrix,
        metrics=metrics, costs=costs, notes=notes,
        stream={"name": stream, "fingerprint": stream, "images": {}, "tasks": named},
        reference={"task": tasks - 1, "accuracy": 0.5, "transfer": round(draw.random() - 0.5, 3)},
        command=[f"learner={learner}", f"seed={seed}"],
        card=[{"rule": "causality", "verdict": "satisfied", "evidence": "validation <data> & no test data"}],
    )  # fmt: skip


def several(tasks: int = 5) -> list[Results]:
    """Three learners, three seeds, two streams."""
    learners = {"finetune": 0.3, "gem": 0.6, "modular": 0.65}
    return [
        run(name, seed, stream, tasks, height)
        for stream in ("permutations", "rotations")
        for name, height in learners.items()
        for seed in range(3)
    ]
