"""Which images a task gets: balanced, disjoint, from fixed pools, and what happens where there are too
few."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cl_lightning.config.build import build_stream
from cl_lightning.config.checking import check_value
from cl_lightning.data.sources.cache import Images, Pool
from cl_lightning.data.streams.draws import Sizes
from cl_lightning.data.streams.recipes import permuted, rotated, split, two_tasks
from cl_lightning.data.streams.sequence import long, sequence
from cl_lightning.data.streams.stream import Stream, write_drawn
from cl_lightning.errors import Refusal
from cl_lightning.learners import Finetune
from cl_lightning.runs.identity import fingerprint
from tests import toys
from tests.commands import SMALL, configure


def numbered(train: int, test: int, classes: int = 10, name: str = "cifar10") -> Images:
    """Images of one pixel: enough to count."""
    pools = []
    for count in (train, test):
        y = torch.arange(count * classes) % classes
        pools.append(Pool(torch.zeros(len(y), 1, 1, 1, dtype=torch.uint8), y))
    return Images(name, tuple("abcdefghij"[:classes]), *pools, digest=name)


CIFAR10 = numbered(5000, 1000)
HELD_OUT = {"cifar10": 500}


def transfer(seed: int = 0, **last: object):
    """The first and the last task of the CTrL benchmark's S-."""
    tasks = [
        {"source": "cifar10", "classes": 10, "n_train": 4000, "n_val": 2000},
        {"source": "cifar10", "like": 0, "n_train": 400, "n_val": 200, **last},
    ]
    return sequence({"cifar10": CIFAR10}, seed, tasks, test_per_class=1000, held_out=HELD_OUT)


def test_sizes_are_totals_and_every_class_has_its_equal_part() -> None:
    s = transfer()
    for index, (train, val) in enumerate([(400, 200), (40, 20)]):
        recipe = s.recipe(index)
        for rows, pool, count in (
            (recipe.train, CIFAR10.train, train),
            (recipe.val, CIFAR10.train, val),
            (recipe.test, CIFAR10.test, 1000),
        ):
            assert pool.y[rows].bincount().tolist() == [count] * 10
            assert len(rows.unique()) == len(rows)


def digest(*tensors: torch.Tensor) -> str:
    return hashlib.sha256(torch.cat(tensors).numpy().tobytes()).hexdigest()[:16]


def test_balanced_rows_are_those_of_the_first_version_and_test_rows_in_its_order_too() -> None:
    """Digests of the version that lent training and validation rows class after class."""
    s = transfer()
    for index, drawn in enumerate(("1ce76fcdfdb1c191", "f09c999a8f50b350")):
        recipe = s.recipe(index)
        assert digest(recipe.train.sort().values, recipe.val.sort().values) == drawn
        assert digest(recipe.test) == "3989a3368f591b08"
    assert s.test(0).y.tolist() == [label for label in range(10) for _ in range(1000)]


def test_the_last_task_draws_afresh_so_that_a_tenth_of_it_was_in_the_first() -> None:
    shares = []
    for seed in range(10):
        first, last = (set(transfer(seed).recipe(index).train.tolist()) for index in range(2))
        shares.append(len(first & last) / len(last))
    assert abs(sum(shares) / len(shares) - 400 / 4500) < 0.01
    assert all(0.06 <= share <= 0.12 for share in shares)


def test_test_images_of_first_and_last_task_are_the_same() -> None:
    s = transfer()
    assert torch.equal(s.recipe(0).test, s.recipe(1).test)


def test_the_pool_that_is_held_out_for_validation_is_the_same_for_all_tasks_and_seeds() -> None:
    every = [transfer(seed).recipe(index) for seed in range(6) for index in range(2)]
    val = torch.cat([recipe.val for recipe in every]).unique()
    assert len(val) <= 5000
    assert not torch.isin(torch.cat([recipe.train for recipe in every]), val).any()


def test_classes_come_in_another_order_with_another_seed_and_the_last_task_keeps_it() -> None:
    orders = {transfer(seed).recipe(0).classes for seed in range(5)}
    assert len(orders) == 5
    assert transfer().recipe(1).classes == transfer().recipe(0).classes


def test_shifted_labels_are_one_higher_and_permuted_ones_a_permutation() -> None:
    order = transfer().recipe(0).classes
    assert transfer(labels="shift").recipe(1).classes == (order[-1], *order[:-1])
    permuted = transfer(labels="permute").recipe(1).classes
    assert permuted != order
    assert sorted(permuted) == sorted(order)


