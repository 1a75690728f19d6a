"""Pfuelb et al. 2018: what the paper claims, and what did not come out as printed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf, isnan, nan

from cl_lightning.report.beside import dnn_of
from cl_lightning.report.groups import Group
from cl_lightning.report.printed import tables

SOURCE = "mnist"
NOT_RUN = "not run"


CLAIMS = ["claim", "asked for", "ours", "verdict"]  # heads


def claims(groups: Sequence[Group]) -> list[list[str]]:
    """Rows of claim, what is asked for, ours and the verdict."""
    fc, ewc = of_model(groups, "fc"), of_model(groups, "ewc")
    gaps = [value(group, "prescient") - value(group, "realistic") for group in groups]
    return [
        row("fc forgets nothing under a permutation: DP10-10, realistic", "at least 0.93",
            value_on(fc, "DP10-10", "realistic"), at_least=0.93),
        row("fc loses D1 on D5-5a: realistic", "0.43 to 0.60",
            value_on(fc, "D5-5a", "realistic"), at_least=0.43, at_most=0.60),
        row("fc on D9-1a at a second rate of 0.001: best", "0.83 to 0.93",
            value_on(fc, "D9-1a", "best at 0.001"), at_least=0.83, at_most=0.93),
        row("fc on D9-1a at a second rate of 0.001: last", "0.08 to 0.15",
            value_on(fc, "D9-1a", "last at 0.001"), at_least=0.08, at_most=0.15),
        row("EWC keeps more than fc on D9-1a at a second rate of 0.0001: last", "at least 0.15 more",
            value_on(ewc, "D9-1a", "last at 0.0001") - value_on(fc, "D9-1a", "last at 0.0001"),
            at_least=0.15),
        row("fc on D5-5: the highest prescient", "0.58 to 0.69 printed, below 0.80",
            most(value(g, "prescient") for g in fc if kind(g).startswith("D5-5")), at_most=0.80),
        row("prescient is never below realistic: the least difference", "at least 0",
            -most(-gap for gap in gaps), at_least=0.0),
        *(
            row(f"{name} changes the conclusion little: realistic on D5-5a, away from fc's", "below 0.1",
                abs(value_on(of_model(groups, dnn), "D5-5a", "realistic")
                    - value_on(fc, "D5-5a", "realistic")), at_most=0.1)
            for name, dnn in {"D-fc": "d_fc", "LWTA": "lwta"}.items()
        ),
        *(
            row(f"{name} on D5-5 at the published size, as the released program chooses: the farthest from "
                "table 4", "at most 0.02", farthest(groups, name, dnn), at_most=0.02)
            for name, dnn in {"fc": "fc", "D-fc": "d_fc"}.items()
        ),
    ]  # fmt: skip


def farthest(groups: Sequence[Group], name: str, dnn: str) -> float:
    """How far ``realistic_as_released`` comes at most from what table 4 prints of a model on D5-5."""
    printed = next(table for table in tables("icann18") if table.name == "table 4").rows[name]
    own = [g for g in groups if "+experiment=icann18" in g.command and kind(g).startswith("D5-5")]
    return most(
        abs(value(g, "realistic_as_released") - float(str(printed[kind(g)].value)))
        for g in own
        if dnn_of(g) == dnn
    )


def not_reproduced(groups: Sequence[Group]) -> list[list[str]]:
    """Rows of what, printed, ours and why."""
    rows = []
    why = "the released program tests EWC on one batch of 100 images, again and again, and takes the highest"
    for name, printed in (("D5-5a", 0.92), ("D9-1a", 1.0)):
        ours = value_on(of_model(groups, "ewc"), name, "prescient")
        if not isnan(ours):
            rows.append([f"EWC on {name}, prescient", f"{printed:g}", f"{ours:.3f}", why])
    ours = value_on(of_model(groups, "fc"), "D9-1a", "realistic")
    released = value_on(of_model(groups, "fc"), "D9-1a", "realistic_as_released")
    if not isnan(ours + released):
        why = f"{released:.3f} as the released program chooses: the rate by D2, the last crossing"
        rows.append(["fc on D9-1a, realistic", "0.15", f"{ours:.3f}", why])
    return rows


# ---- for both papers of these authors ----------------------------------------------------------------------


def kind(group: Group) -> str:
    return str(group.settings.get("stream.kind"))


def of_model(groups: Sequence[Group], name: str) -> list[Group]:
    """Those of a model on MNIST, with the grids of its file."""
    of_source = [group for group in groups if group.settings.get("stream.source", SOURCE) == SOURCE]
    as_in_file = [g for g in of_source if not any(word.startswith("tuned.") for word in g.command)]
    return [group for group in as_in_file if dnn_of(group) == name]


def value(group: Group, result: str) -> float:
    """The mean over seeds; NaN where there is none."""
    found = group.mean_and_deviation(result)
    return found[0] if found else nan


def value_on(groups: Sequence[Group], of_kind: str, result: str) -> float:
    """That of the runs on one pair of tasks with most seeds."""
    own = sorted((g for g in groups if kind(g) == of_kind), key=lambda g: -len(g.seeds))
    return value(own[0], result) if own else nan


def most(values: Iterable[float]) -> float:
    return max((each for each in values if not isnan(each)), default=nan)


def row(claim: str, asked: str, ours: float, at_least: float = -inf, at_most: float = inf) -> list[str]:
    """
    >>> row("sure", "at least 0.5", 0.4, at_least=0.5)
    ['sure', 'at least 0.5', '0.400', 'does not hold']
    >>> row("sure", "beside it", 0.4), row("sure", "at least 0.5", nan, at_least=0.5)
    (['sure', 'beside it', '0.400', ''], ['sure', 'at least 0.5', '', 'not run'])
    """
    if isnan(ours):
        return [claim, asked, "", NOT_RUN]
    verdict = "holds" if at_least <= ours <= at_most else "does not hold"
    return [claim, asked, f"{ours:.3f}", verdict if (at_least, at_most) != (-inf, inf) else ""]
