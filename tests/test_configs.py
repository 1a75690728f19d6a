"""Configurations explain themselves, and all of them run."""

from __future__ import annotations

import re
from contextlib import nullcontext
from pathlib import Path

import pytest

from cl_lightning.data.task import HEAD_MODES
from cl_lightning.errors import Refusal
from cl_lightning.report.help import GROUPS, first_comment
from cl_lightning.runs import conf_dir
from tests.commands import configure, run

FILES = sorted(Path(conf_dir()).rglob("*.yaml"))
EXPERIMENTS = sorted(path.stem for path in (Path(conf_dir()) / "experiment").glob("*.yaml"))
STUDIES = {"gem_passes": "gem_rotations", "gem_memory": "gem_rotations", "gem_table1": "gem_permutations"}  # sweeps of experiments


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_key_has_a_comment(path: Path) -> None:
    bare = []
    opens_a_level = re.compile(r"^\s*(- )?[\w/ ]+:\s*(&\w+)?$")
    for line in path.read_text().splitlines():
        is_key = re.match(r"^\s*[\w]+:", line)
        if is_key and "#" not in line and not opens_a_level.match(line):
            bare.append(line.strip())
    assert not bare


@pytest.mark.parametrize("path", [p for p in FILES if p.parent != Path(conf_dir())], ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_choice_begins_with_a_line_for_the_help_page(path: Path) -> None:
    assert 10 < len(first_comment(path)) < 110


def test_the_groups_are_those_of_the_layout() -> None:
    folders = {str(path.parent.relative_to(conf_dir())) for path in FILES}
    assert folders == {".", "data/sources", *GROUPS}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiment_has_its_own_name(name: str) -> None:
    assert configure(f"+experiment={name}").name == STUDIES.get(name, name)


LEARNERS = ["finetune", "independent", "independent_gem", "joint", "gem"]
REFUSED = [("split_single_head", "independent"), ("split_single_head", "independent_gem")]  # the task's number at test is not given
SMALLER = ["stream.tasks=3", "stream.n_train=60", "stream.n_test=100"]


@pytest.mark.parametrize("learner", LEARNERS)
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_runs_with_every_learner_that_it_gives_what_it_needs(name: str, learner: str, tmp_path: Path) -> None:
    refused = pytest.raises(Refusal, match=r"grants\.task_id_at_test=false")
    with refused if (name, learner) in REFUSED else nullcontext():
        results = run(tmp_path, f"+experiment={name}", f"learner={learner}", "progress=false", *SMALLER, small=False)
        assert results["name"] == STUDIES.get(name, name)


SENSIBLE = [
    *(("shared", head) for head in HEAD_MODES),
    ("per_task", "multi_train_test"),
    ("per_task", "domain"),
]  # test_experiment has the rest


@pytest.mark.parametrize(("heads", "head"), SENSIBLE)
def test_every_head_mode_runs_that_makes_sense(heads: str, head: str, tmp_path: Path) -> None:
    assert run(tmp_path, f"stream.head={head}", f"backbone.heads={heads}")["metrics"]["average_accuracy"] > 0.1
