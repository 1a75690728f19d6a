"""The folder of a run: which process has locked it, where the run goes on, and what a branch copies from
another run."""

from __future__ import annotations

import json
import os
import platform
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from filelock import FileLock, Timeout

from cl_lightning.errors import InUse, Refusal
from cl_lightning.store.atomic import is_there, naming, read_json
from cl_lightning.store.files import Store, adapter, content_of
from cl_lightning.store.records import FORMAT, Row, RowRecord, StartRecord, StreamRecord, TaskRecord

T = TypeVar("T")
AFRESH = "Start afresh with resume=false."


def task_key(index: int) -> str:
    return f"tasks/{index:03d}"


def row_key(learned: int) -> str:
    return f"rows/{learned:03d}"


# ---- the lock ----------------------------------------------------------------------------------------------


@contextmanager
def locked(folder: Path, wait: float = 0.5) -> Iterator[None]:
    """Lock the folder of a run or sweep for this process alone; who only looks whether it is held
    (``is_held``) has it for an instant, and is waited for. The lock's file is never removed: a process that
    waits for the old file and one that makes a new one would both go on."""
    folder.mkdir(parents=True, exist_ok=True)
    lock, holder = FileLock(folder / "lock"), folder / "holder.json"
    try:
        with naming(folder):
            lock.acquire(timeout=wait, poll_interval=0.02)
    except Timeout as reason:
        who = read_holder(holder)
        raise InUse(
            f"{folder} is in use by process {who['process']} on {who['machine']}, which is running the same "
            "command. Wait for it, or stop it: a folder belongs to one process at a time."
        ) from reason
    try:
        with naming(folder):
            holder.write_text(json.dumps({"process": os.getpid(), "machine": platform.node()}))
            yield
    finally:
        holder.unlink(missing_ok=True)
        lock.release()


def refuse_beside_jobs(folder: Path) -> None:
    """Refuse to go on with a run while jobs that have outlived their sweep train shares of it."""
    for lock in folder.glob("work/*/*/lock"):
        with locked(lock.parent):
            pass


def is_held(folder: Path) -> bool:
    """Whether a process has locked a folder."""
    if not (folder / "lock").exists():
        return False
    try:
        with FileLock(folder / "lock").acquire(timeout=0.1, poll_interval=0.02):  # another may look, too
            return False
    except (Timeout, OSError):
        return True


def read_holder(path: Path) -> dict[str, Any]:
    """Which process holds a folder, and on which machine."""
    return {"process": "unknown", "machine": "unknown", **read_json(path)}


def discard(folder: Path) -> None:
    """Remove the files of an earlier run; refuse a folder that holds something else."""
    if not folder.is_dir():
        return
    (folder / "status.json").unlink(missing_ok=True)
    left = [path for path in folder.iterdir() if path.name not in ("lock", "holder.json", "status.json")]
    if left and not ((folder / "run.json").is_file() or has_records(folder)):
        raise Refusal(
            f"{folder} is not empty and holds no run, so resume=false will not remove it. Move it away, or "
            "set outputs= to another folder."
        )
    for path in left:
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def has_records(folder: Path) -> bool:
    return any(any(folder.glob(f"{name}/[0-9][0-9][0-9]*")) for name in ("tasks", "rows"))


# ---- where it goes on --------------------------------------------------------------------------------------


def open_store(folder: Path) -> tuple[Store, StartRecord] | None:
    """The records of a run and what it is; None where there are none."""
    path = folder / "run.json"
    if not is_there(path):
        return None
    content = content_of(path)
    if content is None or content["key"] != "run":
        raise Refusal(f"{path}, which says what the run in this folder is, is damaged. {AFRESH}")
    if content["record"].get("format") != FORMAT:
        raise Refusal(
            f"The run in {folder} was written by a version of this program that kept its records in another "
            f"way. {AFRESH}"
        )
    return Store(folder, content["run"]), adapter(StartRecord).validate_python(content["record"])


def start_run(folder: Path, make: Callable[[], StartRecord]) -> tuple[Store, StartRecord]:
    """The records of a run and what it is: of one that was begun before, or of a new one."""
    if found := open_store(folder):
        return found
    if has_records(folder):
        raise Refusal(f"{folder / 'run.json'}, which says what the run in this folder is, is gone. {AFRESH}")
    store = Store(folder, secrets.token_hex(8))
    return store, store.save("run", make())


def learned_tasks(store: Store) -> int:
    """How many tasks, from the first on, have all their records, and a learner after the last of them."""
    whole = 0
    while (
        store.load(row_key(whole), RowRecord) is not None
        and store.load(task_key(whole), TaskRecord) is not None
    ):
        whole += 1
    while whole and store.saved(task_key(whole - 1)) is None:
        whole -= 1
        while whole and not is_there(store.folder / f"{task_key(whole - 1)}.pt"):
            whole -= 1
    return whole


