"""VGR and DGR: what is replayed, under which labels and weights, and the generators."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from cl_lightning.data.streams.stream import Stream
from cl_lightning.data.task import Batch
from cl_lightning.errors import Refusal
from cl_lightning.learners import DGR, VGR, Candidate, Finetune, Joint
from cl_lightning.learners.parts.gan import GAN, NOISE, adversarial_loss, generator
from cl_lightning.randomness import rng, seed_of, seeded
from tests import toys
from tests.learners import by_hand
from tests.learners.test_vcl import divergence, logits
from tests.toys import learn, training


def made(cls: type, s: Stream, backbone: dict | None = None, **options) -> Any:
    return cls(build=toys.builder(s, **(backbone or {})), head=s.head, seed=by_hand.SEED, **options)


def vgr(s: Stream, **options) -> VGR:
    return made(VGR, s, **{"draws": 5, **options})


# ---- generators --------------------------------------------------------------------------------------------


def test_one_step_of_a_gan_is_that_of_two_losses_by_hand() -> None:
    """The discriminator learns from real and generated images, the generator through a discriminator that
    stays."""
    torch.manual_seed(0)
    gan, real = GAN("mlp", toys.SHAPE), torch.rand(7, *toys.SHAPE)
    with seeded("noise"):
        adversarial_loss(gan, real, 5).backward()
    with seeded("noise"):
        noise = torch.randn(5, NOISE)
    fake = gan.generator(noise)
    p_real, p_fake = (gan.discriminator(2 * x - 1).sigmoid() for x in (real, fake.detach()))
    of_d = -p_real.log().mean() - (1 - p_fake).log().mean()
    of_g = -gan.discriminator(2 * fake - 1).sigmoid().log().mean()
    for part, loss in ((gan.discriminator, of_d), (gan.generator, of_g)):
        parameters = list(part.parameters())
        expected = by_hand.row(torch.autograd.grad(loss, parameters))
        assert torch.allclose(by_hand.row([p.grad for p in parameters]), expected, atol=1e-6)


@pytest.mark.parametrize("kind", ["mlp", "conv"])
@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 9, 6)])
def test_generators_make_images_in_the_unit_range(kind: Any, shape: tuple) -> None:
    gan = GAN(kind, shape)
    images = gan.generator(torch.randn(4, NOISE))
    assert images.shape == (4, *shape)
    assert 0 <= images.min() < images.max() <= 1
    assert gan.discriminator(images).shape == (4, 1)


def test_the_published_generator_takes_5_9_megabytes() -> None:
    """Four bytes a number: hidden layers of 256, 512 and 1024 units."""
    bytes_held = 4 * sum(p.numel() for p in generator("mlp", (1, 28, 28)).parameters())
    assert bytes_held == 4 * (100 * 256 + 256 * 512 + 512 * 1024 + 1024 * 784 + 256 + 512 + 1024 + 784)
    assert round(bytes_held / 1e6, 1) == 5.9


def test_a_gan_learns_the_patterns_of_its_classes() -> None:
    """Generated images lie nearer to the mean image of their class than to any other's."""
    s = toys.pairs_of_classes("single", tasks=2)
    learner = vgr(s, generator_epochs=150)
    learn(learner, s, training(max_epochs=1), tasks=1)
    train = s.task(0).train
    means = torch.stack([train.x[train.y == y].mean(0) for y in (0, 1)]).flatten(1)
    for split in learner.past(s.task(1)):
        nearest = torch.cdist(split.x.flatten(1), means).argmin(1)
        assert (nearest == split.y).float().mean() > 0.9


# ---- VGR ---------------------------------------------------------------------------------------------------


def test_past_classes_are_replayed_in_their_numbers_and_under_their_labels() -> None:
    s = toys.pairs_of_classes("single", tasks=3)
    learner = vgr(s)
    learn(learner, s, training(), tasks=2)
    counts = [(s.task(task).train.y == y).sum() for task in (0, 1) for y in by_hand.OWN[task]]
    for n in (None, 11):
        learner.per_class = n
        replayed = learner.past(s.task(2))
        assert [len(split) for split in replayed] == [n or count for count in counts]
        assert [split.y.unique().tolist() for split in replayed] == [[0], [1], [2], [3]]
        assert [split.task.unique().tolist() for split in replayed] == [[0], [0], [1], [1]]
    again = learner.past(s.task(1))
    assert not torch.equal(replayed[0].x, again[0].x), "other images for another task"
    kept = generator("mlp", toys.SHAPE)
    torch.nn.utils.vector_to_parameters(learner.memory["generators"][2], kept.parameters())
    noise = torch.randn(11, NOISE, generator=rng(by_hand.SEED, 2, "replay", 2))
    assert torch.allclose(replayed[2].x, kept(noise), atol=1e-6)
    assert not [name for name in learner.memory if name in ("x", "y")], "no example is kept"


