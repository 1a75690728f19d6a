"""Stopping by kept images: what is kept, and what a score is made of."""

from __future__ import annotations

import pytest
import torch

from cl_lightning.learners import Finetune, StopByKept
from tests import toys
from tests.learners import by_hand
from tests.toys import builder, learn

S = toys.pairs_of_classes("single", tasks=3, n_val=40)
IMAGES = 7
TRAINED = [(S.task(t).train.x, S.task(t).train.y) for t in range(3)]
STOPPING = toys.training(optimizer="sgd", lr=0.1, max_epochs=6, batch_size=10, patience=1000)


class Noting(StopByKept):
    """Keeps what was adopted and what its phase gave it."""

    def __init__(self, **options):
        super().__init__(**options)
        self.notes = {"scores": []}

    def learn(self, task):
        phases = super().learn(task)
        outcome = yield next(phases)
        self.notes["scores"].append(outcome.score)
        try:
            phases.send(outcome)
        except StopIteration:
            return


def made(cls=Noting, images: int = IMAGES) -> StopByKept:
    return cls(build=builder(S), head=S.head, seed=by_hand.SEED, images=images)


def share(learner, x: torch.Tensor, y: torch.Tensor) -> float:
    return (learner.network(x).argmax(1) == y).float().mean().item()


def test_the_first_images_of_each_task_are_kept_and_no_more() -> None:
    learner = learn(made(), S, STOPPING).learner
    for name in ("x", "y"):
        first = torch.cat([pair["xy".index(name)][:IMAGES] for pair in TRAINED])
        assert learner.memory[name].equal(first)
    assert learner.memory["task"].tolist() == [0] * IMAGES + [1] * IMAGES + [2] * IMAGES


def test_the_score_by_hand_is_that_of_kept_images_and_validation_data_weighed_by_sizes() -> None:
    """Of the weights that were adopted, over all outputs."""

    class Scored(Noting):
        by_hand = []

        def adopt(self, c, task):
            super().adopt(c, task)
            n = [*[600] * task.index, 60]
            known = [share(self, x[:IMAGES], y[:IMAGES]) for x, y in TRAINED[: task.index]]
            known.append(share(self, task.val.x, task.val.y))
            self.by_hand.append(sum(a * b for a, b in zip(n, known)) / sum(n))

        def on_task_end(self, task):
            super().on_task_end(task)
            self.memory["sizes"][-1] *= 10  # as if a past task had had more examples than the open one

    learned = learn(made(Scored), S, STOPPING)
    assert learned.learner.notes["scores"] == pytest.approx(Scored.by_hand)


def test_less_is_forgotten_than_by_finetuning_to_the_best_of_the_open_task() -> None:
    kept = learn(made(), S, STOPPING)
    plain = learn(Finetune(build=builder(S), head=S.head, seed=by_hand.SEED), S, STOPPING)
    assert kept.matrix[1] == plain.matrix[1], "before there is anything to keep"
    assert sum(kept.matrix[-1]) > sum(plain.matrix[-1])
