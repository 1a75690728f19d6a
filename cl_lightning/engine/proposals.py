"""Checks of the phases that a learner proposes, before they are trained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from cl_lightning.config.checking import check_value
from cl_lightning.config.settings import OF_A_GRID, OF_A_PHASE, OPTIMIZER_KEYS, Hyperparameters, Training
from cl_lightning.config.suggestions import likeness
from cl_lightning.data.copies import keys
from cl_lightning.data.task import Split, Task, tensors_in
from cl_lightning.errors import Refusal
from cl_lightning.learners.base import Candidate, Learner, Phase
from cl_lightning.learners.parts.under_lightning import topology_of
from cl_lightning.protocol import ProtocolError
from cl_lightning.store.records import Place

SURE = 0.8  # how alike a key is at least to one of the optimizer's to be taken for it
FIELDS: list[tuple[str, type, str]] = [  # of a phase, and what each is
    ("name", str, "a text"),
    ("auxiliary", bool, "true or false"),
    ("settings", Mapping, "a mapping, as in {'batch_size': 16}"),
]


def check_phase(learner: Learner, phase: Phase, task: Task, settings: Training, place: Place) -> None:
    """Refuse what cannot be trained or compared, before training."""
    who = type(learner).__name__
    check_names(who, phase, task)
    for field, kind, words in FIELDS:
        if not isinstance(value := getattr(phase, field), kind):
            raise Refusal(f"{who}'s Phase: {field}={value!r} must be {words}.")
    check_settings(who, phase)
    if phase.keep not in ("winner", "all"):
        raise Refusal(f"{who}'s Phase: keep={phase.keep!r} must be winner or all.")
    own = settings_of(phase, settings)
    for c in phase.candidates:
        check_hparams(who, c, learner, own)
    check_storages(learner, phase, task)
    check_data(who, phase, task, place)
    check_length(who, phase)
    check_comparison(phase, task, own)
    if settings.passes is not None and place.part != "predictors":
        check_single_pass(phase, task, settings.passes, place)


def check_names(who: str, phase: Phase, task: Task) -> None:
    if not isinstance(phase.candidates, list | tuple) or not all(
        isinstance(c, Candidate) for c in phase.candidates
    ):
        raise Refusal(
            f"{who} proposed something else than a list of candidates for task {task.index}. Give "
            "Phase([Candidate(network), ...]); does `candidates` return its list?"
        )
    names = [c.name for c in phase.candidates]
    if not names or len(set(names)) < len(names):
        raise Refusal(
            f"{who} proposed the candidates {names} for task {task.index}. A phase needs at least one, and "
            "each a name of its own."
        )


def check_hparams(who: str, c: Candidate, learner: Learner, settings: Training) -> None:
    """Values of the optimizer's are held to what the configuration and grids are held to."""
    for name, value in c.hparams.items():
        if name in OF_A_GRID:
            owner = Hyperparameters if name in OPTIMIZER_KEYS else Training
            check_value(owner, name, value, f"{who}'s candidate {c.name}: {name}")
        elif name not in learner.grid_keys and (meant := key_meant(name)):
            raise Refusal(
                f"{who}'s candidate {c.name} has {name!r}, which the optimizer does not read. Did you mean "
                f"{meant!r}? A key of your own belongs in {who}.grid_keys."
            )
    topology = {name: value for name, value in c.hparams.items() if name.startswith("backbone.")}
    if topology and topology != topology_of(c.network):
        raise Refusal(
            f"{who} makes the network of its candidate {c.name} itself: {', '.join(topology)} of the grid "
            "does not reach it.\nMake it with self.starting_network(point); or choose a topology by whole "
            "streams, as in selection.stream={backbone.sizes: [[100], [400]]}."
        )
    if c.hparams.get("momentum") and settings.optimizer == "adam":
        raise Refusal(
            f"{who}'s candidate {c.name} has momentum, which is for trainer.optimizer=sgd; Adam has moments "
            "of its own."
        )


def key_meant(name: str) -> str | None:
    """
    >>> key_meant("learning_rate"), key_meant("weight-decay"), key_meant("strength")
    ('lr', 'weight_decay', None)
    """
    nearest = max(OPTIMIZER_KEYS, key=partial(likeness, name))
    return nearest if likeness(name, nearest) >= SURE else None


def check_storages(learner: Learner, phase: Phase, task: Task) -> None:
    """Candidates share no tensor with each other, and none with the learner."""
    who, owners = type(learner).__name__, dict[int, str]()
    for c in phase.candidates:
        for name, tensor in c.network.state_dict(keep_vars=True).items():
            if not isinstance(tensor, torch.Tensor) or not tensor.numel():
                continue
            other = owners.setdefault(storage_of(tensor), c.name)
            if other != c.name:
                raise Refusal(
                    f"{who} proposed {other} and {c.name} for task {task.index}, which share the tensor "
                    f"{name}: each would train the "
                    "other's weights. Give every candidate a network of its own: copy.deepcopy(self.network)."
                )
    for tensor in (*learner.parameters(), *learner.buffers()):
        owner = owners.get(storage_of(tensor)) if tensor.numel() else None
        if owner is not None:
            raise Refusal(
                f"{who} proposed its own self.network, or a part of it, as the candidate {owner} for task "
                f"{task.index}: training would change the learner before a winner is chosen. Propose a copy: "
                "copy.deepcopy(self.network)."
            )


