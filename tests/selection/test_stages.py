"""Grids by task, values that belong together, topologies: any learner runs under them."""

from __future__ import annotations

import signal
from functools import partial
from pathlib import Path

import pytest
import torch

from cl_lightning.backbones import MLP
from cl_lightning.errors import Refusal
from cl_lightning.learners import Finetune
from cl_lightning.selection.grid import by_task, check_grid
from tests import toys
from tests.commands import but_what_may_differ, run
from tests.dying import dying, in_a_child
from tests.engine.test_rules import Scripted, ends, near, trained
from tests.ranks import on_ranks
from tests.test_devices import results_in

STAGES = (
    "selection.stages=[{backbone.sizes:[[16],[80],[64,64]],lr:[0.01,0.001]},[{lr:0.003,weight_decay:0.0},"
    "{lr:0.0003,weight_decay:0.1}]]",
    "stream.tasks=3", "trainer.batch_size=20",
)  # fmt: skip
REALISTIC = ["finetune", "ewc", "si", "er", "lwf", "gem"]


@pytest.mark.parametrize(
    "learner", ["finetune", "gem", *(pytest.param(name, marks=pytest.mark.all) for name in REALISTIC[1:-1])]
)
def test_the_topology_of_the_first_task_is_learned_on_by_any_learner(learner: str, tmp_path: Path) -> None:
    results = run(tmp_path, f"learner={learner}", *STAGES)
    first, *later = (row["candidate"] for row in results["selected"])
    assert "backbone.sizes=" in first
    assert all("backbone" not in name for name in later)
    assert [row["candidates"] for row in results["selected"]] == [6, 2, 2]


def test_a_topology_and_its_rate_train_as_if_nothing_else_were_there(tmp_path: Path) -> None:
    several = run(tmp_path / "several", *STAGES, "stream.tasks=1")
    name = several["selected"][0]["candidate"]
    sizes, rate = name.removeprefix("backbone.sizes=").rsplit(",lr=", 1)
    options = (f"backbone.sizes={sizes}", f"trainer.lr={rate}", *STAGES[1:], "stream.tasks=1")
    alone = run(tmp_path / "alone", *options, "selection=none")
    assert several["accuracy_matrix"] == alone["accuracy_matrix"]
    assert several["selected"][0]["val_accuracy"] == alone["selected"][0]["val_accuracy"]


def test_stages_end_the_same_killed_behind_every_record_on_two_ranks_and_in_fresh_learners(
    tmp_path: Path,
) -> None:
    options, kills = ("learner=si", *STAGES, "stream.tasks=2"), 0
    whole = but_what_may_differ(run(tmp_path / "whole", *options))
    cut = tmp_path / "cut"
    while in_a_child(lambda: dying("record written:1", lambda: run(cut, *options))) == -signal.SIGKILL:
        kills += 1
    assert kills >= 4
    assert but_what_may_differ(run(cut, *options)) == whole
    assert on_ranks(2, tmp_path / "ranks", *options) == [0, 0]
    assert but_what_may_differ(results_in(tmp_path / "ranks")) == whole
    assert but_what_may_differ(run(tmp_path / "fresh", *options, "debug.fresh_learner=true")) == whole


def test_a_learner_that_makes_its_networks_itself_is_not_given_a_topology_that_it_does_not_take(
    tmp_path: Path,
) -> None:
    with pytest.raises(Refusal, match=r"HAT makes the network of its candidate .* does not reach it"):
        run(tmp_path, "learner=hat", *STAGES)


def test_points_are_tried_as_they_are_and_a_topology_in_the_first_task_alone() -> None:
    tied = [{"lr": 0.1, "backbone": {"sizes": [8]}}, {"lr": 0.1, "backbone": {"sizes": [9]}}]
    assert by_task({"grid": tied}) == [
        [{"lr": 0.1, "backbone.sizes": [8]}, {"lr": 0.1, "backbone.sizes": [9]}], [{"lr": 0.1}],
    ]  # fmt: skip
    assert by_task({"stages": [{"lr": [1, 2]}, [{"lr": 3}]]}) == [[{"lr": 1}, {"lr": 2}], [{"lr": 3}]]
    with pytest.raises(
        Refusal, match=r"selection\.stages\[1\]\.backbone\.sizes: a topology is chosen in the first"
    ):
        by_task({"stages": [{}, {"backbone.sizes": [[8]]}]})


@pytest.mark.parametrize(
    ("grid", "words"),
    [
        (
            [{"lr": 0.1}, {"momentum": 0.1}],
            r"a list of points\. Each point is a mapping, and all have the same",
        ),
        ([{"lr": 0.1}, {"lr": 0.1}], r"selection\.grid has .* twice"),
        ([{"lr": -1}], r"selection\.grid\.lr=-1 must be"),
        ({"restore": ["worst"]}, r"selection\.grid\.restore=worst must be one of best, last"),
        ({"backbone": {"sizes": [[0]]}}, r"backbone\.sizes=\[0\] must be"),
        ({"backbone": {"size": [[4]]}}, r"backbone\.size is not a key here\. Did you mean sizes"),
    ],
)
def test_what_cannot_be_tried_is_refused(grid: object, words: str) -> None:
    with pytest.raises(Refusal, match=words):
        check_grid(grid, Finetune, partial(MLP, sizes=[16]))


def test_each_candidate_ends_with_its_best_weights_or_its_last_as_its_point_says() -> None:
    row = [0.1, 0.5, 0.9, 0.4, 0.3, 0.1, 0.2]
    script = {"restore=best": row, "restore=last": [*row[:-1], 0.95, 0.95]}
    learner = Scripted(script=script, grid=[{"restore": "best"}, {"restore": "last"}])
    learned = trained(learner, score_every=1, score_at=(0,), patience=None)
    assert ends(learned) == near(3 * 0.9**6, 4 * 0.9**6)
    scores = {c.name: (c.score, c.steps_to_best) for c in learned.phase(0).candidates}
    assert scores == {"restore=best": (0.9, 2), "restore=last": (0.95, 6)}
    learner = Scripted(script={"restore=best": row}, grid=[{"restore": "best"}])
    assert ends(trained(learner, score_every=1, score_at=(0,))) == near(3 * 0.9**2, 4 * 0.9**2)


def test_a_learner_may_be_given_points_by_task() -> None:
    s = toys.stream()
    grid = [[{"lr": 0.01}, {"lr": 0.02}], [{"lr": 0.1}]]
    learned = toys.learn(Finetune(build=toys.builder(s), head=s.head, grid=grid), s)
    names = [[c.name for c in phase.candidates] for phase in learned.phases]
    assert names == [["lr=0.01", "lr=0.02"], ["lr=0.1"], ["lr=0.1"]]
    assert torch.isfinite(learned.weights).all()
