"""Synthetic digits: a benchmark, so their properties are promises."""

import hashlib

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

from cl_lightning.data.sources.cache import Images, open_images
from cl_lightning.data.sources.synthetic import Digits


@pytest.fixture(scope="module")
def digits(cache_folder: str) -> Images:
    return open_images("mnist", Digits(), cache_folder)


def test_pixels_are_a_pure_function_of_the_arguments() -> None:
    torch.manual_seed(1)
    first = Digits(train=50, test=20).decode()
    torch.manual_seed(2)
    again, other = Digits(train=50, test=20).decode(), Digits(train=50, test=20, seed=1).decode()
    assert all(torch.equal(first[key], again[key]) for key in first)
    assert not torch.equal(first["train_x"], other["train_x"])


def test_shape_numbers_and_balance_are_those_of_mnist(digits: Images) -> None:
    assert digits.shape == (1, 28, 28)
    assert digits.train.x.dtype == torch.uint8
    assert digits.train.y.bincount().tolist() == [6000] * 10
    assert digits.test.y.bincount().tolist() == [1000] * 10


def test_train_and_test_share_no_image(digits: Images) -> None:
    train, test = (
        {hashlib.sha256(x.numpy().tobytes()).digest() for x in pool.x} for pool in (digits.train, digits.test)
    )
    assert len(train) == 60_000
    assert not train & test


@pytest.mark.all
def test_an_mlp_reaches_085_to_097_and_a_linear_model_clearly_less(digits: Images) -> None:
    def accuracy(network: nn.Module) -> float:
        optimizer = torch.optim.Adam(network.parameters(), 1e-3, fused=True)
        for _ in range(5):
            for rows in torch.randperm(60_000).split(100):
                optimizer.zero_grad()
                F.cross_entropy(network(digits.train.x[rows].float() / 255), digits.train.y[rows]).backward()
                optimizer.step()
        with torch.no_grad():
            return (network(digits.test.x.float() / 255).argmax(1) == digits.test.y).float().mean().item()

    torch.manual_seed(0)
    mlp = accuracy(
        nn.Sequential(
            nn.Flatten(), nn.Linear(784, 100), nn.ReLU(), nn.Linear(100, 100), nn.ReLU(), nn.Linear(100, 10)
        )
    )
    linear = accuracy(nn.Sequential(nn.Flatten(), nn.Linear(784, 10)))
    assert 0.85 <= mlp <= 0.97
    assert linear <= mlp - 0.10