def check_data(who: str, phase: Phase, task: Task, place: Place) -> None:
    several = phase.train if isinstance(phase.train, list | tuple) and phase.train else [phase.train]
    named = [("train", split) for split in several if phase.train is not None]
    for name, split in named + [("val", phase.val)] * (phase.val is not None):
        if not isinstance(split, Split):
            raise Refusal(
                f"{who} proposed a phase of task {task.index} whose `{name}` is a {type(split).__name__}. "
                "Make it a Split: Split(x, y, task)."
            )
        if not len(split):
            raise Refusal(
                f"{who} proposed a phase of task {task.index} whose `{name}` is empty. Leave it out (None) "
                "for the task's own examples."
            )
    val = task.val if phase.val is None else phase.val
    if phase.train is not None and val is not None and place.part == "task" and not task.index:
        own, scored, *trained = (
            keys(s.x.cpu().flatten(1)) for s in (task.train, val, *splits_of(phase, task))
        )
        if count := sum(int((torch.isin(x, scored) & ~torch.isin(x, own)).sum()) for x in trained):
            raise ProtocolError(
                f"{who} would train on {count} of the validation images that candidates are compared on.",
                "Leave them out of `train`, or give the phase a `val` of its own.",
            )
    if phase.train is None and place.part == "predictors" and trains(phase):
        raise Refusal(
            f"{who}.predictors proposed a phase without `train`, and the data of the tasks are closed. Give "
            "it a Split of what self.memory holds."
        )


def check_length(who: str, phase: Phase) -> None:
    """Epochs and patience are held to what the trainer's are held to."""
    for name, key in (("epochs", "max_epochs"), ("patience", "patience")):
        if (value := getattr(phase, name)) is not None:
            check_value(Training, key, value, f"{who}'s Phase: {name}")


def check_settings(who: str, phase: Phase) -> None:
    """A phase's own settings are held to what the trainer's are held to."""
    for key, value in phase.settings.items():
        if key not in OF_A_PHASE:
            raise Refusal(
                f"{who}'s Phase: settings has {key!r}, which is not for one phase alone. It may have "
                f"{', '.join(OF_A_PHASE)}; epochs are Phase(epochs=...)."
            )
        check_value(Training, key, value, f"{who}'s Phase: settings.{key}")


def check_comparison(phase: Phase, task: Task, settings: Training) -> None:
    """Candidates can be compared, and stopped early, where there are validation data."""
    if val_of(phase, task) is not None or phase.score is not None:
        return
    several = len(phase.candidates) > 1 and phase.keep == "winner"
    stops_early = phase.patience is not None or settings.patience is not None or settings.waits is not None
    if phase.auxiliary and (several or stops_early):
        raise Refusal(
            f"The auxiliary phase {phase.name!r} of task {task.index} has no validation data but its own, "
            "and was given none. Give it one candidate, without patience; or a `val` or a `score`."
        )
    if several:
        raise Refusal(
            f"{len(phase.candidates)} candidates are to be compared, but the task has no validation data to "
            "compare them on. "
            f"{'Set' if settings.single_pass else 'Set n_val of the stream or its tasks above 0, or'} "
            "selection=none."
        )
    if stops_early:
        raise Refusal(
            "Early stopping needs validation data, and the task has no validation data. "
            "Set n_val of the stream or its tasks above 0, or trainer.patience=null to train to the end"
            f"{' and a trainer.schedule without `after`' * (settings.waits is not None)}."
        )


def check_single_pass(phase: Phase, task: Task, passes: int, place: Place) -> None:
    """In a single pass there is one phase a task, on each example as often as the protocol has passes."""
    if task.val is not None:
        raise Refusal(
            f"trainer.single_pass shows each example {passes} times and has no validation, but task "
            f"{task.index} has {len(task.val)} validation examples. Set n_val of the stream and its tasks "
            "to 0."
        )
    if not trains(phase):
        return
    epochs = passes if phase.epochs is None else phase.epochs
    splits = splits_of(phase, task)
    n = sum(map(len, splits))
    lent = sum(len(each.train) for each in (*task.past, task))
    if place.phase > 0:
        more = f"a second phase of task {task.index} would see examples again that a single pass shows once."
    elif epochs > passes or n > lent:
        more = f"{epochs} epochs of {n} examples were asked for; a single pass lends {lent}, {passes} times."
    elif splits != (task.train,) and not task.past:
        more = "examples in a split of its own were to be trained on, which a single pass cannot count."
    else:
        return
    raise ProtocolError(
        more, "Learn in one phase from the mini-batches that come, or do without trainer.single_pass."
    )


def settings_of(phase: Phase, settings: Training) -> Training:
    """The trainer's settings as a phase has them."""
    own: dict[str, Any] = {}
    if phase.auxiliary:
        own = {
            "patience": None,
            "restore": None,
            "schedule": None,
            "probe_at": (),
            "probe_every": None,
            "optimizer_state": "reset",
        }
    if phase.settings.get("optimizer", settings.optimizer) != settings.optimizer:
        own |= {"momentum": None, "betas": None, "optimizer_state": "reset"}  # those are the other one's
    return replace(settings, **{**own, **phase.settings})


def splits_of(phase: Phase, task: Task) -> tuple[Split, ...]:
    """What a phase trains on."""
    given = task.train if phase.train is None else phase.train
    return (given,) if isinstance(given, Split) else tuple(given)


def val_of(phase: Phase, task: Task) -> Split | None:
    """What candidates are compared on."""
    return phase.val if phase.auxiliary or phase.val is not None else task.val


def trains(phase: Phase) -> bool:
    """Whether there is anything to train, and not pure re-use alone."""
    return any(c.parameters for c in phase.candidates)


def storage_of(tensor: torch.Tensor) -> int:
    # Private: tells storages apart on every device; data_ptr is 0 on meta.
    return tensor.untyped_storage()._cdata


def state_of(learner: Learner) -> list[torch.Tensor]:
    """All tensors that a learner keeps from task to task."""
    return tensors_in([*learner.parameters(), *learner.buffers(), learner.memory])
