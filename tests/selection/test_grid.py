"""One syntax for grids."""

import math

import pytest

from cl_lightning.config.checking import Rate, check_arguments, check_value
from cl_lightning.config.settings import Training
from cl_lightning.errors import Refusal
from cl_lightning.learners import EWC, GEM, Finetune, Independent, Learner
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


def test_a_value_that_comes_twice_is_refused() -> None:
    with pytest.raises(Refusal, match=r"selection.grid.lr=\[0.1, 0.2, 0.1\] has 0.1 twice"):
        check_grid({"lr": [0.1, 0.2, 0.1]}, Finetune)


def test_a_name_that_nothing_reads_is_refused() -> None:
    with pytest.raises(Refusal, match=r"selection\.grid\.learning_rate: .* Did you mean lr\?"):
        check_grid({"learning_rate": [1]}, Independent)
    check_grid({"lr": [1], "start": ["clone"]}, Independent)


class Tunes(Finetune):
    """One's own, with keys that other classes declare otherwise; none of its own is annotated but
    ``rate``."""

    grid_keys = ("prior", "start", "size", "rate")

    def __init__(self, *, prior=1, start=2, size=3, rate: Rate = 0.5, **base) -> None:
        super().__init__(**base)


@pytest.mark.parametrize(
    ("learner", "name", "value"),
    [
        (EWC, "strength", -5.0),
        (EWC, "strength", True),
        (EWC, "strength", math.nan),
        (EWC, "strength", math.inf),
        (EWC, "strength", "much"),
        (GEM, "margin", None),
        (Independent, "start", "warm"),
        (Tunes, "rate", 1.0),
        (Tunes, "prior", math.inf),
    ],
)
def test_a_value_of_a_grid_is_refused_as_that_of_the_key_is(
    learner: type[Learner], name: str, value: object
) -> None:
    said = []
    for refuse in (
        lambda: check_grid({name: [value]}, learner),
        lambda: check_arguments(learner, {name: value}, "selection.grid", ["build", "head"]),
    ):
        with pytest.raises(Refusal) as refusal:
            refuse()
        said.append(str(refusal.value))
    assert said[0] == said[1]


@pytest.mark.parametrize(
    ("name", "value"), [("lr", 0), ("lr", -1), ("lr", "fast"), ("momentum", 1), ("weight_decay", -0.1)]
)
def test_a_grid_of_the_optimizers_keys_is_held_to_the_trainers_but_has_no_null(
    name: str, value: object
) -> None:
    with pytest.raises(Refusal) as of_grid:
        check_grid({name: [value]}, Finetune)
    with pytest.raises(Refusal) as of_trainer:
        check_value(Training, name, value, f"selection.grid.{name}")
    assert str(of_trainer.value) == f"{str(of_grid.value).removesuffix('.')}, or null."


def test_values_in_hydras_grammar_are_checked_too() -> None:
    with pytest.raises(Refusal, match=r"selection\.grid\.strength=-5 must be a number of at least 0"):
        check_grid({"strength": "range(1,-8,-6)"}, EWC)
    with pytest.raises(Refusal, match=r"selection\.grid\.strength=-5 must be a number of at least 0"):
        check_grid({"strength": "1,-5"}, EWC)


@pytest.mark.parametrize("name", ["prior", "start", "size"])
def test_keys_of_ones_own_that_are_not_annotated_may_be_anything(name: str) -> None:
    check_grid({name: [-1, "warm", True, None, [1], 0.5]}, Tunes)
