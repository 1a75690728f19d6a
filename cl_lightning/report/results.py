"""``results.json``: everything a report may read, made of a run's records whenever it is wanted."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from itertools import chain, takewhile, zip_longest
from pathlib import Path
from typing import Any

from cl_lightning.errors import Refusal
from cl_lightning.evaluation.card import card_of
from cl_lightning.metrics.table import metrics_of
from cl_lightning.report.schema import Results
from cl_lightning.selection.rules import Retraining, on_both
from cl_lightning.store.atomic import write_whole
from cl_lightning.store.files import Store, checksum
from cl_lightning.store.folder import is_writable, open_store, row_key, task_key
from cl_lightning.store.records import (
    CandidateRecord,
    PhaseRecord,
    ReferenceRecord,
    Row,
    RowRecord,
    StartRecord,
    TaskRecord,
    ValidationRecord,
)


def results_of(store: Store, start: StartRecord) -> Results:
    """What the records say, of a finished run or as far as it is."""
    tasks = len(start.stream.tasks)
    learned = loaded(store.load(task_key(i), TaskRecord) for i in range(tasks))
    rows = loaded(store.load(row_key(i), RowRecord) for i in range(tasks + 1))
    validation = store.load("validation", ValidationRecord)
    reference = store.load("reference", ReferenceRecord)
    main = whole((row.first for row in rows), tasks)
    names = dict.fromkeys(name for row in rows for name in row.rows if name)
    others = {name: whole((row.rows.get(name) for row in rows), tasks) for name in names}
    records = [*chain.from_iterable(zip_longest(rows, learned)), reference]  # as they came to be
    phases = [phase for record in records if record for phase in record.phases if not phase.auxiliary]
    trainings, tests = trainings_on_both(learned, start), [task["n_test"] for task in start.stream.tasks]
    known = bool(trainings) and len(rows) > tasks
    finished = (len(learned), len(rows)) == (tasks, tasks + 1) and validation is not None
    finished = finished and (reference is not None or not start.config["reference"])
    results: Any = {
        "schema": 6,
        "finished": finished,
        "version": start.version,
        "command": start.command,
        "name": start.name,
        "config": start.config,
        "needs": start.needs,
        "card": [asdict(finding) for finding in card_of(start, learned, rows)],
        "fingerprint": start.fingerprint,
        "learner": start.learner,
        "seed": start.seed,
        "stream": stream_of(start),
        "reference": None if reference is None else reference_of(reference, main),
        "accuracy_matrix": main,
        "measures": measures_of(rows, tasks),
        "validation_at_end": None if validation is None else validation_of(validation),
        "metrics": metrics_of(
            main,
            learning_curves(learned),
            trainings,
            measures_of(rows, tasks),
            ends=[on_both(matrix[-1], tests) for matrix in (main, *others.values())] if known else [],
            baseline=reference.accuracy if reference and reference.joint else None,
        ),
        "predictors": {
            name: {
                "accuracy_matrix": m,
                "metrics": metrics_of(m, measures=measures_of(rows, tasks, name)),
                "measures": measures_of(rows, tasks, name),
            }
            for name, m in others.items()
        },
        "probes": [probe(each) for task in learned for each in task.probes],
        "selected": [selected(phase) for phase in phases],
        "notes": [task.notes for task in learned],
        "own": own_of([*learned, *rows]),
        "costs": [costs(task, row) for task, row in zip(learned, rows[1:])],
        "environment": start.environment,
        "crc": "",
    }
    return sealed(results)


def recorded(folder: Path) -> Results | None:
    """What the records in a folder say; None where there is no run."""
    found = open_store(folder)
    return None if found is None else results_of(*found)


def sealed(results: Results) -> Results:
    """The results with the checksum of all that they say besides."""
    results["crc"] = checksum({key: value for key, value in results.items() if key != "crc"})
    return results


def measures_of(rows: Sequence[RowRecord], tasks: int, predictor: str | None = None) -> dict[str, list[Row]]:
    """The matrix of each measure: of the predictor by this name, or of the first one of each row."""
    names = [next(iter(row.rows)) if predictor is None else predictor for row in rows]
    return {
        measure: whole((row.measures.get(measure, {}).get(name) for row, name in zip(rows, names)), tasks)
        for measure in dict.fromkeys(measure for row in rows for measure in row.measures)
    }


def whole(rows: Iterable[Row | None], tasks: int) -> list[Row]:
    """A matrix of these rows, with nothing in those that are missing, or not there yet."""
    known = [row or [None] * tasks for row in rows]
    return known + [[None] * tasks] * (tasks + 1 - len(known))


def own_of(records: Sequence[TaskRecord | RowRecord]) -> dict[str, Any]:
    """What was logged, by axis and name; where it was logged again for the same place, the last."""
    curves: dict[str, dict[str, dict[int, float | None]]] = {"learned": {}, "batches": {}}
    for record in records:
        chosen = {None, *(phase.chosen.name for phase in record.phases)}
        probes = [probe for probe in getattr(record, "probes", ()) if probe.candidate in chosen]
        parts = (record, *record.phases, *probes)
        for point in (point for part in parts for point in part.own):
            curves[point.axis].setdefault(point.name, {})[point.at] = point.value
    return {
        axis: {name: [[at, of_one[at]] for at in sorted(of_one)] for name, of_one in sorted(by_name.items())}
        for axis, by_name in curves.items()
    }


def loaded(records: Iterable[Any]) -> list[Any]:
    """Records up to the first that is missing."""
    return list(takewhile(lambda record: record is not None, records))


def write_results(store: Store) -> Results:
    found = open_store(store.folder)
    assert found is not None, "its first record was written first"
    results = results_of(*found)
    with write_whole(store.folder / "results.json") as building:
        building.write_text(text_of(results))
    return results


def write_unfinished(folders: Sequence[Path]) -> list[Path]:
    """Write results.json of all runs below the folders that have none; returns where."""
    written = []
    for folder in run_folders(folders):
        found = open_store(folder)
        if found is not None and not results_of(*found)["finished"]:
            write_results(found[0])
            written.append(folder / "results.json")
    return written


def run_folders(tops: Sequence[Path]) -> list[Path]:
    """Folders of runs; refused where there is none."""
    found = sorted({path.parent for top in tops for path in top.rglob("run.json")})
    if not found:
        raise Refusal(
            f"No run (run.json) lies below {', '.join(map(str, tops))}. Give folders of runs, like "
            "outputs/NAME."
        )
    return found


def text_of(results: Results) -> str:
    return json.dumps(results, indent=1, allow_nan=False)


def finished_results(folder: Path) -> Results | None:
    """The results of a finished run, made of its records again and compared with what lies there; None of one
    that is not finished."""
    path = folder / "results.json"
    found = open_store(folder) if path.is_file() else None
    if found is None:
        return None
    results, written = results_of(*found), path.read_bytes()
    if not results["finished"]:
        if b'\n "finished": true' in written:
            warnings.warn(
                f"{path} is there, but not all of the records that it was made of: what is missing is done "
                "again.",
                stacklevel=2,
            )
        return None
    if written != text_of(results).encode():
        warnings.warn(f"{path} is not what the run's records say: it is made again.", stacklevel=2)
        if is_writable(folder):
            write_results(found[0])
    return results


def reference_of(record: ReferenceRecord, matrix: Sequence[Row]) -> dict[str, Any]:
    """The last task learned by itself, and what the stream's learner gained on it; or both of two tasks
    learned together."""
    own = None if record.joint else matrix[-1][record.task]
    transfer = None if own is None else own - record.accuracy
    joint = {"joint": True} if record.joint else {}
    return {"task": record.task, "accuracy": record.accuracy, "transfer": transfer, **joint}


def validation_of(record: ValidationRecord) -> dict[str, Any]:
    """The mean is over the tasks that have validation examples."""
    measured = [accuracy for accuracy in record.accuracies if accuracy is not None]
    return {"accuracies": record.accuracies, "mean": sum(measured) / len(measured) if measured else None}


def stream_of(start: StartRecord) -> dict[str, Any]:
    keys = ("name", "fingerprint", "images", "tasks")
    return {key: getattr(start.stream, key) for key in keys}


def probe(record: Any) -> dict[str, Any]:
    """A look at test data, with the candidate's name where all were looked at (trainer.probe=all)."""
    keys = ("task", "phase", "step", *["candidate"] * (record.candidate is not None), "accuracies")
    return {key: getattr(record, key) for key in keys}


