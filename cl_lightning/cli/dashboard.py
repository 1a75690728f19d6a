"""``python -m cl_lightning.report wandb RUN…``: runs and sweeps sent to Weights & Biases from their files.

And ``report panels``: the panels of its dashboard, drawn here from the same points."""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from cl_lightning.cli.parser import Parser
from cl_lightning.errors import Refusal
from cl_lightning.selection.sweep import read_jobs


def report_wandb(arguments: Sequence[str]) -> int:
    parser = Parser(
        prog="python -m cl_lightning.report wandb",
        description="Send runs and sweeps to Weights & Biases: finished ones, and those that were killed, "
        "were offline, or are other people's. Each becomes a new W&B run with all of its points.",
    )
    parser.add_folders("folders to look for runs and sweeps in", needed=True)
    parser.add_argument("--project", help="on W&B; default: the run's own, as in conf/logger/wandb.yaml")
    parser.add_argument("--entity", help="user or team; default: the run's own")
    switch = argparse.BooleanOptionalAction
    parser.add_argument("--offline", action=switch, help="write files, to be sent later")
    parser.add_argument("--tags", nargs="*", metavar="TAG", help="in the place of the run's own")
    parser.add_argument("--checkpoints", action=switch, help="send the stored learners, too")
    given = vars(parser.parse_args(arguments))
    chosen = {
        key: given[key] for key in ("project", "entity", "tags", "checkpoints") if given[key] is not None
    }
    if given["offline"] is not None:
        chosen["mode"] = "offline" if given["offline"] else "online"
    if given["entity"] == "":
        chosen["entity"] = None  # W&B's default
    code = 0
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_, **__: print(f"Warning: {message}", file=sys.stderr)
        for folder in found_below(given["folders"], "sweep.json"):  # one that fails keeps none back
            try:
                code = code if send(folder, chosen) else 2
            except Refusal as refusal:
                print(refusal, file=sys.stderr)
                code = 2
    return code


def report_panels(arguments: Sequence[str]) -> int:
    from cl_lightning.report.panels import draw_panels

    parser = Parser(
        prog="python -m cl_lightning.report panels",
        description="Draw the panels of docs/dashboard.md from runs, as PNG files: a line a run.",
    )
    parser.add_folders("folders to look for runs in", needed=True)
    parser.add_argument(
        "--out", type=Path, default=Path("panels"), help="folder for the files (default: panels)"
    )
    options = parser.parse_args(arguments)
    print(*draw_panels(found_below(options.folders), options.out), sep="\n")
    return 0


def found_below(folders: Sequence[Path], *also: str) -> list[Path]:
    """Folders with a run, or with another of some files."""
    found = {path.parent for top in folders for name in ("run.json", *also) for path in top.rglob(name)}
    if not found:
        raise Refusal(
            f"No run (run.json) lies below {', '.join(map(str, folders))}. Give folders of runs, like "
            "outputs/NAME."
        )
    return sorted(found)


def send(folder: Path, chosen: dict[str, Any]) -> bool:
    """Send the run or the sweep in a folder, with the options that were chosen, else its own, else those of
    conf/logger/wandb.yaml. A sweep's own are those of its first run. Returns whether W&B took it."""
    from cl_lightning.loggers.wandb_run import options_of, send_run
    from cl_lightning.loggers.wandb_service import Account
    from cl_lightning.loggers.wandb_sweep import runs_of, send_sweep

    is_run = (folder / "run.json").is_file()
    options = {**options_of(folder if is_run else next(iter(runs_of(folder)), folder)), **chosen}
    account = Account(options["project"], options["entity"], options["mode"], options["timeout"])
    if is_run:
        job_type: Literal["run", "point"] = "point" if is_of_a_sweep(folder) else "run"
        return send_run(folder, account, options["tags"], options["checkpoints"], job_type)
    return send_sweep(folder, account, options["tags"])


def is_of_a_sweep(folder: Path) -> bool:
    """Whether a sweep beside the learners of the run's experiment names it: in its record, or, where it was
    interrupted and has none, in what its jobs have said. (Those have full paths, also in a copy.)"""
    from cl_lightning.loggers.wandb_sweep import runs_of

    own = folder.resolve()
    for sweep in own.parent.parent.glob("sweeps/*"):
        said = [Path(job["folder"]) for job in read_jobs(sweep) if "folder" in job]
        with suppress(Refusal, OSError):  # a record that is damaged, or not there yet
            if own in runs_of(sweep):
                return True
        if any(path.parts[-2:] == own.parts[-2:] for path in said):
            return True
    return False
