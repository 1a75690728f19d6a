"""Sweeps of Hydra, as a job in one sees them."""

from __future__ import annotations

import json
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode

from cl_lightning.store.whole import write_whole

OURS = "hydra_plugins.cl_lightning."
GOING_THROUGH = (f"{OURS}sweepers.Grid", f"{OURS}sweepers.TaskLevel")  # a grid: these choose among no runs
JOBS = "jobs"  # in a sweep's folder: where each job says which run it is


def in_a_sweep() -> bool:
    """Whether this is a job of a multirun."""
    return HydraConfig.initialized() and HydraConfig.get().mode == RunMode.MULTIRUN


def sweeper_that_chooses() -> str | None:
    """Inside a job of a sweep: the sweeper's class where it may choose by what runs return, as all but those
    do that only go through a grid."""
    if not in_a_sweep():
        return None
    target = str(HydraConfig.get().sweeper._target_)
    return None if target.endswith(".BasicSweeper") or target in GOING_THROUGH else target


def tell_folder(folder: Path) -> None:
    """Say which run a sweep's job is, so that the sweep can look on; outside of sweeps, nothing."""
    tell_job({"folder": str(folder.resolve())})


def tell_end() -> None:
    """Say at once that a sweep's job is done; outside of sweeps, nothing."""
    tell_job({"done": "done"})


def tell_failure(said: str) -> None:
    """Say at once why a sweep's job failed; outside of sweeps, nothing."""
    tell_job({"failed": said})


def tell_job(about: dict[str, str]) -> None:
    if in_a_sweep() and str(HydraConfig.get().sweeper._target_).startswith(OURS):
        hydra = HydraConfig.get()
        with write_whole(Path(hydra.sweep.dir) / JOBS / f"{hydra.job.num}.json") as building:
            building.write_text(json.dumps({**read_job(Path(hydra.sweep.dir), hydra.job.num), **about}))


def read_job(sweep: Path, number: int) -> dict[str, str]:
    """What a job has said of itself."""
    try:
        return json.loads((sweep / JOBS / f"{number}.json").read_text())
    except (OSError, ValueError):
        return {}
