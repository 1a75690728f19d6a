"""The schema of ``results.json``: what a report may read.

``python -m cl_lightning.report --schema`` prints the JSON schema that is made of these types and of the texts
below their keys.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import ConfigDict, Field, TypeAdapter, with_config
from typing_extensions import NotRequired, TypedDict

from cl_lightning.metrics.table import METRICS, Metric

Accuracy = Annotated[float, Field(ge=0, le=1)]
Number = Annotated[int, Field(ge=0)]
Accuracies = Annotated[list[Accuracy | None], Field(min_length=1)]
Matrix = Annotated[list[Accuracies], Field(min_length=2)]
Measures = dict[str, list[list[float | None]]]
strict = with_config(ConfigDict(extra="forbid", use_attribute_docstrings=True))


def metric_type(metric: Metric) -> Any:
    value = Annotated[float | None, Field(description=metric.formula)]
    return value if metric.of == "matrix" else NotRequired[value]


@strict
class Version(TypedDict):
    package: str
    source_hash: str
    """Of this package's code that can change a result; and, behind a point, of the learner's file and those
    of classes of your own that the configuration names."""
    torch: str


@strict
class Needs(TypedDict):
    task_id_at_test: bool
    past_data: bool


@strict
class Finding(TypedDict):
    rule: str
    verdict: Literal["satisfied", "violated", "unknown"]
    evidence: str


@strict
class Head(TypedDict):
    mode: Literal["single", "domain", "multi_test", "multi_train_test"]
    outputs: list[Number]
    """Outputs that are the task's own."""


@strict
class StreamTask(TypedDict):
    name: str
    source: str
    """Data set that the images come from."""
    instead_of: NotRequired[str]
    """Data set that it stands in for (data.substitute)."""
    asked: NotRequired[dict[str, int]]
    """Sizes that the source could not fill (stream.on_shortage=shrink)."""
    classes: list[str]
    n_train: Number
    n_val: Number
    n_test: Number
    head: Head
    mixture: NotRequired[list[float]]
    """The share of each class of the source, where it changes smoothly from task to task."""


@strict
class StreamOfRun(TypedDict):
    name: str
    fingerprint: str
    """Hash of the sources' pixels and the recipe's arguments: equal hashes, equal examples."""
    images: dict[str, str]
    """By source: a hash of every pixel and label of its images."""
    tasks: Annotated[list[StreamTask], Field(min_length=1)]


Curve = list[tuple[Number, float | None]]  # where, and a value: None where it was no finite number


@strict
class Own(TypedDict):
    learned: dict[str, Curve]
    """By name, after so many tasks."""
    batches: dict[str, Curve]
    """By name, after so many mini-batches of the run."""


@strict
class Validation(TypedDict):
    accuracies: Accuracies
    """By task; null where it has no validation examples."""
    mean: Accuracy | None
    """Over the tasks that have some; null where none has."""


if TYPE_CHECKING:
    Metrics = dict[str, float | None]
else:
    Metrics = strict(TypedDict("Metrics", {metric.name: metric_type(metric) for metric in METRICS}))


@strict
class Predictor(TypedDict):
    accuracy_matrix: Matrix
    metrics: Metrics
    measures: Measures


@strict
class Probe(TypedDict):
    task: Number
    """The task that was being learned."""
    phase: Number
    step: Number
    """Mini-batches of the phase."""
    candidate: NotRequired[str]
    """Its name, where all were looked at (trainer.probe=all)."""
    accuracies: Accuracies
    """On every task."""


@strict
class Compared(TypedDict):
    candidate: str
    hparams: dict[str, Any]
    val_accuracy: Accuracy | None
    """Best; null without validation data, and where the phase has a score of its own."""
    score: NotRequired[float | None]
    """Best, of phases that have a score of their own: any number, the higher the better."""
    steps: Number
    """Mini-batches trained."""
    steps_to_best: Number


@strict
class Selected(Compared):
    task: Number
    where: str
    """task<i>: while learning it; predictors<n>: before testing after n tasks; reference:task<i>: the network
    that learns the last task by itself."""
    phase: str
    candidates: Annotated[int, Field(ge=1)]
    """How many were compared."""
    compared: list[Compared]
    """All candidates of the phase."""


@strict
class Reference(TypedDict):
    task: Number
    accuracy: Accuracy
    transfer: float | None
    joint: NotRequired[bool]
    """True of reference=joint: both of two tasks were learned together, and the accuracy is on both."""


