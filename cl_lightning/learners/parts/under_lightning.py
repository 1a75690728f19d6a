"""What Lightning and torch call of a learner. What papers are about is in ``learners/base.py``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import pytorch_lightning as pl
import torch
import torch.nn as nn

from cl_lightning.errors import Refusal
from cl_lightning.learners.parts.stored import check_storable, mapped


class InTraining(Protocol):
    """A phase in training, as a learner knows it: the engine's ``PhaseRun``."""

    candidates: list[Any]
    task: Any  # that is learned
    step: int  # mini-batches trained on

    def train(self, learner: Any, block: Any) -> None: ...
    def make_optimizer(self, device: torch.device) -> torch.optim.Optimizer: ...
    def state(self) -> dict: ...
    def restore(self, state: dict) -> None: ...


class UnderLightning(pl.LightningModule):
    """Lightning's own hooks, all of them final."""

    automatic_optimization = False
    memory: dict[str, Any]
    network: Any
    starting_network: Callable[[dict], nn.Module]

    def __init__(self) -> None:
        super().__init__()
        self.phase_run = None  # what is being trained: the one attribute that is written from outside

    @property
    def phase_run(self) -> InTraining | None:
        return self._phase_run

    @phase_run.setter
    def phase_run(self, run: InTraining | None) -> None:
        """The networks in training become a part of the module, so that Lightning moves and checkpoints
        them."""
        self._phase_run = run
        self.networks_in_training = (
            nn.ModuleList(c.network for c in run.candidates) if run else nn.ModuleList()
        )

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> UnderLightning:
        """Move the memory to the device or type to which the parameters go. (Private: what torch's own
        ``to``, ``cpu`` and ``half`` call.)"""
        self.memory = mapped(fn, self.memory)
        return super()._apply(fn, recurse)

    def training_step(self, block: Any, block_index: int) -> None:
        in_training(self).train(self, block)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return in_training(self).make_optimizer(self.device)

    def on_save_checkpoint(self, checkpoint: dict) -> None:
        if self.phase_run is not None:
            checkpoint["phase_run"] = self.phase_run.state()

    def on_load_checkpoint(self, checkpoint: dict) -> None:
        if self.phase_run is not None:
            self.phase_run.restore(checkpoint["phase_run"])

    def get_extra_state(self) -> dict:
        check_storable(self.memory, f"{type(self).__name__}'s self.memory")
        topology = topology_of(self.network)
        return {"memory": self.memory, **({"topology": topology} if topology else {})}

    def set_extra_state(self, state: dict) -> None:
        """Called before the network is loaded, which is made of the topology that was chosen."""
        self.memory = state["memory"]
        if (topology := state.get("topology", {})) != topology_of(self.network):
            self.network = self.starting_network(topology).to(self.device)


def topology_of(network: Any) -> dict[str, Any]:
    """The keys of the backbone that a grid chose for a network."""
    return getattr(network, "topology", {})


def in_training(learner: UnderLightning) -> InTraining:
    if learner.phase_run is None:
        raise Refusal(
            f"{type(learner).__name__} is trained by a Trainer of yours. Train it with a run: see the "
            "README's first command."
        )
    return learner.phase_run
