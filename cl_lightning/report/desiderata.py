"""What experiments show: the five desiderata of Farquhar and Gal 2018, and the six further challenges that
they name, decided from what happened in runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations, pairwise
from typing import Any

from cl_lightning.evaluation.card import Finding, verdict
from cl_lightning.report.formats import Sheet

Run = Mapping[str, Any]
DESIDERATA = {  # rules of the card, and their heads
    "cross-task resemblance": "tasks resemble", "shared output head": "one head",
    "no task label at test": "no label", "no retraining on old tasks": "no retraining",
    "more than two tasks": "tasks > 2",
}  # fmt: skip
LONG = 20  # tasks of a long sequence; the paper names no number
GROWTH = 1.01  # of bytes held that counts as none, as on the card
WORDS = {"satisfied": "yes", "violated": "no", "unknown": "?"}


def challenges(run: Run) -> list[Finding]:
    """Whether a run takes up each of the further challenges, with the number that tells."""
    tasks, held = run["stream"]["tasks"], [sum(cost["held"].values()) for cost in run["costs"]]
    told = run["config"].get("grants", {}).get("boundaries", True)
    change, shared = largest_change(run), largest_overlap(tasks)
    seconds = max(sum(cost["seconds"].values()) for cost in run["costs"])
    limited = run["config"]["trainer"]["single_pass"] or run["config"]["trainer"]["max_steps"] is not None
    grown = held[-1] / held[min(1, len(held) - 1)]
    return [
        verdict("no boundaries told", not told, "told" if told else "hidden"),
        verdict("continuous tasks", None if change is None else change < 1, share(change)),
        verdict("overlapping tasks", shared > 0, share(shared)),
        verdict("long sequence", len(tasks) >= LONG, f"{len(tasks)} tasks"),
        verdict("time limit", limited, f"{seconds:.3g} s a task"),
        verdict("memory limit", grown <= GROWTH, f"{grown - 1:+.1%} bytes"),
    ]


def share(value: float | None) -> str:
    return "" if value is None else f"{value:.2g}"


def largest_change(run: Run) -> float | None:
    """The largest total variation between the classes of neighbouring tasks: 1 where all are others. None
    where it is not the mixture of classes that changes. Classes of a task count alike, where results do not
    tell their shares."""
    tasks = run["stream"]["tasks"]
    mixtures = [mixture(task) for task in tasks]
    changes = [
        sum(abs(one.get(c, 0.0) - other.get(c, 0.0)) for c in {*one, *other}) / 2
        for one, other in pairwise(mixtures)
    ]
    return max(changes) if changes and min(changes) > 0 else None


def mixture(task: Mapping[str, Any]) -> dict[tuple[str, str], float]:
    classes = task["classes"]
    shares = [each for each in task.get("mixture", ()) if each] or [1 / len(classes)] * len(classes)
    return {(task["source"], name): each for name, each in zip(classes, shares)}


def largest_overlap(tasks: Sequence[Mapping[str, Any]]) -> float:
    """The largest share of classes that two tasks have in common, of those of either (Jaccard)."""
    sets = [set(mixture(task)) for task in tasks]
    return max((len(one & other) / len(one | other) for one, other in combinations(sets, 2)), default=0.0)


def card_table(runs: Iterable[Run]) -> Sheet:
    """Experiments x desiderata and challenges: a row for all runs of an experiment, a head and a learner.
    Where these differ, the cell has the verdicts of all."""
    rows: dict[tuple[str, ...], list[list[Finding]]] = {}
    for run in runs:
        of_card = {each["rule"]: Finding(**each) for each in run["card"]}
        if of_card:
            key = run["name"], run["stream"]["tasks"][0]["head"]["mode"], run["learner"]
            rows.setdefault(key, []).append([*map(of_card.__getitem__, DESIDERATA), *challenges(run)])
    heads = [each.rule for found in rows.values() for each in found[0][len(DESIDERATA) :]]
    cells = [[*key, *map(in_words, zip(*found))] for key, found in sorted(rows.items())]
    return ["experiment", "head", "learner", *DESIDERATA.values(), *dict.fromkeys(heads)], cells


def in_words(findings: Sequence[Finding]) -> str:
    """
    >>> in_words([Finding("long sequence", "violated", "5 tasks"), Finding("long sequence", "violated", "6")])
    'no (5 tasks, 6)'
    >>> in_words([Finding("one head", "satisfied", "x"), Finding("shared output head", "unknown", "y")])
    'yes, ?'
    """
    said = ", ".join(dict.fromkeys(WORDS[each.verdict] for each in findings))
    graded = findings[0].rule not in DESIDERATA and findings[-1].rule not in DESIDERATA
    numbers = dict.fromkeys(each.evidence for each in findings if each.evidence)
    return f"{said} ({', '.join([*numbers][:2])})" if graded and numbers else said
