"""The rules of training against numbers worked out by hand.

Most networks here have two weights, with a loss whose gradient can be written down.
"""

from __future__ import annotations

import copy
from collections import UserDict
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

from cl_lightning.data.sources.cache import Images
from cl_lightning.data.streams.recipes import split
from cl_lightning.data.task import Blocks
from cl_lightning.learners import Candidate, Finetune, Phase
from cl_lightning.metrics.costs import held_bytes
from cl_lightning.randomness import seeded
from tests import toys
from tests.commands import run
from tests.toys import Learned, builder, learn, training

START = (3.0, 4.0)  # of length 5
SIX_STEPS = {"max_epochs": 1, "batch_size": 10, "lr": 0.1, "optimizer": "sgd"}  # of 60 examples


class Pair(nn.Module):
    """Two numbers. It says class 0 of every image."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.outputs, self.w = outputs, nn.Parameter(torch.tensor(START))

    def forward(self, x, task=None):
        return torch.cat([x.new_ones(len(x), 1), x.new_zeros(len(x), self.outputs - 1)], 1)


class Shrinks(Finetune):
    """Its loss is half the square of the length of w, so that its gradient is w itself."""

    def __init__(self, **base: object) -> None:
        super().__init__(build=lambda head: Pair(4), head=toys.stream().head, **base)

    def loss(self, c, batch):
        return 0.5 * (c.network.w**2).sum()


class Scripted(Shrinks):
    """Its candidates are scored as ``script`` says: a row a candidate, a number a scoring, the last for
    ever."""

    def __init__(self, *, script: dict[str, Sequence[float]], **base: object) -> None:
        super().__init__(**base)
        self.script, self.scored, self.adopted = script, UserDict(), []

    def learn(self, task):
        self.scored = UserDict()
        best = yield Phase(self.candidates(task), score=self.read)
        self.adopted.append(best.candidate.name)
        self.adopt(best.candidate, task)

    def read(self, c: Candidate, val: object) -> float:
        """Notes how long w was when it was asked for."""
        lengths, row = self.scored.setdefault(c.name, []), self.script[c.name]
        lengths.append(c.network.w.norm().item())
        return row[min(len(lengths), len(row)) - 1]


def trained(learner: Finetune, tasks: int = 1, **options: object) -> Learned:
    return learn(learner, toys.stream(tasks=tasks), training(**{**SIX_STEPS, **options}))


def near(*expected: float) -> object:
    return pytest.approx(list(expected), rel=1e-4)


def ends(learned: Learned) -> list[float]:
    return learned.weights.tolist()


def lengths(steps: int, lr: float = 0.1) -> list[float]:
    """The lengths of w after 0, 1, ... steps of plain gradient descent: each takes the part lr off."""
    return [5 * (1 - lr) ** step for step in range(steps + 1)]


# ---- steps -------------------------------------------------------------------------------------------------


def test_a_step_takes_the_learning_rates_part_of_the_gradient() -> None:
    assert ends(trained(Shrinks())) == near(3 * 0.9**6, 4 * 0.9**6)


def momentum_by_hand(w: float, velocity: float, steps: int) -> tuple[float, float]:
    for _ in range(steps):
        velocity = 0.9 * velocity + w
        w -= 0.1 * velocity
    return w, velocity


def test_momentum_adds_nine_tenths_of_the_last_step() -> None:
    learned = trained(Shrinks(), momentum=0.9, max_steps=3)
    assert ends(learned) == near(3 * 0.486, 4 * 0.486)  # of 1: 0.9, then 0.9 - 0.18, then 0.72 - 0.234
    assert momentum_by_hand(1.0, 0.0, 3)[0] == pytest.approx(0.486)


Numbers = tuple[float, float, float]  # w, and Adam's two moments of it


def adam_by_hand(begin: Numbers, first: int, steps: int, push: float | None = None, decay=0.0) -> Numbers:
    """Steps number ``first``, ``first + 1``, ... of Kingma and Ba 2015.

    The gradient is w itself, or ``push`` instead; the part ``decay`` of w is added to it.
    """
    w, m, v = begin
    for t in range(first, first + steps):
        g = (w if push is None else push) + decay * w
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        w -= 0.1 * (m / (1 - 0.9**t)) / ((v / (1 - 0.999**t)) ** 0.5 + 1e-8)
    return w, m, v


@pytest.mark.parametrize("decay", [0.0, 0.5])
def test_weight_decay_is_added_to_the_gradient_of_plain_steps(decay: float) -> None:
    left = (1 - 0.1 * (1 + decay)) ** 6
    assert ends(trained(Shrinks(), weight_decay=decay)) == near(3 * left, 4 * left)


class Pushed(Shrinks):
    """Its gradient is (1, -2), whatever w is: what pulls w itself is weight decay alone."""

    def loss(self, c, batch):
        return c.network.w[0] - 2 * c.network.w[1]


def test_weight_decay_goes_through_adams_moments_as_a_part_of_the_gradient() -> None:
    coupled, apart = [], []
    for w, push in zip(START, (1.0, -2.0)):
        coupled.append(adam_by_hand((w, 0.0, 0.0), 1, 12, push, decay=0.5)[0])
        for _ in range(12):  # decay beside the moments: each step is then as long as the learning rate
            w -= 0.1 * (0.5 * w) + 0.1 * (1 if push > 0 else -1)
        apart.append(w)
    assert all(abs(one - other) > 0.1 for one, other in zip(coupled, apart)), "they cannot be told apart"
    assert ends(trained(Pushed(), optimizer="adam", weight_decay=0.5, max_epochs=2)) == near(*coupled)


def test_a_decay_of_one_candidate_is_not_the_others() -> None:
    grid = [{"weight_decay": 0.0}, {"weight_decay": 0.5}]
    for scores, left in (((0.1, 0.9), 0.85**6), ((0.9, 0.1), 0.9**6)):
        learner = Scripted(script=dict(zip(("weight_decay=0.0", "weight_decay=0.5"), zip(scores))), grid=grid)
        assert ends(trained(learner)) == near(3 * left, 4 * left)


@pytest.mark.parametrize("at_once", [None, 1])
def test_each_candidates_gradient_is_shortened_to_the_clip_by_its_own_length(at_once: int | None) -> None:
    """A step takes lr off the length of w; once w is shorter than the clip, lr times its length."""
    grid = [{"lr": 0.5}, {"lr": 1.0}]
    half, whole = [4.5, 4, 3.5, 3, 2.5, 2, 1.5, 1, 0.5, 0.25], [4, 3, 2, 1, 0]  # lengths after each step
    first, second = (0.9, 0.1), (0.1, 0.9)
    for scores, steps in ((first, half), (first, half[:4]), (second, whole), (second, whole[:2])):
        learner = Scripted(script=dict(zip(("lr=0.5", "lr=1.0"), zip(scores))), grid=grid)
        options = {"max_epochs": 2, "max_steps": len(steps), "candidates_at_once": at_once}
        learned = trained(learner, clip=1.0, **options)
        assert ends(learned) == pytest.approx([steps[-1] * 0.6, steps[-1] * 0.8], abs=1e-3)


# ---- how long ----------------------------------------------------------------------------------------------


BUDGETS = [(3, 7, 7), (3, 6, 6), (3, 1, 1), (3, 18, 18), (3, 100, 18), (2, None, 12)]  # epochs have 6 steps


@pytest.mark.parametrize("block", [1, 4, 25])
@pytest.mark.parametrize(("epochs", "most", "taken"), BUDGETS)
def test_a_phase_takes_max_steps_mini_batches_or_its_epochs_if_fewer(epochs, most, taken, block) -> None:
    learned = trained(Shrinks(), tasks=2, max_epochs=epochs, max_steps=most, block=block)
    assert [learned.winner(task)["steps"] for task in range(2)] == [taken, taken]
    assert ends(learned) == near(*(w * 0.9 ** (2 * taken) for w in START))


PATIENCE = [  # scores, patience, mini-batches between scorings; those to the best score, and those to the end
    ([0.1, 0.2, 0.9, 0.3, 0.8], 3, 1, 2, 5),
    ([0.1, 0.2, 0.9, 0.3, 0.8], 1, 1, 2, 3),
    ([0.1, 0.2, 0.9, 0.3, 0.8], 3, 2, 4, 8),  # first asked after 2, where 2 < 3
    ([0.9, 0.1, 0.2, 0.3, 0.8], 4, 1, 0, 4),
    ([0.1, 0.2, 0.2, 0.2, 0.2], 3, 1, 1, 4),  # as good is not better
    ([0.1, 0.0, 0.2, 0.1, 0.3, 0.2, 0.4, 0.1], 3, 1, 6, 9),  # each improvement counts from anew
]


@pytest.mark.parametrize("block", [1, 25])
@pytest.mark.parametrize(("scores", "patience", "every", "best", "left"), PATIENCE)
def test_patience_counts_mini_batches_from_the_best_score_and_its_weights_stay(
    scores: list[float], patience: int, every: int, best: int, left: int, block: int
) -> None:
    learner = Scripted(script={"default": scores})
    learned = trained(learner, max_epochs=4, patience=patience, score_every=every, score_at=(0,), block=block)
    assert learned.winner(0) == {
        "val_accuracy": None,
        "score": max(scores),
        "steps": left,
        "steps_to_best": best,
    }
    assert learner.scored["default"] == near(*lengths(left)[::every])
    assert learned.weights.norm().item() == pytest.approx(lengths(best)[-1], rel=1e-4)


def test_who_never_gets_worse_for_so_long_trains_to_the_end() -> None:
    scores = [step / 100 for step in range(25)]
    learner = Scripted(script={"default": scores})
    learned = trained(learner, max_epochs=4, patience=2, score_every=1, score_at=(0,))
    assert learned.winner(0) == {"val_accuracy": None, "score": 0.24, "steps": 24, "steps_to_best": 24}


@pytest.mark.parametrize(
    ("options", "steps"),
    [
        ({"score_at": (0, 1, 4), "score_every": 5}, [0, 1, 4, 5, 10, 12]),
        ({"score_at": (0, 1, 4)}, [0, 1, 4, 6, 12]),  # and after each epoch
        ({"score_at": (), "score_every": 5}, [5, 10, 12]),
        ({"score_at": (2, 5), "score_every": 5}, [2, 5, 10, 12]),
    ],
)
def test_candidates_are_scored_when_the_configuration_says_and_at_the_end(options: dict, steps: list) -> None:
    learner = Scripted(script={"default": [0.5]})
    trained(learner, max_epochs=2, patience=100, **options)
    assert learner.scored["default"] == near(*(lengths(12)[step] for step in steps))


def test_without_patience_only_the_last_weights_are_scored_and_they_stay() -> None:
    learner = Scripted(script={"default": [0.1, 0.9]})
    learned = trained(learner)
    assert learned.winner(0) == {"val_accuracy": None, "score": 0.1, "steps": 6, "steps_to_best": 6}
    assert learner.scored["default"] == near(lengths(6)[-1])


# ---- which candidate ---------------------------------------------------------------------------------------


THREE = [{"lr": 0.1}, {"lr": 0.2}, {"lr": 0.3}]
WINNERS = [((0.2, 0.6, 0.4), 1), ((0.6, 0.2, 0.4), 0), ((0.2, 0.4, 0.6), 2), ((0.2, 0.6, 0.6), 1)]


@pytest.mark.parametrize("at_once", [None, 1, 2])
@pytest.mark.parametrize(("scores", "winner"), WINNERS)
def test_the_candidate_with_the_highest_score_is_adopted_with_its_weights(at_once, scores, winner) -> None:
    learner = Scripted(script=dict(zip(("lr=0.1", "lr=0.2", "lr=0.3"), zip(scores))), grid=THREE)
    learned = trained(learner, candidates_at_once=at_once)
    assert learner.adopted == [f"lr={THREE[winner]['lr']}"]
    assert learned.weights.norm().item() == pytest.approx(lengths(6, THREE[winner]["lr"])[-1], rel=1e-4)


@pytest.mark.parametrize("at_once", [None, 1, 2])
def test_candidates_are_compared_by_their_best_scores_and_not_by_their_first_or_last(at_once) -> None:
    """The first was best at first, the last at the end; the winner's worst score is the worst of all."""
    script = {"lr=0.1": [0.6, 0.3, 0.3, 0.3], "lr=0.2": [0.2, 0.3, 0.7, 0.1], "lr=0.3": [0.3, 0.2, 0.2, 0.5]}
    learner = Scripted(script=script, grid=THREE)
    options = {"max_steps": 3, "patience": 100, "score_every": 1, "score_at": (0,)}
    learned = trained(learner, candidates_at_once=at_once, **options)
    assert learned.standing(0) == {
        "lr=0.1": {"val_accuracy": None, "score": 0.6, "steps": 3, "steps_to_best": 0},
        "lr=0.2": {"val_accuracy": None, "score": 0.7, "steps": 3, "steps_to_best": 2},
        "lr=0.3": {"val_accuracy": None, "score": 0.5, "steps": 3, "steps_to_best": 3},
    }
    assert learner.adopted == ["lr=0.2"]
    assert ends(learned) == near(3 * 0.8**2, 4 * 0.8**2)


