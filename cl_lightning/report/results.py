"""``results.json``: everything a report may read. ``results.schema.json`` beside this file documents it."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import torch

from cl_lightning import faults
from cl_lightning.journal import Journal, write_whole
from cl_lightning.metrics.accuracy_matrix import all_metrics
from cl_lightning.metrics.learning_curve import learning_curve_area

SCHEMA = 4


def write_results(path: Path, journal: Journal, **known: Any) -> None:
    """Put together what the journal holds of a finished run."""
    start = journal.all("start")[0]
    rows = {row["learned"]: row for row in journal.all("evaluated")}
    in_order = [rows[learned]["rows"] for learned in sorted(rows)]
    main, others = [next(iter(row.values())) for row in in_order], matrices_of(in_order)
    content = {
        "schema": SCHEMA,
        "version": start["version"],
        "command": start["command"],
        **known,
        "reference": reference_of(journal),
        "accuracy_matrix": main,
        "validation_at_end": validation_of(journal),
        "metrics": {**metrics_of(main), **learning_curve(journal)},
        "predictors": {name: {"accuracy_matrix": m, "metrics": metrics_of(m)} for name, m in others.items()},
        "probes": [probe(row) for row in journal.all("probe")],
        "selected": [selected(row) for row in {(row["where"], row["index"]): row for row in journal.all("phase")}.values()],
        "notes": [row["notes"] for row in journal.all("boundary")],
        "costs": [costs(row, rows[row["task"] + 1]) for row in journal.all("boundary")],
        "environment": start["environment"],
    }
    faults.reached("results.write")
    with write_whole(path) as building:
        building.write_text(json.dumps(content, indent=1, allow_nan=False))


def validation_of(journal: Journal) -> dict[str, Any]:
    """Accuracies on validation examples when all tasks had been learned; the mean is over the tasks that have some."""
    row = journal.find("validated")
    assert row is not None, "measured before results are written"
    measured = [accuracy for accuracy in row["accuracies"] if accuracy is not None]
    return {"accuracies": row["accuracies"], "mean": sum(measured) / len(measured) if measured else None}


def probe(row: dict) -> dict:
    """A look at test data, with the candidate's name where all were looked at (trainer.probe=all)."""
    keys = ("task", "phase", "step", *["candidate"] * (row["candidate"] is not None), "accuracies")
    return {key: row[key] for key in keys}


def learning_curve(journal: Journal) -> dict[str, float | None]:
    """The area under the learning curves, where probes looked at their beginnings: in each task's first phase."""
    curves: dict[int, dict[int, float]] = {row["task"]: {} for row in journal.all("boundary")}
    chosen = {row["where"]: row["candidates"][row["winner"]] for row in journal.all("phase") if row["index"] == 0}
    for row in journal.all("probe"):
        of_the_chosen = row["candidate"] in (None, chosen[f"task{row['task']}"])
        if row["phase"] == 0 and of_the_chosen and row["accuracies"][row["task"]] is not None:
            curves[row["task"]][row["step"]] = row["accuracies"][row["task"]]
    area = learning_curve_area(list(curves.values()))
    return {} if area is None else {"learning_curve_area": area}


def reference_of(journal: Journal) -> dict[str, Any] | None:
    """The last task learned by itself, and what the stream's learner gained on it."""
    row = journal.find("reference")
    return {key: row[key] for key in ("task", "accuracy", "transfer")} if row else None


def matrices_of(rows: list[dict[str, list[float | None]]]) -> dict[str, list[list[float | None]]]:
    """One matrix a named predictor; a predictor that was not there at some row has nulls in it."""
    names = dict.fromkeys(name for row in rows for name in row if name)
    tasks = len(next(iter(rows[-1].values())))
    return {name: [row.get(name, [None] * tasks) for row in rows] for name in names}


def metrics_of(matrix: list[list[float | None]]) -> dict[str, float | None]:
    R = torch.tensor([[math.nan if value is None else value for value in row] for row in matrix], dtype=torch.float64)
    values = {name: value.item() for name, value in all_metrics(R).items()}
    return {name: None if math.isnan(value) else value for name, value in values.items()}


def selected(row: dict) -> dict:
    """The winner of a phase."""
    best = row["standings"][row["winner"]]
    return {
        "task": row["task"],
        "where": row["where"],
        "phase": row["name"],
        "candidate": row["candidates"][row["winner"]],
        "candidates": len(row["candidates"]),
        "hparams": row["hparams"][row["winner"]],
        **best,
        "compared": [
            {"candidate": name, "hparams": hparams, **standing}
            for name, hparams, standing in zip(row["candidates"], row["hparams"], row["standings"])
        ],
    }


def costs(boundary: dict, evaluated: dict) -> dict:
    spent, testing = boundary["costs"], evaluated["costs"]  # predictors may train before a test
    seconds = {**spent["seconds"], "evaluate": evaluated["seconds"]}
    return {
        "task": boundary["task"],
        "held": boundary["held"],
        "published_memory": boundary["published_memory"],
        "checkpoint": boundary["stored"],
        "flops": spent["flops"] + testing["flops"],
        "flops_executed": spent["flops_executed"] + testing["flops_executed"],
        "examples": spent["examples"],
        "replayed": spent["replayed"],
        "seconds": {part: round(value, 3) for part, value in seconds.items()},
    }
