"""Runs that differ in their seed alone, and the numbers that they came to. Reads results.json files alone."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from cl_lightning.config.trees import dotted, targets
from cl_lightning.errors import Refusal
from cl_lightning.evaluation.scenario import scenario_in
from cl_lightning.metrics.table import METRICS
from cl_lightning.report.parts.metrics import why_undefined
from cl_lightning.report.parts.paths import module_paths
from cl_lightning.report.parts.two_tasks import by_rate
from cl_lightning.report.reading import Runs, runs_in
from cl_lightning.report.references import HEADS, References
from cl_lightning.report.schema import Results
from cl_lightning.runs.identity import LEARNERS, REMARKS, as_used
from cl_lightning.selection.stream_level import Chosen

COLUMNS = {  # results, and their heads in a table
    "validation": "val",
    **{metric.name: metric.head for metric in METRICS if metric.head},
    **HEADS,
    "gain": "δ",
    "reused": "re-used by the last",
    "memory": "Mem MB",
    "cpu_seconds": "CPU s",
    "search_flops": "search Tflop",
    "search_seconds": "search CPU s",
}

TASK, FEW = "task", 10  # the accuracy on each task at the end, of so few tasks
WITHOUT = {  # results that are no metrics, and why a run may not have them
    "validation": "no task has validation examples",
    "transfer": "no network learned the last task alone (reference=true)",
    "gain": "the first and the last task have not the same classes",
    "reused": "it has no paths of modules",
}

OWN = "own "  # begins the columns of what learners and callbacks log by tasks: the last value

OF_THE_CHOSEN = ("search_flops", "search_seconds")  # columns of the seeds alone that were chosen


class Code(NamedTuple):
    """What made a run."""

    package: str
    torch: str
    source: str  # a hash of the program's code and, behind a point, of the files of ``own``
    own: tuple[str, ...]  # modules of the learner, and of classes that are not the program's

    def __str__(self) -> str:
        return f"cl_lightning {self.package} (source {self.source}), torch {self.torch}"


@dataclass(frozen=True)
class Group:
    """Runs that differ in their seed alone."""

    experiment: str
    learner: str
    settings: dict[str, Any]  # dotted names
    seeds: tuple[int, ...]
    values: dict[str, list[float]]  # of COLUMNS, one a seed; without those that some run does not have
    images: frozenset[tuple[str, str]] = frozenset()  # sources with the digests of their images
    code: Mapping[Code, tuple[int, ...]] = field(default_factory=dict)  # with the seeds that it ran
    chosen: tuple[int, ...] = ()  # seeds for which validation data of whole streams chose it
    scenario: str = ""
    command: tuple[str, ...] = ()  # arguments that make all its runs
    told: Mapping[str, tuple[float, float]] = field(
        default_factory=dict
    )  # means and deviations of results whose values were not kept
    commit: str | None = None  # of the program, of an extract
    departs: Mapping[str, Any] | None = None  # of an extract: settings here and in print, where they differ
    against: str = ""  # what some of its results are against
    undefined: Mapping[str, str] = field(default_factory=dict)  # why it does not have some of COLUMNS

    @property
    def stream(self) -> list[tuple[str, str]]:
        """All settings of stream and data; its name, which changes nothing, is not among them."""
        own = (key for key in self.settings if key.startswith(("stream.", "data")) and key != "stream.name")
        return [(key, repr(self.settings[key])) for key in sorted(own)]

    def label(self, column: str) -> str:
        found = self.mean_and_deviation(column)
        if found is None:
            return "-"
        digits = 1 if column in ("cpu_seconds", "search_seconds", "reused") else 3
        spread = f" ± {found[1]:.{digits}f}" if found[1] is not None else ""
        return f"{found[0]:.{digits}f}{spread}"

    def mean_and_deviation(self, result: str) -> tuple[float, float | None] | None:
        """Over seeds; no deviation of one seed, and None where runs do not have the result."""
        if values := self.values.get(result):
            return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None
        return self.told.get(result)


def groups_in(folders: Sequence[Path]) -> list[Group]:
    """All finished runs below the folders, by experiment, learner and fingerprint."""
    return groups_of(runs_in(folders), folders)


def groups_of(runs: Runs, folders: Sequence[Path]) -> list[Group]:
    found: dict[tuple, dict[int, Results]] = {}
    for results in runs.results:
        if results["finished"]:
            same = found.setdefault((results["name"], results["learner"], results["fingerprint"]), {})
            same.setdefault(results["seed"], results)  # copies of a run are one run
    if not found:
        nothing = (
            f"No finished run (results.json) lies below {', '.join(map(str, folders))}. Give folders of "
            "runs, like outputs/NAME."
        )
        raise Refusal("\n".join([nothing, *runs.said]))
    references = References(runs.results)
    in_turn = [found[key] for key in sorted(found)]
    return [group_of([by_seed[seed] for seed in sorted(by_seed)], runs, references) for by_seed in in_turn]


def group_of(same: Sequence[Results], runs: Runs, references: References) -> Group:
    """Runs in the order of their seeds."""
    rows = [values_of(each, runs.choice(each)) | references.values(each) for each in same]
    values: dict[str, list[float]] = {}
    for column in dict.fromkeys(column for row in rows for column in row):
        known = [value for value in (row.get(column) for row in rows) if value is not None]
        if len(known) == len(rows) or (known and column in OF_THE_CHOSEN):
            values[column] = known
    one, tasks = same[0], same[0]["stream"]["tasks"]
    return Group(
        one["name"],
        one["learner"],
        settings_of(one["config"]),
        tuple(each["seed"] for each in same),
        values,
        images=frozenset(pair for each in same for pair in each["stream"]["images"].items()),
        code=code_of(same),
        chosen=tuple(each["seed"] for each in same if runs.choice(each)),
        scenario=str(scenario_in(tasks, one["needs"]) or ""),
        command=command_of(same),
        against=references.said(one),
        undefined=undefined_in(same, [c for c in COLUMNS if c not in values]),
    )


def undefined_in(same: Sequence[Results], columns: Sequence[str]) -> dict[str, str]:
    """Why runs do not have some of COLUMNS, where that is known."""
    of_metrics = {
        column: why_undefined(column, run)
        for run in reversed(same)
        for column in columns
        if run["metrics"].get(column, 0) is None
    }
    return of_metrics | {column: why for column, why in WITHOUT.items() if column in columns}


def command_of(same: Sequence[Results]) -> tuple[str, ...]:
    """The arguments of one run, with the seeds of all."""
    one = [word for word in same[0]["command"] if not word.startswith(("seed=", "hydra."))]
    return (*one, f"seed={','.join(str(each['seed']) for each in same)}")


def code_of(same: Sequence[Results]) -> dict[Code, tuple[int, ...]]:
    """Which code ran which seeds."""
    seeds: dict[Code, tuple[int, ...]] = {}
    for run in same:
        version, modules = run["version"], sorted(targets(run["config"]))
        own = tuple(m for m in modules if m.partition(".")[0] != "cl_lightning" or m.startswith(LEARNERS))
        code = Code(version["package"], version["torch"], version["source_hash"], own)
        seeds[code] = (*seeds.get(code, ()), run["seed"])
    return seeds


def values_of(run: Results, chosen: Chosen | None = None) -> dict[str, float | None]:
    cpu = [cost["seconds"].get("cpu") for cost in run["costs"]]
    last, reference, notes = run["costs"][-1], run["reference"], module_paths(run)
    validated = run["validation_at_end"]
    return {
        **dict.fromkeys(COLUMNS),
        **{f"{OWN}{name}": curve[-1][1] for name, curve in run.get("own", {}).get("learned", {}).items()},
        **run["metrics"],
        "validation": validated["mean"] if validated else None,
        "transfer": reference["transfer"] if reference else None,
        "gain": gain(run) if reference else None,
        "reused": notes[-1]["reused"] if notes else None,
        "memory": (last["published_memory"] or 0) / 1e6 or None if reference else None,
        "cpu_seconds": sum(each or 0.0 for each in cpu) if None not in cpu else None,
        "search_flops": chosen.flops / 1e12 if chosen else None,
        "search_seconds": chosen.seconds if chosen else None,
        **more_values_of(run),
    }


def more_values_of(run: Results) -> dict[str, float | None]:
    """Results that papers print and that have no column of their own."""
    matrix, costs, entropy = run["accuracy_matrix"], run["costs"], run["measures"].get("entropy")
    reference: Any = run["reference"] or {}
    each = enumerate(matrix[-1]) if len(matrix[-1]) <= FEW else ()
    return {
        **{f"{TASK} {task}": accuracy for task, accuracy in each},
        "baseline_accuracy": reference["accuracy"] if reference.get("joint") else None,
        "entropy_of_predictions": entropy[1][1] if entropy and len(entropy) > 2 else None,  # the next task's
        "minutes": sum(cost["seconds"].get("cpu", 0.0) for cost in costs) / 60 or None,
        "memory_at_test": max((cost["memory_at_test"] or 0 for cost in costs), default=0) / 1e6 or None,
        "first_task": matrix[1][0],
        "last_task": matrix[-1][-1],
        "published_flops": sum(cost["published_flops"] for cost in costs) / 1e12 or None,
        "all_flops": sum(cost["flops"] for cost in costs) / 1e12,
        "held": sum(costs[-1]["held"].values()) / 1e6,
        **by_rate(run),
    }


def gain(run: Results) -> float | None:
    """delta(T1, T1') of Veniat et al. 2021: accuracy on the last task at the end minus that on the first when
    it was learned, where both have the same classes of one source."""
    tasks, matrix = run["stream"]["tasks"], run["accuracy_matrix"]
    first, last = ((task["source"], sorted(task["classes"])) for task in (tasks[0], tasks[-1]))
    before, after = matrix[1][0], matrix[-1][-1]
    if len(tasks) == 1 or first != last or before is None or after is None:
        return None
    return after - before


def settings_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted names of all settings, classes among them; where a grid chose a value, it says so."""
    flat: dict[str, Any] = {}
    for group, value in as_used(config).items():
        named = dict(dotted({group: value}))
        own = {key: each for key, each in named.items() if key.rpartition(".")[2] != "seed"}
        flat |= settings_of_data(value) if group == "data" else own
    return flat


def settings_of_data(data: Mapping[str, Any]) -> dict[str, Any]:
    """The kind of the data and what stands in, and all that is said of the sources but places and remarks."""
    sources = data.get("sources", {})
    drawn = all("synthetic" in str(source["_target_"]) for source in sources.values())
    stand_ins = [f"{other} for {name}" for name, other in sorted((data.get("substitute") or {}).items())]
    flat: dict[str, Any] = {"data": ", ".join(["synthetic" if drawn else "real", *stand_ins])}
    for name, source in sources.items():
        kept = {key: value for key, value in source.items() if key not in REMARKS}
        flat |= {f"data.sources.{name}.{key}": value for key, value in kept.items()}
    return flat
