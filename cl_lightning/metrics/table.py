"""The table of metrics: a row here is all that a new metric needs.

The schema of ``results.json``, reports, the terminal, Weights & Biases and the docs follow from it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import torch

from cl_lightning.metrics import accuracy_matrix, learning_curve, seen
from cl_lightning.selection.rules import Judged, application_best, application_last, prescient, realistic


class Metric(NamedTuple):
    """A number that a run comes to, made of what it measured."""

    name: str  # in results.json, and with spaces on the terminal
    function: Callable[[Any], Any]  # gives NaN or None where it is undefined
    short: str  # on Weights & Biases
    head: str  # in tables of runs; empty where others there say it
    formula: str
    source: str
    # What the function takes: the accuracy matrix; or, where probes looked, learning curves, or the trainings
    # on the second of two tasks, the accuracies on both at the end, of each named predictor, or trainings and
    # the accuracy of joint training; or measures by name, where some were asked for.
    of: Literal["matrix", "curves", "trainings", "ends", "baseline", "measures"] = "matrix"
    sign: Literal["", "+"] = ""  # + where it may be below 0: it is printed with its sign
    better: Literal["higher", "lower"] = "higher"


def judged(rule: Callable[..., Judged | None], **options: Any) -> Callable[[Any], float | None]:
    """A metric made of a rule: None where no training learned the second task, or where there is none."""

    def accuracy(trainings: Sequence[Any]) -> float | None:
        found = rule(trainings, **options) if trainings else None
        return found and found.accuracy

    return accuracy


def omega_all(given: tuple[Sequence[Any], float | None]) -> float | None:
    """The best accuracy on both of two tasks in parts of that of joint training."""
    trainings, baseline = given
    best = judged(application_best)(trainings)
    return best / baseline if best and baseline else None


METRICS = (
    Metric("average_accuracy", accuracy_matrix.average_accuracy, "ACC", "ACC",
           "mean over j of R[T, j]: all tasks at the end", "Lopez-Paz and Ranzato 2017"),
    Metric("average_incremental_accuracy", accuracy_matrix.average_incremental_accuracy, "AIA", "AIA",
           "mean over i = 1 .. T of (mean over j < i of R[i, j]): all tasks so far, over the whole stream",
           "Rebuffi et al. 2017"),
    Metric("learning_accuracy", accuracy_matrix.learning_accuracy, "LA", "",
           "mean over j of R[j + 1, j]: each task when it was learned", "Riemer et al. 2019"),
    Metric("backward_transfer", accuracy_matrix.backward_transfer, "BWT", "BWT",
           "mean over j < T - 1 of R[T, j] - R[j + 1, j]; below 0 where something was forgotten",
           "Lopez-Paz and Ranzato 2017", sign="+"),
    Metric("forward_transfer", accuracy_matrix.forward_transfer, "FWT", "FWT",
           "mean over j > 0 of R[j, j] - R[0, j]: what a task has before it is learned",
           "Lopez-Paz and Ranzato 2017", sign="+"),
    Metric("forgetting", accuracy_matrix.forgetting, "forgetting", "",
           "mean over j < T - 1 of R[j + 1, j] - R[T, j] = -BWT: the fall since each task was learned",
           "Veniat et al. 2021 (who print BWT)", sign="+", better="lower"),
    Metric("forgetting_from_best", accuracy_matrix.forgetting_from_best, "forgetting_from_best",
           "forgetting from best",
           "mean over j < T - 1 of (max over 0 < i < T of R[i, j]) - R[T, j]: the fall from each task's best",
           "Chaudhry et al. 2018", sign="+", better="lower"),
    Metric("learning_curve_area", learning_curve.learning_curve_area, "LCA", "LCA",
           "accuracy on the task being learned after b mini-batches, mean over b = 0 .. 5 and tasks; with "
           "trainer.probe_at=[0,1,2,3,4,5]", "Chaudhry et al. 2019", "curves"),
    Metric("prescient", judged(prescient), "prescient", "prescient",
           "accuracy on two tasks together: the highest of all probes of all candidates for the second one; "
           "with trainer.probe=all and trainer.probe_every", "Pfülb et al. 2018", "trainings"),
    Metric("realistic", judged(realistic), "realistic", "realistic",
           "accuracy on two tasks together at the first probe with more than 0.99 of the highest accuracy "
           "on the second; the highest over candidates", "Pfülb et al. 2018", "trainings"),
    Metric("realistic_as_released", judged(realistic, crossing="last", share=0.999, rate_by="d2"),
           "realistic_as_released", "",
           "as realistic, but at the last probe with more than 0.999, of the candidate that learned the "
           "second task best", "the program of Pfülb et al. 2018", "trainings"),
    Metric("best_on_both", judged(application_best), "best_on_both", "best",
           "accuracy on two tasks together, the highest of all probes of the candidate that learned the "
           "second task best", "Pfülb and Gepperth 2019", "trainings"),
    Metric("last_on_both", judged(application_last), "last_on_both", "last",
           "accuracy on two tasks together at the last probe of the candidate that learned the second task "
           "best", "Pfülb and Gepperth 2019", "trainings"),
    Metric("omega_all", omega_all, "omega_all", "omega",
           "best_on_both / the accuracy on both of a network that learned them together with the first "
           "task's topology and rate; with reference=joint", "Kemker et al. 2018", "baseline"),
    Metric("end_on_both", lambda ends: ends[0] if ends else None, "end_on_both", "",
           "accuracy on two tasks together at the end; where trainer.probe=all looked",
           "Pfülb and Gepperth 2019", "ends"),
    Metric("best_end_on_both", lambda ends: max(ends) if len(ends) > 1 else None, "best_end_on_both", "",
           "the highest end_on_both of all named predictors, as of IMM's alphas: chosen by test data",
           "Pfülb and Gepperth 2019", "ends"),
    Metric("auc_of_seen", seen.auc_of_seen, "AUC", "AUC of seen",
           "area under the ROC curve of: a task is new where mutual information is more than theta = 1 .. "
           "10 times that on the task learned last; with trainer.measures=[mutual_information]",
           "Farquhar and Gal 2018", "measures"),
)  # fmt: skip


def metrics_of(
    matrix: Sequence[Sequence[float | None]],
    curves: Sequence[Any] = (),
    trainings: Sequence[Any] = (),
    measures: Mapping[str, Any] | None = None,
    ends: Sequence[float] = (),
    baseline: float | None = None,
) -> dict[str, float | None]:
    """All metrics by name, None where an entry that one needs is missing; those of curves, trainings and
    measures where they are defined.

    >>> metrics_of([[None, None], [1.0, None], [0.5, 0.75]])["backward_transfer"]
    -0.5
    """
    rows = [[torch.nan if value is None else value for value in row] for row in matrix]
    R = torch.tensor(rows, dtype=torch.float64)
    values = {metric.name: metric.function(R).item() for metric in METRICS if metric.of == "matrix"}
    taken = {
        "curves": curves, "trainings": trainings, "measures": measures or {}, "ends": ends,
        "baseline": (trainings, baseline),
    }  # fmt: skip
    drawn = {metric.name: metric.function(taken[metric.of]) for metric in METRICS if metric.of in taken}
    known = {name: None if value != value else value for name, value in values.items()}  # NaN is not itself
    return known | {name: value for name, value in drawn.items() if value is not None}
