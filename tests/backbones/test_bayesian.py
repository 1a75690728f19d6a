"""Gaussian layers: their draws, their divergence, and what becomes Gaussian."""

from __future__ import annotations

from functools import partial

import pytest
import torch
import torch.nn as nn
from torch.distributions import Normal

from cl_lightning.backbones import CONV, MLP, Bayesian, ResNet
from cl_lightning.backbones.bayesian import Gaussian, divergence, gaussian, gaussians, switched
from tests.backbones.networks import PAIRS, TEN


def layers(seed: int = 0) -> tuple[Gaussian, ...]:
    """A linear and a convolutional layer, with a variance of its own for each weight."""
    torch.manual_seed(seed)
    made = nn.Sequential(nn.Linear(5, 3), nn.Conv2d(2, 3, 3, padding=1))
    found = tuple(gaussians(gaussian(made)))
    for layer in found:
        for m, v in layer.normals:
            nn.init.normal_(m)
            nn.init.normal_(v, -1.0, 0.5)
    return found


INPUTS = (partial(torch.rand, 1, 5), partial(torch.rand, 1, 2, 4, 5))


@pytest.mark.parametrize("which", [0, 1])
def test_what_is_drawn_has_the_mean_and_variance_of_drawn_weights(which: int) -> None:
    """In a convolution, neighbouring places share drawn weights; each by itself has the same distribution."""
    layer, x, found = layers()[which], INPUTS[which](), {}
    with torch.no_grad():
        for sampling in ("local", "weights"):
            layer.sampling = sampling  # type: ignore[assignment]
            found[sampling] = torch.cat([layer(x) for _ in range(10_000)])
    for moment in (torch.mean, torch.std):
        local, weights = (moment(drawn, dim=0) for drawn in found.values())
        assert torch.allclose(local, weights, rtol=0.04, atol=0.06)
    assert found["local"].std(0).min() > 0.3


def test_outputs_are_drawn_for_each_example_and_weights_for_all_at_once() -> None:
    layer, x = layers()[0], torch.ones(2, 5)
    assert not torch.equal(*layer(x))
    layer.sampling = "weights"
    assert torch.equal(*layer(x))
    layer.sampling = "local"
    assert torch.equal(*layer.eval()(x)), "in evaluation mode weights are drawn"
    assert not torch.equal(layer(x), layer(x))


@pytest.mark.parametrize("which", [0, 1])
def test_the_divergence_is_that_of_a_monte_carlo_estimate(which: int) -> None:
    """E_q[log q - log p] over 10^5 draws of all weights and biases."""
    (q, p), estimates = (layers(seed)[which] for seed in (0, 1)), {"other": 0.0, "standard": 0.0}
    with torch.no_grad():
        for (m, v), (m0, v0) in zip(q.normals, p.normals):
            of_q, of_p = Normal(m, (v / 2).exp()), Normal(m0, (v0 / 2).exp())
            drawn = of_q.sample((100_000,))
            for name, prior in (("other", of_p), ("standard", Normal(0.0, 1.0))):
                estimates[name] += float((of_q.log_prob(drawn) - prior.log_prob(drawn)).mean(0).sum())
        assert float(divergence(q, p)) == pytest.approx(estimates["other"], rel=0.01)
        assert float(divergence(q, None)) == pytest.approx(estimates["standard"], rel=0.01)


def test_the_divergence_from_itself_is_0_with_a_gradient_of_0_and_the_prior_has_none() -> None:
    q, same = layers()[0], layers()[0]
    of_itself = divergence(q, same)
    of_itself.backward()
    assert of_itself.item() == 0
    assert all(not part.grad.any() for pair in q.normals for part in pair)
    assert all(part.grad is None for pair in same.normals for part in pair)


NETWORKS = {
    "MLP with a head a task": lambda: MLP((1, 6, 6), PAIRS, (9,), inputs="per_task", heads="per_task"),
    "CONV": lambda: CONV((1, 8, 8), TEN),
    "ResNet": lambda: ResNet((1, 8, 8), TEN, width=4),  # convolutions without biases
}


@pytest.mark.parametrize("name", NETWORKS)
def test_switched_off_any_network_is_what_it_was_before_it_became_gaussian(name: str) -> None:
    torch.manual_seed(0)
    plain = NETWORKS[name]()
    torch.manual_seed(0)
    made = gaussian(NETWORKS[name](), log_var=-2.0)
    size = 6 if name.startswith("MLP") else 8
    x, task = torch.rand(4, 1, size, size), torch.tensor([0, 1, 2, 1])
    assert not any(type(layer) in (nn.Linear, nn.Conv2d) for layer in made.modules())
    assert len(list(made.parameters())) > len(list(plain.parameters()))
    assert torch.equal(switched(made, "off")(x, task), plain(x, task))
    drawn = switched(made, "local")(x, task)
    assert not torch.allclose(drawn, plain(x, task))
    drawn.masked_fill(drawn.isinf(), 0).sum().backward()
    assert all(p.grad.isfinite().all() for p in made.parameters() if p.grad is not None)


def test_weights_that_hardly_vary_have_the_gradients_of_an_ordinary_network() -> None:
    torch.manual_seed(0)
    made, x = Bayesian(input_shape=(1, 6, 6), head=TEN, sizes=(9,), log_var=-30.0), torch.rand(4, 1, 6, 6)
    means = [m for layer in gaussians(made) for m, _ in layer.normals]
    drawn = torch.autograd.grad(made(x).square().sum(), means)
    plain = torch.autograd.grad(switched(made, "off")(x).square().sum(), means)
    assert all(torch.allclose(one, other, atol=1e-4) for one, other in zip(drawn, plain))


def test_a_gaussian_layer_keeps_its_variances_when_its_network_is_made_gaussian_again() -> None:
    made = Bayesian(input_shape=(1, 6, 6), head=TEN, sizes=(9,), log_var=-13.8, sampling="weights")
    for layer in gaussians(gaussian(made)):
        assert layer.sampling == "weights"
        assert all((v == -13.8).all() for _, v in layer.normals)
