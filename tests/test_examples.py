"""The learners that docs/learners.md writes out: each does what the page says of it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn as nn

from cl_lightning.learners import Learner
from cl_lightning.randomness import seeded
from tests import docs, toys
from tests.toys import Learned

PAGE = docs.page("learners")
NAMES = re.findall(r"^class (\w+)\((?:Finetune|Learner)\):", PAGE, flags=re.MULTILINE)


def named(name: str) -> Any:
    """The class of the page's."""
    (code,) = (
        block
        for block in re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
        if f"class {name}(" in block
    )
    scope: dict[str, Any] = {"__name__": "page"}
    exec(compile(code, "docs/learners.md", "exec"), scope)
    return scope[name]


class Autoencoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        with seeded("autoencoder"):
            layers = nn.Linear(36, 8), nn.Linear(8, 36)
        self.layers = nn.Sequential(nn.Flatten(), *layers, nn.Unflatten(1, toys.SHAPE))

    def forward(self, x):
        return self.layers(x)


MORE: dict[str, dict[str, Any]] = {"WithAutoencoder": {"make_autoencoder": Autoencoder}}


def made(name: str, **options: Any) -> Callable[[], Learner]:
    s = toys.stream()
    build = toys.builder(s, dropout=0.2 if name == "MCDropout" else 0.0)
    return lambda: named(name)(build=build, head=s.head, seed=0, **MORE.get(name, {}), **options)


def learned(name: str, tasks: int = 3, fresh: bool = True, grid: tuple = ({},), **options: Any) -> Learned:
    """The stream is learned by a fresh learner for each task, as after a restart."""
    make = made(name, grid=grid)
    settings = toys.training(**{"weight_decay": 0.01, **options})
    return toys.learn(make(), toys.stream(tasks=tasks), settings, fresh=make if fresh else None)


def test_the_page_has_an_example_of_each_kind() -> None:
    kinds = {
        "Replay",
        "L2Anchor",
        "ANetworkATask",
        "HoldsTheGreatest",
        "WithAutoencoder",
        "MCDropout",
        "CountsSteps",
    }
    assert kinds <= {*NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_an_example_learns_and_keeps_nothing_that_a_restart_would_lose(name: str) -> None:
    whole, restarted = learned(name, fresh=False), learned(name)
    assert whole.matrix == restarted.matrix
    assert whole.phase(0).chosen.val_accuracy > 0.4  # chance is 0.25
    assert torch.equal(whole.weights, restarted.weights)


def test_replay_adds_ten_examples_of_past_tasks_to_each_mini_batch() -> None:
    found = learned("Replay")
    assert [found.costs(task)["replayed"] for task in range(3)] == [0, 180, 180]
    assert set(found.learner.memory["task"][:100].tolist()) == {0, 1, 2}


def test_an_anchor_holds_weights_near_those_of_the_last_task() -> None:
    far = {}
    for strength in (0.0, 10.0):
        after = learned("L2Anchor", tasks=2, grid=({"strength": strength},)).after
        far[strength] = (after[1] - after[0]).norm()
    assert far[10.0] < 0.3 * far[0.0]


def test_a_network_a_task_forgets_nothing() -> None:
    matrix = learned("ANetworkATask").matrix
    assert [matrix[3][task] for task in range(3)] == [matrix[task + 1][task] for task in range(3)]


def test_held_weights_never_change_again() -> None:
    found = learned("HoldsTheGreatest", optimizer_state="carry")
    one, two = (
        torch.cat([w.flatten() for w in masks]) == 1
        for masks in (mask_of(found.after[0]), found.learner.memory["held"])
    )
    assert torch.equal(found.after[0][one], found.after[2][one])
    assert (found.after[0] != found.after[2]).sum() > one.sum()
    assert one.sum() < two.sum()


def mask_of(weights: torch.Tensor) -> list[torch.Tensor]:
    network, masks = toys.builder(toys.stream())(), []
    for w in weights.split([p.numel() for p in network.parameters()]):
        masks.append((w.abs() >= w.abs().quantile(0.9)).float())
    return masks


def test_an_autoencoder_is_trained_before_the_network_and_changes_nothing_of_it() -> None:
    found, s = learned("WithAutoencoder"), toys.stream()
    x = s.task(2).val.x
    error, before = (((model(x) - x) ** 2).mean() for model in (found.learner.autoencoder, Autoencoder()))
    assert error < 0.5 * before
    assert [phase.name for phase in found.phases] == ["autoencoder", "train"] * 3


def test_dropout_at_test_gives_draws_that_differ() -> None:
    learner = learned("MCDropout").learner.eval()
    drawn = learner.samples(toys.stream().test(0).x[:5], None)
    assert drawn.shape == (50, 5, 4)
    assert drawn.std(0).min() > 0


def test_what_training_records_is_that_of_the_weights_that_are_kept() -> None:
    found = learned("CountsSteps", patience=6, score_every=2)
    best = [found.phase(task).chosen.steps_to_best for task in range(3)]
    assert found.learner.memory["steps"] == sum(best)
    assert sum(best) < sum(found.phase(task).chosen.steps for task in range(3))