def test_two_tasks_are_learned_as_by_hand() -> None:
    """With stored data, so that no generator comes between: likelihood, and KL to N(0, 1) over all n."""
    s = toys.pairs_of_classes("single", tasks=2)
    with torch.random.fork_rng():
        learner = by_hand.learned(vgr(s, replay="stored"), s)
        means = by_hand.fresh(0)
        net = [
            w
            for pair in zip(means[::2], means[1::2])
            for w in (*pair, *(torch.full_like(p, -6.0, requires_grad=True) for p in pair))
        ]
        pool = s.task(0).train
        for task in (0, 1):
            pool = type(pool).union([pool, s.task(1).train]) if task else pool
            for key, x, y in by_hand.mini_batches(pool, task):
                torch.manual_seed(seed_of(*key, "loss"))
                loss = F.cross_entropy(logits(net, x, True), y) + divergence(net, None) / len(pool)
                by_hand.move(net, by_hand.gradient(loss, net))
    expected, found = by_hand.row(net), by_hand.row(list(learner.network.parameters()))
    assert torch.allclose(found, expected, atol=1e-4)


def test_with_stored_data_it_is_joint_to_the_bit() -> None:
    """A network with dropout stays as it is, so that nothing but the data could make a difference."""
    s, backbone = toys.pairs_of_classes("single", tasks=3), {"dropout": 0.2}
    oracle = learn(vgr(s, backbone=backbone, replay="stored"), s, training())
    joint = learn(made(Joint, s, backbone, restart=False), s, training())
    assert torch.equal(oracle.weights, joint.weights)


def test_the_mini_batch_grows_with_the_tasks_where_it_is_asked_for() -> None:
    s = toys.pairs_of_classes("single", tasks=2)
    learner = vgr(s, replay="stored", batch_per_task=15)
    steps = [learn_one.steps for learn_one in learned_phases(learner, s)]
    assert steps == [3 * 60 // 15, 3 * 120 // 30]


def learned_phases(learner: VGR, s: Stream) -> list:
    phases = learn(learner, s, training()).phases
    return [phase.chosen for phase in phases if phase.name == "train"]


# ---- DGR ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("optimizer", ["adam", pytest.param("sgd", marks=pytest.mark.all)])
def test_with_all_importance_on_the_new_task_it_is_finetune_to_the_bit(optimizer: str) -> None:
    s = toys.stream()
    runs = [
        learn(made(cls, s, {"dropout": 0.3}, **options), s, training(optimizer=optimizer))
        for cls, options in ((Finetune, {}), (DGR, {"importance": 1.0}), (DGR, {}))
    ]
    finetune, without, with_replay = runs
    assert all(map(torch.equal, finetune.after, without.after))
    assert torch.equal(finetune.after[0], with_replay.after[0])
    assert not torch.allclose(finetune.weights, with_replay.weights, atol=1e-4)


def test_a_second_task_is_learned_as_by_hand() -> None:
    s = toys.pairs_of_classes("single", tasks=2)
    learner = made(DGR, s, importance=0.3)
    by_hand.learned(learner, s)
    first = made(DGR, s, importance=0.3)
    toys.learn(first, s, by_hand.SETTINGS, tasks=1)  # the same first task, and its generator
    net = by_hand.copied(list(first.network.parameters()))
    old = by_hand.copied(net)
    for key, x, y in by_hand.mini_batches(s.task(1).train, 1):
        noise = torch.randn(len(y), NOISE, generator=rng(*key, "replay"))
        gan = generator("mlp", toys.SHAPE)
        torch.nn.utils.vector_to_parameters(first.memory["generator"], gan.parameters())
        images = gan(noise).detach()
        labels = by_hand.logits(old, images)[:, :2].argmax(1)
        loss = 0.3 * by_hand.loss(net, x, y) + 0.7 * by_hand.loss(net, images, labels)
        by_hand.move(net, by_hand.gradient(loss, net))
    found = by_hand.row(list(learner.network.parameters()))
    assert torch.allclose(found, by_hand.row(net), atol=1e-4)


def test_a_generator_learns_from_the_task_and_the_last_generator_by_their_shares() -> None:
    s = toys.pairs_of_classes("single", tasks=3)
    learner = made(DGR, s)
    learn(learner, s, training(), tasks=2)
    task = s.task(2)
    pool = learner.pool(task)
    assert len(pool) == 3 * len(task.train)
    assert torch.equal(pool.x[: len(task.train)], task.train.x)
    images = learner.replayed(2 * len(task.train), rng(by_hand.SEED, 2, "replay"))
    assert torch.equal(pool.x[len(task.train) :], images)


def test_replayed_images_are_labelled_by_past_outputs_alone() -> None:
    s = toys.pairs_of_classes("single", tasks=2)
    learner = made(DGR, s)
    learn(learner, s, training(), tasks=1)
    with torch.no_grad():
        learner.network.head.bias[2:] += 100.0
    batch = Batch(*s.task(1).train.parts, key=(0,), learning=1)
    x, y = learner.shared(batch, [Candidate(learner.network)])
    assert x.shape == batch.x.shape
    assert set(y.tolist()) <= {0, 1}


def test_a_head_a_task_is_refused() -> None:
    s = toys.pairs_of_classes()
    with pytest.raises(Refusal, match=r"DGR generates images of all past tasks together"):
        learn(made(DGR, s), s, training(), tasks=1)
