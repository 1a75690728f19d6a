"""References found by content: runs of joint and of independent training on the very stream, seed and network
of a run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from cl_lightning.metrics.accuracy_matrix import forgetting_ratio
from cl_lightning.report.schema import Results

LEARNERS = {"cl_lightning.learners.Joint": "joint", "cl_lightning.learners.Independent": "independent"}
AGAINST = {  # results, and what they are against
    "forgetting_ratio": "joint",
    "transfer": "independent",
    "forward_from_independent": "independent",
}
HEADS = {
    "forgetting_ratio": "forgetting ratio",
    "transfer": "T",
    "forward_from_independent": "FWT from independent",
}


class References:
    """All runs that are references of others."""

    def __init__(self, runs: Iterable[Results]) -> None:
        self.known: dict[tuple[str, ...], dict[str, Results]] = {}
        for run in runs:
            if (role := role_of(run)) and run["finished"]:
                self.known.setdefault(key_of(role, run), {})[run["fingerprint"]] = run

    def of(self, role: str, run: Results) -> Results | None:
        """The one run that is this reference of another; None where there is none, or are several."""
        found = self.known.get(key_of(role, run), {})
        return next(iter(found.values())) if len(found) == 1 and role_of(run) != role else None

    def values(self, run: Results) -> dict[str, float | None]:
        """What a run comes to against its references."""
        joint, alone = self.of("joint", run), self.of("independent", run)
        own = matrix_of(run)
        values: dict[str, torch.Tensor] = {}
        if joint:
            other = matrix_of(joint)
            untrained = other[0] if own[0].isnan().any() else own[0]
            values["forgetting_ratio"] = forgetting_ratio(own, untrained, other[-1])
        if alone:
            # of each task when it was learned: old networks of independent learners do not change
            gained = (own - matrix_of(alone))[1:].diagonal()
            values["forward_from_independent"] = gained[1:].mean()
            values["transfer"] = own[-1, -1] - matrix_of(alone)[-1, -1]
        numbers = {name: value.item() for name, value in values.items()}
        if run["reference"]:  # of a reference that the run itself has trained
            numbers.pop("transfer", None)
        return {name: value if math.isfinite(value) else None for name, value in numbers.items()}

    def said(self, run: Results) -> str:
        """A sentence on what a run's values are against, and why some are missing."""
        parts = []
        for role in dict.fromkeys(AGAINST.values()):
            heads = " and ".join(HEADS[name] for name, other in AGAINST.items() if other == role)
            several = len(self.known.get(key_of(role, run), {}))
            if self.of(role, run):
                parts.append(f"{heads}: against {role}, of the same stream, seed and network")
            elif several > 1 and role_of(run) != role:
                parts.append(f"no {heads}: {several} runs of {role} have this stream, seed and network")
        return "; ".join(parts)


def role_of(run: Results) -> str | None:
    """Which reference a run is of others. Independent networks are whole ones that begin at random."""
    learner: Mapping[str, Any] = run["config"].get("learner", {})
    role = LEARNERS.get(str(learner.get("_target_")))
    whole = not learner.get("split_width") and learner.get("start", "random") == "random"
    return role if role != "independent" or whole else None


def key_of(role: str, run: Results) -> tuple[str, ...]:
    """What a run and its reference share. Heads are how outputs are shared out, which learners differ in."""
    network = {key: value for key, value in run["config"].get("backbone", {}).items() if key != "heads"}
    return role, run["stream"]["fingerprint"], str(run["seed"]), repr(sorted(network.items()))


def matrix_of(run: Results) -> torch.Tensor:
    rows = [[math.nan if value is None else value for value in row] for row in run["accuracy_matrix"]]
    return torch.tensor(rows, dtype=torch.float64)
