"""The benchmark measures what it says; its numbers are for ``python -m tests.benchmarks``, on a quiet
machine."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch

from cl_lightning.engine import training
from tests import docs
from tests.benchmarks import __main__ as benchmark
from tests.benchmarks import against, bare
from tests.benchmarks.engine import examples, interleaved, lock_step, rates
from tests.commands import SMALL

LITTLE = benchmark.Effort(repeats=1, part=0.01, overrides=SMALL)
NAMES = [row.__name__ for row in benchmark.all_rows(LITTLE)]


SLOW = ("default_run", "safety", "search", "paths", "whole_stream", "jobs", "wandb", "single_headed")
MEASURED = [
    pytest.param(
        i,
        id=f"{i}-{name}",
        marks=pytest.mark.all if name in SLOW and i != NAMES.index("paths") else [],
    )
    for i, name in enumerate(NAMES)
]


@pytest.mark.parametrize("index", MEASURED)
def test_every_row_is_measured_and_stands_on_the_page_about_speed(index: int) -> None:
    rows = list(benchmark.all_rows(LITTLE)[index])
    assert rows
    for row in rows:
        assert math.isfinite(row.measured)
        assert row.bf16 == ("bf16" in row.work)
        assert (
            f"\n| {row.work} | {'' if row.at_most is None else f'{row.at_most:g} {row.unit}'} |"
            in docs.page("speed")
        )


def test_the_table_says_what_was_missed_and_what_this_processor_cannot_tell(
    tmp_path: Path, monkeypatch, capsys
) -> None:
    rows = [
        benchmark.Row("quick", 0.5, 1),
        benchmark.Row("slow", 2, 1),
        benchmark.Row("in bf16", 2, 1, bf16=True),
    ]
    monkeypatch.setattr(benchmark, "all_rows", lambda effort: [iter(rows)])
    ends = {}
    for precision in ("32", "bf16-mixed"):
        monkeypatch.setattr(benchmark, "bf16_if_fast", lambda precision=precision: precision)
        benchmark.main(["--json", str(tmp_path / "rows.json")])
        measured = [line.split(" | ")[2] for line in capsys.readouterr().out.splitlines()[2:]]
        assert torch.get_num_threads() == 1
        ends[precision] = measured, [row["met"] for row in json.loads((tmp_path / "rows.json").read_text())]
    assert ends["32"] == (["0.50 x", "2.00 x (missed)", "2.00 x (no bf16 on this CPU)"], [True, False, None])
    assert ends["bf16-mixed"] == (["0.50 x", "2.00 x (missed)", "2.00 x (missed)"], [True, False, False])


def test_some_of_the_table_is_measured_alone(monkeypatch, capsys) -> None:
    rows = [[benchmark.Row("a", 1, 1)], [benchmark.Row("b", 1, 1), benchmark.Row("c", 1, 1)], []]
    monkeypatch.setattr(benchmark, "all_rows", lambda effort: list(map(iter, rows)))
    benchmark.main(["--only", "2"])
    assert [line[2] for line in capsys.readouterr().out.splitlines()[2:]] == ["b", "c"]


def test_both_sides_train_the_same_network() -> None:
    from functools import partial

    from cl_lightning.backbones import MLP
    from tests.benchmarks.engine import HEAD

    count = [
        sum(p.numel() for p in network.parameters())
        for network in (bare.mlp(), partial(MLP, (1, 28, 28), HEAD, (100, 100))())
    ]
    assert count == [89_610, 89_610]


def test_the_bare_loop_learns() -> None:
    split, network = examples(200), bare.mlp()
    bare.train(network, bare.optimizer("adam", network, 1e-3, False), split.x, split.y, 10, 30)
    assert bare.accuracy(network, split.x, split.y, 100) > 0.5


def test_our_side_takes_as_many_mini_batches(tmp_path: Path, monkeypatch) -> None:
    taken = []
    original = training.train_batch
    monkeypatch.setattr(
        training,
        "train_batch",
        lambda learner, run, *args: (taken.append(len(run.active)), original(learner, run, *args)),
    )
    lock_step(examples(100), rates(8), tmp_path, max_epochs=2, batch_size=10)
    assert taken == [8] * 20


def test_both_sides_of_mntdps_paths_train_the_same_parameters(tmp_path: Path, monkeypatch) -> None:
    from tests.benchmarks import modular

    trained: list[int] = []
    original = training.train_batch

    def take(learner, run, *args) -> None:
        trained.extend(sum(p.numel() for p in run.candidates[i].parameters) for i in run.trainable)
        original(learner, run, *args)

    monkeypatch.setattr(training, "train_batch", take)
    modular.training(tmp_path, 4, [{"lr": 0.1}, {"lr": 0.2}], steps=1, batch_size=4)()
    one_after_another = [sum(p.numel() for p in modular.bare_path(4, reused)[1]) for reused in range(7)]
    assert sorted(trained) == sorted(2 * one_after_another)


def test_the_search_is_over_as_many_trunks_as_s_long_has(tmp_path: Path) -> None:
    from tests.benchmarks import modular

    looking = modular.searching(12, n_train=10, n_val=10)
    assert len(looking()) == 12
    assert len({tuple(path[:-1]) for path in looking.func.__self__.library.paths}) == 5


def test_functions_are_timed_in_turns() -> None:
    order = []
    interleaved(lambda: order.append(0), lambda: order.append(1), repeats=2)
    assert order == [0, 1] * 3


def test_both_sides_of_gem_take_the_same_step() -> None:
    """From the same weights, with the same memories: the bare loop and the learner end alike."""
    from cl_lightning.data.task import Batch
    from cl_lightning.learners import GEM, Candidate
    from tests.benchmarks.learners import with_memories

    learner = with_memories(GEM, memories=20)
    network, batch = bare.mlp(), Batch(*examples(10).parts)
    ours = learner.fresh(0)
    for p, q in zip(ours.parameters(), network.parameters()):
        q.data.copy_(p.data)
    memories = [(learner.memory["x"][k], learner.memory["y"][k]) for k in range(19)]
    c = Candidate(ours)
    learner.loss(c, batch).backward()
    learner.after_backward(c, batch)
    torch.optim.SGD(ours.parameters(), lr=0.1).step()
    bare.gem_step(network, torch.optim.SGD(network.parameters(), lr=0.1), batch.x, batch.y, memories)
    for p, q in zip(ours.parameters(), network.parameters()):
        assert torch.allclose(p, q, atol=1e-4)


def test_both_sides_of_the_fisher_information_are_equal() -> None:
    from tests.benchmarks.learners import fisher_sides

    ours, theirs = fisher_sides(30)
    for f, g in zip(ours(), theirs()):
        assert torch.allclose(f, g, rtol=1e-3, atol=1e-9)


def test_on_paper_more_devices_help_until_the_slowest_candidate_is_alone() -> None:
    from tests.benchmarks import on_paper

    cost = on_paper.Cost(whole=2.0, mean=1.0)
    tasks = {size: count * on_paper.STEPS["reduced"][size] for size, count in on_paper.TASKS.items()}
    mini_batches = sum(tasks.values())  # of one candidate
    assert [on_paper.of_a_stream(shares, cost, "reduced") / mini_batches for shares in (1, 8, 22, 43)] == [
        43, 6, 2, 2,
    ]  # fmt: skip
    assert round(on_paper.checkpoint(64)) == 102, "the published memory"


@pytest.mark.all
def test_costs_on_paper_are_measured(capsys) -> None:
    from tests.benchmarks import on_paper

    on_paper.show(on_paper.on_cpu(repeats=1, part=0.1), on_paper.on_gpu(10, width=4, batch=2))
    assert capsys.readouterr().out.count("\n| ") == 2 + 8


def test_operations_on_paper_are_those_of_a_layer_by_hand() -> None:
    from tests.benchmarks import on_paper

    least = on_paper.operations(width=4, reused=6, batch=2)  # the head alone is trained
    whole = on_paper.operations(width=4, reused=0, batch=2)
    head = 2 * 2 * 4 * 10  # a product and a sum for each image, input and output
    forward = least - head
    assert 2 < whole / forward < 3  # backward is twice as much, but for the first layer's inputs


@pytest.mark.all
@pytest.mark.skipif(not (against.ROOT / ".git").exists(), reason="needs a git checkout")
def test_two_revisions_are_compared_row_by_row_in_turns(capsys) -> None:
    against.main(["HEAD", "--pairs", "2", "--only", "1", "3"])
    rows = [line.split(" | ") for line in capsys.readouterr().out.splitlines()[2:]]
    assert [row[0] for row in rows] == ["| compare 1", "| compare 3"]
    assert all(0.2 < float(row[1]) < 5 for row in rows)
