"""What tasks are made of."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cl_lightning.data.sources.cache import Images, Pool
from cl_lightning.data.streams.recipes import drifting, overlapping, permuted, rotated, rotation, split
from cl_lightning.data.streams.stream import Stream
from cl_lightning.errors import Refusal
from tests import toys

IMAGES = toys.images(n=400, classes=8)


def a_split(**options: object) -> Stream:
    return split(
        IMAGES,
        **{
            "seed": 0,
            "tasks": 4,
            "classes_per_task": 2,
            "n_train": 30,
            "n_val": 10,
            "n_test": None,
            "head": "single",
            **options,
        },
    )


def a_permuted(**options: object) -> Stream:
    return permuted(IMAGES, **{"seed": 0, "tasks": 4, "n_train": 30, "n_val": 10, "n_test": 50, **options})


@pytest.mark.parametrize("make", [a_split, a_permuted])
def test_a_stream_is_a_pure_function_of_its_arguments(make) -> None:
    torch.manual_seed(1)
    one = make()
    expected = [one.task(i) for i in range(4)]
    torch.manual_seed(2)
    other = make()
    for i in (3, 1, 0, 2):  # in any order
        task = other.task(i)
        assert torch.equal(task.train.x, expected[i].train.x)
        assert torch.equal(task.train.y, expected[i].train.y)
    assert one.fingerprint == other.fingerprint != make(seed=1).fingerprint


@pytest.mark.parametrize("make", [a_split, a_permuted])
@given(n_train=st.none() | st.integers(1, 40), n_val=st.integers(0, 40))
@settings(max_examples=20, deadline=None)
def test_training_and_validation_examples_never_meet(make, n_train: int | None, n_val: int) -> None:
    stream = make(n_train=n_train, n_val=n_val)
    for recipe in map(stream.recipe, range(4)):
        assert len(recipe.val) == n_val
        assert n_train is None or len(recipe.train) == n_train
        assert not set(recipe.train.tolist()) & set(recipe.val.tolist())
        assert len(set(recipe.train.tolist())) == len(recipe.train)


def test_split_tasks_partition_the_classes_and_hold_only_their_own() -> None:
    stream = a_split(n_train=None, n_val=0)
    seen = [set(stream.task(i).train.y.tolist()) for i in range(4)]
    assert seen == [{0, 1}, {2, 3}, {4, 5}, {6, 7}]
    assert sum(len(stream.recipe(i).train) for i in range(4)) == len(IMAGES.train.y)
    assert sum(len(stream.recipe(i).test) for i in range(4)) == len(IMAGES.test.y)


@pytest.mark.parametrize("head", ["single", "domain", "multi_train_test"])
def test_tasks_come_in_the_order_of_the_classes_that_are_named_and_labels_too(head: str) -> None:
    """Images of class c have the value c everywhere: labels can be read off the pixels."""
    y = torch.arange(60) % 6
    pool = Pool(y.to(torch.uint8)[:, None, None, None].expand(-1, 1, 2, 2), y)
    source = Images("levels", tuple("abcdef"), pool, pool, "levels")
    sizes = {"n_train": 10, "n_val": 8, "n_test": None}
    s = split(source, seed=0, tasks=3, classes_per_task=2, head=head, class_order=[4, 1, 0, 5, 3, 2], **sizes)
    for index, classes in enumerate(([4, 1], [0, 5], [3, 2])):
        task = s.task(index)
        assert task.classes == tuple("abcdef"[c] for c in classes)
        assert (task.index, task.of) == (index, 3)
        for part in (task.train, task.val, s.test(index)):
            levels = (part.x[:, 0, 0, 0] * 255).round().long().tolist()
            assert set(levels) == set(classes)
            assert part.y.tolist() == ([classes.index(c) for c in levels] if head == "domain" else levels)
            assert part.task.tolist() == [index] * len(part)


def test_in_a_domain_stream_every_task_has_outputs_0_and_1() -> None:
    stream = a_split(head="domain")
    assert stream.head.num_outputs == 2
    assert all(set(stream.task(i).train.y.tolist()) == {0, 1} for i in range(4))


def test_class_order_decides_the_tasks() -> None:
    stream = a_split(class_order=[7, 0, 5, 2, 1, 3, 4, 6])
    assert set(stream.test(0).y.tolist()) == {7, 0}
    assert stream.describe()[1]["classes"] == ["f", "c"]


def test_permutations_are_bijections_all_different_and_undo() -> None:
    stream = a_permuted()
    permutations = [stream.recipe(i).pixels for i in range(4)]
    assert all(sorted(p.tolist()) == list(range(36)) for p in permutations)
    assert len({tuple(p.tolist()) for p in permutations}) == 4
    recipe = stream.recipe(2)
    task = stream.task(2)
    for pool, rows, made in (
        (IMAGES.train, recipe.train, task.train.x),
        (IMAGES.train, recipe.val, task.val.x),
        (IMAGES.test, recipe.test, stream.test(2).x),
    ):
        restored = torch.empty_like(made.flatten(1))
        restored[:, recipe.pixels] = made.flatten(1)
        assert torch.equal(
            restored.mul(255).round().to(torch.uint8).reshape(pool.x[rows].shape), pool.x[rows]
        )


def test_the_first_task_can_keep_its_pixels() -> None:
    stream = a_permuted(first_identity=True)
    assert torch.equal(stream.test(0).x, IMAGES.test.x[stream.recipe(0).test].float() / 255)
    assert torch.equal(stream.recipe(1).pixels, a_permuted().recipe(1).pixels)


def test_each_permuted_task_draws_its_own_examples() -> None:
    stream = a_permuted()
    assert set(stream.recipe(0).train.tolist()) != set(stream.recipe(1).train.tolist())


def test_a_longer_stream_begins_as_the_shorter_one() -> None:
    assert torch.equal(a_permuted(tasks=6).task(3).train.x, a_permuted().task(3).train.x)


@pytest.mark.parametrize(
    ("make", "options", "says"),
    [
        (a_split, {"n_train": 1000}, "only 100 are there"),
        (a_split, {"tasks": 9}, "need 18 classes"),
        (a_split, {"head": "double"}, r"stream\.head=double must be one of single, domain"),
        (a_split, {"class_order": [0, 0, 1, 2, 3, 4, 5, 6]}, "at most once"),
    ],
)
def test_what_cannot_be_made_is_refused_with_a_sentence(make, options: dict, says: str) -> None:
    with pytest.raises(Refusal, match=says):
        make(**options).recipe(0)


def test_describing_a_stream_tells_what_each_task_holds() -> None:
    described = a_split(head="multi_test").describe()
    assert described[1] == {
        "name": "classes c d",
        "source": "toy",
        "classes": ["c", "d"],
        "n_train": 30,
        "n_val": 10,
        "n_test": 50,
        "head": {"mode": "multi_test", "outputs": [2, 3]},
    }


@pytest.mark.parametrize("pool", ["train", "test"])
def test_a_class_without_images_is_refused_by_name(pool: str) -> None:
    gap = toys.images()
    y = getattr(gap, pool).y
    y[y == 1] = 0
    with pytest.raises(Refusal, match=rf"Class 1 \(b\) of toy has no {pool}.* images.*stream\.class_order"):
        split(gap, seed=0, tasks=2, classes_per_task=2, n_train=50, n_val=0, n_test=None, head="single")
    split(
        gap,
        seed=0,
        tasks=2,
        classes_per_task=1,
        n_train=50,
        n_val=0,
        n_test=None,
        head="single",
        class_order=[0, 2],
    )


def rows(s: Stream, part: str) -> list[list[int]]:
    return [getattr(s.recipe(index), part).tolist() for index in range(len(s))]


DRAWN = {  # what a seed decides
    "permutations": lambda seed: rows(a_permuted(seed=seed), "pixels"),
    "angles": lambda seed: [recipe.name for recipe in map(a_rotated(seed=seed).recipe, range(4))],
    "classes": lambda seed: [a_split(seed=seed, class_order="random").recipe(0).classes],
    "training examples of a split": lambda seed: rows(a_split(seed=seed), "train"),
    "validation examples of a split": lambda seed: rows(a_split(seed=seed), "val"),
    "training examples": lambda seed: rows(a_permuted(seed=seed), "train"),
    "validation examples": lambda seed: rows(a_permuted(seed=seed), "val"),
    "test examples": lambda seed: rows(a_permuted(seed=seed), "test"),
}


@pytest.mark.parametrize("what", DRAWN)
def test_another_seed_draws_all_of_it_anew(what: str) -> None:
    one, again, other = (DRAWN[what](seed) for seed in (0, 0, 1))
    assert one == again
    assert all(a != b for a, b in zip(one, other))


# ---- rotations ---------------------------------------------------------------------------------------------


def a_rotated(**options) -> Stream:
    return rotated(
        toys.images(), seed=options.pop("seed", 0), tasks=4, n_train=30, n_val=10, n_test=None, **options
    )


def test_a_turned_image_is_pils() -> None:
    from PIL import Image

    s, pool = a_rotated(angles=[0.0, 33.3, 90.0, 171.0]), toys.images().test.x
    for task, angle in enumerate([0.0, 33.3, 90.0, 171.0]):
        for made, image in zip(s.test(task).x[:5], pool):
            expected = Image.fromarray(image[0].numpy()).rotate(angle, Image.Resampling.NEAREST)
            assert torch.equal((made[0] * 255).round().to(torch.uint8), torch.from_numpy(np.array(expected)))


def test_a_quarter_turn_is_counter_clockwise_in_all_channels() -> None:
    pixels = rotation((2, 3, 3), 90.0)
    image = torch.arange(18).reshape(2, 3, 3)
    assert torch.equal(image.flatten()[pixels].reshape(2, 3, 3), torch.rot90(image, 1, (1, 2)))


def test_training_validation_and_test_images_of_a_task_are_turned_alike_counter_clockwise() -> None:
    """A quarter turn brings the upper right corner to the upper left one."""
    corners = torch.tensor([[[[1, 2], [3, 4]]]], dtype=torch.uint8).expand(8, -1, -1, -1)
    pool = Pool(corners, torch.arange(8) % 2)
    source, sizes = Images("corners", ("a", "b"), pool, pool, "x"), {"n_train": 4, "n_val": 2, "n_test": None}
    s = rotated(source, seed=0, tasks=3, angles=[0.0, 90.0, 180.0], **sizes)
    for index, expected in enumerate(([[1, 2], [3, 4]], [[2, 4], [1, 3]], [[4, 3], [2, 1]])):
        task = s.task(index)
        for x in (*task.train.x, *task.val.x, *s.test(index).x):
            assert (x[0] * 255).round().tolist() == expected


def test_each_angle_is_drawn_from_its_own_part_of_the_range() -> None:
    for seed in range(20):
        turns = rotation_angles(a_rotated(seed=seed))
        assert all(45 * t <= turn < 45 * (t + 1) for t, turn in enumerate(turns))
        assert len({round(turn - 45 * t, 1) for t, turn in enumerate(turns)}) > 1, (
            "the same place in every part"
        )


def rotation_angles(s: Stream) -> list[float]:
    return [
        float(s.recipe(t).name.removeprefix("rotation by ").removesuffix(" degrees")) for t in range(len(s))
    ]


@pytest.mark.parametrize("head", ["multi_test", "multi_train_test"])
def test_permuted_tasks_have_outputs_of_their_own_under_multiple_heads(head: str) -> None:
    s = a_permuted(head=head)
    assert (s.head.num_outputs, s.head.owned[2]) == (32, tuple(range(16, 24)))
    assert set(s.task(2).train.y.tolist()) <= set(range(16, 24))
    assert torch.equal(s.task(2).train.x, a_permuted().task(2).train.x)


def test_a_recipe_says_whether_it_permutes_and_not_only_where_pixels_come_from() -> None:
    assert [a_permuted(first_identity=True).recipe(i).permuted for i in range(3)] == [False, True, True]
    turns = a_rotated(angles=[0.0, 90.0, 180.0, 45.0])
    assert not any(turns.recipe(i).permuted for i in range(4))
    assert not a_split().recipe(1).permuted


# ---- further challenges ------------------------------------------------------------------------------------


def an_overlap(**options: object) -> Stream:
    sizes = {"n_train": 30, "n_val": 10, "n_test": None}
    return overlapping(
        IMAGES, **{"seed": 0, "tasks": 3, "classes_per_task": 3, "shared": 1, **sizes, **options}
    )


def a_drift(**options: object) -> Stream:
    sizes = {"n_train": 24, "n_val": 0, "n_test": None}
    return drifting(
        IMAGES, **{"seed": 0, "tasks": 7, "groups": 3, "classes_per_group": 2, **sizes, **options}
    )


def test_overlapping_tasks_share_classes_and_their_outputs() -> None:
    stream = an_overlap()
    assert [stream.recipe(i).classes for i in range(3)] == [("a", "b", "c"), ("c", "d", "e"), ("e", "f", "g")]
    assert stream.head.owned == ((0, 1, 2), (2, 3, 4), (4, 5, 6))
    assert stream.task(1).train.y.unique().tolist() == [2, 3, 4]
    for wrong in ({"shared": 3}, {"tasks": 5}):
        with pytest.raises(Refusal, match=r"stream\.shared must be smaller"):
            an_overlap(**wrong)


def test_a_drift_goes_by_equal_steps_and_shows_each_image_once() -> None:
    """Three groups over seven tasks: a third of the examples changes at each, 24 = 8 x 3."""
    stream = a_drift()
    recipes = [stream.recipe(i) for i in range(7)]
    of_groups = [
        [
            int(torch.isin(IMAGES.train.y[r.train], torch.tensor(group)).sum())
            for group in ([0, 1], [2, 3], [4, 5])
        ]
        for r in recipes
    ]
    assert of_groups == [
        [24, 0, 0], [16, 8, 0], [8, 16, 0], [0, 24, 0], [0, 16, 8], [0, 8, 16], [0, 0, 24],
    ]  # fmt: skip
    assert [sum(recipes[1].mixture[c] for c in group) for group in ((0, 1), (2, 3), (4, 5))] == [
        pytest.approx(2 / 3), pytest.approx(1 / 3), 0,
    ]  # fmt: skip
    for part in ("train", "test"):
        rows = torch.cat([getattr(r, part) for r in recipes])
        assert len(rows.unique()) == len(rows)
    assert stream.head.owned[1] == (0, 1, 2, 3)
    every = a_drift(n_train=None)
    assert sum(len(every.recipe(i).train) for i in range(7)) == int((IMAGES.train.y < 6).sum()), (
        "all there are"
    )


def test_a_drift_that_is_none_or_asks_for_more_images_than_there_are_is_refused() -> None:
    with pytest.raises(Refusal, match="more tasks than groups"):
        a_drift(tasks=3)
    with pytest.raises(Refusal, match="training images of classes"):
        a_drift(n_train=90).recipe(0)


@pytest.mark.parametrize("make", [an_overlap, a_drift])
def test_streams_of_further_challenges_are_pure_functions_of_their_arguments(make) -> None:
    one, other = make(), make()
    assert all(torch.equal(one.recipe(i).train, other.recipe(i).train) for i in (2, 0, 1))
    assert one.fingerprint == other.fingerprint != make(seed=1).fingerprint
    assert not torch.equal(one.recipe(0).train, make(seed=1).recipe(0).train)
