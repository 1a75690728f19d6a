"""Veniat et al. 2021: what did not come out as printed, and how far rows agree with it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from cl_lightning.report.groups import Group
from cl_lightning.report.paper import mean_in
from cl_lightning.report.printed import tables

FIVE = ("table 13", "table 14", "table 15", "table 16", "table 17")  # S-, S+, S-in, S-out, S-pl


def not_reproduced(groups: Sequence[Group]) -> list[list[str]]:
    """Rows of what, printed, ours and why."""
    gain = less(groups, "MNTDP-D", "A")
    curves = less(groups, "New-head freeze", "LCA@5")
    transfer = {stream: mean_in(groups, "mntdp", table, "MNTDP-D", "T") for stream, table in TRANSFER}
    rows = []
    if gain:
        why = "no choice of rates, width 16, other images in the place of SVHN and DTD"
        rows.append(["MNTDP-D's A above Independent's, mean of five streams", *signed(gain), why])
    for stream, pair in transfer.items():
        if pair:
            why = "perhaps the width: the first task, which is taken over, is learned less well itself"
            rows.append([f"MNTDP-D's T on {stream}", *signed(pair), why])
    if curves:
        why = "not found; five mini-batches are 160 images here and 1280 in print"
        rows.append(["New-head's LCA@5 above Independent's, mean of five streams", *signed(curves), why])
    why = "as in the authors' code: on a saturated background a channel is constant"
    rows.append(["images of S-in", "normalised", "not normalised", why])
    why = "six points take six times as long; there is no weight decay here"
    two = any("selection.grid.lr" in group.settings for group in groups)
    some = "one; of two for Independent and MNTDP-D, where a row says so" if two else "no choice"
    rows.append(["rates", "chosen for each task", some, why])
    return rows


TRANSFER = (("S-", "table 13"), ("S-out", "table 16"))


def less(groups: Sequence[Group], row: str, head: str) -> tuple[float, float] | None:
    """What a row has above Independent on average over the five streams, in print and here."""
    found = [
        (mean_in(groups, "mntdp", table, row, head), mean_in(groups, "mntdp", table, "Independent", head))
        for table in FIVE
    ]
    pairs = [(own[0] - alone[0], own[1] - alone[1]) for own, alone in found if own and alone]
    if len(pairs) < len(FIVE):
        return None
    return sum(p for p, _ in pairs) / len(FIVE), sum(o for _, o in pairs) / len(FIVE)


def signed(pair: tuple[float, float]) -> list[str]:
    return [f"{pair[0]:+.3f}", f"{pair[1]:+.3f}"]


# ---- how far the rows agree --------------------------------------------------------------------------------


CLAIMS = ["what", "where", "ours", "said"]  # heads


def claims(groups: Sequence[Group]) -> list[list[str]]:
    """Rows of what, where, how much, and what differs: signs of T, ranks of A, and how rows lie to each
    other, of what was run."""
    return [*signs(groups), *ranks(groups), *beside_each_other(groups)]


def transfers(groups: Sequence[Group], table: str) -> Iterator[tuple[str, float, float]]:
    """Of each row of a stream's table T in print, where it is .1 or more, and here. Of AlexNets, as in print,
    it is against the last task of Independent, which is a ResNet."""
    last = "acc T5" if table == "table 17" else "acc T1'"
    alone = mean_in(groups, "mntdp", table, "Independent", last)
    for row, cells in next(each for each in tables("mntdp") if each.name == table).rows.items():
        other_reference = bool(cells["T"].differs)
        own = mean_in(groups, "mntdp", table, row, last if other_reference else "T")
        base = (alone and alone[1]) if other_reference else 0.0
        value = cells["T"].value
        if own and base is not None and isinstance(value, float) and abs(value) >= 0.1:
            yield row, value, own[1] - base


def signs(groups: Sequence[Group]) -> list[list[str]]:
    found = {table: list(transfers(groups, table)) for table in FIVE}
    where = {f"{row} ({table})": t * o > 0 for table, rows in found.items() for row, t, o in rows}
    other = ", ".join(name for name, same in where.items() if not same) or "-"
    what = "sign of T, where .1 or more is printed"
    return [[what, "tables 13 to 17", f"{sum(where.values())} of {len(where)}", other]]


def ranks(groups: Sequence[Group]) -> list[list[str]]:
    """Spearman's correlation, where there are four rows or more."""
    rows = []
    for table in ("table 1", *FIVE):
        names = list(next(each for each in tables("mntdp") if each.name == table).rows)
        pairs = {name: mean_in(groups, "mntdp", table, name, "A") for name in names}
        known = {name: pair for name, pair in pairs.items() if pair}
        if len(known) >= 4:
            printed, ours = np.array([*known.values()]).T
            found = f"{np.corrcoef(rank(printed), rank(ours))[0, 1]:.2f} of {len(known)} rows"
            rows.append(["rank correlation of A", table, found, "-"])
    return rows


def rank(values: np.ndarray) -> np.ndarray:
    """Ranks from 0; equal values share the mean of theirs.

    >>> rank(np.array([0.5, 0.1, 0.5])).tolist()
    [1.5, 0.0, 1.5]
    """
    return np.array([(values < v).sum() + ((values == v).sum() - 1) / 2 for v in values])


NEIGHBOURS = (  # a row, a column, and the row that it is compared with
    ("table 13", "Finetune", "F", None),
    ("table 16", "Finetune", "F", None),
    ("table 13", "EWC †", "T", None),
    ("table 13", "EWC †", "F", None),
    ("table 13", "PNN", "T", None),
    ("table 16", "PNN", "T", None),
    ("table 13", "HAT †", "F", None),
    ("table 12", "MNTDP-D", "A", "Independent"),
)
MEMORY = (  # two rows whose memory is compared
    ("table 13", "PNN", "MNTDP-D"),
    ("table 16", "PNN", "MNTDP-D"),
    ("table 12", "MNTDP-D", "Independent"),
)


def beside_each_other(groups: Sequence[Group]) -> Iterator[list[str]]:
    for table, row, head, other in NEIGHBOURS:
        own = mean_in(groups, "mntdp", table, row, head)
        base = mean_in(groups, "mntdp", table, other, head) if other else (0.0, 0.0)
        if own and base:
            what = f"{row}'s {head}" + (f" above {other}'s" if other else "")
            printed, ours = signed((own[0] - base[0], own[1] - base[1]))
            yield [what, table, ours, f"printed {printed}"]
    for table, row, other in MEMORY:
        own, base = (mean_in(groups, "mntdp", table, name, "Mem MB") for name in (row, other))
        if own and base:
            printed, ours = (f"{one / two:.2f}" for one, two in zip(own, base))
            yield [f"{row}'s memory over {other}'s", table, ours, f"printed {printed}"]
