"""The devices that a run asks for, and the one on which a rank trains."""

from __future__ import annotations

from typing import Literal

import torch

from cl_lightning.config.settings import Training
from cl_lightning.errors import Refusal
from cl_lightning.parallel.ranks import Ranks


def accelerator_of(name: str) -> str:
    """The accelerator that a name stands for on this machine: ``auto`` is cuda where there is one.

    >>> accelerator_of("cpu"), accelerator_of("gpu")
    ('cpu', 'cuda')
    """
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return "cuda" if name == "gpu" else name


def device_of(settings: Training, ranks: Ranks | None = None) -> torch.device:
    """The device on which this rank trains."""
    kind = accelerator_of(settings.accelerator)
    there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not there[kind]:
        known = ", ".join(name for name, is_there in there.items() if is_there)
        raise Refusal(
            f"trainer.accelerator={settings.accelerator} is not on this machine, or this torch was built "
            f"without it. Here there is: {known}."
        )
    index = (ranks or Ranks()).local_rank
    return torch.device(kind, index % torch.cuda.device_count()) if kind == "cuda" else torch.device(kind)


def count_of(devices: int | Literal["auto"], accelerator: str) -> int:
    """How many devices ``trainer.devices`` asks for."""
    kind = accelerator_of(accelerator)
    if devices == 1:  # whether it is there is seen where it is used
        return 1
    there = torch.cuda.device_count() if kind == "cuda" else 1
    if devices == "auto":
        return there
    if devices > there and kind != "cpu":
        raise Refusal(
            f"trainer.devices={devices}, but trainer.accelerator={accelerator} has {there} here. Ask for "
            "fewer, or use trainer.accelerator=cpu, which takes any number of processes."
        )
    return devices
