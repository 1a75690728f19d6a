"""Phases whose candidates are trained by several jobs of a sweep: each round of jobs trains one phase."""

from __future__ import annotations

from pathlib import Path

from cl_lightning.errors import Refusal, RoundOver
from cl_lightning.learners.base import Phase
from cl_lightning.parallel.shares import divided
from cl_lightning.selection.sweep import late_by
from cl_lightning.store.atomic import in_time
from cl_lightning.store.files import Store
from cl_lightning.store.folder import learned_tasks, open_store
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


def missing_in(folder: Path) -> list[str] | None:
    """The shares that ``missing`` finds for the run in a folder; None, too, where no run is there."""
    found = open_store(folder)
    return None if found is None else missing(found[0])


def open_for_share(folder: Path) -> tuple[Store, int]:
    """The store for a job that trains one share, and how many tasks are learned. Other jobs use it, too."""
    found = open_store(folder)
    if found is None:
        raise not_shared(folder)
    return found[0], learned_tasks(found[0])


def wait_for_shares(folder: Path, share: str) -> list[str] | None:
    """Shares still to train; waits until this job's share, and the tasks before it, are visible on the shared
    disk. None where they do not come."""

    def look() -> list[str] | None:
        found = open_store(folder)
        plan = None if found is None else found[0].load(PLAN, PlanRecord)
        if found is None or plan is None or share not in plan.by_name:
            return None
        return missing(found[0]) if learned_tasks(found[0]) >= plan.place.learned else None

    return in_time(look, late_by())


def learned_in_time(store: Store) -> int:
    """How many tasks are learned; waits for those before a task whose candidates are shared out."""

    def look() -> int | None:
        plan, learned = store.load(PLAN, PlanRecord), learned_tasks(store)
        return None if plan is not None and learned < plan.place.learned else learned

    learned = in_time(look, late_by())
    return learned_tasks(store) if learned is None else learned


def not_shared(folder: Path) -> Refusal:
    return Refusal(
        f"{folder} does not show here the share that this job was to train. Either the run has gone on "
        "without it, and the same command follows; or outputs= is not on a disk that all machines share, as "
        "hydra/sweeper=cl_task_level needs."
    )
