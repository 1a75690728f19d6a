"""iCaRL: herding, exemplars, distillation and the nearest mean, in its own and in GEM's form."""

from __future__ import annotations

import copy
from types import SimpleNamespace

import pytest
import torch

from cl_lightning.data.task import Batch
from cl_lightning.learners import Candidate, Finetune, ICaRL, ICaRLOfGEM
from cl_lightning.learners.icarl import herding, one_of_each
from cl_lightning.randomness import rng
from tests import toys
from tests.learners import by_hand
from tests.toys import builder, learn

PAIRS = toys.pairs_of_classes(head="single", tasks=3, n_val=40)  # two classes a task, six outputs
MASKED = by_hand.pairs()
WIDTHS = (36, 16, 16, 6)


def made(s=PAIRS, cls=ICaRL, **options):
    return cls(build=builder(s), head=s.head, seed=by_hand.SEED, **options)


def unit(rows: torch.Tensor) -> torch.Tensor:
    return rows / rows.norm(dim=-1, keepdim=True)


def herded_by_hand(features: torch.Tensor, count: int) -> list[int]:
    """p_k = argmin over those left of |mean - (phi(x) + sum of those before) / k|."""
    chosen: list[int] = []
    for k in range(1, count + 1):
        left = [i for i in range(len(features)) if i not in chosen]
        total = sum((features[i] for i in chosen), torch.zeros_like(features[0]))
        chosen.append(min(left, key=lambda i: float((features.mean(0) - (features[i] + total) / k).norm())))
    return chosen


def test_herding_by_hand_of_four_numbers() -> None:
    """The mean of 0, 1, 4, 7 is 3. Nearest are 4; with 1 (4 + 1) / 2 = 2.5; with 7 (5 + 7) / 3 = 4, as 5 / 3
    with 0 is farther away."""
    rows = torch.tensor([[0.0], [1.0], [4.0], [7.0]])
    assert herding(rows, 4).tolist() == [2, 1, 3, 0]
    assert herding(rows, 2).tolist() == [2, 1], "a shorter list is its beginning"


def test_herding_takes_nothing_twice_and_is_nearer_to_the_mean_than_chance() -> None:
    nearer = 0
    for seed in range(100):
        generator = torch.Generator().manual_seed(seed)
        features = torch.randn(60, 20, generator=generator)
        rows = herding(features, 10)
        assert rows.tolist() == herded_by_hand(features, 10)
        assert len(set(rows.tolist())) == 10
        chance = features[torch.randperm(60, generator=generator)[:10]].mean(0)
        nearer += bool(
            (features[rows].mean(0) - features.mean(0)).norm() < (chance - features.mean(0)).norm()
        )
    assert nearer >= 95


def learned_by_hand(total: int) -> tuple[list, dict[int, torch.Tensor]]:
    """Network and exemplars (their images by class) after three tasks, in plain torch."""
    net, kept = by_hand.fresh(0, WIDTHS), {}
    for index in range(3):
        task = PAIRS.task(index)
        x = torch.cat([task.train.x, *kept.values()])
        y = torch.cat([task.train.y, *(torch.full((len(images),), c) for c, images in kept.items())])
        old = by_hand.copied(net)
        pool = type(task.train)(x, y, torch.zeros_like(y))
        for _, images, labels in by_hand.mini_batches(pool, index):
            targets = torch.nn.functional.one_hot(labels, 6).float()
            if index:
                targets[:, : 2 * index] = by_hand.logits(old, images).sigmoid()[:, : 2 * index].detach()
            p = by_hand.logits(net, images).sigmoid()
            loss = -(targets * p.log() + (1 - targets) * (1 - p).log()).mean()
            by_hand.move(net, by_hand.gradient(loss, net))
        size = total // (2 * (index + 1))
        kept = {c: images[:size] for c, images in kept.items()}
        for c in (2 * index, 2 * index + 1):
            images = task.train.x[task.train.y == c]
            features = unit(by_hand.features(net[:-2], images)).detach()
            kept[c] = images[herded_by_hand(features, size)]
    return net, kept


