"""A continuum learned once: what the data module lends, and when."""

from __future__ import annotations

from collections import UserList
from pathlib import Path

import pytest
import torch

from cl_lightning.data.streams.recipes import permuted
from cl_lightning.data.task import Split
from cl_lightning.errors import Refusal
from cl_lightning.learners import Finetune, Joint, Needs, Phase
from cl_lightning.protocol import ProtocolError
from tests import toys
from tests.commands import run
from tests.toys import builder, learn, training


def stream(**options):
    return toys.stream(n_val=0, **options)


class Notes:
    def __init__(self, **base) -> None:
        super().__init__(**base)
        self.seen, self.tasks = UserList(), UserList()

    def loss(self, c, batch):
        self.seen += batch.x.sum((1, 2, 3)).tolist()
        self.tasks.append(batch.task.unique().tolist())
        return super().loss(c, batch)


class Noting(Notes, Finetune): ...


class NotingJoint(Notes, Joint): ...


@pytest.mark.parametrize("passes", [1, 2, 5])
@pytest.mark.parametrize("batch_size", [10, 7])
def test_each_example_comes_as_often_as_there_are_passes_first_in_stream_order(
    passes: int, batch_size: int
) -> None:
    s, learner = stream(), Noting(build=builder(stream()), head=stream().head)
    learn(learner, s, training(single_pass=True, max_epochs=passes, batch_size=batch_size))
    n = len(s.task(0).train)
    for task in range(3):
        expected = s.task(task).train.x.sum((1, 2, 3)).tolist()
        seen = learner.seen[task * n * passes : (task + 1) * n * passes]
        assert seen[:n] == expected
        for one in range(passes):
            assert sorted(seen[one * n : (one + 1) * n]) == sorted(expected)
            assert one == 0 or seen[one * n : (one + 1) * n] != expected
    assert all(len(tasks) == 1 for tasks in learner.tasks)


class Again(Finetune):
    def learn(self, task):
        best = yield Phase(self.candidates(task))
        yield Phase([best.candidate], name="again")


class Longer(Finetune):
    def learn(self, task):
        yield Phase(self.candidates(task), epochs=2)


class Own(Finetune):
    """Puts half of the task's examples into a split of its own."""

    def learn(self, task):
        yield Phase(self.candidates(task), train=Split(*task.train.gather(torch.arange(30))))


class Twice(Finetune):
    needs = Needs(past_data=True)

    def learn(self, task):
        yield Phase(
            self.candidates(task),
            train=Split.union([task.train, *(each.train for each in (*task.past, task))]),
        )


ASKS_MORE = [
    (Again, "a second phase of task 0"),
    (Longer, "2 epochs of 60 examples were asked for; a single pass lends 60, 1 times"),
    (Own, "examples in a split of its own"),
    (Twice, "1 epochs of 120 examples were asked for; a single pass lends 60, 1 times"),
]


@pytest.mark.parametrize(("cls", "says"), ASKS_MORE)
def test_whoever_asks_for_more_is_told_that_there_is_one_pass(cls, says: str) -> None:
    with pytest.raises(ProtocolError, match=rf"{cls.__name__}\.learn: {says}"):
        learn(
            cls(build=builder(stream()), head=stream().head),
            stream(),
            training(single_pass=True, max_epochs=1),
        )


def test_there_is_no_validation() -> None:
    with pytest.raises(
        Refusal, match=r"has 40 validation examples.*Set n_val of the stream and its tasks to 0"
    ):
        learn(
            Finetune(build=builder(toys.stream()), head=toys.stream().head),
            toys.stream(),
            training(single_pass=True),
        )
    with pytest.raises(Refusal, match=r"trainer\.patience=null"):
        training(single_pass=True, patience=10)


