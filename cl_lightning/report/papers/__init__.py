"""What papers claim, and what did not come out as they print it: one file a paper."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec

from cl_lightning.report.formats import Sheet
from cl_lightning.report.groups import Group


def claims_of(paper: str, groups: Sequence[Group]) -> Sheet | None:
    """What a paper claims, or how its rows lie to each other, and what ours say; None where its file, if it
    has one, says nothing."""
    place = f"{__name__}.{paper}"
    module = import_module(place) if find_spec(place) else None
    if module is None or not hasattr(module, "claims"):
        return None
    return module.CLAIMS, module.claims(groups)