def learning_curves(learned: Sequence[TaskRecord]) -> list[dict[int, float]]:
    """Each task's own accuracy by mini-batch, where probes looked at it: in its first phase that is not
    auxiliary."""
    curves: list[dict[int, float]] = []
    for task in learned:
        first = next((phase for phase in task.phases if not phase.auxiliary), None)
        names = (None, first.chosen.name) if first else ()
        looks = [p for p in task.probes if first and p.phase == first.place.phase and p.candidate in names]
        known = [(p.step, p.accuracies[task.task]) for p in looks]
        curves.append({step: accuracy for step, accuracy in known if accuracy is not None})
    return curves


def trainings_on_both(learned: Sequence[TaskRecord], start: StartRecord) -> list[Retraining]:
    """The trainings on the second of two tasks, where probes looked at both tasks: one a candidate, in their
    order. Both together weigh as their test examples are many."""
    if len(start.stream.tasks) != 2 or len(learned) != 2:
        return []
    first, second = (looks_at_last_phase(task) for task in learned)
    chosen = (None, *(phase.chosen.name for phase in learned[0].phases[-1:]))
    on_first = [look.accuracies[0] for look in first if look.candidate in chosen]
    tests = [task["n_test"] for task in start.stream.tasks]
    return [
        Retraining(0, on_first, [a[1] for a in rows], [on_both(a, tests) for a in rows])
        for name in dict.fromkeys(look.candidate for look in second)
        if on_first and (rows := [look.accuracies for look in second if look.candidate == name])
    ]


