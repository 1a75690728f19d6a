"""Variational continual learning."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal

import torch
import torch.nn as nn

from cl_lightning.backbones.base import ByTask
from cl_lightning.backbones.bayesian import Gaussian, divergence, gaussian, switched
from cl_lightning.config.checking import Size
from cl_lightning.data.task import Batch, Split, Task
from cl_lightning.errors import Refusal
from cl_lightning.learners.base import Candidate, Phase, Phases
from cl_lightning.learners.parts.averaging import Averaging
from cl_lightning.metrics.flops import uncounted


class VCL(Averaging):
    """-(1/|B|) sum log p(y | x, w) + KL(q || prior) / N, w drawn from q: the posterior of a task is the prior
    of the next (Nguyen et al. 2018). N is the task's number of examples.

    ``prior=standard`` begins each task with the weights of the last, but with the prior N(0, 1): what is left
    of the method when it may not remember by its prior (Farquhar and Gal 2018). A network whose layers are
    not Gaussian becomes so, with ``backbone=bayesian``'s defaults. The first task begins with means of
    maximum likelihood, trained in a phase of its own for as long, unless ``start=drawn``.

    Of the first ``logged`` mini-batches of each task the gradients of both terms are logged, by the last
    layer's weights (Farquhar and Gal 2018, 6.1.2).

    With an output layer a task, those of tasks to come are not looked at: each has N(0, 1) as its prior when
    its task comes. The last posterior is the network itself, which nobody writes to while a task is learned.
    """

    first_as_finetune = False

    def __init__(
        self,
        *,
        prior: Literal["last", "standard"] = "last",
        start: Literal["likelihood", "drawn"] = "likelihood",
        logged: Size = 0,
        **base: Any,
    ) -> None:
        super().__init__(**base)
        self.prior, self.start, self.logged = prior, start, logged

    def fresh(self, *key: object, **options: object) -> nn.Module:
        return gaussian(super().fresh(*key, **options))

    def on_task_start(self, task: Task) -> None:
        if self.head.masks_training and not self.network.needs_task:
            raise Refusal(
                f"{type(self).__name__} was given one output layer for all tasks, whose outputs of tasks to "
                "come would be pulled to their prior, and remembered. Set backbone.heads=per_task, or "
                "stream.head=multi_test."
            )

    def learn(self, task: Task) -> Phases:
        found, train = self.candidates(task), self.examples(task)
        if not task.index and self.start == "likelihood":
            for c in found:
                switched(c.network, "off")
            likely = yield Phase(
                found, "maximum likelihood", train=train, loss=self.loss, keep="all", auxiliary=True
            )
            found = self.candidates(task)
            for c, means in zip(found, likely.kept):
                c.network.load_state_dict(means.network.state_dict())
        best = yield Phase(found, train=train, loss=self.objective(task.index, task.index, len(train)))
        self.adopt(best.candidate, task)

    def examples(self, task: Task) -> Split:
        """What the posterior is trained on."""
        return task.train

    def objective(self, task: int, known: int, n: int) -> Callable[[Candidate, Batch], torch.Tensor]:
        """The loss on ``n`` examples up to a task, where ``known`` tasks have a posterior already."""

        def loss(c: Candidate, batch: Batch) -> torch.Tensor:
            likelihood, prior = self.loss(c, batch), self.divergence(c.network, task, known) / n
            if self.logged and batch.phase == "train" and batch.key[-1] < self.logged:
                self.log_gradients(c.network, {"likelihood": likelihood, "prior": prior})
            return likelihood + prior

        return loss

    def log_gradients(self, network: nn.Module, parts: dict[str, torch.Tensor]) -> None:
        """Log the mean size of each part's gradient by the means of the last layer's weights."""
        *_, (last, _) = layers(network)
        with uncounted():
            for name, part in parts.items():
                (gradient,) = torch.autograd.grad(part, last.weight, retain_graph=True, allow_unused=True)
                self.log(f"gradient_of_{name}", 0.0 if gradient is None else gradient.abs().mean().item())

    def divergence(self, network: nn.Module, task: int, known: int) -> torch.Tensor:
        """KL(q || prior) of all that tasks up to ``task`` use."""
        found = []
        for (layer, of), (last, _) in zip(layers(network), layers(self.network)):
            if of is None or of <= task:
                is_known = known > 0 if of is None else of < known
                found.append(divergence(layer, last if is_known and self.prior == "last" else None))
        return torch.stack(found).sum()


def layers(network: nn.Module) -> Iterator[tuple[Gaussian, int | None]]:
    """The Gaussian layers of a network, each with the task whose own it is."""
    several = [module.layers for module in network.modules() if isinstance(module, ByTask)]
    own = {layer: task for each in several for task, layer in enumerate(each)}
    return ((layer, own.get(layer)) for layer in network.modules() if isinstance(layer, Gaussian))
