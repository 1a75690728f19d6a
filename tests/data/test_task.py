"""Mini-batches and heads."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cl_lightning.data.module import StreamDataModule
from cl_lightning.data.task import Block, Blocks, Head, Split
from tests import toys


def numbered(n: int) -> Split:
    x = torch.arange(n, dtype=torch.float32)
    return Split(x[:, None], x.long(), torch.zeros(n, dtype=torch.int64))


def rows(blocks: Blocks) -> list[tuple]:
    return [
        (batch.key, batch.epoch, batch.index_in_epoch, batch.batches_per_epoch, batch.y.tolist())
        for block in blocks
        for batch in block.batches
    ]


@given(n=st.integers(1, 40), size=st.integers(1, 12), epochs=st.integers(1, 3), block=st.integers(1, 9))
@settings(max_examples=50, deadline=None)
def test_every_example_comes_once_an_epoch_and_blocks_do_not_matter(
    n: int, size: int, epochs: int, block: int
) -> None:
    blocks = Blocks(numbered(n), (0, "t", 0), size, epochs, block)
    taken = rows(blocks)
    assert taken == rows(Blocks(numbered(n), (0, "t", 0), size, epochs, 1))
    assert len(taken) == blocks.steps
    assert len(list(blocks)) == len(blocks)
    for epoch in range(epochs):
        assert sorted(y for _, e, _, _, ys in taken if e == epoch for y in ys) == list(range(n))
    assert [key for key, *_ in taken] == [(0, "t", 0, step) for step in range(blocks.steps)]


@given(
    sizes=st.lists(st.integers(1, 20), min_size=2, max_size=3),
    size=st.integers(1, 7),
    start=st.integers(0, 9),
    block=st.integers(1, 5),
)
@settings(max_examples=50, deadline=None)
def test_several_splits_come_in_turn_each_in_whole_orders_of_its_own(
    sizes: list[int], size: int, start: int, block: int
) -> None:
    splits = [numbered(n) for n in sizes]
    blocks = Blocks(splits, (0, "t", 0), size, 2, 1, phase="search")
    batches = [batch for each in blocks for batch in each.batches]
    assert [batch.part for batch in batches] == [step % len(sizes) for step in range(len(batches))]
    assert {(batch.steps, batch.phase) for batch in batches} == {(len(batches), "search")}
    longest = max(-(-n // size) for n in sizes)
    assert (blocks.per_epoch, len(batches)) == (len(sizes) * longest, 2 * len(sizes) * longest)
    for part, n in enumerate(sizes):
        rows_of_part = [batch.y.tolist() for batch in batches if batch.part == part]
        turns = -(-n // size)
        for first in range(0, len(rows_of_part) - turns + 1, turns):
            assert sorted(y for ys in rows_of_part[first : first + turns] for y in ys) == list(range(n))
    alone = [b.y.tolist() for each in Blocks(splits[0], (0, "t", 0), size, 2, 1) for b in each.batches]
    assert [b.y.tolist() for b in batches if b.part == 0][: len(alone)] == alone
    later = Blocks(splits, (0, "t", 0), size, 2, block, start_step=min(start, len(batches)))
    assert [b.y.tolist() for each in later for b in each.batches] == [
        b.y.tolist() for b in batches[min(start, len(batches)) :]
    ]


def test_a_batch_depends_on_key_and_step_and_not_on_what_was_asked_before() -> None:
    blocks = Blocks(numbered(30), (0, "t", 0), 7, 4, 5)
    last = list(blocks.batches(17, 18))[0].y
    torch.manual_seed(3)
    list(blocks)
    assert torch.equal(last, list(blocks.batches(17, 18))[0].y)
    assert not torch.equal(last, list(Blocks(numbered(30), (1, "t", 0), 7, 4, 5).batches(17, 18))[0].y)


def test_every_epoch_has_an_order_of_its_own() -> None:
    blocks = Blocks(numbered(30), (0, "t", 0), 30, 2, 1)
    first, second = (batch.y.tolist() for block in blocks for batch in block.batches)
    assert first != second


def test_a_block_on_its_device_is_not_copied() -> None:
    block = next(iter(Blocks(numbered(4), (0,), 2, 1, 2)))
    assert block.to(torch.device("cpu")) is block
    assert isinstance(block.to(torch.device("meta")), Block)
    assert block.to(torch.device("meta")).batches[0].x.is_meta


def test_masks_leave_a_task_its_own_outputs() -> None:
    head = Head("multi_test", 4, ((0, 2), (1, 3)))
    logits = torch.arange(8.0).reshape(2, 4)
    inf = torch.inf
    assert head.mask(logits, 1).tolist() == [[-inf, 1, -inf, 3], [-inf, 5, -inf, 7]]
    assert head.mask(logits, torch.tensor([0, 1])).tolist() == [[0, -inf, 2, -inf], [-inf, 5, -inf, 7]]


@pytest.mark.parametrize(
    ("mode", "training", "test"),
    [("single", 0, 0), ("domain", 0, 0), ("multi_test", 0, 1), ("multi_train_test", 1, 1)],
)
def test_head_modes_mask_where_they_say(mode: str, training: bool, test: bool) -> None:
    head = Head(mode, 2, ((0,), (1,)))
    assert head.masks_training == training
    assert head.masks_test == test


def test_replayed_rows_keep_their_task() -> None:
    batch = next(numbered(2).batches(2)).cat(torch.zeros(1, 1), torch.tensor([9]), torch.tensor([5]))
    assert batch.task.tolist() == [0, 0, 5]
    assert len(batch) == 3


def test_one_task_is_open_at_a_time_and_past_ones_only_on_request() -> None:
    data = StreamDataModule(toys.stream())
    with data.open(1) as task:
        assert task.past == ()
        with pytest.raises(RuntimeError, match="still open"), data.open(2):
            pass
    with data.open(2, past=True) as task:
        assert [past.index for past in task.past] == [0, 1]
    assert data.task is None


def test_a_task_lends_no_test_data() -> None:
    task = toys.stream().task(0)
    assert not any("test" in name for name in vars(task))