def looks_at_last_phase(task: TaskRecord) -> list[Any]:
    """Probes of a task's last phase that could predict all tasks."""
    last = [phase.place.phase for phase in task.phases if not phase.auxiliary][-1:]
    return [look for look in task.probes if look.phase in last and None not in look.accuracies]


def selected(phase: PhaseRecord) -> dict[str, Any]:
    """The winner of a phase."""
    chosen, place = phase.chosen, phase.place
    return {
        "task": max(0, place.index - 1) if place.part == "predictors" else place.index,
        "where": place.name,
        "phase": phase.name,
        "candidate": chosen.name,
        "candidates": len(phase.candidates),
        "hparams": chosen.hparams,
        **standing(chosen),
        "compared": [{"candidate": c.name, "hparams": c.hparams, **standing(c)} for c in phase.candidates],
    }


def standing(c: CandidateRecord) -> dict[str, Any]:
    own = {} if c.score is None else {"score": c.score}
    return {"val_accuracy": c.val_accuracy, **own, "steps": c.steps, "steps_to_best": c.steps_to_best}


def costs(task: TaskRecord, row: RowRecord) -> dict[str, Any]:
    """What a task cost, its test included: predictors may train before it."""
    seconds = {**task.costs.seconds, "evaluate": row.seconds}  # within which predictors were made
    seconds["cpu"] = seconds.get("cpu", 0.0) + row.costs.seconds.get("cpu", 0.0)
    kept = ("task", "held", "published_memory", "memory_at_test", "checkpoint")
    counted = ("flops", "flops_executed", "published_flops")
    return {
        **{key: getattr(task, key) for key in kept},
        **{key: getattr(task.costs, key) + getattr(row.costs, key) for key in counted},
        "examples": task.costs.examples,
        "replayed": task.costs.replayed,
        "seconds": {part: round(value, 3) for part, value in seconds.items()},
    }