@strict
class TaskCosts(TypedDict):
    task: Number
    held: dict[str, Number]
    """Bytes that the learner keeps after the task, by name."""
    published_memory: int | None
    """Bytes as the learner's paper counts them; where it has no formula, as Veniat et al. 2021: 4 for each
    number in distinct parameters, buffers and stored tensors. Null in older results of learners with a
    memory."""
    memory_at_test: int | None
    """Bytes, 4 for each number, of what the learner reads of all that it holds to predict an image of this
    task; null where it cannot yet, and in older results."""
    checkpoint: Number
    """Bytes of the checkpoint file after the task."""
    flops: Number
    """Floating-point operations as if every candidate had been trained alone."""
    flops_executed: Number
    """The same as it ran: what candidates share counts once."""
    published_flops: Number
    """As Veniat et al. 2021 seem to count: of the chosen hyper-parameters alone, up to the best weights of
    each candidate, 3 times the multiplications of forward passes, each with its addition as one operation.
    Divide by 1e12 for the paper's unit; 0 in older results."""
    examples: Number
    """Training examples lent to mini-batches, those of all epochs together; once, whatever the number of
    candidates."""
    replayed: Number
    """Examples that the learner added to mini-batches."""
    seconds: dict[str, float]
    """By part: hooks, train, score, checkpoint, evaluate; cpu, of the processor in hooks, training and
    scoring."""


@strict
class Results(TypedDict):
    """The results of a run. Identical runs differ in `command`, `environment`, `costs[].seconds` and `crc`,
    and in nothing else."""

    schema: Literal[6]
    """Version of this document."""
    finished: bool
    """False where tasks are still to be learned or tested: what they will give is null."""
    version: Version
    """The program that made the run."""
    command: list[str]
    """Arguments of the command line; of a job of a sweep, those that make the same run without the sweep."""
    name: str
    """Of the experiment."""
    config: dict[str, Any]
    """The configuration, resolved, without what cannot change a result (places, loggers). The word grid
    stands where the trainer's value was not used: `selected` has what was."""
    needs: Needs
    """What the learner declared that it cannot do without, and was given."""
    card: list[Finding]
    """What the evaluation does and does not show, decided from what happened: five desiderata of Farquhar and
    Gal 2018, then three constraints of Pfuelb and Gepperth 2019; then what applies to this run alone."""
    fingerprint: str
    """Hash of everything in the configuration and the images that can change a result, but the seed."""
    learner: str
    seed: Number
    stream: StreamOfRun
    reference: Reference | None
    """With `reference=true`: a fresh network that learned the last task alone, from the same mini-batches;
    transfer is the learner's accuracy on that task at the end minus its."""
    accuracy_matrix: Matrix
    """(tasks + 1) x tasks test accuracies: row i after learning i tasks, row 0 before; null where it could
    not predict or was not asked."""
    measures: Measures
    """By name (trainer.measures, formulas in docs/reports.md): a matrix as that of accuracies."""
    validation_at_end: Validation | None
    """The run's own predictor on the validation examples of every task when all had been learned: what a
    search over whole streams may choose by, and what `run` returns to sweepers."""
    metrics: Metrics
    """The table in cl_lightning/metrics/table.py; null where the matrix lacks an entry."""
    predictors: dict[str, Predictor]
    """Matrix and metrics of every predictor that the learner named; the first of each row is the run's
    own."""
    probes: list[Probe]
    """Looks at test data after some mini-batches of a phase (trainer.probe_at, trainer.probe_every): learning
    curves."""
    selected: list[Selected]
    """The winner of every phase of training that is not auxiliary."""
    notes: list[dict[str, Any]]
    """By task: what the learner says that it did. Those with `kind: module_paths` have the fields of
    ModulePaths in cl_lightning/learners/parts/notes.py."""
    own: Own
    """What the learner and callbacks logged; of candidates in training that of the winner."""
    costs: list[TaskCosts]
    """By task."""
    environment: dict[str, str]
    """Machine and packages."""
    crc: str
    """A checksum of all that is above: a file that was changed afterwards is not reported."""


@strict
class SweepJob(TypedDict):
    overrides: list[str]
    run: str | None
    """Folder of its run, from the sweep's; null where it did not come to one."""
    state: Literal["running", "waiting", "done", "interrupted", "diverged", "failed"]
    validation: float | None
    """Mean validation accuracy over all tasks at the end of the stream."""
    point: NotRequired[int]
    """Number in the outer grid of selection=stream_level."""


@strict
class SweepChoice(TypedDict):
    others: list[str]
    """Overrides of this choice besides the point and the seed."""
    seeds: list[int]
    """Seeds that chose together."""
    number: int
    """Of the point that was chosen."""
    score: float
    """Mean validation accuracy at the end, over tasks and seeds."""
    runs: list[str]
    """Folders of the runs that were chosen, from the sweep's."""


@strict
class Sweep(TypedDict):
    """What was swept and what came of it: the same for the same sweep, with no clock and no test number."""

    schema: Literal[2]
    """Version of this document."""
    kind: Literal["grid", "task_level", "stream_level"]
    name: str
    """Hash of what is swept."""
    arguments: list[str]
    jobs: list[SweepJob]
    chosen: list[SweepChoice]
    """Of selection=stream_level; else empty."""


SCHEMAS = {"results": Results, "sweep": Sweep}


def schema(of: str = "results") -> dict[str, Any]:
    """The JSON schema of results.json, or of a sweep's sweep.json."""
    return TypeAdapter(SCHEMAS[of]).json_schema()
