"""Joint and independent runs are found by what they are, and others are measured against them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cl_lightning.report.compare import table
from cl_lightning.report.groups import COLUMNS, groups_in
from cl_lightning.report.notes import notes
from cl_lightning.report.reading import runs_in
from cl_lightning.report.references import References
from tests.report.whole import stream_of, task, task_costs, write_whole_results

OWN = [[0.1, 0.2, 0.1], [0.9, 0.2, 0.1], [0.7, 0.8, 0.3], [0.5, 0.6, 0.7]]
JOINT = [[0.0] * 3, [0.9, 0.2, 0.1], [0.9, 0.8, 0.1], [0.9, 0.7, 0.8]]
ALONE = [[0.1] * 3, [0.8, 0.1, 0.1], [0.8, 0.85, 0.1], [0.8, 0.85, 0.6]]
BY_HAND = {
    "forgetting_ratio": 1 - ((0.5 - 0.1) / (0.9 - 0.1) + (0.6 - 0.2) / (0.7 - 0.2) + (0.7 - 0.1) / 0.7) / 3,
    "transfer": 0.7 - 0.6,
    "forward_from_independent": ((0.8 - 0.85) + (0.7 - 0.6)) / 2,
}


def made(folder: Path, name: str, learner: str, matrix: list[list[Any]], seed: int = 0, **more: Any) -> None:
    config = {
        "learner": {"_target_": f"cl_lightning.learners.{learner}", **more.pop("keys", {})},
        "backbone": {"_target_": "cl_lightning.backbones.MLP", "sizes": [9], **more.pop("backbone", {})},
        "stream": {"head": "domain"}, "trainer": {}, "data": {},
    }  # fmt: skip
    stream = {**stream_of(task(), task(), task()), "fingerprint": more.pop("stream", "s")}
    write_whole_results(
        folder / f"{name}-{seed}", learner=name, seed=seed, config=config, stream=stream,
        accuracy_matrix=matrix, fingerprint=more.pop("fingerprint", name), costs=[task_costs(0)], **more,
    )  # fmt: skip


def values(folder: Path, name: str = "ewc") -> dict[str, float | None]:
    runs = runs_in([folder]).results
    (run,) = [run for run in runs if run["learner"] == name]
    return References(runs).values(run)


def test_ratio_transfer_and_forward_transfer_are_those_worked_out_by_hand(tmp_path: Path) -> None:
    made(tmp_path, "ewc", "EWC", OWN)
    made(tmp_path, "upper", "Joint", JOINT, backbone={"heads": "shared"})
    made(tmp_path, "apart", "Independent", ALONE)
    assert values(tmp_path) == pytest.approx(BY_HAND)
    heads, rows = table(groups_in([tmp_path]))
    (row,) = [row for row in rows if row[0] == "ewc"]
    for name, value in BY_HAND.items():
        assert row[heads.index(COLUMNS[name])] == f"{value:.3f}"
    (line,) = [line for line in notes(groups_in([tmp_path])) if "ewc" in line and "against" in line]
    assert "orgetting ratio: against joint" in line
    assert "T and FWT from independent: against independent" in line


def test_an_untrained_network_is_the_runs_own_or_the_joint_ones(tmp_path: Path) -> None:
    """A learner that cannot predict a task before it learns it has no row of its own."""
    blind = [[None] * 3, [0.9, None, None], [0.7, 0.8, None], [0.5, 0.6, 0.7]]
    made(tmp_path, "ewc", "EWC", blind)
    made(tmp_path, "joint", "Joint", JOINT)
    ratio = 1 - (0.5 / 0.9 + 0.6 / 0.7 + 0.7 / 0.8) / 3
    assert values(tmp_path) == {"forgetting_ratio": pytest.approx(ratio)}


@pytest.mark.parametrize(
    "other",
    [
        {"seed": 1},
        {"stream": "another"},
        {"backbone": {"sizes": [10]}},
        {"keys": {"split_width": True}},
        {"keys": {"start": "clone"}},
        {"finished": False},
    ],
    ids=str,
)
def test_a_run_of_another_stream_seed_network_or_kind_is_no_reference(
    other: dict[str, Any], tmp_path: Path
) -> None:
    made(tmp_path, "ewc", "EWC", OWN)
    made(tmp_path, "independent", "Independent", ALONE, **other)
    assert values(tmp_path) == {}


def test_of_several_joint_runs_none_is_taken_and_a_line_says_so(tmp_path: Path) -> None:
    made(tmp_path, "ewc", "EWC", OWN)
    made(tmp_path, "joint", "Joint", JOINT)
    made(tmp_path, "longer", "Joint", JOINT)
    assert values(tmp_path) == {}
    lines = [line for line in notes(groups_in([tmp_path])) if line.startswith("No forgetting ratio")]
    assert lines == [
        "No forgetting ratio: 2 runs of joint have this stream, seed and network, in gem_rotations ewc."
    ]


def test_a_reference_that_the_run_trained_itself_comes_first(tmp_path: Path) -> None:
    made(tmp_path, "ewc", "EWC", OWN, reference={"task": 2, "accuracy": 0.5, "transfer": 0.2})
    made(tmp_path, "independent", "Independent", ALONE)
    assert "transfer" not in values(tmp_path)
    heads, rows = table(groups_in([tmp_path]))
    assert [row[heads.index("T")] for row in rows if row[0] == "ewc"] == ["0.200"]


def test_where_joint_training_is_no_better_than_chance_there_is_no_ratio(tmp_path: Path) -> None:
    made(tmp_path, "ewc", "EWC", OWN)
    made(tmp_path, "joint", "Joint", [*JOINT[:3], OWN[0]])
    assert values(tmp_path) == {"forgetting_ratio": None}
