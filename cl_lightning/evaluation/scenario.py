"""The scenario of a run in the field's words (van de Ven, Tuytelaars and Tolias 2022, Three types of
incremental learning): what is known at test of the task that an image is from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

TASK, DOMAIN, CLASS = "task-incremental", "domain-incremental", "class-incremental"


class Scenario(NamedTuple):
    name: str
    here: str  # what that means in this run

    def __str__(self) -> str:
        return f"{self.name} ({self.here})"


def scenario(mode: str, owned: Sequence[Sequence[int]], told: bool) -> Scenario:
    """The scenario of a head mode, the outputs that are each task's own, and whether the learner is told the
    task at test. Whoever is told the task, or has the outputs of other tasks masked by it, has it easiest.

    >>> print(scenario("multi_train_test", [[0, 1], [2, 3]], told=False))
    task-incremental (outputs of other tasks masked in training and at test)
    >>> print(scenario("single", [[0, 1], [2, 3]], told=False))
    class-incremental (outputs of all tasks compete, no task ids at test)
    """
    shared = mode == "domain" or all(set(own) == set(owned[0]) for own in owned)
    masked = mode in ("multi_test", "multi_train_test") and not shared
    when = "in training and at test" if mode == "multi_train_test" else "at test"
    known = ["task ids given at test"] * told + [f"outputs of other tasks masked {when}"] * masked
    if known:
        return Scenario(TASK, ", ".join(known))
    if shared:
        return Scenario(DOMAIN, "all tasks share the outputs, no task ids at test")
    return Scenario(CLASS, "outputs of all tasks compete, no task ids at test")


def scenario_in(tasks: Sequence[Mapping[str, Any]], needs: Mapping[str, Any]) -> Scenario | None:
    """The scenario of a run from what its results or records say; None of one task, and of results that are
    too old to say."""
    heads, told = [task["head"] for task in tasks if "head" in task], needs.get("task_id_at_test")
    if len(heads) < 2 or told is None:
        return None
    return scenario(heads[0]["mode"], [head["outputs"] for head in heads], told)
