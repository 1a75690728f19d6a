"""Sweeps of Hydra, as a job in one sees them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.experimental.callback import Callback
from hydra.types import RunMode
from omegaconf import DictConfig, open_dict

from cl_lightning.errors import Refusal
from cl_lightning.store.whole import write_whole

OURS = "hydra_plugins.cl_lightning."
GOING_THROUGH = (f"{OURS}sweepers.Grid", f"{OURS}sweepers.TaskLevel")  # a grid: these choose among no runs
JOBS = "jobs"  # in a sweep's folder: where each job says which run it is


class OneFolder(Callback):
    """The sweep tells its jobs its folder: by their own arguments they would name another."""

    def on_multirun_start(self, config: DictConfig, **_: Any) -> None:
        folder = str(Path(config.hydra.sweep.dir).resolve())
        with open_dict(config):
            config.hydra.overrides.hydra.append(f"hydra.sweep.dir={as_override(folder)}")


def as_override(value: Any) -> str:
    """
    >>> as_override([1, 2]), as_override("a=ü"), as_override(None)
    ('[1, 2]', '"a=ü"', 'null')
    """
    return json.dumps(value, ensure_ascii=False)


def in_a_sweep() -> bool:
    """Whether this is a job of a multirun."""
    return HydraConfig.initialized() and HydraConfig.get().mode == RunMode.MULTIRUN


def sweeper_that_chooses() -> str | None:
    """Inside a job of a sweep: what may choose by what runs return, as all sweepers do but those that only go
    through a grid."""
    if not in_a_sweep():
        return None
    target = str(HydraConfig.get().sweeper._target_)
    if target == f"{OURS}sweepers.StreamLevel":
        return "selection=stream_level"
    return None if target.endswith(".BasicSweeper") or target in GOING_THROUGH else target


def check_direction() -> None:
    """Refuse Optuna where it would look for the lowest accuracy, as it does when it is told nothing."""
    if in_a_sweep() and "optuna" in str(HydraConfig.get().sweeper._target_):
        direction = HydraConfig.get().sweeper.get("direction")
        if getattr(direction, "name", direction) != "maximize":
            raise Refusal(
                "hydra/sweeper=optuna looks for the lowest value, and a run returns its validation accuracy. "
                "Add hydra.sweeper.direction=maximize."
            )


def tell_folder(folder: Path) -> None:
    """Say which run a sweep's job is, so that the sweep can look on; outside of sweeps, nothing."""
    tell_job({"folder": str(folder.resolve())})


def tell_end(value: float | None) -> None:
    """Say at once that a sweep's job is done, and what it returns; outside of sweeps, nothing."""
    tell_job({"done": True, "value": value})


def tell_failure(said: str) -> None:
    """Say at once why a sweep's job failed; outside of sweeps, nothing."""
    tell_job({"failed": said})


def tell_job(about: dict[str, Any]) -> None:
    if in_a_sweep() and str(HydraConfig.get().sweeper._target_).startswith(OURS):
        hydra = HydraConfig.get()
        sweep, number = Path(hydra.sweep.dir), hydra.job.num
        write_job(sweep, number, {**read_job(sweep, number), **about})


def write_job(sweep: Path, number: int, about: dict[str, Any]) -> None:
    with write_whole(sweep / JOBS / f"{number}.json") as building:
        building.write_text(json.dumps(about))


def read_job(sweep: Path, number: int) -> dict[str, Any]:
    """What a job has said of itself: the ``folder`` of its run when it has begun, then that it is ``done``
    with its ``value``, or why it ``failed``."""
    return read_job_file(sweep / JOBS / f"{number}.json")


def read_jobs(sweep: Path) -> list[dict[str, Any]]:
    """What the jobs of a sweep have said of themselves."""
    return [read_job_file(path) for path in (sweep / JOBS).glob("*.json")]


def read_job_file(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        return {}
