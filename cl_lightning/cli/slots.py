"""Devices for the jobs of ``hydra/launcher=devices``: each worker holds one for its lifetime."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import sleep
from typing import Any, Literal

from filelock import FileLock, Timeout

from cl_lightning.errors import Refusal

HELD = "CL_LIGHTNING_DEVICE"  # the device that this worker holds
CPU = "cpu"  # the beginning of the names of places on it
_locks: list[FileLock] = []  # of this process, until it ends


def slots(devices: int | Literal["auto"]) -> list[str]:
    """The names of the devices that jobs are given: CUDA's numbers where there are any, else places on the
    CPU."""
    if devices != "auto" and not (isinstance(devices, int) and devices > 0):
        raise Refusal(f"hydra.launcher.devices={devices} is no number of devices. Give one, or auto.")
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:  # empty: all are hidden
        there = [name for name in visible.split(",") if name]
    else:
        import torch  # late: the command line starts without it

        there = [str(number) for number in range(torch.cuda.device_count())]
    if devices == "auto":
        return there or [f"{CPU}0"]
    if there and devices > len(there):
        raise Refusal(f"hydra.launcher.devices={devices}, but there are {len(there)}: {', '.join(there)}.")
    return there[:devices] or [f"{CPU}{number}" for number in range(devices)]


def workers(count: int) -> Any:
    """Hydra's launcher for joblib with so many workers."""
    try:
        from hydra_plugins.hydra_joblib_launcher.joblib_launcher import JoblibLauncher
    except ImportError as reason:
        raise Refusal(
            "hydra/launcher=devices starts joblib's workers, which are not installed: "
            "pip install 'cl_lightning[joblib]'."
        ) from reason
    return JoblibLauncher(n_jobs=count, batch_size=1, pre_dispatch=count)


@dataclass
class OnOneDevice:
    """A job on the device that its worker holds."""

    job: Callable[[Any], Any]
    devices: Sequence[str]

    def __call__(self, cfg: Any) -> Any:
        if HELD not in os.environ:
            take(self.devices)
        return self.job(cfg)


def take(devices: Sequence[str]) -> str:
    """Hold one of these devices until this process ends, and make it the only one that CUDA sees; wait while
    other sweeps have them all. CUDA reads its variable once, so a worker keeps its device."""
    folder = Path(tempfile.gettempdir()) / "cl_lightning-devices"
    folder.mkdir(exist_ok=True)
    with suppress(PermissionError):  # it is another user's, who has done so
        folder.chmod(0o1777)  # devices are the machine's: all its users share the locks
    waits = False
    while True:
        for device in devices:
            lock = FileLock(folder / f"{device.replace('/', '_')}.lock", mode=0o666)
            try:
                lock.acquire(timeout=0)
            except Timeout:
                continue
            _locks.append(lock)
            os.environ[HELD] = device
            if not device.startswith(CPU):
                os.environ["CUDA_VISIBLE_DEVICES"] = device
            return device
        if not waits:
            print(f"Waits for a device: {', '.join(devices)} are held by other sweeps.", file=sys.stderr)
            waits = True
        sleep(0.5)
