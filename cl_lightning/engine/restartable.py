"""What a learner keeps from one task to the next must be in what a checkpoint stores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
import torch.nn as nn

from cl_lightning.data.lease import DEPTH, reachable
from cl_lightning.engine.proposals import storage_of
from cl_lightning.errors import Refusal
from cl_lightning.learners.base import Learner
from cl_lightning.learners.parts.growing_list import GrowingList
from cl_lightning.learners.parts.stored import check_storable
from cl_lightning.learners.parts.under_lightning import topology_of
from cl_lightning.protocol import ProtocolError
from cl_lightning.randomness import forked

NAMED = 3  # in a message
OF_MODULES = frozenset(vars(pl.LightningModule()))  # attributes of all, which torch and Lightning look after


def made_by_init(root: nn.Module, name: str = "self") -> dict[str, list]:
    """What ``__init__`` makes, and a restart makes again, by name: the classes of all modules, the values of
    their attributes that no checkpoint stores, and the shapes of the tensors that one stores."""
    state = root.state_dict(keep_vars=True)
    stored = {storage_of(part) for _, part in reachable(state) if isinstance(part, torch.Tensor)}
    found = {f"{name}.{key}": [getattr(value, "shape", None)] for key, value in state.items()}
    unseen, modules = [], set(map(id, root.modules()))
    for path, module in root.named_modules():
        where = f"{name}.{path}".rstrip(".")
        found[where] = [type(module).__qualname__]
        for key, value in own_attributes(module).items():
            for part_of, part in reachable(value, f"{where}.{key}", DEPTH - 1, {*modules}):
                if part is not None and not (isinstance(part, torch.Tensor) and storage_of(part) in stored):
                    found.setdefault(part_of, []).append(value_of(part))
                    unseen += [part_of] * (isinstance(part, nn.Parameter) and part.requires_grad)
    if unseen:
        raise Refusal(
            f"{type(root).__name__} keeps {named(unseen)} where torch does not see it: it is neither trained "
            "nor stored.\nKeep layers in nn.ModuleList or nn.ModuleDict, not in a plain list or dict. What "
            "is never to be trained has requires_grad_(False)."
        )
    return found


def own_attributes(module: nn.Module) -> dict[str, Any]:
    """Those that its classes and ``__init__`` have beyond the base, and buffers. What has a state of its own
    beside its tensors looks after its attributes itself."""
    if type(module).get_extra_state not in (nn.Module.get_extra_state, Learner.get_extra_state):
        return {}
    classes = [cls for cls in reversed(type(module).__mro__) if cls not in Learner.__mro__]
    of_classes = {
        key: value
        for cls in classes
        for key, value in vars(cls).items()
        if not key.startswith("__") and not hasattr(value, "__get__")  # methods and properties
    }
    # Private: where torch keeps buffers, those too that no checkpoint stores.
    own, of_base = {**vars(module), **module._buffers}, getattr(module, "of_base", OF_MODULES)
    return of_classes | {key: value for key, value in own.items() if key not in of_base}


def value_of(part: Any) -> str | int:
    """A plain value's text; of tensors and arrays, what tells their contents."""
    if isinstance(part, torch.Tensor):
        part = part.detach().cpu().reshape(-1).view(torch.uint8).numpy()
    return hash(part.tobytes()) if isinstance(part, np.ndarray) else repr(part)  # nan is not nan


def check_kept(learner: Learner, at_start: dict[str, list]) -> None:
    """Refuse a learner that at a task's end has something else than ``made_by_init`` found at the start, or
    in what a ``GrowingList`` would make again, where a restart would not find it."""
    if topology := topology_of(learner.network):
        for name in [name for name in at_start if f"{name}.".startswith("self.network.")]:
            del at_start[name]
        with forked():
            at_start.update(made_by_init(learner.starting_network(topology), "self.network"))
    for path, built in learner.named_modules():
        for i, how in enumerate(built.how) if isinstance(built, GrowingList) else ():
            if (name := f"self.{path}.{i}") not in at_start:
                with forked():
                    at_start.update(made_by_init(built.make(**how), name))
    if changed := different(at_start, made_by_init(learner)):
        raise ProtocolError(
            f"{type(learner).__name__} keeps {changed} from one task to the next, and no checkpoint "
            "brings it back: a restart would go on with what __init__ makes.",
            "Keep tensors and plain values in self.memory, those of a network in register_buffer. Make "
            "modules in __init__, those that grow in a GrowingList(make).\nWhat is for one task alone: set "
            "it back in on_task_end.",
        )


def different(before: dict[str, Any], now: dict[str, Any]) -> str:
    """The names of what differs, as a sentence has them; of a part and what it lies in, the latter."""
    all_names = {name for name in {*now, *before} if now.get(name) != before.get(name)}
    names = sorted(name for name in all_names if name.rpartition(".")[0] not in all_names)
    return named(names)


def named(names: Sequence[str]) -> str:
    return ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")


def kept_of(callbacks: Sequence[pl.Callback]) -> dict[str, list]:
    """What callbacks want kept, if they want anything."""
    states = [[callback.state_key, callback.state_dict()] for callback in callbacks]
    for name, state in states:
        check_storable(state, f"the state_dict of the callback {name}")
    return {"callbacks": states} if any(state for _, state in states) else {}


def give_back(callbacks: Sequence[pl.Callback], kept: Mapping[str, Any]) -> None:
    """Give callbacks what they had when this was kept."""
    for callback, (name, state) in zip(callbacks, kept.get("callbacks", ())):
        if state and callback.state_key == name:
            callback.load_state_dict(state)
