"""What nobody writes to, or draws from, while a phase trains."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sized
from typing import Any

from torch import Tensor

from cl_lightning.data.lease import DEPTH, PLAIN, STATE_OF, parts_of
from cl_lightning.engine.restartable import different, own_attributes
from cl_lightning.learners.base import Learner
from cl_lightning.protocol import ProtocolError, unseeded_generators


def read_only(learner: Learner) -> dict[str, Any]:
    """A learner's parameters, buffers, memory and plain values as they are now, by name; and the global
    generators, of those that are not seeded before each hook. Tensors in plain attributes are scratch, but a
    list of them that grows is none."""
    found = {f"the global generator of {name}": now for name, now in unseeded_generators().items()}
    for key, value in own_attributes(learner).items():
        found |= {name: part for name, part in parts_in(value, f"self.{key}") if not isinstance(part, tuple)}
    found |= parts_in(learner.memory, "self.memory")
    for name, tensor in (*learner.named_parameters("self"), *learner.named_buffers("self")):
        if not name.startswith("self.networks_in_training."):
            found |= parts_in(tensor, name)
    return found


def parts_in(value: Any, name: str, depth: int = DEPTH) -> Iterator[tuple[str, Any]]:
    """What nested containers hold, by name: plain values and states of generators as texts; of a tensor where
    it lies, and how often it was written to."""
    if isinstance(value, PLAIN):
        yield name, repr(value)
    elif isinstance(value, Tensor):
        # Private: torch has no public count of writes, and none at all of what inference_mode made.
        yield name, (value.untyped_storage(), None if value.is_inference() else value._version)
    elif depth and isinstance(value, (dict, list, tuple, set, deque, *STATE_OF)):
        if isinstance(value, Sized):
            yield name, Length(value)
        for part, inside in parts_of(value, name):
            yield from parts_in(inside, part, depth - 1)


class Length:
    """How long a container was. Another one in its place may have any length."""

    def __init__(self, of: Sized) -> None:
        self.of, self.length = of, len(of)

    def __eq__(self, other: object) -> bool:
        return not isinstance(other, Length) or other.of is not self.of or other.length == self.length


def check_unchanged(learner: Learner, before: dict[str, Any]) -> None:
    """Refuse what hooks of a phase changed for all of its candidates."""
    if before and (changed := different(before, read_only(learner))):
        raise ProtocolError(
            f"{changed} changed: what a candidate learns would depend on its company, and on restarts.",
            "Write to the learner in on_task_start, on_task_end and adopt; what training records is a buffer "
            "of c.network.\nDraw from batch.rng(purpose), or with torch, seeded before each hook.",
        )