def test_joint_training_sees_the_pool_once_and_shuffled() -> None:
    s = stream()
    learner = NotingJoint(build=builder(s), head=s.head, at="last_task")
    learn(learner, s, training(single_pass=True, max_epochs=1))
    pool = [value for task in range(3) for value in s.task(task).train.x.sum((1, 2, 3)).tolist()]
    assert sorted(learner.seen) == sorted(pool)
    assert learner.seen != pool
    assert [0, 1, 2] in learner.tasks


@pytest.mark.parametrize(("learner", "verdict"), [("gem", "satisfied"), ("joint", "violated")])
def test_the_card_counts_what_was_seen(learner: str, verdict: str, tmp_path: Path) -> None:
    small = (
        "stream.tasks=3",
        "stream.n_train=100",
        "stream.n_test=50",
        "progress=false",
        "data.sources.mnist.train=2000",
    )
    results = run(tmp_path, "+experiment=gem_permutations", f"learner={learner}", *small, small=False)
    finding = results["card"][-1]
    assert finding["rule"] == "single pass"
    assert finding["verdict"] == verdict
    assert "examples seen: 300 of 3 x 100" in finding["evidence"]


# ---- streams from outside ----------------------------------------------------------------------------------


def given_stream(tmp_path: Path, suffix: str, **tables: torch.Tensor):
    import numpy as np

    files = {}
    for key, table in tables.items():
        files[key] = str(tmp_path / f"{key}{suffix}")
        if suffix == ".npy":
            np.save(files[key], table.numpy())
        else:
            np.savetxt(files[key], table.numpy(), fmt="%d", delimiter="," if suffix == ".csv" else " ")
    return permuted(toys.images(), seed=0, tasks=2, n_train=None, n_val=0, n_test=None, **files)


@pytest.mark.parametrize("suffix", [".npy", ".txt", ".csv"])
def test_another_programs_stream_is_replayed_row_by_row(suffix: str, tmp_path: Path) -> None:
    permutations = torch.stack([torch.randperm(36), torch.randperm(36)])
    order = torch.tensor([[5, 3, 9, 11], [0, 399, 2, 1]])
    s = given_stream(tmp_path, suffix, permutations=permutations, order=order)
    pixels = toys.images().train.x.flatten(1).float() / 255
    for task in range(2):
        assert torch.equal(s.task(task).train.x.flatten(1), pixels[order[task]][:, permutations[task]])
        assert torch.equal(
            s.test(task).x.flatten(1), (toys.images().test.x.flatten(1).float() / 255)[:, permutations[task]]
        )


@pytest.mark.parametrize(
    ("tables", "says"),
    [
        ({"permutations": torch.zeros(2, 36)}, "no permutation: some of its 36 pixels come twice"),
        ({"permutations": torch.zeros(3, 36)}, r"\(3, 36\), but must hold 2 x 36 numbers"),
        ({"order": torch.tensor([[1, 400], [2, 3]])}, "whole numbers from 0 to 399"),
        ({"order": torch.tensor([1, 2, 3])}, "must hold 2 x any numbers"),
    ],
)
def test_files_that_do_not_fit_are_refused(tables: dict, says: str, tmp_path: Path) -> None:
    with pytest.raises(Refusal, match=says):
        given_stream(tmp_path, ".npy", **tables)


def test_files_that_are_none_are_refused(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("one two\n")
    for file in ("nowhere.npy", tmp_path / "words.txt"):
        with pytest.raises(Refusal, match=r"stream\.order=.* cannot be read"):
            permuted(toys.images(), seed=0, tasks=2, n_train=None, n_val=0, n_test=None, order=str(file))


def test_another_content_under_the_same_name_is_another_run(tmp_path: Path) -> None:
    import numpy as np

    from tests.commands import fingerprint_of

    seen = set()
    for angle in (10.0, 20.0, 10.0):
        np.save(tmp_path / "angles.npy", np.array([angle, 90.0]))
        seen.add(
            fingerprint_of("stream=rotated", "stream.tasks=2", f"stream.angles={tmp_path / 'angles.npy'}")
        )
    assert len(seen) == 2
