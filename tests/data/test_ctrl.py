"""The six streams of the CTrL benchmark (Veniat et al. 2021)."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf

from cl_lightning.config.build import build_stream
from cl_lightning.data.sources.cache import Images, Pool
from cl_lightning.data.streams.sequence import long, sequence
from cl_lightning.data.streams.show import Show
from cl_lightning.data.streams.stream import Stream
from cl_lightning.errors import Refusal
from cl_lightning.learners import AGEM, EWC, GEM
from cl_lightning.learners.parts import fisher
from tests import toys
from tests.commands import configure

MNIST_TEST = [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
MNIST_TRAIN = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
SIZES = {
    "mnist": (MNIST_TRAIN, MNIST_TEST),
    "fashion_mnist": ([6000] * 10, [1000] * 10),
    "svhn": (
        [4659, 13861, 10585, 8497, 7458, 6882, 5727, 5595, 5045, 4948],
        [1744, 5099, 4149, 2882, 2523, 2384, 1977, 2019, 1660, 1595],
    ),
    "cifar10": ([5000] * 10, [1000] * 10),
    "cifar100": ([500] * 100, [100] * 100),
    "dtd": ([80] * 47, [40] * 47),
}  # images a class of the real data sets
REAL = {**SIZES, "kmnist": ([6000] * 10, [1000] * 10)}


def of_one_pixel(name: str) -> Images:
    """As many images a class as the real data set, of one pixel each."""
    classes = tuple(configure("data=real").data.sources[name].classes)
    pools = []
    for counts in REAL[name]:
        y = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
        pools.append(Pool(torch.zeros(len(y), 1, 1, 1, dtype=torch.uint8), y))
    return Images(name, classes, *pools, digest=name)


SOURCES = {name: of_one_pixel(name) for name in REAL}


@cache
def described_by_config(name: str) -> dict[str, Any]:
    choice = name if name == "sequence" else f"ctrl_{name}"
    stream: Any = OmegaConf.to_container(configure(f"stream={choice}").stream, resolve=True)
    return stream


def made(name: str, seed: int = 0, **options: Any) -> Stream:
    stream = dict(described_by_config(name))
    make = {"sequence": sequence, "long": long}[stream.pop("_target_").rpartition(".")[2]]
    kept = {key: value for key, value in stream.items() if key not in ("name", "seed", "show")}
    return make(sources=SOURCES, seed=seed, show=Show(shape=[3, 1, 1]), **{**kept, **options})


TOTALS = {  # training and validation examples of each task, as printed (table 4)
    "minus": [(4000, 2000), *[(400, 200)] * 5],
    "plus": [*[(400, 200)] * 5, (4000, 2000)],
    "in": [(4000, 2000), *[(400, 200)] * 4, (50, 30)],
    "out": [(4000, 2000), *[(400, 200)] * 5],
    "pl": [*[(400, 200)] * 4, (4000, 2000)],
}


@pytest.mark.parametrize("name", TOTALS)
def test_sizes_are_totals_and_classes_have_equal_parts(name: str) -> None:
    s = made(name)
    described = s.describe()
    assert [(task["n_train"], task["n_val"]) for task in described] == TOTALS[name]
    for index, task in enumerate(described):
        y = s.images(s.recipe(index)).train.y
        for rows, total in ((s.recipe(index).train, task["n_train"]), (s.recipe(index).val, task["n_val"])):
            counts = y[rows].bincount()
            assert set(counts[counts > 0].tolist()) == {total // 10}
        tests = {"mnist": sum(min(1000, n) for n in MNIST_TEST), "dtd": 400}
        assert task["n_test"] == tests.get(task["source"], 10_000)
    assert (s.head.mode, s.head.num_outputs) == ("domain", 10)


@pytest.mark.parametrize(
    ("name", "first", "last"), [("minus", 0, 5), ("plus", 0, 5), ("in", 0, 5), ("out", 0, 5)]
)
def test_the_last_task_has_the_source_and_the_test_images_of_the_first(
    name: str, first: int, last: int
) -> None:
    one, other = made(name).recipe(first), made(name).recipe(last)
    assert one.images is other.images
    if name == "in":  # of digits with more than 1000 test images each task draws its own thousand
        assert len(set(one.test.tolist()) & set(other.test.tolist())) > 0.95 * len(one.test)
    else:
        assert sorted(one.test.tolist()) == sorted(other.test.tolist())
    assert (one.classes == other.classes) == (name != "out")


def test_labels_of_s_out_go_up_by_one() -> None:
    s = made("out")
    first, last = s.recipe(0), s.recipe(5)
    assert torch.equal(last.label_of_class, (first.label_of_class + 1) % 10)


def test_labels_in_another_order_are_in_another_order() -> None:
    for seed in range(20):
        tasks = [
            {"source": "mnist", "classes": [3, 5], "n_train": 2},
            {"source": "mnist", "like": 0, "labels": "permute", "n_train": 2},
        ]
        s = made("minus", seed, tasks=tasks)
        assert s.recipe(1).classes == s.recipe(0).classes[::-1]


def test_digits_of_s_in_change_their_background_and_nothing_else() -> None:
    for seed in range(8):
        first, last = made("in", seed).recipe(0), made("in", seed).recipe(5)
        assert first.colour != last.colour
        assert {first.colour, last.colour} <= {(255, 0, 0), (0, 255, 0), (0, 0, 255)}
        assert torch.equal(first.label_of_class, last.label_of_class)
    assert configure("stream=ctrl_in").stream.show.normalise is False


@pytest.mark.parametrize("name", ["minus", "long"])
def test_training_images_are_flipped_and_cropped_and_all_are_normalised_by_task(name: str) -> None:
    show = configure(f"stream=ctrl_{name}").stream.show
    assert (show.shape, show.flip, show.crop, show.normalise) == ([3, 32, 32], True, 4, True)
    assert show.val_copies == (4 if name == "long" else 0)


def test_validation_images_are_never_trained_on_by_any_task() -> None:
    s = made("minus")
    val = torch.cat([s.recipe(i).val for i in (0, 5)]).unique()
    assert not torch.isin(torch.cat([s.recipe(i).train for i in (0, 5)]), val).any()


# ---- the order of examples ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["sequence", "short", *TOTALS, "long", "long_published"])
def test_the_first_and_the_last_rows_are_of_all_classes_as_by_chance(name: str) -> None:
    s = made(name)
    for recipe in map(s.recipe, range(len(s))):
        labels = recipe.label_of_class[s.images(recipe).train.y]
        for y in (labels[recipe.train], labels[recipe.val]):
            n, k = len(y), min(100, len(y) // 2)
            share = y.bincount(minlength=s.head.num_outputs) / n
            deviation = (k * share * (1 - share) * (n - k) / (n - 1)).sqrt()  # hypergeometric
            for rows in (y[:k], y[-k:]):
                counts = rows.bincount(minlength=s.head.num_outputs)
                assert ((counts - k * share).abs() <= 4 * deviation).all(), (recipe.name, counts)


FIRST = [("short", 40), ("minus", 256)]


@pytest.mark.parametrize("cls", [GEM, AGEM])
@pytest.mark.parametrize(("name", "memories"), FIRST)
def test_memories_of_the_last_examples_are_of_all_classes(cls, name: str, memories: int) -> None:
    s = made(name)
    learner = cls(build=toys.builder(s), head=s.head, memories=memories)
    learner.on_task_end(s.task(0))
    assert learner.memory["y"][0].unique().tolist() == list(range(10))


@pytest.mark.parametrize(("name", "examples"), FIRST)
def test_fisher_information_of_the_first_examples_is_of_all_classes(
    name: str, examples: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    s, looked_at, whole = made(name), [], fisher.fisher
    monkeypatch.setattr(fisher, "fisher", lambda *of: looked_at.append(of[2]) or whole(*of))
    EWC(build=toys.builder(s), head=s.head, examples=examples).information(s.task(0))
    assert len(looked_at[0]) == examples
    assert looked_at[0].unique().tolist() == list(range(10))


# ---- S_long ------------------------------------------------------------------------------------------------


def test_large_tasks_become_rarer_by_thirds() -> None:
    large = torch.tensor(
        [[task["n_train"] > 25 for task in made("long", seed).describe()] for seed in range(6)]
    ).float()
    assert large[:, :33].mean() == pytest.approx(0.5, abs=0.12)  # of 198 draws
    assert large[:, 33:66].mean() == pytest.approx(0.25, abs=0.11)
    assert large[:, 66:].sum() == 0


def test_sizes_of_s_long_are_the_published_ones_whatever_is_drawn() -> None:
    sizes = {
        (task["source"], task["n_train"], task["n_val"])
        for seed in range(2)
        for task in made("long", seed).describe()
    }
    small = {(name, 25, 15) for name in SIZES if name != "dtd"}
    large = {(name, 5000, 2500) for name in SIZES if name not in ("dtd", "cifar100")}
    assert sizes == small | large | {("cifar100", 2250, 250)}


def test_what_a_source_has_at_most_is_a_maximum() -> None:
    sizes = {
        (task["source"] == "cifar100", task["n_train"], task["n_val"])
        for task in made("long", large=[500, 300], tasks=40).describe()
    }
    assert sizes == {(False, 500, 300), (True, 500, 250), (False, 25, 15), (True, 25, 15)}


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("long", {"classes_per_task": 10}, r"25 examples .* 10 classes \(n_train of stream\.small\)"),
        ("long", {"large": [50_000, 5]}, r"Lower n_train of stream\.large, or set"),
        (
            "minus",
            {"tasks": [{"source": "cifar10", "n_train": 60_000}]},
            r"Lower stream\.tasks\[0\]\.n_train, or set",
        ),
    ],
)
def test_sizes_that_cannot_be_had_are_called_by_the_users_names(name: str, options: dict, says: str) -> None:
    s = made(name, **options)
    with pytest.raises(Refusal, match=says):
        s.describe()


def test_sources_of_s_long_come_equally_often() -> None:
    counts = Counter(task["source"] for seed in range(4) for task in made("long", seed).describe())
    assert set(counts) == set(SIZES) - {"dtd"}
    assert all(50 < count < 110 for count in counts.values())


def test_a_longer_stream_has_the_same_sources_and_classes() -> None:
    short, longer = made("long", tasks=30).describe(), made("long", tasks=90).describe()
    assert [task["name"] for task in short] == [task["name"] for task in longer[:30]]


PRINTED_MNIST = {
    1: 4830, 11: 4914, 14: 5000, 19: 4806, 20: 4806, 30: 4938, 40: 5000, 46: 4940, 54: 4866, 57: 4982,
    59: 4848, 60: 4974, 62: 4848,
    64: 4914, 68: 4932, 72: 4938, 74: 4920, 81: 4938, 86: 4892, 89: 4832, 93: 4806,
}  # fmt: skip


def test_the_printed_instance_has_the_test_sizes_of_its_rules() -> None:
    described = made("long_published").describe()
    assert len(described) == 100
    for number, task in enumerate(described, start=1):
        assert task["n_test"] == PRINTED_MNIST.get(number, 500 if task["source"] == "cifar100" else 5000), (
            number
        )
        assert len(set(task["classes"])) == 5
    assert Counter(task["source"] for task in described) == {
        "cifar100": 24,
        "svhn": 22,
        "mnist": 21,
        "cifar10": 18,
        "fashion_mnist": 15,
    }
    large = [number for number, task in enumerate(described, start=1) if task["n_train"] > 25]
    assert large == [3, 6, 11, 12, 17, 18, 19, 20, 22, 24, 26, 29, 30, 32, 33, 38, 49, 56, 60]
    assert sorted(described[18]["classes"]) == sorted(described[19]["classes"]) != described[18]["classes"]


def test_a_number_of_tasks_is_no_list_of_tasks() -> None:
    with pytest.raises(Refusal, match=r"stream\.tasks=3 must be a list"):
        build_stream(configure("stream=ctrl_short", "stream.tasks=3"))