@pytest.mark.parametrize("at_once", [None, 1, 2])
@pytest.mark.parametrize("stops", [(4, 9, 6), (9, 4, 6), (4, 6, 9)])
def test_a_phase_in_shares_is_as_long_on_the_axis_of_curves_as_its_longest_candidate(at_once, stops) -> None:
    """Whichever share stops last; the next phase begins behind it."""
    names = ("lr=0.1", "lr=0.2", "lr=0.3")
    script = {name: [*range(1, stop - 1), 0] for name, stop in zip(names, stops)}  # best 3 steps before
    options = {"max_epochs": 4, "patience": 3, "score_every": 1, "score_at": (0,)}
    learned = trained(Scripted(script=script, grid=THREE), candidates_at_once=at_once, **options)
    assert tuple(learned.standing(0)[name]["steps"] for name in names) == stops
    assert (learned.phase(0).mini_batches, learned.engine.step) == (9, 9)


# ---- from task to task -------------------------------------------------------------------------------------


def test_momentum_begins_anew_at_a_task_or_is_carried_on() -> None:
    for state in ("reset", "carry"):
        expected = []
        for start in START:
            w, velocity = momentum_by_hand(start, 0.0, 6)
            expected.append(momentum_by_hand(w, velocity if state == "carry" else 0.0, 6)[0])
        learned = trained(Shrinks(), tasks=2, momentum=0.9, optimizer_state=state)
        assert ends(learned) == pytest.approx(expected, abs=1e-4)


