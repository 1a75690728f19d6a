"""Phases whose candidates are trained by several jobs of a sweep: each round of jobs trains one phase."""

from __future__ import annotations

from cl_lightning.errors import RoundOver
from cl_lightning.learners.base import Phase
from cl_lightning.parallel.shares import divided
from cl_lightning.store.files import Store
from cl_lightning.store.records import GroupRecord, Place, PlanRecord

PLAN = "work/plan"


class Rounds:
    """What one job of a round does: it trains the ``share`` of this name; without one, it goes on with the
    run until a phase is to be shared out. Other jobs find its results in the store."""

    def __init__(self, share: str | None) -> None:
        self.share = share
        self.trained: Place | None = None  # the phase of which this job has trained its share

    def own(self, store: Store, phase: Phase, place: Place, left: set[int], at_once: int | None) -> set[int]:
        """Those of a phase's candidates ``left`` that this job trains."""
        plan = store.load(PLAN, PlanRecord)
        shares = plan.by_name if plan is not None and plan.place == place else {}
        if self.share in shares:
            self.trained = place
            return left & set(shares[self.share])
        if left and (shares or self.share):
            raise RoundOver  # other jobs train them
        to_share = divided(phase.candidates, sorted(left), at_once)
        if len(to_share) > 1:
            store.save(PLAN, PlanRecord(place, to_share))
            raise RoundOver
        return left

    def end_of(self, place: Place) -> None:
        """End a job that has trained its share."""
        if self.trained == place:
            raise RoundOver


def missing(store: Store) -> list[str] | None:
    """Shares still to train of the phase at hand; None where no phase is shared out."""
    plan = store.load(PLAN, PlanRecord)
    if plan is None:
        return None
    done = {number for group in store.records(plan.place.key, GroupRecord) for number in group.numbers}
    return [name for name, share in plan.by_name.items() if not done.issuperset(share)]
