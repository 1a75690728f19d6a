"""``results.json``: everything a report may read, made of a run's records whenever it is wanted.

``python -m cl_lightning.report schema`` prints the JSON schema of it, which is made of the types below.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import ConfigDict, Field, TypeAdapter, with_config
from typing_extensions import NotRequired, TypedDict

from cl_lightning.errors import Refusal
from cl_lightning.evaluation.card import card_of
from cl_lightning.metrics.accuracy_matrix import all_metrics
from cl_lightning.metrics.learning_curve import learning_curve_area
from cl_lightning.store.files import Store
from cl_lightning.store.folder import is_writable, open_store, row_key, task_key
from cl_lightning.store.records import (
    CandidateRecord,
    ChosenRecord,
    PhaseRecord,
    ReferenceRecord,
    Row,
    RowRecord,
    StartRecord,
    TaskRecord,
    ValidationRecord,
)
from cl_lightning.store.whole import write_whole

SCHEMA = 5

Accuracy = Annotated[float, Field(ge=0, le=1)]
Number = Annotated[int, Field(ge=0)]
Accuracies = Annotated[list[Accuracy | None], Field(min_length=1)]
Matrix = Annotated[
    list[Accuracies],
    Field(
        min_length=2,
        description="(tasks + 1) x tasks test accuracies: row i after learning i tasks, row 0 before; null "
        "where it could not predict "
        "or was not asked.",
    ),
]
strict = with_config(ConfigDict(extra="forbid"))


@strict
class Version(TypedDict):
    package: str
    source_hash: Annotated[
        str,
        Field(
            description="Of this package and of the files of classes of your own that the configuration "
            "names."
        ),
    ]
    torch: str


@strict
class Needs(TypedDict):
    task_id_at_test: bool
    past_data: bool


@strict
class Finding(TypedDict):
    rule: Literal[
        "cross-task resemblance",
        "shared output head",
        "no task label at test",
        "no retraining on old tasks",
        "more than two tasks",
        "low memory",
        "causality",
        "constant update complexity",
        "single pass",
        "named data",
        "own callbacks",
    ]
    verdict: Literal["satisfied", "violated", "unknown"]
    evidence: str


@strict
class Head(TypedDict):
    mode: Literal["single", "domain", "multi_test", "multi_train_test"]
    outputs: Annotated[list[Number], Field(description="Outputs that are the task's own.")]


@strict
class StreamTask(TypedDict):
    name: str
    source: Annotated[str, Field(description="Data set that the images come from.")]
    instead_of: Annotated[
        NotRequired[str], Field(description="Data set that it stands in for (data.substitute).")
    ]
    asked: Annotated[
        NotRequired[dict[str, int]],
        Field(description="Sizes that the source could not fill (stream.on_shortage=shrink)."),
    ]
    classes: list[str]
    n_train: Number
    n_val: Number
    n_test: Number
    head: Head


@strict
class StreamOfRun(TypedDict):
    name: str
    fingerprint: Annotated[
        str,
        Field(
            description="Hash of the sources' pixels and the recipe's arguments: equal hashes, equal "
            "examples."
        ),
    ]
    images: Annotated[
        dict[str, str], Field(description="By source: a hash of every pixel and label of its images.")
    ]
    tasks: Annotated[list[StreamTask], Field(min_length=1)]


@strict
class Validation(TypedDict):
    accuracies: Annotated[Accuracies, Field(description="By task; null where it has no validation examples.")]
    mean: Annotated[Accuracy | None, Field(description="Over the tasks that have some; null where none has.")]


@strict
class Metrics(TypedDict):
    average_accuracy: float | None
    average_incremental_accuracy: Annotated[float | None, Field(description="AIA.")]
    learning_accuracy: float | None
    backward_transfer: float | None
    forward_transfer: float | None
    forgetting: Annotated[
        float | None,
        Field(description="Since each task was learned, -BWT; positive where something was forgotten."),
    ]
    forgetting_from_best: Annotated[
        float | None, Field(description="Since each task was best; positive where something was forgotten.")
    ]
    learning_curve_area: Annotated[
        NotRequired[float], Field(description="LCA@5, where trainer.probe_at has 0 to 5.")
    ]


@strict
class Predictor(TypedDict):
    accuracy_matrix: Matrix
    metrics: Metrics


@strict
class Probe(TypedDict):
    task: Annotated[Number, Field(description="The task that was being learned.")]
    phase: Number
    step: Annotated[Number, Field(description="Mini-batches of the phase.")]
    candidate: Annotated[
        NotRequired[str], Field(description="Its name, where all were looked at (trainer.probe=all).")
    ]
    accuracies: Annotated[Accuracies, Field(description="On every task.")]


@strict
class Compared(TypedDict):
    candidate: str
    hparams: dict[str, Any]
    val_accuracy: Annotated[
        Accuracy | None,
        Field(description="Best; null without validation data, and where the phase has a score of its own."),
    ]
    score: Annotated[
        NotRequired[float | None],
        Field(
            description="Best, of phases that have a score of their own: any number, the higher the better."
        ),
    ]
    steps: Annotated[Number, Field(description="Mini-batches trained.")]
    steps_to_best: Number


@strict
class Selected(Compared):
    task: Number
    where: Annotated[
        str,
        Field(
            description="task<i>: while learning it; predictors<n>: before testing after n tasks; "
            "reference:task<i>: the network that "
            "learns the last task by itself."
        ),
    ]
    phase: str
    candidates: Annotated[int, Field(ge=1, description="How many were compared.")]
    compared: Annotated[list[Compared], Field(description="All candidates of the phase.")]


@strict
class Reference(TypedDict):
    task: Number
    accuracy: Accuracy
    transfer: float | None


@strict
class Chosen(TypedDict):
    points: Annotated[int, Field(ge=1, description="Of the outer grid that was searched.")]
    seeds: Annotated[list[int], Field(description="Seeds that chose together.")]
    score: Annotated[
        float, Field(description="Mean validation accuracy over all tasks at the end, and over these seeds.")
    ]
    flops: Annotated[Number, Field(description="Operations of all runs of the search for these seeds.")]
    seconds: Annotated[float, Field(ge=0, description="The processor's seconds of all these runs.")]


@strict
class TaskCosts(TypedDict):
    task: Number
    held: Annotated[
        dict[str, Number], Field(description="Bytes that the learner keeps after the task, by name.")
    ]
    published_memory: Annotated[
        int | None,
        Field(
            description="Bytes as Veniat et al. 2021 count them: 4 for each number in distinct parameters "
            "and buffers; null for learners "
            "with a memory, which they count otherwise."
        ),
    ]
    checkpoint: Annotated[Number, Field(description="Bytes of the checkpoint file after the task.")]
    flops: Annotated[
        Number, Field(description="Floating-point operations as if every candidate had been trained alone.")
    ]
    flops_executed: Annotated[
        Number, Field(description="The same as it ran: what candidates share counts once.")
    ]
    examples: Annotated[
        Number,
        Field(
            description="Training examples lent to mini-batches, those of all epochs together; once, "
            "whatever the number of candidates."
        ),
    ]
    replayed: Annotated[Number, Field(description="Examples that the learner added to mini-batches.")]
    seconds: Annotated[
        dict[str, float],
        Field(
            description="By part: hooks, train, score, checkpoint, evaluate; cpu, of the processor in "
            "hooks, training and scoring."
        ),
    ]


@strict
class Results(TypedDict):
    """The results of a run. Identical runs differ in `command`, `environment` and `costs[].seconds`, and in
    nothing else."""

    schema: Annotated[Literal[5], Field(description="Version of this document.")]
    finished: Annotated[
        bool,
        Field(
            description="False where tasks are still to be learned or tested: what they will give is null."
        ),
    ]
    version: Annotated[Version, Field(description="The program that made the run.")]
    command: Annotated[
        list[str],
        Field(
            description="Arguments of the command line; of a job of a sweep, those that make the same run "
            "without the sweep."
        ),
    ]
    name: Annotated[str, Field(description="Of the experiment.")]
    config: Annotated[
        dict[str, Any],
        Field(
            description="The configuration, resolved, without what cannot change a result (places, loggers)."
        ),
    ]
    needs: Annotated[
        Needs, Field(description="What the learner declared that it cannot do without, and was given.")
    ]
    card: Annotated[
        list[Finding],
        Field(
            description="What the evaluation does and does not show, decided from what happened: five "
            "desiderata of Farquhar and Gal "
            "2018, then three constraints of Pfuelb and Gepperth 2019; then what applies to this run alone."
        ),
    ]
    fingerprint: Annotated[
        str,
        Field(
            description="Hash of everything in the configuration and the images that can change a result, "
            "but the seed."
        ),
    ]
    learner: str
    seed: Number
    stream: StreamOfRun
    reference: Annotated[
        Reference | None,
        Field(
            description="With `reference=true`: a fresh network that learned the last task alone, from the "
            "same mini-batches; transfer is "
            "the learner's accuracy on that task at the end minus its."
        ),
    ]
    accuracy_matrix: Matrix
    validation_at_end: Annotated[
        Validation | None,
        Field(
            description="The run's own predictor on the validation examples of every task when all had been "
            "learned: what a search over "
            "whole streams may choose by, and what `run` returns to sweepers."
        ),
    ]
    metrics: Annotated[
        Metrics,
        Field(
            description="Formulas in cl_lightning/metrics/accuracy_matrix.py; null where the matrix lacks "
            "an entry."
        ),
    ]
    predictors: Annotated[
        dict[str, Predictor],
        Field(
            description="Matrix and metrics of every predictor that the learner named; the first of each "
            "row is the run's own."
        ),
    ]
    probes: Annotated[
        list[Probe],
        Field(
            description="Looks at test data after some mini-batches of a phase (trainer.probe_at, "
            "trainer.probe_every): learning curves."
        ),
    ]
    selected: Annotated[list[Selected], Field(description="The winner of every phase of training.")]
    chosen: Annotated[
        Chosen | None,
        Field(description="From what a search over whole streams (selection=stream_level) chose this run."),
    ]
    notes: Annotated[
        list[dict[str, Any]],
        Field(
            description="By task: what the learner says that it did. Those with `kind: module_paths` have "
            "the fields of ModulePaths in "
            "cl_lightning/learners/parts/notes.py."
        ),
    ]
    costs: Annotated[list[TaskCosts], Field(description="By task.")]
    environment: Annotated[dict[str, str], Field(description="Machine and packages.")]


def schema() -> dict[str, Any]:
    """The JSON schema of results.json."""
    return TypeAdapter(Results).json_schema()


# ---- made of records ---------------------------------------------------------------------------------------


def results_of(store: Store, start: StartRecord) -> Results:
    """What the records say, of a finished run or as far as it is."""
    tasks = len(start.stream.tasks)
    learned = loaded(store.load(task_key(i), TaskRecord) for i in range(tasks))
    rows = loaded(store.load(row_key(i), RowRecord) for i in range(tasks + 1))
    validation, reference = (
        store.load("validation", ValidationRecord),
        store.load("reference", ReferenceRecord),
    )
    chosen = store.load("chosen", ChosenRecord)
    names = dict.fromkeys(name for row in rows for name in row.rows)
    unknown: Row = [None] * tasks
    main = [*(row.first for row in rows), *[unknown] * (tasks + 1 - len(rows))]
    others = {
        name: [*(row.rows.get(name, unknown) for row in rows), *[unknown] * (tasks + 1 - len(rows))]
        for name in names
        if name
    }
    phases = [
        phase
        for i in range(tasks + 1)
        for record in (*rows[i : i + 1], *learned[i : i + 1])
        for phase in record.phases
    ]
    finished = (len(learned), len(rows)) == (tasks, tasks + 1) and validation is not None
    finished = finished and (reference is not None or not start.config["reference"])
    return {
        "schema": 5,
        "finished": finished,
        "version": start.version,  # type: ignore[typeddict-item]
        "command": start.command,
        "name": start.name,
        "config": start.config,
        "needs": start.needs,  # type: ignore[typeddict-item]
        "card": [asdict(finding) for finding in card_of(start, learned, rows, chosen)],  # type: ignore[misc]
        "fingerprint": start.fingerprint,
        "learner": start.learner,
        "seed": start.seed,
        "stream": {key: getattr(start.stream, key) for key in ("name", "fingerprint", "images", "tasks")},  # type: ignore[typeddict-item]
        "reference": None if reference is None else reference_of(reference, main),
        "accuracy_matrix": main,
        "validation_at_end": None if validation is None else validation_of(validation),
        "metrics": {**metrics_of(main), **learning_curve(learned)},  # type: ignore[typeddict-item]
        "predictors": {name: {"accuracy_matrix": m, "metrics": metrics_of(m)} for name, m in others.items()},
        "probes": [probe(each) for task in learned for each in task.probes],
        "selected": [selected(phase) for phase in [*phases, *(reference.phases if reference else [])]],
        "chosen": None if chosen is None else asdict(chosen),  # type: ignore[typeddict-item]
        "notes": [task.notes for task in learned],
        "costs": [costs(task, row) for task, row in zip(learned, rows[1:])],
        "environment": start.environment,
    }


def loaded(records: Iterable[Any]) -> list[Any]:
    """Records up to the first that is missing."""
    found = []
    for record in records:
        if record is None:
            break
        found.append(record)
    return found


def write_results(store: Store) -> Results:
    found = open_store(store.folder)
    assert found is not None, "its first record was written first"
    results = results_of(*found)
    with write_whole(store.folder / "results.json") as building:
        building.write_text(text_of(results))
    return results


def write_unfinished(folders: Sequence[Path]) -> list[Path]:
    """Write results.json of all runs below the folders that have none; returns where."""
    written, known = [], sorted({path.parent for top in folders for path in top.rglob("run.json")})
    if not known:
        raise Refusal(
            f"No run (run.json) lies below {', '.join(map(str, folders))}. Give folders of runs, like "
            "outputs/NAME."
        )
    for folder in known:
        found = open_store(folder)
        if found is not None and not is_finished(folder):
            write_results(found[0])
            written.append(folder / "results.json")
    return written


def is_finished(folder: Path) -> bool:
    """Whether results.json lies there and says so."""
    try:
        return bool(json.loads((folder / "results.json").read_text()).get("finished", True))
    except (OSError, ValueError, AttributeError):
        return False


def text_of(results: Results) -> str:
    return json.dumps(results, indent=1, allow_nan=False)


def finished_results(folder: Path) -> Results | None:
    """The results of a finished run, made of its records again and compared with what lies there; None of one
    that is not finished."""
    path = folder / "results.json"
    found = open_store(folder) if path.is_file() else None
    if found is None:
        return None
    results = results_of(*found)
    if not results["finished"]:
        if is_finished(folder):
            warnings.warn(
                f"{path} is there, but not all of the records that it was made of: what is missing is done "
                "again.",
                stacklevel=2,
            )
        return None
    if path.read_bytes() != text_of(results).encode():
        warnings.warn(f"{path} is not what the run's records say: it is made again.", stacklevel=2)
        if is_writable(folder):
            with write_whole(path) as building:
                building.write_text(text_of(results))
    return results


def reference_of(record: ReferenceRecord, matrix: Sequence[Row]) -> Reference:
    """The last task learned by itself, and what the stream's learner gained on it."""
    own = matrix[-1][record.task]
    return {
        "task": record.task,
        "accuracy": record.accuracy,
        "transfer": None if own is None else own - record.accuracy,
    }


