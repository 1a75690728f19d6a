"""Long work of a learner between phases, done once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cl_lightning.errors import Refusal
from cl_lightning.learners.base import Learner
from cl_lightning.learners.parts.stored import check_storable, mapped
from cl_lightning.metrics.costs import Costs
from cl_lightning.metrics.flops import Flops
from cl_lightning.randomness import seeded
from cl_lightning.store.files import Store
from cl_lightning.store.records import OnceRecord, Place


class Once:
    """What ``Learner.once`` calls: it returns the result of the work, read from the store if it was done
    before."""

    def __init__(self, store: Store, costs: Costs, learner: Learner, place: Place) -> None:
        self.store, self.costs, self.learner, self.place = store, costs, learner, place
        self.known: list[str] = []

    def __call__(self, name: str, work: Callable[[], Any]) -> Any:
        if name in self.known:
            raise Refusal(
                f"self.once({name!r}, ...) is called twice in {self.place.name}. Give each piece of work a "
                "name of its own."
            )
        self.known.append(name)
        key, done = f"{self.place.key}-once{len(self.known)}", False

        def do() -> tuple[OnceRecord, Any]:
            nonlocal done
            done = True
            with seeded(self.learner.seed, self.place.name, "once", name), Flops() as counted:
                value = work()
            check_storable(value, f"the result of self.once({name!r}, ...)")
            return OnceRecord(name, counted.total), {"value": value}

        record = self.store.get_or_make(key, OnceRecord, do)
        if not done:
            self.costs.count(record.flops, record.flops)
        if record.name != name:
            raise Refusal(
                f"self.once({name!r}, ...) comes in {self.place.name} where self.once({record.name!r}, ...) "
                "came before the restart. "
                "Call once in the same order each time, or start afresh with resume=false."
            )
        device = self.learner.device
        return mapped(lambda tensor: tensor.to(device), self.store.tensors(key)["value"])
