"""``python -m cl_lightning.report status``: how runs and sweeps fare, and their size on disk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cl_lightning.cli.parser import parser_of_runs
from cl_lightning.cli.slurm import left_in
from cl_lightning.report.layout import Column, new_console, say, tables
from cl_lightning.selection.sweep import JOBS, name_of, read_jobs
from cl_lightning.store.folder import is_held, read_holder
from cl_lightning.store.status import status_of


def report_status(arguments: Sequence[str]) -> int:
    what = "Tell how all runs and sweeps fare, and their size on disk."
    console, columns = new_console(), [Column("run", text=True), Column("state", text=True), Column("MB")]
    for top in parser_of_runs("status", what).parse_args(arguments).folders:
        rows, said = [], []
        sweeps = sorted({path.parent.parent for path in top.rglob(f"{JOBS}/*.json")})
        for folder in sweeps:
            rows.append([str(folder.relative_to(top)), state_of_sweep(folder), megabytes(folder)])
            said += failures_of(folder)
        for folder in runs_below(top):
            status = status_of(folder)
            state = "done" if status is None else str(status)
            rows.append([str(folder.relative_to(top)), state, megabytes(folder)])
            if status is not None and status.said:
                said.append(f"{folder}: {' '.join(status.said.splitlines())}")
        say(console, f"Runs in {top}" if rows else f"No run lies in {top}.")
        console.print(*tables(columns, rows, console.width), sep="\n")
        for line in said:
            say(console, line)
    return 0


def runs_below(top: Path) -> list[Path]:
    """Folders of runs, which have said how they fare or are finished."""
    return sorted({path.parent for name in ("status.json", "results.json") for path in top.rglob(name)})


def megabytes(folder: Path) -> str:
    return f"{sum(path.stat().st_size for path in folder.rglob('*') if path.is_file()) / 1e6:.1f}"


def state_of_sweep(folder: Path) -> str:
    """Who runs a sweep, and how many of its jobs are done, failed, running and waiting."""
    held = is_held(folder)
    left = left_in(folder)
    states = Counter(state_of_job(job, held or n in left) for n, job in enumerate(read_jobs(folder)))
    counts = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
    if left:
        return f"sweep with Slurm ({len(left)} jobs there): {counts}"
    if not held:
        open_ = states["missing"] + states["running"]  # jobs may outlive a sweep that was killed
        return f"sweep {'interrupted' if open_ else 'done'}: {counts}"
    holder = read_holder(folder / "holder.json")
    return f"sweep running by process {holder['process']} on {holder['machine']}: {counts}"


def state_of_job(job: dict[str, Any], held: bool) -> str:
    """The state of a job by what it has said, in a sweep that is held by a process or not. A job can go on
    without its sweep, and then holds its run."""
    if said := next((state for state in ("done", "failed") if state in job), None):
        return said
    if "folder" in job and (held or is_held(Path(job["folder"]))):
        return "running"
    return "waiting" if held else "missing"


def failures_of(folder: Path) -> list[str]:
    """Lines for the jobs that failed and whose runs do not say so: they were refused before, or in use."""
    jobs = read_jobs(folder)
    names = [job.get("overrides", []) for job in jobs]
    lines = []
    for job, own in zip(jobs, names):
        status = status_of(Path(job["folder"])) if "folder" in job else None
        if "failed" in job and not (status and status.said):
            lines.append(f"{folder}: {name_of(own, names)}: {' '.join(job['failed'].splitlines())}")
    return lines