def validation_of(record: ValidationRecord) -> Validation:
    """The mean is over the tasks that have validation examples."""
    measured = [accuracy for accuracy in record.accuracies if accuracy is not None]
    return {"accuracies": record.accuracies, "mean": sum(measured) / len(measured) if measured else None}


def probe(record: Any) -> Probe:
    """A look at test data, with the candidate's name where all were looked at (trainer.probe=all)."""
    keys = ("task", "phase", "step", *["candidate"] * (record.candidate is not None), "accuracies")
    return {key: getattr(record, key) for key in keys}  # type: ignore[return-value]


def learning_curve(learned: Sequence[TaskRecord]) -> dict[str, float]:
    """The area under the learning curves, where probes looked at their beginnings: in each task's first
    phase."""
    curves: list[dict[int, float]] = []
    for task in learned:
        chosen = task.phases[0].chosen.name if task.phases else ""
        looks = [p for p in task.probes if p.phase == 0 and p.candidate in (None, chosen)]
        curves.append({p.step: p.accuracies[task.task] for p in looks if p.accuracies[task.task] is not None})  # type: ignore[misc]
    area = learning_curve_area(curves)
    return {} if area is None else {"learning_curve_area": area}


def metrics_of(matrix: Sequence[Row]) -> Metrics:
    R = torch.tensor(
        [[math.nan if value is None else value for value in row] for row in matrix], dtype=torch.float64
    )
    values = {name: value.item() for name, value in all_metrics(R).items()}
    return {name: None if math.isnan(value) else value for name, value in values.items()}  # type: ignore[return-value]


