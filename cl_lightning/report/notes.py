"""What is to be said below a table of runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations

from cl_lightning.report.beside import published, why_nothing_published
from cl_lightning.report.compare import DAGGER, differing, heads_of, in_a_cell
from cl_lightning.report.groups import COLUMNS, Group
from cl_lightning.report.reading import Runs


def notes(groups: Sequence[Group]) -> list[str]:
    """Lines on what rows are and lack, and on seeds and code that were not the same."""
    kinds = (chosen, stand_ins, scenarios, against, undefined, unpublished, different_seeds, different_code)
    return [line for kind in kinds for line in kind(groups)]


def chosen(groups: Sequence[Group]) -> list[str]:
    """What the dagger means, and for which seeds where it is not all."""
    varied = differing(groups)
    of_some = [
        f"{row_name(group, varied)} for seed {seed_list(group.chosen)}"
        for group in groups
        if group.chosen and group.chosen != group.seeds
    ]
    more = f"; {', '.join(of_some)}" if of_some else ""
    line = f"{DAGGER} chosen by validation data of whole streams (selection=stream_level){more}."
    return [line] if any(group.chosen for group in groups) else []


def unfinished(runs: Runs) -> list[str]:
    """A line for each run that is not in the table, because it is not finished or its files are damaged."""
    left = (run for run in runs.results if not run["finished"])
    lines = [
        f"Not finished, and not above: {run['name']} {run['learner']} (seed {run['seed']}), "
        f"{len(run['costs'])} of {len(run['stream']['tasks'])} tasks learned."
        for run in left
    ]
    return [*lines, *runs.said]


def stand_ins(groups: Sequence[Group]) -> list[str]:
    """A line for each experiment in which other images take the place of the named ones."""
    found: dict[str, set[str]] = {}
    for group in groups:
        _, *others = str(group.settings.get("data")).split(", ")  # as settings_of writes them
        found.setdefault(group.experiment, set()).update(others)
    return [
        f"{name}: {', '.join(sorted(others))} (data.substitute)." for name, others in found.items() if others
    ]


def scenarios(groups: Sequence[Group]) -> list[str]:
    """What is known of the task at test, and in which rows if it is not the same in all."""
    found = rows_by(groups, lambda group: group.scenario)
    return [f"{scenario}{rows and ': '}{rows}." for scenario, rows in found.items()]


def against(groups: Sequence[Group]) -> list[str]:
    """What results are against that one run alone does not have, and in which rows."""
    return in_rows(rows_by(groups, lambda group: group.against))


def undefined(groups: Sequence[Group]) -> list[str]:
    """Why which rows do not have what others have."""
    shown = [c for c in COLUMNS if any(group.mean_and_deviation(c) for group in groups)]

    def reasons(group: Group) -> str:
        why: dict[str, list[str]] = {}
        for column in shown:
            if column in group.undefined and group.mean_and_deviation(column) is None:
                why.setdefault(group.undefined[column], []).append(COLUMNS[column])
        return "; ".join(f"no {', '.join(heads)}: {reason}" for reason, heads in why.items())

    return in_rows(rows_by(groups, reasons))


def in_rows(found: Mapping[str, str]) -> list[str]:
    """A sentence for each thing that is said of rows."""
    return [f"{words[:1].upper()}{words[1:]}{rows and ', in '}{rows}." for words, rows in found.items()]


def unpublished(groups: Sequence[Group]) -> list[str]:
    """Why no published numbers stand beside which rows."""
    found = rows_by(groups, lambda group: "" if published(group) else why_nothing_published(group))
    return [f"No published number stands beside {rows or 'these'}: {why}." for why, rows in found.items()]


def rows_by(groups: Sequence[Group], what: Callable[[Group], str]) -> dict[str, str]:
    """What is said of rows, with their names if it is not said of all; nothing where it is empty."""
    varied = differing(groups)
    found: dict[str, list[str]] = {}
    for group in groups:
        found.setdefault(what(group), []).append(row_name(group, varied))
    return {words: "; ".join(rows) * (len(found) > 1) for words, rows in found.items() if words}


def different_seeds(groups: Sequence[Group]) -> list[str]:
    """A line for each experiment with two rows of which neither has all seeds of the other. (Where one has
    more, their number tells.)"""
    varied = differing(groups)
    lines = []
    for name in dict.fromkeys(group.experiment for group in groups):
        of_one = [group for group in groups if group.experiment == name]
        pairs = combinations({frozenset(group.seeds) for group in of_one}, 2)
        if any(not (one <= other or other <= one) for one, other in pairs):
            rows = "; ".join(
                f"{row_name(group, varied)} for seed {seed_list(group.seeds)}" for group in of_one
            )
            lines.append(f"These rows have not the same seeds, and so not the same draws: {rows}.")
    return lines


def different_code(groups: Sequence[Group]) -> list[str]:
    """Which code made which runs, where it was not the same. The program's part of the hash is compared among
    all runs; that of learners and classes of one's own among runs with the same of these."""
    made = {code for group in groups for code in group.code}
    programs = {(code.package, code.torch, code.source.partition(".")[0]) for code in made}
    hashes = {(code.own, code.source) for code in made}
    if len(programs) < 2 and len(hashes) == len({code.own for code in made}):
        return []
    varied = differing(groups)
    lines = ["These runs were not all made by the same code, and may differ for that reason:"]
    for said in dict.fromkeys(map(str, sorted(made))):
        codes = [(group, code) for group in groups for code in group.code if str(code) == said]
        rows = [(row_name(group, varied), group.code[code]) for group, code in codes]
        lines.append(f"{said}: {'; '.join(f'{row} (seed {seed_list(seeds)})' for row, seeds in rows)}")
    return lines


def row_name(group: Group, varied: Sequence[str]) -> str:
    settings = (f"{head}={in_a_cell(group.settings.get(key))}" for key, head in zip(varied, heads_of(varied)))
    return " ".join([group.experiment, group.learner, *settings])


def seed_list(seeds: Sequence[int]) -> str:
    return ", ".join(map(str, seeds))
