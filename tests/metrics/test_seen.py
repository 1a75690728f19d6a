"""The curve of "was this task seen", from mutual information."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from cl_lightning.metrics.seen import THETAS, auc_of_seen, roc
from tests.commands import run


def auc(*rows: list[float]) -> float | None:
    return auc_of_seen({"mutual_information": [[None] * len(rows), *rows]})


def test_thetas_are_the_published_ones() -> None:
    assert THETAS[:3] == [1.0, 1.1, 1.2]
    assert THETAS[-1] == 10.0
    assert len(THETAS) == 91


def test_a_theta_that_separates_gives_1_and_the_opposite_0() -> None:
    assert auc([0.1, 0.3], [0.2, 0.1]) == 1  # new: 3 times; seen: twice
    assert auc([0.1, 0.05], [1.05, 0.1]) == 0  # the seen task has 10.5 times the one learned last


def test_the_area_is_that_of_pairs_counted_by_hand() -> None:
    """Three tasks: ratios of new tasks 4, 2 and 6, of seen ones 3, 0.5 and 5. Of nine pairs, the new one is
    greater in six; ratios below 1 are told apart by no theta, and count as a half where both are."""
    rows = [[1.0, 4.0, 2.0], [3.0, 1.0, 6.0], [0.5, 5.0, 1.0]]
    wins = sum(new > seen for new in (4, 2, 6) for seen in (3, 0.5, 5))
    assert wins == 6
    assert auc(*rows) == pytest.approx(wins / 9)
    assert roc([[0.0] * 3, *rows])[-2] == (2 / 3, 1.0), "at theta = 1"


def test_random_numbers_give_a_half() -> None:
    generator = torch.Generator().manual_seed(0)
    drawn = [auc(*(torch.rand(8, 8, generator=generator) ** 3).tolist()) for _ in range(100)]
    assert torch.tensor(drawn).mean() == pytest.approx(0.5, abs=0.03)


def test_without_numbers_of_all_tasks_there_is_none() -> None:
    assert auc_of_seen({}) is None
    assert auc_of_seen({"mutual_information": [[None, None], [0.1, None], [0.1, 0.2]]}) is None
    assert auc([0.1]) is None


def test_a_run_has_it_of_its_own_matrix_and_a_deterministic_network_has_no_mutual_information(
    tmp_path: Path,
) -> None:
    options = ("selection=none", "stream.head=single", "trainer.measures=[mutual_information]")
    results = run(tmp_path, "learner=vcl", *options, "learner.draws=5")
    assert results["metrics"]["auc_of_seen"] == auc_of_seen(results["measures"])
    assert all(value > 0 for row in results["measures"]["mutual_information"] for value in row)
    plain = run(tmp_path, "learner=mc_dropout", *options)
    assert all(value == 0 for row in plain["measures"]["mutual_information"] for value in row)