def test_adams_moments_and_its_count_of_steps_begin_anew_at_a_task_or_are_carried_on() -> None:
    for state in ("reset", "carry"):
        expected = []
        for start in START:
            after = adam_by_hand((start, 0.0, 0.0), 1, 6)
            anew = adam_by_hand((after[0], 0.0, 0.0), 1, 6)
            expected.append(adam_by_hand(after, 7, 6)[0] if state == "carry" else anew[0])
        assert ends(trained(Shrinks(), tasks=2, optimizer="adam", optimizer_state=state)) == near(*expected)


def test_what_is_trained_for_a_test_leaves_the_moments_that_are_carried_on_as_they_were() -> None:
    """Copies that are trained on a coreset before each test change nothing of what is learned."""
    s, ends_of = toys.stream(), {}
    for cls in (Finetune, toys.Coreset):
        for state in ("carry", "reset"):
            settings = training(optimizer="sgd", momentum=0.9, optimizer_state=state)
            learner = cls(build=builder(s), head=s.head, seed=0)
            ends_of[cls, state] = learn(learner, s, settings).weights
    assert torch.equal(ends_of[toys.Coreset, "carry"], ends_of[Finetune, "carry"])
    assert not torch.equal(ends_of[Finetune, "carry"], ends_of[Finetune, "reset"])


