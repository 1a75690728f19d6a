"""Tasks of several sources, listed one by one; and sources that stand in for others."""

from __future__ import annotations

from time import process_time

import pytest
import torch

from cl_lightning.data.sources.cache import Images
from cl_lightning.data.sources.registry import Sources
from cl_lightning.data.streams.recipes import permuted, split
from cl_lightning.data.streams.sequence import COLOURS, sequence
from cl_lightning.data.streams.show import Show
from cl_lightning.errors import Refusal
from tests import toys

SOURCES = {"one": toys.images(classes=4), "two": toys.images(classes=6, seed=1)}
A, B = {"source": "one", "n_train": 12}, {"source": "two", "n_train": 12}


def of(*tasks: dict, **options: object):
    return sequence(SOURCES, 0, tasks, **options)


def test_tasks_come_from_their_sources_and_have_outputs_of_their_own() -> None:
    s = of({**A, "classes": 3}, {**B, "classes": ["e", 0]}, head="multi_train_test")
    assert [described["source"] for described in s.describe()] == ["toy", "toy"]
    assert s.head.owned == ((0, 1, 2), (3, 4))
    assert set(s.task(1).train.y.tolist()) == set(s.test(1).y.tolist()) == {3, 4}
    assert s.task(1).classes == ("e", "a")
    assert torch.equal(s.test(1).x[0], SOURCES["two"].test.x[SOURCES["two"].test.y == 4][0] / 255)


def test_in_a_domain_sequence_all_tasks_share_their_outputs() -> None:
    s = of({**A, "classes": 3}, {**B, "classes": 3}, head="domain")
    assert s.head.owned == ((0, 1, 2), (0, 1, 2))
    with pytest.raises(Refusal, match="differ in their number of classes"):
        of(A, B, head="domain")


def test_the_colours_of_backgrounds_are_drawn_and_differ() -> None:
    pairs = set()
    for seed in range(30):
        s = sequence(SOURCES, seed, [{**A, "colour": 0}, {**A, "colour": 1}, A], show=Show(shape=[3, 6, 6]))
        pairs.add((s.recipe(0).colour, s.recipe(1).colour))
        assert s.recipe(2).colour is None
    assert pairs == {(a, b) for a in COLOURS for b in COLOURS if a != b}


def test_a_task_may_permute_or_turn_its_pixels() -> None:
    s = of(A, {**A, "like": 0, "permute": True}, {**A, "like": 0, "rotate": 90})
    assert sorted(s.recipe(1).pixels.tolist()) == list(range(36))
    assert torch.equal(s.test(2).x, torch.rot90(s.test(0).x, 1, (2, 3)))
    assert [s.recipe(i).permuted for i in range(3)] == [False, True, False]


@pytest.mark.parametrize(
    ("tasks", "says"),
    [
        ([{"n_train": 5}], r"stream\.tasks\[0\]\.source is missing"),
        ([{**A, "sourc": 1}], r"stream\.tasks\[0\]\.sourc is not a key here.*Did you mean source"),
        ([{**A, "classes": 9}], "asks for 9 classes of toy, which has 4"),
        ([{**A, "classes": ["z"]}], "toy has no class 'z'"),
        ([{**A, "classes": [0, 0]}], "none twice"),
        ([{**A, "labels": "swap"}], "one of keep, shift, permute"),
        ([A, {**B, "like": 0}], "must be the number of an earlier task"),
        ([{**A, "colour": 2}], "needs images of three channels"),
        (
            [{**A, "colour": 5}],
            r"stream\.tasks\[0\]\.colour=5 must be one of 0, 1, 2, or \[red, green, blue\], each 0 to 255, "
            r"or null",
        ),
        ([{**A, "colour": [0, 0, 256]}], "each 0 to 255"),
        ([{**A, "asked_by": "me"}], "asked_by is not a key here"),
        ([{**A, "n_test": 0}], r"n_test=0 must be a whole number of at least 1"),
        ([{**A, "n_train": "many"}], r"n_train=many must be a whole number"),
        ([{**A, "rotate": "far"}], r"rotate=far must be a number"),
        ([{**A, "labels": "shift"}], "name it with `like`"),
        ([A, {**A, "like": 0, "classes": 3}], "`like` and `classes`"),
        ([{**A, "permute": True, "rotate": 9}], "`permute` and `rotate`"),
    ],
)
def test_what_cannot_be_listed_is_refused(tasks: list[dict], says: str) -> None:
    with pytest.raises(Refusal, match=says):
        of(*tasks).recipe(len(tasks) - 1)


# ---- stand-ins ---------------------------------------------------------------------------------------------


def of_sources(known: dict, images: dict[str, Images], substitute: dict[str, str]) -> Sources:
    return Sources(known, images.__getitem__, substitute)


def test_a_stand_in_gives_its_best_represented_classes_under_the_name_asked_for() -> None:
    big = toys.images(n=300, classes=8)
    big.train.y[big.train.y == 2] = 1  # class 2 is gone; 1 has most
    sources = of_sources({"wanted": ("x", "y", "z"), "big": None}, {"big": big}, {"wanted": "big"})
    images = sources["wanted"]
    assert images.classes == ("a", "b", "d")
    assert (images.name, images.source) == ("wanted", "big")
    assert images.class_index("z") == 2  # called by the name of the class that it stands in for
    s = split(images, seed=0, tasks=1, classes_per_task=3, n_train=9, n_val=0, n_test=None, head="single")
    described = s.describe()[0]
    assert (described["source"], described["instead_of"]) == ("big", "wanted")
    assert set(s.task(0).train.y.tolist()) == {0, 1, 2}


