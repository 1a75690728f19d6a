"""Pfuelb et al. 2018: what the paper claims, and what did not come out as printed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf, isnan, nan

from cl_lightning.report.beside import dnn_of
from cl_lightning.report.groups import Group
from cl_lightning.report.paper import mean_in
from cl_lightning.report.printed import tables

SOURCE = "mnist"
NOT_RUN = "not run"
PAIRS = [f"D5-5{letter}" for letter in "abcdefgh"]  # of five classes each


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
            most(pair[1] for name in PAIRS if (pair := mean_in(groups, "icann18", "table 3", "fc", name))),
            at_most=0.80),
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
    """The greatest distance of ``realistic_as_released`` from what table 4 prints of a model on D5-5."""
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
    for name in ("D5-5a", "D9-1a"):
        if pair := mean_in(groups, "icann18", "table 3", "EWC", name):
            rows.append([f"EWC on {name}, prescient", f"{pair[0]:g}", f"{pair[1]:.3f}", why])
    released = value_on(of_model(groups, "fc"), "D9-1a", "realistic_as_released")
    if pair := mean_in(groups, "icann18", "table 4", "fc", "D9-1a"):
        why = f"{released:.3f} as the released program chooses: the rate by D2, the last crossing"
        rows.append(["fc on D9-1a, realistic", f"{pair[0]:g}", f"{pair[1]:.3f}", why])
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