def test_what_is_carried_on_are_the_winners_moments_at_its_best_step() -> None:
    """The second of two candidates wins, by its weights after four of six mini-batches."""
    grid = [{"lr": 0.3}, {"lr": 0.1}]
    learner = Scripted(script={"lr=0.3": [0.1], "lr=0.1": [0.1, 0.2, 0.3, 0.4, 0.9, 0.2, 0.2]}, grid=grid)
    options = {
        "momentum": 0.9,
        "optimizer_state": "carry",
        "patience": 100,
        "score_every": 1,
        "score_at": (0,),
    }
    learned = trained(learner, tasks=2, **options)
    assert [learned.winner(task)["steps_to_best"] for task in range(2)] == [4, 4]
    expected = []
    for start in START:
        w, velocity = momentum_by_hand(start, 0.0, 4)
        expected.append(momentum_by_hand(w, velocity, 4)[0])
    assert ends(learned) == pytest.approx(expected, abs=1e-4)


class Triple(Pair):
    def __init__(self) -> None:
        super().__init__(4)
        self.w = nn.Parameter(torch.tensor([*START, 5.0]))


class WithAnother(Shrinks):
    """Trains another network, too, before its own or behind it, and keeps it or throws it away."""

    def __init__(self, *, when: str, keeps: bool) -> None:
        super().__init__()
        self.when, self.keeps, self.other = when, keeps, Triple()

    def learn(self, task):
        if self.when == "before":
            yield from self.another()
        yield from super().learn(task)
        if self.when == "behind":
            yield from self.another()

    def another(self):
        best = yield Phase([Candidate(copy.deepcopy(self.other))], name="another")
        if self.keeps:
            self.other = best.candidate.network


