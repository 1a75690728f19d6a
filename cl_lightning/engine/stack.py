"""Same-shape MLPs trained as one stack of matrices: their many small products become few batched ones."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

import torch
import torch.nn as nn
from torch import Tensor

from cl_lightning.backbones.mlp import MLP
from cl_lightning.learners.base import Candidate, Learner, Phase

NARROWEST = 64  # units: products of smaller matrices are computed otherwise alone than in a batch


Shapes = tuple[torch.Size, ...]  # of the layers of a network


def stackable(learner: Learner, phase: Phase) -> list[Shapes]:
    """Shapes of layers, one entry a candidate, where it may be tried in a stack with others of these: wide
    enough, without dropout, all of them trained, and loss and mask those of ``Learner``. Else nothing.

    The stack must have the bits of separate networks, so that nobody's depend on their company. That is tried
    at the first mini-batch of every shape (``prove``), and needs MKL's strict reproducibility: without it,
    bits depend on addresses. Elsewhere than on the CPU one look at the bits says nothing of later steps.
    """
    strict = torch.backends.mkl.is_available() and os.environ.get("MKL_CBWR", "").endswith(",STRICT")
    own = [
        name
        for name in ("loss", "logits", "masked")
        if getattr(type(learner), name) is not getattr(Learner, name)
    ]
    if learner.device.type != "cpu" or not strict or own or phase.loss is not None:
        return [()] * len(phase.candidates)
    return [shapes_of(c.network) for c in phase.candidates]


def shapes_of(network: nn.Module) -> Shapes:
    layers = linears(network)
    wide = all(layer.out_features >= NARROWEST for layer in layers[:-1])
    trained = all(p.requires_grad for p in network.parameters())
    return tuple(layer.weight.shape for layer in layers) if wide and trained else ()


def stacks_of(
    candidates: Sequence[Candidate], members: Sequence[int], shapes: Sequence[Shapes]
) -> list[Stack]:
    """A stack for each topology among some of the candidates."""
    found: dict[Shapes, list[int]] = {}
    for i in members:
        found.setdefault(shapes[i], []).append(i)
    return [Stack([candidates[i] for i in own], own) for of_these, own in found.items() if of_these]


def linears(network: nn.Module) -> list[nn.Linear]:
    """The layers of a network that is nothing but linear layers with ReLU between them; else none."""
    if (
        not isinstance(network, MLP)
        or type(network).forward is not MLP.forward
        or type(network).features is not MLP.features
        or network.needs_task
    ):
        return []
    modules = (*network.trunk, network.head)
    all_plain_layers = all(
        # Private: no public way says whether a module has hooks, which a stack would not run.
        type(m) in (nn.Flatten, nn.Linear, nn.ReLU) and not m._forward_hooks and not m._forward_pre_hooks
        for m in modules
    )
    layers = [m for m in modules if isinstance(m, nn.Linear)]
    return layers if all_plain_layers and all(layer.bias is not None for layer in layers) else []


class Stack:
    """Weights (networks, out, in) a layer. While stacked, each network's own parameters are slices of
    them."""

    def __init__(self, candidates: Sequence[Candidate], members: Sequence[int]) -> None:
        self.members = members  # the numbers of the candidates
        layers = zip(*(linears(c.network) for c in candidates))
        # By layer, then by network: its weight and its bias.
        self.layers = [[(layer.weight, layer.bias) for layer in of_all] for of_all in layers]
        self.weights = [self.side_by_side([weight for weight, _ in of_all]) for of_all in self.layers]
        self.biases = [self.side_by_side([bias for _, bias in of_all]) for of_all in self.layers]
        self.agreed: dict[tuple, bool] = {}  # by shape of mini-batch: whether it has separate networks' bits

    @staticmethod
    @torch.no_grad()
    def side_by_side(parameters: Sequence[nn.Parameter]) -> Tensor:
        stacked = torch.stack(list(parameters))
        for parameter, part in zip(parameters, stacked):
            parameter.data = part
        return stacked

    def release(self) -> None:
        """Give every network storage of its own again."""
        for p in self.parameters():
            p.data = p.data.clone()

    def parameters(self) -> list[nn.Parameter]:
        return [p for of_all in self.layers for layer in of_all for p in layer]

    @torch.no_grad()
    def learn_from(self, x: Tensor, y: Tensor, seen_by_loss: Callable[[Tensor], Tensor]) -> Tensor:
        """Mean cross-entropy of every network on one mini-batch: sets all gradients, returns
        log-probabilities (networks, batch, outputs).

        The kernels are those that autograd would call for one network, without building its graph: the same
        bits.
        """
        n, b = len(self.layers[0]), y.shape[0]
        inputs = [x.flatten(1).expand(n, b, -1)]  # of each layer: (networks, batch, features)
        for weight, bias in zip(self.weights[:-1], self.biases[:-1]):
            inputs.append(torch.baddbmm(bias[:, None], inputs[-1], weight.mT).relu_())
        logits = torch.baddbmm(self.biases[-1][:, None], inputs[-1], self.weights[-1].mT)
        log_p = torch.log_softmax(seen_by_loss(logits), 2)
        delta = torch.zeros_like(log_p).scatter_(2, y.expand(n, b)[..., None], -1 / b)
        # Private: the kernel that autograd itself calls; any other would give other bits.
        delta = torch.ops.aten._log_softmax_backward_data(delta, log_p, 2, log_p.dtype)
        for k in range(len(self.layers) - 1, -1, -1):
            of_weights = torch.bmm(delta.mT, inputs[k]).unbind()
            for (weight, bias), of_weight, own in zip(self.layers[k], of_weights, delta.unbind()):
                weight.grad, bias.grad = of_weight, own.sum(0)  # a sum over all adds in another order
            if k:
                delta = torch.ops.aten.threshold_backward(torch.bmm(delta, self.weights[k]), inputs[k], 0)
        return log_p

    def prove(self, x: Tensor, y: Tensor, seen_by_loss: Callable[[Tensor], Tensor]) -> None:
        """Find out whether this mini-batch gets the very gradients that the networks have now, from a pass of
        each by itself."""
        parameters = self.parameters()
        separate = [p.grad for p in parameters]
        self.learn_from(x, y, seen_by_loss)
        same = all(
            g is not None and p.grad is not None and torch.equal(p.grad, g)
            for p, g in zip(parameters, separate)
        )
        for p, g in zip(parameters, separate):
            p.grad = g
        self.agreed[x.shape] = same
