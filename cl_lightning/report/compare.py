"""Runs side by side, means over seeds, beside what papers print. Reads results.json files alone."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from cl_lightning.errors import Refusal
from cl_lightning.evaluation.scenario import scenario_in
from cl_lightning.metrics.table import METRICS
from cl_lightning.report.parts.metrics import why_undefined
from cl_lightning.report.parts.paths import module_paths
from cl_lightning.report.printed import rows_beside
from cl_lightning.report.reading import Runs, runs_in
from cl_lightning.report.references import HEADS, References
from cl_lightning.report.schema import Results
from cl_lightning.report.two_tasks import by_rate
from cl_lightning.runs.identity import LEARNERS, REMARKS, as_used, learner_name, relevant, targets
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

DAGGER = "†"  # beside what was chosen by whole streams, as in Veniat et al. 2021

OF_THE_CHOSEN = ("search_flops", "search_seconds")  # columns of the seeds alone that were chosen

HARMLESS = (  # settings that do not change what a number means
    "learner.name", "stream.name", "reference", "trainer.eval_batch_size", "trainer.block",
    "trainer.stack",
    "trainer.probe_every", "trainer.probe_at", "trainer.probe_examples", "trainer.evaluate",
    "trainer.measures", "trainer.keep_predictions",
)  # fmt: skip
SPEED = ("trainer.accelerator", "trainer.threads")  # settings that change seconds, and no other number
LEARNERS_OWN = (  # settings, and beginnings of settings, that each learner of an experiment has for itself
    "learner.", "selection.", "backbone.init", "trainer.lr", "trainer.momentum", "trainer.weight_decay",
)  # fmt: skip


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
        own = (key for key in self.settings if key.startswith(("stream.", "data")) and key not in HARMLESS)
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


def settings_of(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Dotted names of all settings, classes among them; where a grid chose a value, it says so."""
    flat: dict[str, Any] = {}
    for key, value in (config if prefix else as_used(config)).items():
        path = f"{prefix}{key}"
        if path == "data":
            flat |= settings_of_data(value)
        elif isinstance(value, Mapping) and value:
            flat |= settings_of(value, f"{path}.")
        elif key != "seed":
            flat[path] = value
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


def differing(groups: Sequence[Group]) -> list[str]:
    """Settings in which groups of one experiment differ: what was varied; of streams and data also those in
    which experiments differ. A learner's own settings count where they differ within the learner. Different
    streams are shown by their names alone, and different kinds of data by theirs."""
    varied = []
    for key in dict.fromkeys(key for group in groups for key in group.settings):
        of_source, of_stream = key.startswith("data."), key.startswith("stream.") and key != "stream.name"
        same_in_a_row = ["stream.name"] * of_stream + ["data"] * of_source
        alike: dict[tuple, set] = {}
        for group in groups:
            learner = group.learner if key.startswith(LEARNERS_OWN) else None
            experiment = None if key.startswith(("stream.", "data")) else group.experiment
            which = (experiment, learner, *(group.settings.get(name) for name in same_in_a_row))
            if key in group.settings or not of_source:  # another source shows in the stream's name
                alike.setdefault(which, set()).add(repr(group.settings.get(key)))
        if any(len(values) > 1 for values in alike.values()):
            varied.append(key)
    return varied


def in_order(groups: Sequence[Group]) -> list[Group]:
    """Groups sorted by experiment and learner, and then by what was varied: numbers as numbers."""
    varied = differing(groups)

    def place(group: Group) -> tuple:
        values = [group.settings.get(key) for key in varied]
        return (
            group.experiment,
            group.learner,
            [(0, v, "") if is_number(v) else (1, 0, str(v)) for v in values],
        )

    return sorted(groups, key=place)


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def heads_of(varied: Sequence[str]) -> list[str]:
    """A head for each setting: short, unless another column is called so.

    >>> heads_of(["trainer.lr", "learner.k", "backbone.k", "data.seeds"])
    ['lr', 'learner.k', 'backbone.k', 'data.seeds']
    """
    short = [head_of(key) for key in varied]
    taken = [*short, "experiment", "learner", "seeds", *COLUMNS.values()]
    return [key if taken.count(head) > 1 else head for key, head in zip(varied, short)]


def head_of(key: str) -> str:
    """
    >>> head_of("trainer.lr"), head_of("stream.name"), head_of("backbone._target_")
    ('lr', 'stream', 'class of backbone')
    >>> head_of("data.sources.mnist.side")
    'mnist.side'
    """
    group, _, last = key.rpartition(".")
    if key.startswith("data.sources."):
        return key.removeprefix("data.sources.")
    return f"class of {group}" if last == "_target_" else "stream" if key == "stream.name" else last


