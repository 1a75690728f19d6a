"""A run of Weights & Biases."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from pytorch_lightning.loggers import Logger, WandbLogger

from cl_lightning.checking import Positive, Text


def open_wandb(
    folder: Path,
    run: dict,
    project: Text,
    entity: Text | None,
    mode: Literal["online", "offline"],
    tags: list[Text],
    timeout: Positive,
    say: Callable[[str], None] = print,
) -> Logger:
    """A W&B run: online with credentials and network, else offline with one line that says so. Never asks,
    never waits long."""
    import wandb

    settings = wandb.Settings(silent=True, init_timeout=timeout)
    options: dict[str, Any] = {
        "project": project,
        "entity": entity,
        "dir": folder,
        "id": f"{folder.parent.name}-{folder.name}",
        "resume": "allow",
        "name": f"{run['name']}/{folder.parent.name}/s{run['seed']}",
        "group": f"{run['name']}/{folder.name.rpartition('-')[0]}",
        "tags": tags,
        "config": run,
        "settings": settings,
    }
    if mode == "online":
        reason = "no credentials"
        try:
            if wandb.login(prompt=False, timeout=int(timeout)):
                return WandbLogger(experiment=wandb.init(mode="online", **options))
        except wandb.errors.Error as error:
            reason = type(error).__name__
        say(
            f"W&B: {reason}, so this run is logged offline. Send it later with: wandb sync "
            f"{folder / 'wandb'}/offline-run-*"
        )
        mode = "offline"
    return WandbLogger(experiment=wandb.init(mode=mode, **options), offline=mode == "offline")
