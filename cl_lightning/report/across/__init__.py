"""Figures of several runs, one file each: whatever file lies here is found.

A figure has ``figure(learners)``: by the learner's name its runs, seeds of one stream or of several; it is
None where the runs have nothing to show.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

from cl_lightning.report.compare import head_of, in_a_cell
from cl_lightning.report.groups import settings_of

Runs = Sequence[Mapping[str, Any]]
Learners = Mapping[str, Runs]


def by_learner(runs: Iterable[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    """Finished runs by learner, and by what was varied where a learner has several settings on one stream."""
    finished = sorted((run for run in runs if run["finished"]), key=lambda run: (run["name"], run["seed"]))
    groups: dict[str, dict[tuple[str, str], dict[str, Any]]] = {}
    for run in finished:
        groups.setdefault(run["learner"], {})[run["name"], run["fingerprint"]] = settings_of(run["config"])
    learners: dict[str, list[Mapping[str, Any]]] = {}
    for run in sorted(finished, key=lambda run: run["learner"]):
        own, place = groups[run["learner"]], (run["name"], run["fingerprint"])
        words, on_one = [], [settings for (name, _), settings in own.items() if name == run["name"]]
        if len({name for name, _ in own}) < len(own):
            keys = [key for key in own[place] if len({repr(settings.get(key)) for settings in on_one}) > 1]
            words = [f"{head_of(key)}={in_a_cell(own[place][key])}" for key in keys] or [place[1][:6]]
        learners.setdefault(" ".join([run["learner"], *words]), []).append(run)
    return learners


def streams(learners: Learners) -> list[str]:
    """The experiments that runs are of."""
    return sorted({run["name"] for runs in learners.values() for run in runs})


def seeds_of(runs: Runs, stream: str) -> list[Mapping[str, Any]]:
    """The runs of one experiment."""
    return [run for run in runs if run["name"] == stream]


def mean_and_deviation(values: Sequence[float]) -> tuple[float, float]:
    """Over seeds; the deviation of one is 0."""
    return fmean(values), stdev(values) if len(values) > 1 else 0.0


def known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def operations(run: Mapping[str, Any]) -> float:
    """Of the chosen point, in Tflop; of all candidates where results are older."""
    counted = sum(cost["published_flops"] for cost in run["costs"])
    return (counted or sum(cost["flops"] for cost in run["costs"])) / 1e12


def seconds(run: Mapping[str, Any]) -> float:
    """Of the processor: all training, that of generators and of copies for a test, too."""
    return sum(cost["seconds"].get("cpu", 0.0) for cost in run["costs"])


def held(run: Mapping[str, Any], task: int = -1) -> float:
    """Megabytes held after a task."""
    return sum(run["costs"][task]["held"].values()) / 1e6


def bands(
    axes: Any,
    learners: Mapping[str, Sequence[Sequence[float]]],
    places: Mapping[str, Sequence[float]] | None = None,
) -> None:
    """A line a learner, the mean over seeds, in a band of one deviation; ``learners`` have a curve a seed, at
    ``places`` or at whole numbers from 1."""
    from cl_lightning.report.style import colour, marker, whole_numbers

    for place, (name, curves) in enumerate(learners.items()):
        points = [mean_and_deviation(column) for column in zip(*curves)]
        x = list(places[name] if places else range(1, 1 + len(points)))
        few = marker(place) if len(x) <= 25 else None
        axes.plot(x, [m for m, _ in points], color=colour(place), marker=few, label=name, clip_on=False)
        if len(curves) > 1:
            low, high = [m - d for m, d in points], [m + d for m, d in points]
            axes.fill_between(x, low, high, color=colour(place), alpha=0.2, linewidth=0)
    whole_numbers(axes.xaxis)
