"""Measures against their formulas, written by hand in NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cl_lightning.metrics.measures import MEASURES, averaged

RNG = np.random.default_rng(0)
LOGITS = RNG.normal(0, 3, (4, 25, 6))  # draws, images, outputs
LOGITS[:, :, 4] = -np.inf  # an output that the head masks
Y = RNG.choice([0, 1, 2, 3, 5], 25)


def by_hand(logits: np.ndarray, y: np.ndarray) -> dict[str, np.ndarray]:
    """A number an image, straight from the formulas."""
    p_k = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    p = p_k.mean(0)

    def H(p: np.ndarray) -> np.ndarray:
        return np.array([-sum(v * np.log(v) for v in row if v > 0) for row in p])

    one_hot = np.eye(p.shape[1])[y]
    return {
        "entropy": H(p),
        "entropy_median": H(p),
        "expected_entropy": np.mean([H(each) for each in p_k], 0),
        "mutual_information": H(p) - np.mean([H(each) for each in p_k], 0),
        "nll": np.array([-np.log(row[c]) for row, c in zip(p, y)]),
        "brier": ((p - one_hot) ** 2).sum(1),
        "confidence": p.max(1),
    }


@pytest.mark.parametrize("name", MEASURES)
@pytest.mark.parametrize("draws", [1, 4])
def test_a_measure_is_its_formula_by_hand(name: str, draws: int) -> None:
    log_p = torch.tensor(LOGITS[:draws], dtype=torch.float32).log_softmax(-1)
    found = MEASURES[name].function(log_p, torch.tensor(Y))
    assert found.numpy() == pytest.approx(by_hand(LOGITS[:draws], Y)[name], abs=2e-6)


def test_draws_are_averaged_as_probabilities_by_hand_and_one_draw_stays_as_it_is() -> None:
    p_k = np.exp(LOGITS) / np.exp(LOGITS).sum(-1, keepdims=True)
    found = averaged(torch.tensor(LOGITS)).exp().numpy()
    assert found == pytest.approx(p_k.mean(0), abs=1e-12)
    one = torch.tensor(LOGITS[:1])
    assert torch.equal(averaged(one), one[0])


def test_a_likelihood_too_small_for_a_float_is_measured() -> None:
    log_p = torch.tensor([[[0.0, -300.0]], [[0.0, -300.0]]]).log_softmax(-1)
    assert MEASURES["nll"].function(log_p, torch.tensor([1])).item() == pytest.approx(300)


def test_no_number_stays_none_and_is_not_hidden() -> None:
    log_p = torch.tensor([[[torch.nan, 0.0]]]).log_softmax(-1)
    assert all(MEASURES[name].function(log_p, torch.tensor([0])).isnan().all() for name in MEASURES)