def test_three_tasks_are_learned_as_by_hand() -> None:
    learner = by_hand.learned(made(total=20), PAIRS)
    net, kept = learned_by_hand(20)
    assert torch.allclose(by_hand.row(list(learner.network.parameters())), by_hand.row(net), atol=1e-5)
    assert [len(images) for images in kept.values()] == [3] * 6, "20 shared by 6"
    assert learner.memory["y"].tolist() == [c for c in range(6) for _ in range(3)]
    assert learner.memory["x"].equal(torch.cat(list(kept.values())))
    means = torch.stack([unit(unit(by_hand.features(net[:-2], kept[c])).mean(0)) for c in range(6)])
    test = PAIRS.test(1)
    away = (unit(by_hand.features(net[:-2], test.x))[:, None] - means).norm(dim=2)
    assert learner(test.x, None).argmax(1).equal(away.argmin(1))
    assert not learner(test.x, None).argmax(1).equal(by_hand.logits(net, test.x).argmax(1))


def test_lists_are_cut_to_their_beginnings_and_never_exceed_the_memory() -> None:
    class Noting(ICaRL):
        lists = []

        def on_task_end(self, task):
            super().on_task_end(task)
            self.lists.append([self.memory["x"][self.memory["y"] == c] for c in range(2 * task.index + 2)])

    learn(made(cls=Noting, total=25), PAIRS, by_hand.SETTINGS)
    for seen, lists in enumerate(Noting.lists, start=1):
        assert [len(own) for own in lists] == [25 // (2 * seen)] * 2 * seen
    for before, after in zip(Noting.lists, Noting.lists[1:]):
        assert all(new.equal(old[: len(new)]) for old, new in zip(before, after))


def test_targets_of_past_classes_are_the_last_networks_and_no_ones_and_zeros() -> None:
    learner = by_hand.learned(made(total=20), PAIRS)
    (c,) = learner.candidates(PAIRS.task(1))
    batch = Batch(*PAIRS.task(1).train.parts, learning=1)
    said = learner.shared(batch, [c])
    losses = []
    for targets in (said, (said > 0.5).float()):
        batch.lazy = SimpleNamespace(value=lambda targets=targets: targets, made=None)
        losses.append(learner.loss(c, batch))
    assert not losses[0].isclose(losses[1])


def test_a_prediction_does_not_change_with_the_scale_of_features() -> None:
    learner = by_hand.learned(made(total=20), PAIRS)
    x, scaled = PAIRS.test(0).x, copy.deepcopy(learner)
    with torch.no_grad():
        for p in scaled.network.trunk.linear2.parameters():
            p *= 3.0
    assert scaled(x, None).argmax(1).equal(learner(x, None).argmax(1))


def test_validation_chooses_by_the_means_that_it_would_predict_with() -> None:
    """The score of the winner is the accuracy on validation data right after adopting it."""

    class Noting(ICaRL):
        scores = []

        def adopt(self, c, task):
            super().adopt(c, task)
            numbers = self(task.val.x, None).argmax(1)
            self.scores.append((numbers == task.val.y).float().mean().item())

    learned = learn(made(cls=Noting, total=20), PAIRS, toys.training(patience=10))
    assert [learned.phase(t).chosen.measure for t in range(3)] == pytest.approx(Noting.scores)
    assert min(Noting.scores) > 0.5


def test_means_have_length_one() -> None:
    means = learn(made(total=20), PAIRS, by_hand.SETTINGS).learner.memory["means"]
    assert [mean.norm().item() for mean in means.values()] == pytest.approx([1.0] * len(means))


# ---- for a single pass -------------------------------------------------------------------------------------


def test_without_exemplars_the_single_pass_form_is_finetune_to_the_bit() -> None:
    finetune = learn(Finetune(build=builder(MASKED), head=MASKED.head, seed=3), MASKED, by_hand.SETTINGS)
    icarl = learn(made(MASKED, ICaRLOfGEM, total=0), MASKED, by_hand.SETTINGS)
    assert icarl.weights.equal(finetune.weights)
    assert icarl.matrix == finetune.matrix
    on = learn(made(MASKED, ICaRLOfGEM, total=60), MASKED, by_hand.SETTINGS)
    assert not torch.allclose(on.weights, finetune.weights, atol=1e-4)


def test_the_single_pass_form_learns_two_tasks_as_by_hand() -> None:
    strength, net, kept = 2.0, by_hand.fresh(0, WIDTHS), {}
    said = torch.empty(0)
    for index in range(2):
        task, own = MASKED.task(index), by_hand.OWN[index]
        for key, x, y in by_hand.mini_batches(task.train, index):
            loss = by_hand.loss(net, x, y, own)
            if index:
                rows = one_of_each([len(images) for images in kept.values()], rng(*key, "exemplars"))
                old = said[rows][:, [0, 1]].softmax(1)
                now = by_hand.logits(net, torch.cat(list(kept.values()))[rows])[:, [0, 1]].log_softmax(1)
                loss = loss + strength * (old * (old.log() - now)).sum(1).mean()
            by_hand.move(net, by_hand.gradient(loss, net))
        size = 20 // (2 * (index + 1))
        kept = {c: images[:size] for c, images in kept.items()}
        for c in own:
            images = task.train.x[task.train.y == c]
            kept[c] = images[herded_by_hand(by_hand.logits(net, images)[:, own].detach(), size)]
        said = by_hand.logits(net, torch.cat(list(kept.values()))).detach()
    learner = made(MASKED, ICaRLOfGEM, total=20, strength=strength)
    learner = learn(learner, MASKED, by_hand.SETTINGS, tasks=2).learner
    assert torch.allclose(by_hand.row(list(learner.network.parameters())), by_hand.row(net), atol=1e-5)
    assert learner.memory["x"].equal(torch.cat(list(kept.values())))
    means = torch.stack([by_hand.logits(net, kept[c]).mean(0) for c in range(4)])
    x = MASKED.test(0).x
    away = (by_hand.logits(net, x)[:, None] - means).norm(dim=2)[:, :2]
    assert learner(x, None)[:, :2].argmax(1).equal(away.argmin(1)), "among the task's own classes"


def test_far_from_what_was_said_the_divergence_is_that_of_now_from_then() -> None:
    """Near to it, as a few steps lead, it is the same either way."""
    learner = learn(
        made(MASKED, ICaRLOfGEM, total=20, strength=3.0), MASKED, by_hand.SETTINGS, tasks=1
    ).learner
    task, key = MASKED.task(1), (3, 1, 0, 0)
    c = Candidate(learner.fresh("far away"))
    with torch.no_grad():
        for p in c.parameters:
            p.mul_(5)
    batch = Batch(*task.train.gather(torch.arange(5)), key=key, learning=1)
    rows = one_of_each(learner.memory["counts"], rng(*key, "exemplars"))
    old = learner.memory["said"][rows][:, [0, 1]].softmax(1)
    now = c.network(learner.memory["x"][rows], learner.memory["task"][rows])[:, [0, 1]].softmax(1)
    expected = Finetune.loss(learner, c, batch) + 3.0 * (old * (old / now).log()).sum(1).mean()
    assert learner.loss(c, batch).item() == pytest.approx(expected.item(), rel=1e-5)
    assert abs((now * (now / old).log()).sum() - (old * (old / now).log()).sum()) > 1e-4


def test_one_exemplar_of_each_class_is_drawn_and_each_comes_in_its_turn() -> None:
    drawn = torch.stack([one_of_each([3, 2, 1], rng(seed)) for seed in range(60)])
    assert [set(column.tolist()) for column in drawn.T] == [{0, 1, 2}, {3, 4}, {5}]