def test_a_stand_in_with_fewer_classes_is_taken_whole() -> None:
    sources = of_sources(
        {"wanted": tuple("abcdefgh"), "small": None}, {"small": toys.images(classes=3)}, {"wanted": "small"}
    )
    assert len(sources["wanted"].classes) == 3


def test_pixels_of_a_stand_in_are_shared_not_copied() -> None:
    big = toys.images(n=300, classes=8)
    assert big.subset([3, 1]).train.x.data_ptr() == big.train.x.data_ptr()


def test_nothing_is_opened_that_no_stream_asks_for() -> None:
    sources = of_sources({"one": None, "two": None}, {"one": SOURCES["one"]}, {})
    sequence(sources, 0, [A])
    with pytest.raises(KeyError):
        sources["two"]


def test_unknown_sources_are_refused_by_name() -> None:
    with pytest.raises(Refusal, match="asks for thre, which is not among"):
        of_sources({"three": None}, {}, {})["thre"]
    with pytest.raises(Refusal, match=r"data\.substitute\.one=fuor is not among"):
        of_sources({"one": None, "four": None}, {}, {"one": "fuor"})


# ---- long streams ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [
    lambda tasks: permuted(toys.images(n=40_000), seed=0, tasks=tasks, n_train=100, n_val=50, n_test=50),
    lambda tasks: of(*[{**(A, B)[i % 2], "classes": 3} for i in range(tasks)]),
])  # fmt: skip
def test_a_thousand_tasks_start_about_as_fast_as_six(make) -> None:
    def start(tasks: int) -> float:
        began = process_time()
        s = make(tasks)
        s.fingerprint, s.task(0)
        return process_time() - began

    start(6)
    assert start(1000) < start(6) + 0.5


def test_a_long_stream_keeps_few_recipes() -> None:
    s = toys.stream(tasks=1000)
    for index in range(200):
        s.recipe(index)
    assert s.make.cache_info().currsize < 50


def test_equal_fingerprints_mean_equal_arguments_pixels_and_head() -> None:
    prints = {
        toys.stream().fingerprint,
        toys.stream(first_identity=True).fingerprint,
        toys.stream(n_train=59).fingerprint,
        toys.stream(head="single").fingerprint,
        toys.stream(show=Show(flip=True)).fingerprint,
        permuted(toys.images(seed=1), seed=0, tasks=3, n_train=60, n_val=40, n_test=None).fingerprint,
        permuted(toys.images(), seed=1, tasks=3, n_train=60, n_val=40, n_test=None).fingerprint,
    }
    assert len(prints) == 7
    assert toys.stream().fingerprint == toys.stream().fingerprint


def test_a_stream_of_ones_own_without_the_decorator_is_told_apart_by_its_examples() -> None:
    from dataclasses import replace

    one, same, other = (replace(toys.stream(n_train=n), made_of=()) for n in (60, 60, 59))
    assert one.fingerprint == same.fingerprint != other.fingerprint
    assert (
        replace(one, make=lambda index: replace(same.make(index), permuted=False)).fingerprint
        == one.fingerprint
    ), "the same examples"


def test_sources_of_several_shapes_need_a_shape_to_be_brought_to() -> None:
    from dataclasses import replace

    from cl_lightning.data.sources.cache import Pool

    one = SOURCES["one"]
    wide = replace(
        one,
        name="wide",
        **{
            split: Pool(getattr(one, split).x.repeat(1, 3, 2, 2), getattr(one, split).y)
            for split in ("train", "test")
        },
    )
    tasks = [A, {**A, "source": "wide", "permute": True}, {**A, "rotate": 45}]
    with pytest.raises(
        Refusal,
        match=r"Images of wide are \(3, 12, 12\), those of the first task \(1, 6, 6\).*stream\.show\.shape",
    ):
        sequence({"one": one, "wide": wide}, 0, tasks)
    s = sequence({"one": one, "wide": wide}, 0, tasks, show=Show(shape=[3, 8, 8]))
    assert [s.task(index).train.x.shape[1:] for index in range(3)] == [(3, 8, 8)] * 3


def test_a_stand_in_is_asked_for_by_the_names_of_what_it_replaces_and_by_no_others() -> None:
    sources = of_sources(
        {"wanted": ("d", "b", "z"), "big": None}, {"big": toys.images(classes=3)}, {"wanted": "big"}
    )
    assert [sources["wanted"].class_index(name) for name in ("d", "b", "z")] == [0, 1, 2]
    small = of_sources(
        {"wanted": ("x", "y", "z"), "small": None}, {"small": toys.images(classes=2)}, {"wanted": "small"}
    )
    with pytest.raises(Refusal, match="small stands in for wanted with 2 classes: there is none for 'z'"):
        small["wanted"].class_index("z")


def test_a_stand_in_for_nothing_is_refused() -> None:
    with pytest.raises(Refusal, match=r"data\.substitute\.svnh stands in for nothing.*Did you mean svhn"):
        of_sources({"svhn": None, "mnist": None}, {}, {"svnh": "mnist"})


def test_class_names_are_part_of_the_fingerprint() -> None:
    from dataclasses import replace

    renamed = replace(SOURCES["one"], classes=("b", "a", "c", "d"))
    assert of(A).fingerprint != sequence({"one": renamed}, 0, [A]).fingerprint


def test_a_learner_that_found_its_way_to_the_stream_learns_nothing_from_it() -> None:
    from cl_lightning.learners import Finetune
    from cl_lightning.protocol import ProtocolError, running

    s = toys.stream(show=Show(normalise=True))
    with running(Finetune(build=toys.builder(s), head=s.head), "on_task_start"):
        for look in (s.task, s.validation, s.test):
            with pytest.raises(ProtocolError):
                look(2)