def published(group: Group) -> dict[str, float]:
    """What papers print for these learner, images and settings, whatever the run is called: all settings that
    can matter, not those that somebody thought of. The fingerprint of a run's stream is made of nothing else,
    but for its seed."""
    found: dict[str, float] = {}
    for paper, row, settings in near(group):
        away = departures(group.settings, settings)
        if set(away) <= set(SPEED) and not other_images(group, paper):
            numbers = {key: value for key, value in row.items() if key in COLUMNS}
            found |= {key: value for key, value in numbers.items() if key != "cpu_seconds" or not away}
    return found


def near(group: Group) -> Iterator[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]]:
    """What papers print of a learner on the stream of its runs, or in the experiment that they are called by:
    the paper's entry, its row, and all settings of that."""
    for paper in papers() if group.settings.get("data") == "real" else []:
        name, command = paper["experiment"], paper["command"]
        rows = [row for row in paper["rows"] if group.learner.startswith(row["learner"])]
        if rows and name != group.experiment:
            away = departures(group.settings, as_published(name, tuple(command))[1])
            rows = [] if any(key.startswith("stream.") for key in away) else rows
        for row in rows:
            others = (f"{key}={value}" for key, value in row.items() if key not in COLUMNS)
            learner, settings = as_published(name, (*command, *others))
            if learner == group.learner:
                yield paper, row, settings


def why_nothing_published(group: Group) -> str:
    """Why no printed number stands beside runs: what keeps the nearest row away."""
    known, data = list(near(group)), group.settings.get("data")
    if data != "real":
        return f"the data are {data}"
    if not known:
        return "none are known of this learner on this stream"
    paper, _, settings = min(known, key=lambda each: len(departures(group.settings, each[2])))
    away = departures(group.settings, settings)
    if set(away) <= set(SPEED):
        return f"images of {', '.join(other_images(group, paper))} are not the original ones in their order"
    told = [f"{key}={settings.get(key)} (here {group.settings.get(key)})" for key in away[:3]]
    return f"{paper['source']} has {', '.join(told)}{', ...' * (len(away) > 3)}"


def other_images(group: Group, paper: Mapping[str, Any]) -> list[str]:
    """Sources whose images are not those that are known under their name."""
    return sorted({name for name, digest in group.images if paper["images"].get(name, digest) != digest})


@cache
def papers() -> list[dict[str, Any]]:
    """What papers print of learners in experiments."""
    return list(rows_beside(COLUMNS))


@cache
def as_published(experiment: str, overrides: tuple[str, ...]) -> tuple[str, dict[str, Any]]:
    """The learner's name and all settings of a command."""
    from cl_lightning.config.compose import compose_config

    cfg = compose_config(f"+experiment={experiment}", *overrides)
    return learner_name(cfg), settings_of(relevant(cfg))


def departures(settings: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    """Settings that are not as wanted. An older run knows fewer: those are as they were."""
    own = {key for key in settings if key not in wanted}
    other = {key for key, value in wanted.items() if key in settings and settings[key] != value}
    return sorted(key for key in own | other if key not in HARMLESS)


def in_a_cell(value: object, most: int = 40) -> str:
    """The whole value; of a list of tasks how it begins, which is no hyper-parameter.

    >>> in_a_cell([0.01, 0.001]), in_a_cell([{"source": "mnist"}, {"source": "svhn"}], most=16)
    ('[0.01, 0.001]', "[{'source': 'mn…")
    """
    text = str(value)
    nested = isinstance(value, Sequence) and any(isinstance(each, Mapping) for each in value)
    return f"{text[: most - 1]}…" if nested and len(text) > most else text


def keys_of(groups: Sequence[Group]) -> int:
    """How many columns of their table say what a row is about: experiment, learner, what was varied."""
    return (len({group.experiment for group in groups}) > 1) + 1 + len(differing(groups))


def table(groups: Sequence[Group], beside_print: bool = True) -> tuple[list[str], list[list[str]]]:
    """Heads and rows: experiment, learner, what was varied, and each measure with the published value behind
    it."""
    varied, own = differing(groups), sorted({c for g in groups for c in g.values if c.startswith(OWN)})
    measures = [c for c in (*COLUMNS, *own) if any(group.mean_and_deviation(c) for group in groups)]
    printed = [published(group) if beside_print else {} for group in groups]
    beside = [column for column in measures if any(column in row for row in printed)]
    many = len({group.experiment for group in groups}) > 1
    heads = ["experiment"] * many + ["learner", *heads_of(varied)]
    for column in measures:
        head = COLUMNS.get(column, column)
        heads += [head, *[f"paper's {head}"] * (column in beside)]
    rows = []
    for group, of_paper in zip(groups, printed):
        row = [group.experiment] * many + [
            group.learner + DAGGER * bool(group.chosen),
            *(in_a_cell(group.settings.get(key)) for key in varied),
        ]
        for column in measures:
            row += [
                group.label(column),
                *([f"{of_paper[column]:g}" if column in of_paper else ""] if column in beside else []),
            ]
        rows.append([*row, str(len(group.seeds))])
    return [*heads, "seeds"], rows
