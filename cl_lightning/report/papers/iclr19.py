"""Pfuelb and Gepperth 2019: what the paper claims, and what did not come out as printed."""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan, nan

from cl_lightning.report.groups import Group
from cl_lightning.report.paper import mean_in
from cl_lightning.report.papers.icann18 import kind, of_model, row, value, value_on

MODELS = {"FC": "fc", "D-FC": "d_fc", "CONV": "conv", "D-CONV": "d_conv", "LWTA": "lwta"}  # but EWC


CLAIMS = ["claim", "asked for", "ours", "verdict"]  # heads


def claims(groups: Sequence[Group]) -> list[list[str]]:
    """Rows of claim, what is asked for, ours and the verdict."""
    merged = [group for group in of_model(groups, "imm") if kind(group) == "D5-5a"]
    imm = {group.settings.get("learner.merging", "mode"): group for group in merged}
    mode, mean = ([imm[name]] if name in imm else [] for name in ("mode", "mean"))
    fc = [g for g in of_model(groups, "fc") if g.learner == "finetune"]
    kept = [g for g in of_model(groups, "fc") if g.learner == "stop_by_kept"]
    found = [
        row(f"{name} forgets D1 of each D5-5: the smallest best ({runs} of 8 run)", "at most 0.55", least,
            at_most=0.55)
        for name, dnn in MODELS.items()
        for runs, least in [smallest(of_model(groups, dnn))]
    ]  # fmt: skip
    found += [
        row("IMM by modes on D5-5a, its best alpha (chosen by test data)", "above 0.70",
            value_on(mode, "D5-5a", "best_end_on_both"), at_least=0.70),
        row("IMM by modes on D5-5a, alpha 1/2 (honest)", "beside it",
            value_on(mode, "D5-5a", "end_on_both")),
        row("IMM by means on D5-5a, its best alpha (chosen by test data)", "beside it",
            value_on(mean, "D5-5a", "best_end_on_both")),
        row("IMM by means on D5-5a, alpha 1/2 (honest)", "beside it",
            value_on(mean, "D5-5a", "end_on_both")),
        row("what modes' Fisher information costs: processor seconds more than means", "beside it",
            value_on(mode, "D5-5a", "cpu_seconds") - value_on(mean, "D5-5a", "cpu_seconds")),
        row("the same: megabytes held more than means", "beside it",
            value_on(mode, "D5-5a", "held") - value_on(mean, "D5-5a", "held")),
        row("stopping by 100 kept images of D1 recovers of best - last on D9-1a", "at least 0.8",
            recovered(fc, kept, "D9-1a"), at_least=0.8),
    ]  # fmt: skip
    return found


FAR = {  # cells of MNIST D5-5 in table 3 that are far from ours, and why
    "LWTA best": "not found: in print a pair of tasks is learned no better than by chance, here none",
    "LWTA last": "as above",
    "D-FC last": "not found: ours is after 600 mini-batches with one rate, in print after ten epochs",
}


def not_reproduced(groups: Sequence[Group]) -> list[list[str]]:
    """Rows of what, printed, ours and why: claims that do not hold, and cells that are far away."""
    why = "two topologies of six, and 600 mini-batches a task"
    rows = [[*said, why] for *said, verdict in claims(groups) if verdict == "does not hold"]
    for head, reason in FAR.items():
        if pair := mean_in(groups, "iclr19", "table 3", "MNIST D5-5", head):
            rows.append([head.replace(" ", " on D5-5, smallest "), f"{pair[0]:g}", f"{pair[1]:.3f}", reason])
    return rows


def smallest(groups: Sequence[Group]) -> tuple[int, float]:
    """On how many of the eight pairs of five classes each a model was run, and its smallest best."""
    own = [(kind(g), value(g, "best_on_both")) for g in groups if kind(g).startswith("D5-5")]
    known = {name: best for name, best in own if not isnan(best)}
    return len(known), min(known.values(), default=nan)


def recovered(plain: Sequence[Group], kept: Sequence[Group], pair: str) -> float:
    """Of what finetuning loses after its best point, the part that is not lost where kept images tell when to
    stop."""
    best, last = (value_on(plain, pair, f"{name}_on_both") for name in ("best", "last"))
    return (value_on(kept, pair, "end_on_both") - last) / (best - last) if best != last else nan
