"""How images reach a learner: shapes, values, normalisation, augmentation."""

from __future__ import annotations

from collections import UserDict
from dataclasses import replace
from itertools import combinations
from statistics import fmean, stdev

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from cl_lightning.config.checking import check
from cl_lightning.data.module import StreamDataModule
from cl_lightning.data.sources.cache import Images, Pool
from cl_lightning.data.streams.recipes import permuted, split
from cl_lightning.data.streams.show import Show, recolour, resize, statistics
from cl_lightning.data.task import Block, Blocks
from cl_lightning.errors import Refusal
from cl_lightning.learners import Finetune
from cl_lightning.randomness import rng
from tests import toys

BYTES = torch.randint(256, (5, 1, 28, 28), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
BLACK = torch.zeros(1, 1)


def stream(**show: object):
    return toys.stream(show=Show(**show))


# ---- shapes ------------------------------------------------------------------------------------------------


def test_images_are_enlarged_bilinearly_and_cut_to_whole_grey_levels() -> None:
    made = resize(BYTES, (1, 32, 32), "scale")
    expected = torch.nn.functional.interpolate(BYTES.float(), (32, 32), mode="bilinear", align_corners=False)
    assert (made.int() - expected.floor().int()).abs().max() <= 1  # the two kernels add in another order
    assert (made == expected.floor()).float().mean() > 0.95


def test_padding_keeps_every_pixel_and_puts_black_around() -> None:
    made = resize(BYTES, (3, 32, 32), "pad")
    assert all(torch.equal(made[:, c, 2:30, 2:30], BYTES[:, 0]) for c in range(3))
    assert made.float().sum() == 3 * BYTES.float().sum()


def test_colours_become_their_luminance() -> None:
    colour = torch.randint(256, (3, 9, 9), generator=torch.Generator().manual_seed(1), dtype=torch.uint8)
    grey = resize(colour[None], (1, 9, 9), "scale")[0, 0]
    expected = torch.from_numpy(
        __import__("numpy").array(Image.fromarray(colour.permute(1, 2, 0).numpy()).convert("L"))
    )
    assert (grey.int() - expected.int()).abs().max() <= 1


def test_a_network_gets_the_shape_that_is_asked_for() -> None:
    s = stream(shape=[3, 8, 8], fit="pad")
    assert s.shape == (3, 8, 8)
    assert (
        s.task(0).train.x.shape[1:]
        == s.test(0).x.shape[1:]
        == s.task_without_data(0).train.x.shape[1:]
        == (3, 8, 8)
    )


# ---- values ------------------------------------------------------------------------------------------------


def test_values_lie_between_black_and_white() -> None:
    plain, moved = stream().task(0).train.x, stream(values=[-1, 1]).task(0).train.x
    assert torch.allclose(moved, plain * 2 - 1)


def test_a_background_takes_the_colour_and_white_stays_white() -> None:
    x = torch.tensor([0.0, 0.5, 1.0]).expand(1, 3, 1, 3)
    red = recolour(x, (255, 0, 0))
    assert red[0, 0].tolist() == [[1.0, 1.0, 1.0]]
    assert red[0, 1].tolist() == red[0, 2].tolist() == [[0.0, 0.5, 1.0]]


def test_each_task_is_normalised_by_its_own_training_images_for_ever() -> None:
    s = stream(normalise=True)
    for index in range(3):
        train = s.task(index).train.x
        assert train.mean().abs() < 1e-5
        assert (train.std() - 1).abs() < 1e-4
    plain = toys.stream()
    mean, deviation = plain.task(1).train.x.mean(), plain.task(1).train.x.std()
    assert torch.allclose(s.test(1).x, (plain.test(1).x - mean) / deviation, atol=1e-5)
    assert torch.allclose(s.task(1).val.x, (plain.task(1).val.x - mean) / deviation, atol=1e-5)


def test_what_images_are_normalised_by_is_counted_over_training_images_alone_a_channel_each() -> None:
    """Few images of chance pixels, the third channel darker, test images darker: other images, other
    means."""
    x = torch.randint(256, (24, 3, 2, 2), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    x[:, 2] //= 4
    train, test = Pool(x, torch.arange(24) % 2), Pool(x[:10] // 2, torch.arange(10) % 2)
    source, sizes = Images("chance", ("a", "b"), train, test, "x"), {"n_train": 8, "n_val": 4, "n_test": None}
    for index in range(2):
        s = split(
            source, seed=0, tasks=2, classes_per_task=1, head="single", show=Show(normalise=True), **sizes
        )
        recipe = s.recipe(index)
        shown = [train.x[recipe.train] / 255, train.x[recipe.val] / 255, test.x[recipe.test] / 255]
        tested_first = s.test(index).x
        made = [s.task(index).train.x, s.task(index).val.x, s.test(index).x]
        for channel in range(3):
            values = shown[0][:, channel].flatten().tolist()
            mean, deviation = fmean(values), stdev(values)
            for before, after in zip((*shown, shown[2]), (*made, tested_first)):
                assert torch.allclose(after[:, channel], (before[:, channel] - mean) / deviation, atol=1e-4)


def test_a_constant_channel_is_not_blown_up() -> None:
    x = torch.rand(4, 3, 5, 5)
    x[:, 1] = 1.0
    mean, deviation = statistics(x)
    assert mean[1] == deviation[1] == 1
    assert deviation[0] == pytest.approx(x[:, 0].std().item(), rel=1e-5)


# ---- augmentation ------------------------------------------------------------------------------------------


@given(crop=st.integers(0, 3), flip=st.booleans(), seed=st.integers(0, 10))
@settings(max_examples=30, deadline=None)
def test_an_augmented_image_is_a_window_of_the_padded_one_perhaps_mirrored(
    crop: int, flip: bool, seed: int
) -> None:
    x = torch.rand(6, 2, 5, 4) + 1
    black = torch.tensor([[0.25, 0.5]])
    made = Show(flip=flip, crop=crop).augmented(x, black, rng(seed))
    wide = black[:, :, None, None].expand(6, 2, 5 + 2 * crop, 4 + 2 * crop).clone()
    wide[:, :, crop : crop + 5, crop : crop + 4] = x
    for image, around in zip(made, wide):
        windows = [around[:, i : i + 5, j : j + 4] for i in range(2 * crop + 1) for j in range(2 * crop + 1)]
        mirrored = [
            around.flip(-1)[:, i : i + 5, j : j + 4] for i in range(2 * crop + 1) for j in range(2 * crop + 1)
        ]
        assert any(torch.equal(image, window) for window in windows + mirrored * flip)


def test_half_of_the_images_are_flipped_and_all_windows_come() -> None:
    x = torch.arange(4.0).reshape(1, 1, 2, 2).expand(4000, 1, 2, 2)
    flipped = Show(flip=True).augmented(x, BLACK, rng(0))[:, 0, 0, 0] == 1
    assert 0.45 < flipped.float().mean() < 0.55
    assert len({tuple(image.flatten().tolist()) for image in Show(crop=1).augmented(x, BLACK, rng(0))}) == 9


def augmented_block(s, step: int = 0) -> Block:
    data = StreamDataModule(s)
    with data.open(1) as task:
        data.replay(Blocks(task.train, (0, "task1", 0), 10, 2, 4, start_step=step))
        block = data.on_after_batch_transfer(next(iter(data.train_dataloader())), 0)
        block = Block(
            [
                replace(batch, x=batch.x.clone(), y=batch.y.clone(), task=batch.task.clone())
                for batch in block.batches
            ]
        )
    return block


def test_augmentation_is_a_function_of_the_step_and_new_at_each() -> None:
    s = stream(flip=True, crop=2)
    one, again, later = augmented_block(s), augmented_block(s), augmented_block(s, step=2)
    assert all(torch.equal(a.x, b.x) for a, b in zip(one.batches, again.batches))
    assert torch.equal(one.batches[2].x, later.batches[0].x)
    assert not torch.equal(one.batches[0].x, augmented_block(stream()).batches[0].x)


class SeesOnePicture(Finetune):
    """Is shown the same picture all the time, but for what augmentation makes of it; notes what comes."""

    def __init__(self, **base: object) -> None:
        super().__init__(**base)
        self.seen = UserDict()  # no plain value, which nobody may change while a phase trains

    def logits(self, c, batch):
        if c.network.training:
            self.seen.setdefault(c.name, []).append(batch.x.flatten(1).tolist())
        return super().logits(c, batch)


def shown(seed: int = 0, epochs: int = 3, grid=({"lr": 0.01}, {"lr": 0.02})) -> list[dict[str, list]]:
    """By candidate: the mini-batches of two tasks, of 6 times the same picture in 2 steps an epoch."""
    picture = torch.arange(36, dtype=torch.uint8).reshape(1, 1, 6, 6).expand(60, -1, -1, -1)
    pool = Pool(picture, torch.arange(60) % 2)
    source, sizes = (
        Images("picture", ("a", "b"), pool, pool, "1"),
        {"n_train": 12, "n_val": 2, "n_test": None},
    )
    show = Show(flip=True, crop=2)
    s = split(source, seed=0, tasks=2, classes_per_task=1, head="single", show=show, **sizes)
    learner = SeesOnePicture(build=toys.builder(s), head=s.head, grid=grid, seed=seed)
    toys.learn(learner, s, toys.training(max_epochs=epochs, batch_size=6))
    return learner.seen


def test_the_same_images_are_augmented_otherwise_at_every_step_of_every_epoch_and_task() -> None:
    """50 windows, mirrored or not, of 6 images: two steps are alike by chance once in 10 thousand million."""
    steps = shown()["lr=0.01"]
    assert len(steps) == 2 * 3 * 2  # tasks, epochs, steps of an epoch
    assert all(one != other for i, one in enumerate(steps) for other in steps[:i])
    assert all(len({tuple(image) for image in step}) > 1 for step in steps), "all images alike"


def test_augmentation_is_the_same_for_all_candidates_and_for_the_same_seed_and_no_other() -> None:
    together, again, other = shown(), shown(), shown(seed=1)
    assert together["lr=0.01"] == together["lr=0.02"] == again["lr=0.01"]
    assert together["lr=0.02"] == shown(grid=[{"lr": 0.02}])["lr=0.02"]
    assert all(one != step for one, step in zip(other["lr=0.01"], together["lr=0.01"]))


def test_neither_validation_nor_test_images_are_augmented() -> None:
    s, plain = stream(flip=True, crop=2), toys.stream()
    assert torch.equal(s.task(0).val.x, plain.task(0).val.x)
    assert torch.equal(s.test(0).x, plain.test(0).x)


def test_the_same_image_is_augmented_anew_at_each_place_of_each_step() -> None:
    picture = toys.images()
    same = replace(picture, train=Pool(picture.train.x[:1].expand(400, -1, -1, -1).clone(), picture.train.y))
    s = permuted(same, seed=0, tasks=3, n_train=60, n_val=40, n_test=None, show=Show(flip=True, crop=2))
    batches = [
        batch.x for step in (0, 6) for batch in augmented_block(s, step).batches
    ]  # of the first epoch, and of the second
    assert all(len(x.flatten(1).unique(dim=0)) > 1 for x in batches)
    assert not any(torch.equal(a, b) for a, b in combinations(batches, 2))


def test_what_comes_in_at_the_border_is_black_as_the_task_sees_it() -> None:
    s = stream(normalise=True, crop=6)  # windows that show nothing of the image are among 13 x 13
    black = -s.statistics(1)[0] / s.statistics(1)[1]
    corners = torch.cat([b.x[:, 0, 0, 0] for b in augmented_block(s).batches])
    assert (corners == black).float().mean() > 0.3


def test_the_meta_device_can_augment() -> None:
    data = StreamDataModule(stream(flip=True, crop=1))
    with data.open(0) as task:
        data.replay(Blocks(task.train, (0, "task0", 0), 10, 1, 2))
        block = next(iter(data.train_dataloader())).to(torch.device("meta"))
        assert data.on_after_batch_transfer(block, 0).batches[0].x.is_meta


def test_validation_copies_are_made_once_beside_their_image() -> None:
    s, plain = stream(flip=True, crop=1, val_copies=4), toys.stream()
    with_copies = s.task(0).val
    assert len(with_copies) == 5 * len(plain.task(0).val)
    assert torch.equal(with_copies.x[::5], plain.task(0).val.x)
    assert torch.equal(with_copies.y, plain.task(0).val.y.repeat_interleave(5))
    assert torch.equal(with_copies.x, s.task(0).val.x)
    assert not any(torch.equal(with_copies.x[i::5], with_copies.x[j::5]) for i in range(5) for j in range(i))
    assert len(s.task(0).train) == len(plain.task(0).train)
    assert len(s.test(0)) == len(plain.test(0))


@pytest.mark.parametrize(
    ("show", "says"),
    [
        ({"shape": [2, 8, 8]}, "with 1 or 3 channels"),
        ({"shape": [3, 8]}, r"\[channels, height, width\]"),
        ({"shape": [3, 8, 0]}, r"\[channels, height, width\]"),
        ({"fit": "crop"}, "must be one of scale, pad"),
        ({"values": [1, 0]}, "the first the smaller"),
        ({"values": [0, 1, 2]}, "two numbers"),
        ({"val_copies": 2}, "neither stream.show.flip nor .crop"),
        ({"crop": -1}, "at least 0"),
    ],
)
def test_what_cannot_be_shown_is_refused(show: dict, says: str) -> None:
    with pytest.raises(Refusal, match=says):
        check(Show, show, "stream.show")
        Show(**show)


def test_padding_to_less_is_refused() -> None:
    with pytest.raises(Refusal, match="fit=scale"):
        resize(BYTES, (1, 20, 20), "pad")