def go_back_to(store: Store, learned: int) -> None:
    """Remove all records of work after the first ``learned`` tasks, the last ones first: whatever ends this,
    no record is left behind one that is gone."""
    rows, tasks = (numbers_in(store.folder / name, "json") for name in ("rows", "tasks"))
    there = [2 * i for i in rows] + [2 * i + 1 for i in tasks]  # places in the order in which all are written
    behind = sorted((place for place in there if place > 2 * learned), reverse=True)
    if not behind:
        return
    refuse_gaps(store.folder, there)
    for key in ("validation", "reference", "work", *map(key_at, behind)):
        store.drop(key)


def key_at(place: int) -> str:
    """The key of the record that is written at this place: a row, a task, the next row and so on."""
    return (task_key if place % 2 else row_key)(place // 2)


def refuse_gaps(folder: Path, there: list[int]) -> None:
    """Refuse to remove anything where a record does not show, and what was written after it does: a disk that
    machines share may be late. ``there`` are the places of the records that show."""
    lacking = [key_at(place) for place in range(max(there)) if place not in there]
    tasks, learners = numbers_in(folder / "tasks", "json"), numbers_in(folder / "tasks", "pt")
    newest = max(learners, default=-1)
    if tasks and newest > tasks[-1] and tasks[-1] not in learners:  # it goes after the next record
        lacking.append(task_key(newest))
    if lacking:
        raise Refusal(
            f"{folder / lacking[0]}.json does not show, but what was written after it does: it is gone, or "
            "another machine wrote it and the disk is late. Nothing is removed.\n"
            "Repeat the command in a minute. If it is gone, put it back or start afresh with resume=false."
        )


def numbers_in(folder: Path, suffix: str) -> list[int]:
    """The numbers of the files in a folder that have this suffix."""
    return sorted(int(path.stem) for path in folder.glob(f"*.{suffix}") if path.stem.isdigit())


def keep_newest(store: Store, index: int) -> None:
    """Remove the stored learners of all tasks but that after task ``index``."""
    for path in (store.folder / "tasks").glob("*.pt"):
        if path.name != f"{index:03d}.pt":
            path.unlink(missing_ok=True)


def is_writable(folder: Path) -> bool:
    return os.access(folder, os.W_OK)


# ---- branches ----------------------------------------------------------------------------------------------


def branch(store: Store, stream: StreamRecord, run: Path, task: int) -> None:
    """Copy what another run had learned before a task: its records become this run's. Doing it twice changes
    nothing."""
    found = open_store(run)
    if found is None:
        raise Refusal(f"run={run} holds no run. Give the folder of a run: the one that has run.json in it.")
    other, start = found
    learned = learned_tasks(other)
    if not 1 <= task <= learned:
        raise Refusal(
            f"run={run} has not learned the task before from_task={task}, or its records are damaged. Choose "
            f"from 1 to the number of tasks it has learned ({learned})."
        )
    differing = [i for i in range(task) if stream.prints[i : i + 1] != start.stream.prints[i : i + 1]]
    if differing:
        raise Refusal(
            f"run={run} learned another task {differing[0]} than this stream's. Keep stream, seed and data "
            "settings as they were"
            + (f", or choose from_task={differing[0]} or less." if differing[0] else ".")
        )
    saved = other.saved(task_key(task - 1))
    if saved is None:
        raise Refusal(
            f"run={run} has no whole learner after task {task - 1}. Choose another from_task, or make that "
            "run again with checkpoints=all."
        )
    for index in range(task):
        record, row = other.load(task_key(index), TaskRecord), other.load(row_key(index), RowRecord)
        assert record is not None, "it was counted"
        assert row is not None, "it was counted"
        store.save(row_key(index), of_this_stream(row, start.stream.prints, stream.prints))
        here = store.folder / f"{task_key(index)}.pt"
        if index == task - 1:
            here.parent.mkdir(exist_ok=True)
            shutil.copy2(other.folder / saved.file, here)
        store.save(task_key(index), record, saved if index == task - 1 else None)
    if (row := other.load(row_key(task), RowRecord)) is not None:
        store.save(row_key(task), of_this_stream(row, start.stream.prints, stream.prints))


def of_this_stream(row: RowRecord, then: list[str], now: list[str]) -> RowRecord:
    """A row of another run for this stream: None for tasks that are not the same in both."""
    same = [i < len(then) and then[i] == now[i] for i in range(len(now))]

    def cut(rows: dict[str, Row]) -> dict[str, Row]:
        return {name: [value if unchanged else None for unchanged, value in zip(same, fitted(each, len(now)))]
                for name, each in rows.items()}  # fmt: skip

    measures = {name: cut(rows) for name, rows in row.measures.items()}
    return replace(row, rows=cut(row.rows), measures=measures)


def fitted(accuracies: list[float | None], tasks: int) -> list[float | None]:
    return [*accuracies, *[None] * tasks][:tasks]
