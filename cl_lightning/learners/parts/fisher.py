"""The diagonal of the Fisher information: means of squared gradients, example by example."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

import torch
import torch.nn as nn
from torch import Tensor

from cl_lightning.data.task import Batch, Task
from cl_lightning.learners.base import Candidate, Learner
from cl_lightning.learners.parts.gradients import trained
from cl_lightning.metrics.flops import counted, once_a_shape
from cl_lightning.randomness import rng

Labels = Literal["exact", "sample", "empirical", "predicted", "batch_squared"]

_known: dict[tuple, int] = {}  # operations of so many rows, by all that they depend on


def information(
    learner: Learner, task: Task, labels: Labels, examples: int | None = None, drawn: bool = False
) -> list[Tensor]:
    """F of the learner's network and the first ``examples`` of a task (None: all), or of so many ``drawn``:
    in evaluation mode, of the data's loss alone."""
    parts = task.train.parts
    if drawn:
        order = torch.randperm(len(task.train), generator=rng(learner.seed, task.index, "fisher"))
        parts = task.train.gather(order[:examples])
    x, y, of_task = (part[:examples] for part in parts)
    candidate = Candidate(learner.network)

    def log_p(part: slice) -> Tensor:
        batch = Batch(x[part], y[part], of_task[part])
        return learner.masked(learner.logits(candidate, batch), batch).log_softmax(1)

    return fisher(learner.network, log_p, y, labels)


def fisher(
    network: nn.Module, log_p: Callable[[slice], Tensor], y: Tensor, kind: Labels, at_once: int = 250
) -> list[Tensor]:
    """F = mean over examples of E_label [(d log p(label | x) / d w)^2], one tensor a parameter.

    ``log_p`` gives log-probabilities (rows, outputs) of a slice of the examples, with the gradient's graph.
    Labels are, by ``kind``: ``exact`` all, weighted by p; ``sample`` one drawn from the model (unbiased);
    ``empirical`` the true ones; ``predicted`` the likeliest (biased towards 0). ``batch_squared`` is the
    square of the mean gradient instead, as in published programs: too small by a factor of about the number
    of examples.
    """
    parameters = trained(network)
    total = [torch.zeros_like(p) for p in parameters]
    with torch.enable_grad():
        if kind == "batch_squared":
            loss = log_p(slice(None)).gather(1, y[:, None]).mean()
            gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
            return [t if g is None else g**2 for t, g in zip(total, gradients)]
        before = counted()
        with linear_calls(network) as calls:
            log_p(slice(0, 1))
        alike = (kind, counted() - before, *((p.shape, p.requires_grad) for p in network.parameters()))
        known = None if kind == "exact" else _known  # how many labels are possible depends on the examples
        at_once = at_once if calls else 1  # each row's own graph, where rows are differentiated one by one
        for first in range(0, len(y), at_once):
            part = slice(first, first + at_once)
            with once_a_shape(len(y[part]), *alike, known=known):
                with linear_calls(network) as calls:
                    rows = log_p(part)
                for picked, weight in labelled(rows, y[part], kind):
                    add_squares(total, parameters, picked, weight / len(y), calls)
    return total


def labelled(log_p: Tensor, y: Tensor, kind: Labels) -> Iterator[tuple[Tensor, Tensor]]:
    """Log-probabilities (rows,) of one label each, and the weight of each."""
    p = log_p.detach().exp()
    if kind == "exact":
        for label in range(p.shape[1]):
            possible = p[:, label] > 0  # outputs of other tasks may be masked
            if possible.any():
                yield torch.where(possible, log_p[:, label], 0.0), p[:, label]
        return
    labels = {
        "empirical": lambda: y,
        "predicted": lambda: p.argmax(1),
        "sample": lambda: torch.multinomial(p, 1)[:, 0],
    }[kind]()
    yield log_p.gather(1, labels[:, None])[:, 0], torch.ones_like(p[:, 0])


def add_squares(
    total: list[Tensor], parameters: list, picked: Tensor, weight: Tensor, calls: dict[nn.Linear, tuple]
) -> None:
    """Add the weighted squares of the gradients of each row. Of a linear layer with inputs a and output
    gradients d they are (d^2)' (a^2) over all rows at once; of other networks, row by row."""
    if calls:
        outs = [out for _, out in calls.values()]
        deltas = torch.autograd.grad(picked, outs, torch.ones_like(picked), retain_graph=True)
        squares = {}
        for (layer, (a, _)), delta in zip(calls.items(), deltas):
            d2 = delta**2 * weight[:, None]  # (rows, out)
            squares[layer.weight] = d2.T @ a.detach() ** 2
            if layer.bias is not None:
                squares[layer.bias] = d2.sum(0)
        for t, p in zip(total, parameters):
            if p in squares:  # layers of other tasks had no part in the loss
                t += squares[p]
        return
    for row, w in zip(picked, weight):
        for t, g in zip(total, torch.autograd.grad(row, parameters, retain_graph=True, allow_unused=True)):
            if g is not None:
                t += w * g**2


@contextmanager
def linear_calls(network: nn.Module) -> Iterator[dict[nn.Linear, tuple[Tensor, Tensor]]]:
    """Inputs and outputs of each linear layer that is called; empty at the end where other things are
    trained, too, or one is called twice, or not with rows."""
    calls: dict[nn.Linear, tuple[Tensor, Tensor]] = {}
    layers = [m for m in network.modules() if type(m) is nn.Linear]
    only_linear = {p for layer in layers for p in layer.parameters()} == set(trained(network))
    seen: list[nn.Linear] = []

    def note(layer: nn.Module, inputs: tuple, out: Tensor) -> None:
        assert isinstance(layer, nn.Linear)
        seen.append(layer)
        calls[layer] = (inputs[0], out)

    handles = [layer.register_forward_hook(note) for layer in layers]
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()
    if not only_linear or len(seen) != len(calls) or any(a.dim() != 2 for a, _ in calls.values()):
        calls.clear()
