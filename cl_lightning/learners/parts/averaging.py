"""Predictions of networks that are random at test, too."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn as nn

from cl_lightning.backbones.bayesian import gaussians
from cl_lightning.config.checking import Count
from cl_lightning.data.task import Batch
from cl_lightning.learners.base import Candidate, Learner
from cl_lightning.metrics.measures import averaged


class Averaging(Learner):
    """A learner that predicts the mean probability over ``draws`` of its network: of weights that are normal
    variables, and of units that are dropped, since dropout stays on at test. Of a network without either,
    one draw is all there is."""

    contract = ("learner.draws=3",)

    def __init__(self, *, draws: Count = 100, **base: Any) -> None:
        super().__init__(**base)
        self.draws = draws

    def samples(self, x: torch.Tensor, task: int | None) -> torch.Tensor:
        """Logits (draws, n, outputs)."""
        return drawn(self.network, x, task, self.draws)

    def forward(self, x: torch.Tensor, task: int | None) -> torch.Tensor:
        return averaged(self.samples(x, task))

    def logits(self, c: Candidate, batch: Batch) -> torch.Tensor:
        if c.network.training:
            return super().logits(c, batch)
        return averaged(drawn(c.network, batch.x, batch.task, self.draws))


def drawn(network: nn.Module, x: torch.Tensor, task: torch.Tensor | int | None, draws: int) -> torch.Tensor:
    """Logits (draws, n, outputs) of a network in evaluation mode, with dropout on."""
    dropping = [module for module in network.modules() if isinstance(module, nn.Dropout)]
    is_random = dropping or any(layer.sampling != "off" for layer in gaussians(network))
    for module in dropping:
        module.train()
    logits = torch.stack([network(x, task) for _ in range(draws if is_random else 1)])
    for module in dropping:
        module.eval()
    return logits