def test_what_a_source_cannot_fill_is_taken_whole_and_reported() -> None:
    small = numbered(50, 7)
    tasks = [{"source": "cifar10", "classes": 5, "n_train": 500, "n_val": 250}]
    with pytest.raises(
        Refusal, match=r"100 examples of class \d .* but 30 are there.*stream\.on_shortage=shrink"
    ):
        sequence({"cifar10": small}, 0, tasks, held_out=HELD_OUT).recipe(0)
    described = sequence({"cifar10": small}, 0, tasks, held_out=HELD_OUT, on_shortage="shrink").describe()[0]
    assert (described["n_train"], described["n_val"], described["n_test"]) == (5 * 30, 5 * 20, 5 * 7)
    assert described["asked"] == {"n_train": 500, "n_val": 250}


def test_the_test_cap_takes_what_there_is_of_each_class() -> None:
    y = torch.tensor([0] * 980 + [1] * 1135)
    uneven = Images(
        "mnist", ("0", "1"), CIFAR10.train, Pool(torch.zeros(len(y), 1, 1, 1, dtype=torch.uint8), y), "uneven"
    )
    s = sequence({"mnist": uneven}, 0, [{"source": "mnist", "n_train": 20}], test_per_class=1000)
    assert s.test(0).y.bincount().tolist() == [980, 1000]


@given(
    n_train=st.integers(1, 9),
    n_val=st.integers(0, 4),
    balanced=st.booleans(),
    held_out=st.sampled_from([None, 5, 50]),
    seed=st.integers(0, 5),
)
@settings(max_examples=60, deadline=None)
def test_training_and_validation_never_meet_and_sizes_are_those_asked_for(
    n_train, n_val, balanced, held_out, seed
) -> None:
    images, classes = toys.images(n=200), [2, 0, 3]
    sizes = Sizes(3 * n_train, 3 * n_val, 6, balanced, held_out=held_out if balanced else None)
    drawn = sizes.draw(images, classes, lambda purpose: (seed, purpose))
    assert (len(drawn.train), len(drawn.val), len(drawn.test), drawn.requested) == (
        3 * n_train,
        3 * n_val,
        6,
        {},
    )
    assert len(torch.cat([drawn.train, drawn.val]).unique()) == 3 * (n_train + n_val)
    assert set(images.train.y[drawn.train].tolist()) <= set(classes)


def test_a_total_that_classes_cannot_share_is_refused() -> None:
    with pytest.raises(
        Refusal, match=r"401 examples cannot be shared equally by 10 classes \(stream\.tasks\[1\]\.n_train\)"
    ):
        transfer(n_train=401).recipe(1)


def test_unbalanced_draws_shrink_training_and_validation_alike() -> None:
    drawn = Sizes(300, 100, 999, on_shortage="shrink").draw(
        toys.images(n=200), [0, 1, 2, 3], lambda purpose: (0, purpose)
    )
    assert (len(drawn.train), len(drawn.val), len(drawn.test)) == (150, 50, 100)
    assert drawn.requested == {"n_train": 300, "n_val": 100, "n_test": 999}


def test_balanced_draws_shrink_training_and_validation_alike() -> None:
    drawn = Sizes(400, 100, None, True, "shrink").draw(
        toys.images(n=200), [0, 1, 2, 3], lambda purpose: (0, purpose)
    )
    assert (len(drawn.train), len(drawn.val)) == (160, 40)
    assert drawn.requested == {"n_train": 400, "n_val": 100}


def test_validation_never_takes_all_images_of_a_class() -> None:
    with pytest.raises(Refusal, match=r"Class 0 .* none are left to train on\. Lower stream\.n_val"):
        Sizes(None, 240, None, True).draw(toys.images(n=200), [0, 1, 2, 3], lambda purpose: (0, purpose))


@pytest.mark.parametrize("numbers", [{"held_out": 5}, {"test_per_class": 5}])
def test_numbers_a_class_need_balanced_draws(numbers: dict) -> None:
    with pytest.raises(Refusal, match=r"stream\.balanced=true"):
        Sizes(10, 0, None, False, **numbers)


# ---- a share of the test examples --------------------------------------------------------------------------

TESTED = [40, 100, 300, 10]  # test images of each class


def uneven(name: str = "uneven", times: int = 1) -> Images:
    """Test images of each class as in TESTED, in mixed order."""
    y = torch.arange(4).repeat_interleave(times * torch.tensor(TESTED))
    y = y[torch.randperm(len(y), generator=torch.Generator().manual_seed(0))]
    test = Pool(torch.zeros(len(y), 1, 1, 1, dtype=torch.uint8), y)
    return Images(name, tuple("abcd"), numbered(50, 1, 4).train, test, digest=f"{name}-{times}")