@pytest.mark.parametrize("when", ["before", "behind"])
@pytest.mark.parametrize("keeps", [True, False])
@pytest.mark.parametrize("optimizer", [{"momentum": 0.9}, {"optimizer": "adam"}])
def test_moments_stay_with_the_network_that_they_belong_to(when: str, keeps: bool, optimizer: dict) -> None:
    """What the learner does not keep is not held; what it keeps goes on with moments of its own."""
    options = {"optimizer_state": "carry", "tasks": 3, **optimizer}
    learned, alone = trained(WithAnother(when=when, keeps=keeps), **options), trained(Shrinks(), **options)
    own, other = learned.learner.network.w, learned.learner.other.w
    assert own.tolist() == ends(alone)
    assert other.tolist()[:2] == (ends(alone) if keeps else list(START))
    held, held_alone = (
        held_bytes(each.learner, each.engine.moments)["optimizer"] for each in (learned, alone)
    )
    names, numbers, key = len("w") + len("momentum_buffer"), 4, 8
    if "momentum" in optimizer:
        assert held_alone == names + 2 * numbers + key
        assert held - held_alone == keeps * (names + 3 * numbers + key)
    assert (held == held_alone) is not keeps


def test_the_moments_that_are_carried_are_held_in_results(tmp_path: Path) -> None:
    """Two a parameter and a count of steps, of 4 bytes a number."""
    options = ("learner=finetune", "selection=none", "trainer.optimizer_state=carry", "stream.tasks=2")
    costs = run(tmp_path, *options)["costs"]
    parameters = costs[-1]["held"]["parameters"]
    assert 2 * parameters < costs[-1]["held"]["optimizer"] < 2 * parameters + 1024


