"""Going on where a run was left: who holds it, what it was made with, and its last good boundary."""

from __future__ import annotations

import json
import os
import platform
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout
from omegaconf import DictConfig, OmegaConf

from cl_lightning.errors import Refusal
from cl_lightning.runs import environment, versions

if TYPE_CHECKING:
    from cl_lightning.data.stream import Stream
    from cl_lightning.journal import Journal
    from cl_lightning.learners.base import Learner


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """The run's folder for this process alone."""
    folder.mkdir(parents=True, exist_ok=True)
    lock, holder = FileLock(folder / "lock"), folder / "holder.json"
    try:
        lock.acquire(timeout=0)
    except Timeout as reason:
        who = json.loads(holder.read_text()) if holder.is_file() else {"process": "unknown", "machine": "unknown"}
        raise Refusal(
            f"{folder} is held by process {who['process']} on {who['machine']}, which is running the same command. "
            "Wait for it, or stop it: a run belongs to one process at a time."
        ) from reason
    try:
        holder.write_text(json.dumps({"process": os.getpid(), "machine": platform.node()}))
        yield
    finally:
        holder.unlink(missing_ok=True)
        lock.release()
        (folder / "lock").unlink(missing_ok=True)


def discard(folder: Path) -> None:
    """Remove what an earlier run left, and nothing that is none."""
    if not folder.is_dir():
        return
    left = [path for path in folder.iterdir() if path.name not in ("lock", "holder.json")]
    if left and not (folder / "journal.jsonl").is_file():
        raise Refusal(
            f"{folder} is not empty and holds no run, so resume=false will not remove it. Move it away, or set outputs= to another folder."
        )
    for path in left:
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def open_journal(cfg: DictConfig, folder: Path, stream: Stream, command: Sequence[str]) -> Journal:
    """A new journal, or that of an interrupted run of the same program on the same examples."""
    from cl_lightning.journal import FORMAT, Journal

    journal, now = Journal(folder), versions(cfg)
    start = journal.find("start")
    if start is None:
        OmegaConf.save(cfg, folder / "config.yaml", resolve=True)
        journal.append("start", format=FORMAT, version=now, command=list(command), environment=environment(), stream=stream.fingerprint)
        if (cfg.run is None) != (cfg.from_task is None):
            raise Refusal("A branch needs run=, the folder of a run, and from_task=, the first task to learn anew. Give both or neither.")
        if cfg.run is not None:
            branch(journal, Path(cfg.run), int(cfg.from_task), stream)
        return journal
    check_format(start, folder, "Start afresh with resume=false.")
    if start["stream"] != stream.fingerprint:
        raise Refusal(
            f"The interrupted run in {folder} was made on other images ({start['stream']}) than are here now ({stream.fingerprint}). "
            "Bring those back, or start afresh with resume=false."
        )
    difference = changed(start["version"], now)
    if difference and cfg.resume != "anyway":
        raise Refusal(
            f"The interrupted run in {folder} cannot go on: {difference}\nStart afresh with resume=false, or go on with resume=anyway."
        )
    return journal


def branch(journal: Journal, run: Path, task: int, stream: Stream) -> None:
    """Take over what another run had learned before a task."""
    from cl_lightning.journal import Journal, read_rows

    rows = read_rows(run / "journal.jsonl") if (run / "journal.jsonl").is_file() else []
    start = next((row for row in rows if row["event"] == "start"), None)
    if start is None:
        raise Refusal(f"run={run} holds no journal. Give the folder of a run: the one that has results.json or journal.jsonl in it.")
    check_format(start, run, "Run it again with this version first.")
    if start["stream"] != stream.fingerprint:
        raise Refusal(
            f"run={run} learned another stream ({start['stream']}) than this one ({stream.fingerprint}). Keep stream and data settings."
        )
    boundary = next((i for i, row in enumerate(rows) if row["event"] == "boundary" and row["task"] == task - 1), None)
    if boundary is None:
        raise Refusal(f"run={run} has not learned the task before from_task={task}. Choose from 1 to the number of tasks it has learned.")
    other = Journal(run)
    kept = [row for row in rows[: boundary + 1] if row["event"] in ("phase", "probe", "boundary", "evaluated")]
    kept += [row for row in rows[boundary + 1 :] if row["event"] == "evaluated" and row["learned"] == task][:1]
    if not other.intact(rows[boundary]["saved"]):
        raise Refusal(f"The checkpoint before task {task} in run={run} is damaged. Choose an earlier from_task.")
    shutil.copy2(other.place(rows[boundary]["saved"]), journal.place(rows[boundary]["saved"]))
    for row in kept:
        journal.append(row.pop("event"), **row)


def check_format(start: dict, folder: Path, remedy: str) -> None:
    from cl_lightning.journal import FORMAT

    if start.get("format") != FORMAT:
        raise Refusal(f"The run in {folder} was written by a version of this program that kept its records in another way. {remedy}")


def restore(learner: Learner, journal: Journal) -> tuple[int, dict]:
    """Load the newest boundary whose checkpoint is whole; returns the number of tasks learned, and the optimizer's moments there."""
    while boundaries := [i for i, row in enumerate(journal.rows) if row["event"] == "boundary"]:
        newest = journal.rows[boundaries[-1]]
        if journal.intact(newest["saved"]):
            state = journal.load(newest["saved"])
            learner.load_state_dict(state["learner"])
            return len(boundaries), state["moments"]
        journal.rewind((boundaries[-2] if len(boundaries) > 1 else first_row(journal)) + 1)
    return 0, {}


def first_row(journal: Journal) -> int:
    return next(i for i, row in enumerate(journal.rows) if row["event"] == "start")


def changed(then: dict[str, str], now: dict[str, str]) -> str | None:
    """A sentence where the program is not the one that made the run."""
    parts = [f"{key} {then.get(key)} (now {now[key]})" for key in now if then.get(key) != now[key]]
    return f"it was made with {', '.join(parts)}." if parts else None
