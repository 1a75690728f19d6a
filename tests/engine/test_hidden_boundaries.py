"""Hidden boundaries: no hook of a task is called, mini-batches have no ids, and the optimizer goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from cl_lightning.learners import Finetune
from tests.commands import SMALL, command, run

HIDDEN = (
    "selection=none", "stream.head=single", "stream.n_val=0", "trainer.patience=null",
    "trainer.optimizer=sgd", "trainer.lr=0.1", "trainer.momentum=0.9", "trainer.optimizer_state=carry",
)  # fmt: skip
SEEN: list[tuple] = []


class Watches(Finetune):
    """Notes what it is told."""

    def extend(self, batch):
        SEEN.append((batch.task, batch.learning))
        return batch.cat(batch.x[:1], batch.y[:1])

    def after_step(self, c, batch):
        SEEN.append((batch.task, batch.learning, len(batch)))


def test_mini_batches_have_no_ids_and_a_memory_of_examples_needs_none(tmp_path: Path) -> None:
    SEEN.clear()
    run(tmp_path, *HIDDEN, f"learner._target_={__name__}.Watches", "grants.boundaries=false")
    assert {seen[:2] for seen in SEEN} == {(None, 0)}
    assert {seen[2] for seen in SEEN[1::2]} == {65, 37}, "100 examples in mini-batches of 64, and one more"


def test_what_is_hidden_changes_nothing_for_a_learner_that_never_looks(tmp_path: Path) -> None:
    """The same numbers as with boundaries that are told, momentum carried in both; another one without."""
    common = (*HIDDEN, "learner=finetune", "trainer.measures=[nll]")
    told, hidden = (run(tmp_path, *common, f"grants.boundaries={told}") for told in ("true", "false"))
    reset = run(tmp_path, *common, "trainer.optimizer_state=reset")
    assert hidden["measures"] == told["measures"] != reset["measures"]
    assert hidden["fingerprint"] != told["fingerprint"]
    assert "boundaries" not in told["config"]["grants"]


class Ends(Finetune):
    def on_task_end(self, task):
        raise AssertionError("told of an end")


def test_the_hooks_of_a_task_are_not_called(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("cl_lightning.runs.resume.check_hidden", lambda *_: None)
    run(tmp_path, *HIDDEN, f"learner._target_={__name__}.Ends", "grants.boundaries=false")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["learner=ewc"], "EWC needs to know where tasks begin and end (it has on_task_end of its own)"),
        (["learner=vcl"], "it has on_task_start, learn of its own"),
        (["learner=er"], "on_task_end of its own"),
        (["stream.head=multi_test"], "stream.head=multi_test needs the ids of tasks"),
        (["backbone.heads=per_task"], "backbone.heads=shared"),
        (["trainer.optimizer_state=reset"], "Set trainer.optimizer_state=carry"),
    ],
)  # fmt: skip
def test_what_needs_boundaries_is_refused(words: list[str], said: str, tmp_path: Path) -> None:
    ended = command(*SMALL, *HIDDEN, "grants.boundaries=false", *words, cwd=tmp_path, check=False)
    assert ended.returncode == 2
    assert said in ended.stderr