def a_split(**options: object) -> Stream:
    sizes = {"n_train": 20, "n_val": 0, "n_test": None, "head": "single"}
    return split(uneven(), **{"seed": 0, "tasks": 2, "classes_per_task": 2, **sizes, **options})


def counts(stream: Stream, index: int) -> list[int]:
    recipe = stream.recipe(index)
    assert len(recipe.test.unique()) == len(recipe.test)
    return stream.images(recipe).test.y[recipe.test].bincount(minlength=4).tolist()


@pytest.mark.parametrize("balanced", [False, True])
def test_a_share_of_the_test_examples_keeps_the_proportions_of_classes_and_of_tasks(balanced: bool) -> None:
    s = a_split(test_share=0.1, balanced=balanced)
    assert [counts(s, 0), counts(s, 1)] == [[4, 10, 0, 0], [0, 0, 30, 1]]
    assert [described["n_test"] for described in s.describe()] == [14, 31]
    assert counts(a_split(test_share=0.001, balanced=balanced), 1) == [0, 0, 1, 1], "no class goes untested"


def test_sources_of_a_sequence_keep_their_proportions_under_the_cap_of_a_class() -> None:
    sources = {"few": uneven("few"), "many": uneven("many", times=3)}
    tasks = [{"source": "few", "n_train": 4}, {"source": "many", "n_train": 4}]
    s = sequence(sources, 0, tasks, test_share=0.2)
    assert [counts(s, 0), counts(s, 1)] == [[8, 20, 60, 2], [24, 60, 180, 6]]
    capped = sequence(sources, 0, tasks, test_share=0.2, test_per_class=100)
    assert [counts(capped, 0), counts(capped, 1)] == [[8, 20, 20, 2], [20, 20, 20, 6]]


@pytest.mark.parametrize("balanced", [False, True])
def test_the_share_is_drawn_with_the_seed_anew_for_each_task_and_grows_by_additions(balanced: bool) -> None:
    def rows(index: int = 0, **options: object) -> set[int]:
        draws = {
            "seed": 0,
            "tasks": 2,
            "n_train": 20,
            "n_val": 0,
            "n_test": None,
            "balanced": balanced,
            "test_share": 0.1,
        }
        return set(permuted(uneven(), **{**draws, **options}).recipe(index).test.tolist())

    assert rows() == rows()
    assert rows() != rows(seed=1)
    assert rows() != rows(1)
    assert rows() < rows(test_share=0.3) < rows(test_share=1.0)


@pytest.mark.parametrize("balanced", [False, True])
def test_a_share_of_one_is_all_and_no_share_leaves_draws_and_fingerprint_as_they_were(balanced: bool) -> None:
    whole, plain = a_split(test_share=1, balanced=balanced), a_split(balanced=balanced)
    for index in (0, 1):
        assert torch.equal(whole.recipe(index).test, plain.recipe(index).test)
        assert torch.equal(
            a_split(test_share=0.1, balanced=balanced).recipe(index).train, plain.recipe(index).train
        )
    assert "test_share" not in plain.made_of[1], (
        "the fingerprint would be another than before there was a share"
    )
    assert len({a_split(test_share=share).fingerprint for share in (None, 0.1, 0.2)}) == 3


def test_another_order_of_the_same_rows_is_another_task_to_branches() -> None:
    s = transfer()
    first, y = s.recipe(0), CIFAR10.train.y
    by_class = replace(first, train=first.train[y[first.train].argsort(stable=True)])
    assert replace(s, make=lambda index: by_class).print_of(0) != s.print_of(0)


SINGLE = {"images": uneven(), "seed": 0, "n_train": 4, "n_val": 0}
OF_LONG = {
    "names": ["uneven"], "classes_per_task": 2, "large": [4, 0], "small": [4, 0], "at_most": {},
    "shares": [0.5],
    "head": "domain", "test_per_class": None, "held_out": None, "on_shortage": "error",
}  # fmt: skip
RECIPES = {
    "permuted": lambda **o: permuted(**SINGLE, tasks=2, **o),
    "rotated": lambda **o: rotated(**SINGLE, tasks=2, **o),
    "split": lambda **o: split(**SINGLE, tasks=2, classes_per_task=2, head="single", **o),
    "two_tasks": lambda **o: two_tasks(
        **{**SINGLE, "images": numbered(10, 40), "n_train": 10}, kind="DP10-10", **o
    ),
    "sequence": lambda n_test, **o: sequence(
        {"uneven": uneven()},
        0,
        [{"source": "uneven", "n_test": n_test}],
        balanced=False,
        test_per_class=None,
        **o,
    ),
    "long": lambda n_test, **o: long({"uneven": uneven()}, 0, 2, **OF_LONG, **o),
}


