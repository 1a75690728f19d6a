"""Runs side by side, means over seeds, beside what papers print."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cl_lightning.report.beside import published
from cl_lightning.report.formats import Sheet
from cl_lightning.report.groups import COLUMNS, OWN, Group

DAGGER = "†"  # beside what was chosen by whole streams, as in Veniat et al. 2021

LEARNERS_OWN = (  # settings, and beginnings of settings, that each learner of an experiment has for itself
    "learner.", "selection.", "backbone.init", "trainer.lr", "trainer.momentum", "trainer.weight_decay",
)  # fmt: skip


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
        values = (group.settings.get(key) for key in varied)
        of_values = [(0, v, "") if is_number(v) else (1, 0, str(v)) for v in values]
        return group.experiment, group.learner, of_values

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


def table(groups: Sequence[Group], beside_print: bool = True) -> Sheet:
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
        row = [group.experiment] * many + [group.learner + DAGGER * bool(group.chosen)]
        row += [in_a_cell(group.settings.get(key)) for key in varied]
        for column in measures:
            of_print = f"{of_paper[column]:g}" if column in of_paper else ""
            row += [group.label(column), *[of_print] * (column in beside)]
        rows.append([*row, str(len(group.seeds))])
    return [*heads, "seeds"], rows
