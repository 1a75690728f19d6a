"""Runs side by side, means over seeds, beside what papers print. Reads results.json files alone."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from cl_lightning.errors import Refusal
from cl_lightning.runs import learner_name, relevant

COLUMNS = {  # results, and their heads in a table
    "average_accuracy": "ACC",
    "backward_transfer": "BWT",
    "forward_transfer": "FWT",
    "forgetting_from_best": "forgetting",
    "transfer": "T",
    "gain": "δ",
    "reused": "re-used by the last",
    "learning_curve_area": "LCA",
    "memory": "Mem MB",
    "cpu_seconds": "CPU s",
}

HARMLESS = (  # settings that do not change what a number means
    "learner.name", "stream.name", "reference", "trainer.eval_batch_size", "trainer.block", "trainer.stack", "trainer.candidates_at_once",
    "trainer.probe_every", "trainer.probe_at", "trainer.probe_examples", "trainer.evaluate", "trainer.accelerator", "trainer.threads",
    "trainer.callbacks",
)  # fmt: skip


@dataclass(frozen=True)
class Group:
    """Runs that differ in their seed alone."""

    experiment: str
    learner: str
    settings: dict[str, Any]  # dotted names
    seeds: tuple[int, ...]
    values: dict[str, list[float]]  # of COLUMNS, one a seed; without those that some run does not have

    def shown(self, column: str) -> str:
        values = self.values.get(column)
        if not values:
            return "-"
        digits = 1 if column in ("cpu_seconds", "reused") else 3
        spread = f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
        return f"{statistics.fmean(values):.{digits}f}{spread}"


def groups_in(folders: Iterable[Path]) -> list[Group]:
    """All finished runs below the folders, by experiment, learner and fingerprint."""
    found: dict[tuple, list[dict]] = {}
    for path in sorted({path.resolve() for folder in folders for path in folder.rglob("results.json")}):
        results = read(path)
        same = found.setdefault((results["name"], results["learner"], results["fingerprint"]), [])
        if results["seed"] not in [run["seed"] for run in same]:  # copies of a run are one run
            same.append(results)
    if not found:
        raise Refusal(f"No finished run (results.json) lies below {', '.join(map(str, folders))}. Give folders of runs, like outputs/NAME.")
    return [group_of(runs) for _, runs in sorted(found.items())]


def read(path: Path) -> dict[str, Any]:
    try:
        results = json.loads(path.read_text())
    except (json.JSONDecodeError, UnicodeDecodeError):
        results = None
    if not isinstance(results, dict) or not {"name", "learner", "fingerprint", "seed", "config", "metrics", "costs"} <= results.keys():
        raise Refusal(f"{path} was not written by a run of this program, or is damaged. Give folders without it, or make the run again.")
    return results


def group_of(runs: Sequence[dict]) -> Group:
    rows = [values_of(run) for run in runs]
    values: dict[str, list[float]] = {}
    for column in COLUMNS:
        known = [value for value in (row[column] for row in rows) if value is not None]
        if len(known) == len(rows):
            values[column] = known
    return Group(runs[0]["name"], runs[0]["learner"], settings_of(runs[0]["config"]), tuple(sorted(run["seed"] for run in runs)), values)


def values_of(run: dict) -> dict[str, float | None]:
    cpu = [cost["seconds"].get("cpu") for cost in run["costs"]]
    last, reference, notes = run["costs"][-1], run.get("reference"), run.get("notes") or [{}]  # from schema 3 on
    memory = last["published_memory"] / 1e6 if reference and last["published_memory"] else None
    return {
        **dict.fromkeys(COLUMNS),
        **run["metrics"],
        "transfer": reference["transfer"] if reference else None,
        "gain": gain(run) if reference else None,
        "reused": notes[-1].get("reused") if "path" in notes[-1] else None,
        "memory": memory,
        "cpu_seconds": sum(cpu) if None not in cpu else None,
    }


def gain(run: Mapping[str, Any]) -> float | None:
    """delta(T1, T1') of Veniat et al. 2021: accuracy on the last task at the end minus that on the first when it was learned, where
    both have the same classes of one source."""
    tasks, matrix = run["stream"]["tasks"], run["accuracy_matrix"]
    (first, first_classes), (last, last_classes) = ((task["source"], sorted(task["classes"])) for task in (tasks[0], tasks[-1]))
    if len(tasks) == 1 or (first, first_classes) != (last, last_classes) or None in (matrix[-1][-1], matrix[1][0]):
        return None
    return matrix[-1][-1] - matrix[1][0]


def settings_of(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Dotted names of all settings; of the data, the kind of the source alone."""
    flat: dict[str, Any] = {}
    for key, value in config.items():
        path = f"{prefix}{key}"
        if path == "data":
            targets = sorted({str(source["_target_"]) for source in value.get("sources", {}).values()})
            kind = "synthetic" if all("synthetic" in target for target in targets) else "real"
            stand_ins = [f"{other} for {name}" for name, other in sorted((value.get("substitute") or {}).items())]
            flat["data"] = ", ".join([kind, *stand_ins])
        elif isinstance(value, Mapping) and value:
            flat |= settings_of(value, f"{path}.")
        elif key not in ("_target_", "seed"):
            flat[path] = value
    return flat


def differing(groups: Sequence[Group]) -> list[str]:
    """Settings in which groups of one experiment and learner differ: what was varied. Different streams are told by their names alone."""
    varied = []
    for key in dict.fromkeys(key for group in groups for key in group.settings):
        by_learner: dict[tuple, set] = {}
        for group in groups:
            stream = group.settings.get("stream.name") if key.startswith("stream.") and key != "stream.name" else None
            by_learner.setdefault((group.experiment, group.learner, stream), set()).add(repr(group.settings.get(key)))
        if any(len(values) > 1 for values in by_learner.values()):
            varied.append(key)
    return varied


def published(group: Group) -> dict[str, float]:
    """What papers print for this experiment, learner and settings: all settings that can matter, not those that somebody thought of."""
    if group.settings.get("data") != "real":
        return {}
    found: dict[str, float] = {}
    for paper in papers():
        for row in paper["rows"] if paper["experiment"] == group.experiment else ():
            if group.learner.startswith(row["learner"]):
                others = (f"{key}={value}" for key, value in row.items() if key not in COLUMNS)
                learner, settings = as_published(group.experiment, (*paper["command"], *others))
                if learner == group.learner and not departures(group.settings, settings):
                    found |= {key: value for key, value in row.items() if key in COLUMNS}
    return found


@cache
def papers() -> list[dict[str, Any]]:
    import yaml

    return yaml.safe_load((Path(__file__).parent / "published.yaml").read_text())


@cache
def as_published(experiment: str, overrides: tuple[str, ...]) -> tuple[str, dict[str, Any]]:
    """The learner's name and all settings of a command."""
    from cl_lightning.config import compose_config

    cfg = compose_config(f"+experiment={experiment}", *overrides)
    return learner_name(cfg), settings_of(relevant(cfg))


def departures(settings: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    """Settings that are not as wanted. An older run knows fewer: those are as they were."""
    own = {key for key in settings if key not in wanted}
    other = {key for key, value in wanted.items() if key in settings and settings[key] != value}
    return sorted(key for key in own | other if key not in HARMLESS)


def shortened(value: object, most: int = 40) -> str:
    """
    >>> shortened([0.01, 0.001]), shortened(list(range(100)), most=12)
    ('[0.01, 0.001]', '[0, 1, 2, 3…')
    """
    text = str(value)
    return text if len(text) <= most else text[: most - 1] + "…"


def table(groups: Sequence[Group]) -> tuple[list[str], list[list[str]]]:
    """Heads and rows: experiment, learner, what was varied, and each measure with the published value behind it."""
    varied, measures = differing(groups), [c for c in COLUMNS if any(c in group.values for group in groups)]
    printed = [published(group) for group in groups]
    beside = [column for column in measures if any(column in row for row in printed)]
    many = len({group.experiment for group in groups}) > 1
    heads = ["experiment"] * many + ["learner", *("stream" if key == "stream.name" else key.rpartition(".")[2] for key in varied)]
    for column in measures:
        heads += [COLUMNS[column], *["paper"] * (column in beside)]
    rows = []
    for group, of_paper in zip(groups, printed):
        row = [group.experiment] * many + [group.learner, *(shortened(group.settings.get(key)) for key in varied)]
        for column in measures:
            row += [group.shown(column), *([f"{of_paper[column]:g}" if column in of_paper else ""] if column in beside else [])]
        rows.append([*row, str(len(group.seeds))])
    return [*heads, "seeds"], rows


def stand_ins(groups: Sequence[Group]) -> list[str]:
    """A line for each experiment in which other images take the place of the named ones."""
    found: dict[str, set[str]] = {}
    for group in groups:
        _, *others = str(group.settings.get("data")).split(", ")  # as settings_of writes them
        found.setdefault(group.experiment, set()).update(others)
    return [f"{experiment}: {', '.join(sorted(others))} (data.substitute)." for experiment, others in found.items() if others]


def markdown(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """
    >>> print(markdown(["a", "b"], [["1", "2"]]))
    | a | b |
    | --- | --- |
    | 1 | 2 |
    """
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