UNBALANCED = {  # of the first version: all that is drawn, the fingerprint, the first task's print
    "permuted": ("c91c54a6915990e0", "1f650ff9de38a28c", "6beb17d32e3e8417"),
    "rotated": ("f011167f4a8b25e2", "279a533f2131e35a", "5081e35412b515be"),
    "split": ("fd6271d68e33d42d", "d5c1d1b76245cc99", "d1599d4004622e8e"),
    "two_tasks": ("1f99f1e5ac469ddf", "527cb63695e230f1", "f3481768f553ac4c"),
    "sequence": ("cbd5ecb81f0027e2", "11cac8d474fd17c1", "971ebb72cc78473c"),
}


@pytest.mark.parametrize("recipe", UNBALANCED)
def test_draws_that_are_not_balanced_keep_their_bits_and_prints(recipe: str) -> None:
    s, drawn = RECIPES[recipe](n_test=8), hashlib.sha256()
    for index in range(len(s)):
        write_drawn(drawn, s.recipe(index))
    assert (drawn.hexdigest()[:16], s.fingerprint, s.print_of(0)) == UNBALANCED[recipe]


BALANCED = {  # fingerprints of the version that lent rows class after class
    "permuted": "60f8eac94c3f0f8d",
    "rotated": "0e8b80899b3e04ba",
    "split": "3b4a6779d5aaf127",
    "two_tasks": "582ea55943866b70",
    "sequence": "ab0129680b6d87c3",
    "long": "a147c1c48ebc629f",
}


@pytest.mark.parametrize("recipe", BALANCED)
def test_balanced_streams_have_a_fingerprint_of_their_own_order(recipe: str) -> None:
    if recipe == "long":
        s = RECIPES[recipe](n_test=None)
    elif recipe == "sequence":
        s = sequence({"uneven": uneven()}, 0, [{"source": "uneven", "n_train": 8}])
    else:
        s = RECIPES[recipe](n_test=20, balanced=True)
    assert replace(s, balanced=False).fingerprint == BALANCED[recipe] != s.fingerprint


@pytest.mark.parametrize("balanced", [False, True])
def test_a_finished_run_of_the_old_order_is_not_found_again(balanced: bool, monkeypatch) -> None:
    cfg = configure(*SMALL, f"stream.balanced={balanced}")
    s = build_stream(cfg)
    now = fingerprint(cfg, s)
    monkeypatch.setattr("cl_lightning.data.streams.stream.BALANCED_DRAWS", 1)
    assert (fingerprint(cfg, s) != now) == balanced


# ---- what sees all classes ---------------------------------------------------------------------------------


def accuracies(*overrides: str) -> torch.Tensor:
    """The accuracy on each of ten digits, after a single pass over 2000 images."""
    few = ("data.sources.mnist.train=4000", "data.sources.mnist.test=500")
    s = build_stream(configure(*few, "stream.n_val=0", *overrides))
    settings = toys.training(single_pass=True, max_epochs=1, batch_size=4, lr=0.003)
    learner = toys.learn(Finetune(build=toys.builder(s, (200,)), head=s.head, seed=0), s, settings).learner
    test = s.test(0)
    right = learner(test.x, 0).argmax(1) == test.y
    return torch.stack([right[test.y == label].float().mean() for label in range(10)])


def test_a_single_pass_over_a_balanced_task_learns_all_classes() -> None:
    ten = ("stream=split", "stream.tasks=1", "stream.classes_per_task=10", "stream.n_train=2000")
    plain, balanced = accuracies(*ten), accuracies(*ten, "stream.balanced=true")
    listed = accuracies(
        "stream=sequence", "stream/show=plain", "stream.tasks=[{source: mnist, n_train: 2000}]"
    )
    for found in (balanced, listed):
        assert abs(found.mean() - plain.mean()) < 0.08
        assert found.min() > 0.1


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_recipe_knows_the_share_and_refuses_it_beside_a_number(recipe: str) -> None:
    make, declared = (
        RECIPES[recipe],
        {each.__name__: each for each in (permuted, rotated, split, two_tasks, sequence, long)}[recipe],
    )
    some, every = (
        make(n_test=None, test_share=share).recipe(1 if recipe != "sequence" else 0) for share in (0.5, None)
    )
    assert abs(len(some.test) - len(every.test) / 2) <= 2
    for share in (0, 1.5, -0.1):
        with pytest.raises(Refusal, match="must be a number above 0 and at most 1, or null"):
            check_value(declared, "test_share", share, "stream.test_share")
    if recipe != "long":  # whose tasks name no number
        with pytest.raises(
            Refusal, match=r"n_test=8 is a number .* stream\.test_share=0\.5 .* Set one of them to null"
        ):
            make(n_test=8, test_share=0.5)