def selected(phase: PhaseRecord) -> Selected:
    """The winner of a phase."""
    chosen, place = phase.chosen, phase.place
    return {
        "task": max(0, place.index - 1) if place.part == "predictors" else place.index,
        "where": place.name,
        "phase": phase.name,
        "candidate": chosen.name,
        "candidates": len(phase.candidates),
        "hparams": chosen.hparams,
        **standing(chosen),  # type: ignore[typeddict-item]
        "compared": [{"candidate": c.name, "hparams": c.hparams, **standing(c)} for c in phase.candidates],
    }


def standing(c: CandidateRecord) -> dict[str, Any]:
    own = {} if c.score is None else {"score": c.score}
    return {"val_accuracy": c.val_accuracy, **own, "steps": c.steps, "steps_to_best": c.steps_to_best}


def costs(task: TaskRecord, row: RowRecord) -> TaskCosts:
    """What a task cost, its test included: predictors may train before it."""
    seconds = {**task.costs.seconds, "evaluate": row.seconds}
    return {
        "task": task.task,
        "held": task.held,
        "published_memory": task.published_memory,
        "checkpoint": task.checkpoint,
        "flops": task.costs.flops + row.costs.flops,
        "flops_executed": task.costs.flops_executed + row.costs.flops_executed,
        "examples": task.costs.examples,
        "replayed": task.costs.replayed,
        "seconds": {part: round(value, 3) for part, value in seconds.items()},
    }
