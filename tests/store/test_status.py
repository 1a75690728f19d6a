"""Who looks on takes nothing away."""

from __future__ import annotations

from pathlib import Path

import pytest
from filelock import FileLock

from cl_lightning.errors import Refusal
from cl_lightning.store.folder import is_held, locked
from cl_lightning.store.status import Status, read_status, status_kept, write_status


def test_a_look_at_a_folder_keeps_no_process_from_locking_it(tmp_path: Path, monkeypatch) -> None:
    """A look has the lock for an instant: whoever comes in that instant waits for the next."""
    look = FileLock(tmp_path / "lock")
    look.acquire()
    monkeypatch.setattr("time.sleep", lambda _: look.release())
    with locked(tmp_path):
        assert not look.is_locked
    assert not (tmp_path / "holder.json").exists()


def test_two_looks_at_once_do_not_take_each_other_for_a_process_at_work(tmp_path: Path, monkeypatch) -> None:
    look = FileLock(tmp_path / "lock")
    look.acquire()
    monkeypatch.setattr("time.sleep", lambda _: look.release())
    assert not is_held(tmp_path)


def test_a_folder_that_is_at_work_is_held_and_another_process_is_refused(tmp_path: Path) -> None:
    assert not is_held(tmp_path)
    assert not list(tmp_path.iterdir()), "a look leaves nothing"
    with locked(tmp_path):
        assert is_held(tmp_path)
        with pytest.raises(Refusal, match="is in use by process"), locked(tmp_path):
            pass
    assert not is_held(tmp_path)


def test_a_run_that_is_refused_when_it_goes_on_has_learned_what_it_had(tmp_path: Path) -> None:
    write_status(tmp_path, Status("interrupted", learned=1, tasks=3))
    with pytest.raises(Refusal), status_kept(tmp_path):
        raise Refusal("Another version made it.")
    assert str(read_status(tmp_path)) == "failed after 1 of 3 tasks"