def test_the_next_task_begins_with_the_best_weights_of_the_last() -> None:
    learner = Scripted(script={"default": [0.1, 0.9, 0.5, 0.5, 0.5, 0.5, 0.5]})
    learned = trained(learner, tasks=2, patience=100, score_every=1, score_at=(0,))
    assert learner.scored["default"][0] == pytest.approx(lengths(1)[-1], rel=1e-4)
    assert ends(learned) == near(3 * 0.9**2, 4 * 0.9**2)


# ---- scoring -----------------------------------------------------------------------------------------------


class Says(nn.Module):
    """The same logits for every image; one number to train, which changes nothing."""

    def __init__(self, logits: Sequence[float]) -> None:
        super().__init__()
        self.said, self.w = torch.tensor(logits), nn.Parameter(torch.ones(1))

    def forward(self, x, task=None):
        return self.said.expand(len(x), -1) + 0 * self.w


class Speakers(Finetune):
    """Candidates that say what they are told to."""

    def __init__(self, *, say: dict[str, Sequence[float]], **base: object) -> None:
        super().__init__(build=lambda head: Says([0.0] * 4), head=toys.stream().head, **base)
        self.say = say

    def candidates(self, task):
        return [Candidate(Says(logits), name=name) for name, logits in self.say.items()]


def a_split(head: str):
    return toys.pairs_of_classes(head, n_train=20, n_val=37)


def share_of(s, task: int, label: int) -> float:
    """How often an output number is right on the validation images of a task."""
    y = s.task(task).val.y.tolist()
    return sum(y_i == label for y_i in y) / len(y)


SAY = {"other task first": (9.0, 0.0, 2.0, 1.0), "own task first": (0.0, 0.0, 1.0, 2.0)}  # task 1 has 2 and 3


@pytest.mark.parametrize(("head", "first"), [("single", None), ("multi_test", 2), ("multi_train_test", 2)])
@pytest.mark.parametrize("patience", [None, 100])
def test_candidates_are_scored_over_the_outputs_that_count_at_test(head: str, first, patience) -> None:
    """One prefers an output of task 0, and of its own task's outputs number 2; the other number 3."""
    s = a_split(head)
    learned = learn(Speakers(say=SAY), s, training(patience=patience, max_epochs=1))
    scores = {name: standing["val_accuracy"] for name, standing in learned.standing(1).items()}
    assert scores["other task first"] == pytest.approx(0.0 if first is None else share_of(s, 1, first))
    assert scores["own task first"] == pytest.approx(share_of(s, 1, 3))
    assert 0.1 < share_of(s, 1, 3) < 0.9


OTHER, OWN = "other task first", "own task first"
WINNER = [("single", OWN), ("multi_test", OTHER), ("multi_train_test", OTHER)]


@pytest.mark.parametrize(("head", "winner"), WINNER)
def test_the_masked_accuracy_decides_which_candidate_is_adopted(head: str, winner: str) -> None:
    s = a_split(head)
    common, rare = (2, 3) if share_of(s, 1, 2) > share_of(s, 1, 3) else (3, 2)
    assert share_of(s, 1, common) > share_of(s, 1, rare) > 0
    say = {"own task first": [0.0] * 4, "other task first": [9.0, 0.0, 0.0, 0.0]}
    say["own task first"][rare] = say["other task first"][common] = 1.0
    assert learn(Speakers(say=say), s, training(max_epochs=1)).phase(1).chosen.name == winner


