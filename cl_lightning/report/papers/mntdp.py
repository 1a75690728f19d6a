"""Veniat et al. 2021: what did not come out as printed."""

from __future__ import annotations

from collections.abc import Sequence

from cl_lightning.report.compare import Group
from cl_lightning.report.paper import mean_in

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
    why = "the reduced protocol has one rate and no weight decay; six points take six times as long"
    rows.append(["rates", "chosen for each task", "no choice", why])
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
