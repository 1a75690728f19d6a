"""Lopez-Paz and Ranzato 2017: what did not come out as printed."""

from __future__ import annotations

from collections.abc import Sequence

from cl_lightning.report.groups import Group
from cl_lightning.report.paper import mean_in

DIP = "tasks are learned better here, and a run of one pass may end in a dip: see below"
CLAIMS = (  # row and columns of table 3, and why
    ("GEM", "BWT", (1, 2), DIP),
    ("EWC", "ACC", (1, 2, 5), "not found; at one pass every entry is that of the authors' program"),
    ("EWC", "BWT", (2, 5), "as above"),
    ("independent", "ACC", (1, 2, 5), "five units a layer vary with the seed; the authors' script runs one"),
    ("multimodal", "ACC", (2, 5), "they vary with the seed, and with the first weights"),
)


def not_reproduced(groups: Sequence[Group]) -> list[list[str]]:
    """Rows of what, printed, ours and why."""
    rows = []
    for row, measure, passes, why in CLAIMS:
        heads = [f"{measure}, {n} pass{'es' * (n > 1)}" for n in passes]
        found = [mean_in(groups, "gem", "table 3", row, head) for head in heads]
        pairs = [pair for pair in found if pair]
        if len(pairs) == len(found):
            counts = f"{', '.join(map(str, passes[:-1]))} and {passes[-1]} passes"
            printed = ", ".join(f"{pair[0]:g}" for pair in pairs)
            ours = ", ".join(f"{pair[1]:.3f}" for pair in pairs)
            rows.append([f"{row} on rotations, {measure} at {counts}", printed, ours, why])
    return rows
