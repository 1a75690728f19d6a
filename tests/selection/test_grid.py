"""One syntax for grids."""

import pytest

from cl_lightning.errors import Refusal
from cl_lightning.selection.grid import check_grid, grid_points


def test_every_combination_in_order_the_last_varying_fastest() -> None:
    points = grid_points({"lr": [0.01, 0.001], "weight_decay": [0.0, 1e-5, 1e-4]})
    assert len(points) == 6
    assert points[1] == {"lr": 0.01, "weight_decay": 1e-5}
    assert points[3] == {"lr": 0.001, "weight_decay": 0.0}


@pytest.mark.parametrize(
    ("given", "values"),
    [
        ([1, 2], [1, 2]),
        (3, [3]),
        ("0.1,1e-2", [0.1, 0.01]),
        ("range(1,4)", [1, 2, 3]),
        ("choice(random,clone)", ["random", "clone"]),
        ("clone", ["clone"]),
    ],
)
def test_values_are_a_list_or_a_sweep_in_hydras_grammar(given: object, values: list) -> None:
    assert [point["x"] for point in grid_points({"x": given})] == values


@pytest.mark.parametrize("given", [[], "choice(", ""])
def test_grids_without_values_are_refused(given: object) -> None:
    with pytest.raises(Refusal, match=r"selection\.grid\.x"):
        grid_points({"x": given})


def test_a_name_that_nothing_reads_is_refused() -> None:
    with pytest.raises(Refusal, match=r"selection\.grid\.learning_rate.*lr, weight_decay, momentum, start"):
        check_grid({"learning_rate": [1]}, ("start",), "Independent")
    check_grid({"lr": [1], "start": ["clone"]}, ("start",), "Independent")