class ReadsPixels(nn.Module):
    """Says the class that the first pixel names; where dropout is on, class 0 of all."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.ones(1))

    def forward(self, x, task=None):
        named = F.one_hot((x[:, 0, 0, 0] * 255).round().long(), 4).float()
        return F.dropout(named, 1.0, self.training) + 0 * self.w


def partly_named() -> Images:
    """The first pixel names the class of every image, but that half of those of class 1 are called 0."""
    source = toys.images()
    for pool in (source.train, source.test):
        called = pool.y.clone()
        called[: len(called) // 2][pool.y[: len(called) // 2] == 1] = 0
        pool.x[:, 0, 0, 0] = called.to(torch.uint8)
    return source


@pytest.mark.parametrize("size", [1, 7, 37, 1000])
def test_an_accuracy_is_the_share_of_all_validation_images_whatever_the_batches(size: int) -> None:
    source = partly_named()
    s = split(source, seed=0, tasks=1, classes_per_task=4, n_train=20, n_val=37, n_test=None, head="single")
    named = source.train.x[s.recipe(0).val][:, 0, 0, 0].tolist()
    right = sum(name == y for name, y in zip(named, s.task(0).val.y.tolist()))
    assert 20 < right < 37
    learned = learn(
        Finetune(build=lambda head: ReadsPixels(), head=s.head),
        s,
        training(eval_batch_size=size, max_epochs=1),
    )
    assert learned.winner(0)["val_accuracy"] == pytest.approx(right / 37)


# ---- all together ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [(16,), (64,)])
@pytest.mark.parametrize("head", ["single", "multi_train_test"])
def test_two_tasks_of_a_grid_end_where_a_plain_loop_over_its_points_does(sizes: tuple, head: str) -> None:
    """Decay, clipping, early stopping, choice by validation, the winner handed on. Wide layers are
    stacked."""
    s = toys.pairs_of_classes(head, n_val=40)
    grid = [{"lr": 0.02, "weight_decay": 0.1}, {"lr": 0.5}, {"lr": 0.05}]
    settings = training(optimizer="sgd", max_epochs=5, patience=8, clip=1.0)
    learned = learn(Finetune(build=builder(s, sizes), head=s.head, grid=grid, seed=3), s, settings)

    with seeded(3, "init", 0):
        network = builder(s, sizes)()
    for index in range(2):
        ends = [by_itself(copy.deepcopy(network), s.task(index), point, index) for point in grid]
        best = max(range(3), key=lambda i: (ends[i][0], -i))
        for row, (accuracy, steps, to_best, _) in zip(learned.standing(index).values(), ends, strict=True):
            assert row == {"val_accuracy": accuracy, "steps": steps, "steps_to_best": to_best}
        assert learned.phase(index).winner == best
        network.load_state_dict(ends[best][3])
    expected = torch.cat([p.detach().flatten() for p in network.parameters()])
    assert torch.allclose(learned.weights, expected, atol=1e-5)


def by_itself(network: nn.Module, task, point: dict, index: int) -> tuple[float, int, int, dict]:
    """Best accuracy, mini-batches taken, those to the best, and the weights there."""
    best: tuple[float, int, dict] = (-1.0, 0, {})
    step, own = 0, list(task.head.owned[index])
    masked = task.head.mode == "multi_train_test"

    def over(logits: torch.Tensor) -> torch.Tensor:
        """The logits of the task's outputs alone, if so; then labels are places among them."""
        return logits[:, own] if masked else logits

    def places(y: torch.Tensor) -> torch.Tensor:
        return torch.tensor([own.index(label) for label in y.tolist()]) if masked else y

    blocks = Blocks(task.train, (3, f"task{index}", 0), 10, 5, 1)
    for batch in [None, *(batch for block in blocks for batch in block.batches)]:
        if batch is not None:
            network.zero_grad()
            F.cross_entropy(over(network(batch.x)), places(batch.y)).backward()
            norm = sum((p.grad**2).sum() for p in network.parameters()) ** 0.5
            with torch.no_grad():
                for p in network.parameters():
                    g = p.grad * min(1.0, 1.0 / norm.item())
                    p -= point["lr"] * (g + point.get("weight_decay", 0.0) * p)
            step += 1
        if step in (0, 1, 2, 3, 4, 5, 10) or step % 6 == 0 or step == 30:
            with torch.no_grad():
                said = over(network(task.val.x)).argmax(1)
                accuracy = (said == places(task.val.y)).sum().item() / len(task.val)
            if accuracy > best[0]:
                best = accuracy, step, copy.deepcopy(network.state_dict())
            elif step - best[1] >= 8:
                break
    return best[0], step, best[1], best[2]
