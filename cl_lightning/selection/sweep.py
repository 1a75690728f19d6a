"""Sweeps of Hydra, as a job in one sees them."""

from __future__ import annotations

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode


def in_a_sweep() -> bool:
    """Whether this is a job of a multirun."""
    return HydraConfig.initialized() and HydraConfig.get().mode == RunMode.MULTIRUN


def sweeper_that_chooses() -> str | None:
    """Inside a job of a sweep: the sweeper's class where it may choose by what runs return, as all but
    Hydra's own do."""
    if not in_a_sweep():
        return None
    target = str(HydraConfig.get().sweeper._target_)
    return None if target.endswith(".BasicSweeper") else target
