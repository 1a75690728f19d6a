"""Same-shape MLPs trained as one stack of matrices: their many small products become few batched ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn as nn
from torch import Tensor

from cl_lightning.backbones.mlp import MLP
from cl_lightning.learners.base import Candidate, Learner, Phase


def stackable(learner: Learner, phase: Phase) -> bool:
    """Decided by architecture and loss, never by how many candidates there are: alone or in company, the arithmetic is the same.

    Layers of one shape, without dropout, all of them trained; the loss is that of ``Learner``.
    """
    own = (getattr(type(learner), name) is not getattr(Learner, name) for name in ("loss", "logits"))
    if phase.loss is not None or any(own):
        return False
    layers = [linears(c.network) for c in phase.candidates]
    shapes = {tuple(layer.weight.shape for layer in of_one) for of_one in layers if of_one}
    return all(layers) and len(shapes) == 1 and all(p.requires_grad for c in phase.candidates for p in c.network.parameters())


def linears(network: nn.Module) -> list[nn.Linear]:
    """The layers of a network that is nothing but linear layers with ReLU between them; else none."""
    if not isinstance(network, MLP) or type(network).forward is not MLP.forward:
        return []
    layers = [m for m in network.modules() if isinstance(m, nn.Linear)]
    plain = all(isinstance(m, nn.Flatten | nn.Linear | nn.ReLU) for m in (*network.trunk, network.head))
    return layers if plain else []


class Stack:
    """Weights (networks, out, in) a layer. While stacked, each network's own parameters are slices of them."""

    def __init__(self, candidates: Sequence[Candidate]) -> None:
        self.layers = list(zip(*(linears(c.network) for c in candidates)))  # by layer, then by network
        self.weights = [self.side_by_side([layer.weight for layer in of_all]) for of_all in self.layers]
        self.biases = [self.side_by_side([layer.bias for layer in of_all]) for of_all in self.layers]

    @staticmethod
    @torch.no_grad()
    def side_by_side(parameters: Sequence[nn.Parameter]) -> Tensor:
        stacked = torch.stack(list(parameters))
        for parameter, part in zip(parameters, stacked):
            parameter.data = part
        return stacked

    def release(self) -> None:
        """Give every network storage of its own again."""
        for layer in (layer for of_all in self.layers for layer in of_all):
            layer.weight.data, layer.bias.data = layer.weight.data.clone(), layer.bias.data.clone()

    @torch.no_grad()
    def learn_from(self, x: Tensor, y: Tensor, seen_by_loss: Callable[[Tensor], Tensor]) -> Tensor:
        """Mean cross-entropy of every network on one mini-batch: sets all gradients, returns log-probabilities (networks, batch, outputs).

        The kernels are those that autograd would call for one network, without building its graph: the same bits.
        """
        n, b = len(self.weights[0]), len(y)
        inputs = [x.flatten(1).expand(n, b, -1)]  # of each layer: (networks, batch, features)
        for weight, bias in zip(self.weights[:-1], self.biases[:-1]):
            inputs.append(torch.baddbmm(bias[:, None], inputs[-1], weight.mT).relu_())
        logits = torch.baddbmm(self.biases[-1][:, None], inputs[-1], self.weights[-1].mT)
        log_p = torch.log_softmax(seen_by_loss(logits), 2)
        delta = torch.zeros_like(log_p).scatter_(2, y.expand(n, b)[..., None], -1 / b)
        delta = torch.ops.aten._log_softmax_backward_data(delta, log_p, 2, log_p.dtype)
        for k in range(len(self.layers) - 1, -1, -1):
            weights, biases = torch.bmm(delta.mT, inputs[k]).unbind(), delta.sum(1).unbind()
            for layer, weight, bias in zip(self.layers[k], weights, biases):
                layer.weight.grad, layer.bias.grad = weight, bias
            if k:
                delta = torch.ops.aten.threshold_backward(torch.bmm(delta, self.weights[k]), inputs[k], 0)
        return log_p
