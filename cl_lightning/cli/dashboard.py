"""``python -m cl_lightning.report wandb RUN…``, and ``tensorboard RUN…``: runs sent to Weights & Biases, or
written for TensorBoard, from their files."""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Sequence

from cl_lightning.cli.parser import parser_of_runs
from cl_lightning.errors import Refusal, plain
from cl_lightning.report.results import run_folders


def report_wandb(arguments: Sequence[str]) -> int:
    what = (
        "Send runs to Weights & Biases: finished ones, and those that were killed, were offline, or are "
        "other people's. Each becomes a new W&B run with all of its points."
    )
    parser = parser_of_runs("wandb", what, needed=True)
    parser.add_argument("--project", help="on W&B; default: the run's own, as in conf/logger/wandb.yaml")
    parser.add_argument("--entity", help="user or team; default: the run's own")
    switch = argparse.BooleanOptionalAction
    parser.add_argument("--offline", action=switch, help="write files, to be sent later")
    parser.add_argument("--tags", nargs="*", metavar="TAG", help="in the place of the run's own")
    parser.add_argument("--checkpoints", action=switch, help="send the stored learners, too")
    chosen = {key: value for key, value in vars(parser.parse_args(arguments)).items() if value is not None}
    from cl_lightning.loggers.wandb_run import options_of, send_run  # late: --help needs none of them
    from cl_lightning.loggers.wandb_service import Account

    folders, code = chosen.pop("folders"), 0
    if "offline" in chosen:
        chosen["mode"] = "offline" if chosen.pop("offline") else "online"
    if chosen.get("entity") == "":
        chosen["entity"] = None  # W&B's default
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_, **__: print(plain(f"Warning: {message}"), file=sys.stderr)
        for folder in run_folders(folders):  # one that cannot be sent keeps no other back
            try:
                options = {**options_of(folder), **chosen}  # else its own, else of conf/logger/wandb.yaml
                account = Account(options["project"], options["entity"], options["mode"], options["timeout"])
                code = code if send_run(folder, account, options["tags"], options["checkpoints"]) else 2
            except Refusal as refusal:
                print(refusal, file=sys.stderr)
                code = 2
    return code


def report_tensorboard(arguments: Sequence[str]) -> int:
    from cl_lightning.loggers.tensorboard import TensorBoard

    what = "Write the folder tensorboard of runs anew: finished or killed ones, and those logged elsewhere."
    for folder in run_folders(parser_of_runs("tensorboard", what, needed=True).parse_args(arguments).folders):
        TensorBoard(folder).close("success")
        print(f"TensorBoard: {folder / 'tensorboard'}")
    return 0
