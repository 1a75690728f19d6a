"""The eleven partitions of ten classes and the permutation of Pfuelb and Gepperth."""

from __future__ import annotations

import pytest
import torch

from cl_lightning.config.checking import check_value
from cl_lightning.data.sources.cache import Images, Pool
from cl_lightning.data.streams.recipes import FIRST_TASKS, two_tasks
from cl_lightning.data.streams.stream import Stream
from cl_lightning.errors import Refusal


def of_ten(classes: int = 10, uneven: bool = False) -> Images:
    y = torch.arange(40 * classes) % classes
    if uneven:  # class c has as many images as its number says
        y = torch.arange(classes).repeat_interleave(torch.arange(classes) * 10 + 20)
    x = y[:, None, None, None].expand(-1, 1, 3, 3).to(torch.uint8)
    return Images(
        "source", tuple(f"class {c}" for c in range(classes)), Pool(x, y), Pool(x, y), f"{classes} {uneven}"
    )


def made(kind: str, images: Images | None = None, **options: object) -> Stream:
    sizes = {"n_train": None, "n_val": 0, "n_test": None}
    return two_tasks(images or of_ten(), seed=0, kind=kind, **{**sizes, **options})


PRINTED = {
    "D5-5a": "01234|56789", "D5-5b": "02468|13579", "D5-5c": "34689|01257", "D5-5d": "02567|13489",
    "D5-5e": "01345|26789",
    "D5-5f": "03489|12567", "D5-5g": "05678|12349", "D5-5h": "02368|14579",
    "D9-1a": "012345678|9", "D9-1b": "123456789|0", "D9-1c": "023456789|1",
}  # fmt: skip


@pytest.mark.parametrize("kind", FIRST_TASKS)
def test_classes_are_parted_as_printed(kind: str) -> None:
    s = made(kind)
    seen = ["".join(map(str, sorted(set(s.task(i).train.y.tolist())))) for i in range(2)]
    assert "|".join(seen) == PRINTED[kind]
    assert [set(s.test(i).y.tolist()) for i in range(2)] == [
        set(s.task(i).train.y.tolist()) for i in range(2)
    ]
    assert sorted(torch.cat([s.recipe(i).train for i in range(2)]).tolist()) == list(range(400))
    assert (s.head.mode, s.head.num_outputs) == ("single", 10)


def test_all_ten_classes_come_twice_and_only_the_second_time_permuted() -> None:
    s = made("DP10-10")
    assert s.recipe(0).pixels is None
    assert sorted(s.recipe(1).pixels.tolist()) == list(range(9)) != s.recipe(1).pixels.tolist()
    assert made("DP10-10", first_identity=False).recipe(0).pixels is not None
    assert (s.recipe(0).permuted, s.recipe(1).permuted) == (False, True)
    assert all(len(s.task(i).train) == 400 for i in range(2))


def test_of_more_classes_the_ten_with_most_images_are_taken_in_that_order() -> None:
    s = made("D5-5a", of_ten(15, uneven=True), class_order="frequency")
    assert s.task(0).classes == tuple(f"class {c}" for c in (14, 13, 12, 11, 10))
    assert s.task(1).classes == tuple(f"class {c}" for c in (9, 8, 7, 6, 5))
    assert s.task(0).train.x.unique().mul(255).round().tolist() == [10, 11, 12, 13, 14]


def test_numbers_can_be_given_as_in_svhn_where_the_first_class_is_digit_1() -> None:
    assert made("D9-1b", class_order=[1, 2, 3, 4, 5, 6, 7, 8, 9, 0]).task(1).classes == ("class 1",)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"kind": "D6-4"}, r"stream\.kind=D6-4 must be one of D5-5a"),
        ({"kind": "D5-5a", "images": of_ten(7)}, "but 7 of source"),
    ],
)
def test_what_is_no_such_task_is_refused(options: dict, says: str) -> None:
    with pytest.raises(Refusal, match=says):
        check_value(two_tasks, "kind", options["kind"], "stream.kind")
        made(**options)


@pytest.mark.parametrize(
    ("kind", "sizes"), [("D9-1a", [(324, 36), (36, 4)]), ("DP10-10", [(360, 40), (360, 40)])]
)
def test_a_share_of_each_tasks_images_is_for_validation(kind: str, sizes: list) -> None:
    """A tenth of 40 images a class: of nine classes 36, of one 4."""
    s = made(kind, val_share=0.1)
    assert [(len(s.recipe(i).train), len(s.recipe(i).val)) for i in range(2)] == sizes
    assert all(not torch.isin(s.recipe(i).train, s.recipe(i).val).any() for i in range(2))


@pytest.mark.parametrize("other", [{"n_val": 5}, {"balanced": True}])
def test_a_share_beside_a_number_or_equal_classes_is_refused(other: dict) -> None:
    with pytest.raises(Refusal, match=r"val_share=0\.1 .* Set stream\.n_val=0 and stream\.balanced=false"):
        made("D9-1a", val_share=0.1, **other)


def test_streams_without_a_share_are_what_they_were() -> None:
    assert "val_share" not in made("D9-1a").made_of[1]
    assert made("D9-1a").fingerprint != made("D9-1a", val_share=0.1).fingerprint
