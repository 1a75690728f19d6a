"""Whole results, made by hand: what report commands read must be as a run writes it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from cl_lightning.metrics.table import metrics_of
from cl_lightning.report.results import sealed, text_of
from cl_lightning.report.schema import Results

COUNTS = ("checkpoint", "flops", "flops_executed", "published_flops", "examples", "replayed")


def whole_results(**parts: Any) -> Results:
    """Results of a run of one task, but for these parts."""
    made: dict[str, Any] = {
        "schema": 6,
        "finished": True,
        "version": {"package": "1.0", "source_hash": "abc", "torch": "2.6"},
        "command": [],
        "name": "gem_rotations",
        "config": {"stream": {"head": "domain"}},
        "needs": {"task_id_at_test": False, "past_data": False},
        "card": [],
        "fingerprint": "f",
        "learner": "gem",
        "seed": 0,
        "stream": stream_of(task()),
        "reference": None,
        "accuracy_matrix": [[None], [0.5]],
        "validation_at_end": None,
        "metrics": metrics_of([[None], [0.5]]),
        "measures": {},
        "own": {"learned": {}, "batches": {}},
        "predictors": {},
        "probes": [],
        "selected": [],
        "notes": [],
        "costs": [task_costs(0)],
        "environment": {},
        "crc": "",
    }
    return sealed(cast(Results, made | parts))


def stream_of(*tasks: dict[str, Any]) -> dict[str, Any]:
    return {"name": "s", "fingerprint": "s", "images": {}, "tasks": list(tasks)}


def task(source: str = "mnist", classes: Sequence[str] = ("0", "1")) -> dict[str, Any]:
    sizes = {"n_train": 1, "n_val": 0, "n_test": 1}
    head = {"mode": "domain", "outputs": [0, 1]}
    return {"name": source, "source": source, "classes": list(classes), **sizes, "head": head}


def task_costs(index: int, **seconds: float) -> dict[str, Any]:
    counts = dict.fromkeys(COUNTS, 0)
    return {
        "task": index,
        "held": {},
        "published_memory": 0,
        "memory_at_test": None,
        **counts,
        "seconds": seconds,
    }


def write_whole_results(folder: Path, **parts: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "results.json"
    path.write_text(text_of(whole_results(**parts)))
    return path
