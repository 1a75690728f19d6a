"""Devices for the jobs of ``hydra/launcher=devices``: each worker holds one for its lifetime."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from time import sleep
from typing import Any, Literal

from filelock import FileLock, Timeout

from cl_lightning.errors import Refusal

CPU = "cpu"  # the beginning of the names of places on it
SEEN = "CUDA_VISIBLE_DEVICES"  # CUDA reads it once a process
_held: list[ExitStack] = []  # a worker's device, until it ends
_following: list[Thread] = []  # what ends a worker


def slots(devices: int | Literal["auto"]) -> tuple[list[str], int]:
    """The names of the devices that jobs are given, and how many of them a sweep takes: CUDA's numbers where
    there are any, else places on the CPU."""
    if devices != "auto" and not (isinstance(devices, int) and devices > 0):
        raise Refusal(f"hydra.launcher.devices={devices} is no number of devices. Give one, or auto.")
    visible = os.environ.get(SEEN)
    if visible is not None:  # empty: all are hidden
        there = [name for name in visible.split(",") if name]
    else:
        import torch  # late: the command line starts without it

        there = [str(number) for number in range(torch.cuda.device_count())]
    if devices == "auto":
        there = there or [f"{CPU}0"]
        return there, len(there)
    if there and devices > len(there):
        raise Refusal(f"hydra.launcher.devices={devices}, but there are {len(there)}: {', '.join(there)}.")
    return there or [f"{CPU}{number}" for number in range(devices)], devices


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
    sweep: int = field(default_factory=os.getpid)  # the process that starts the workers

    def __call__(self, cfg: Any) -> Any:
        if os.getpid() == self.sweep:  # where one worker is enough, joblib starts none
            with device_lock(self.devices) as device:
                self.devices = [device]  # CUDA stays on it
                return self.job(cfg)
        if not _held:
            _held.append(ExitStack())
            _held[0].enter_context(device_lock(self.devices))
        return self.job(cfg)


@dataclass
class OfOneSweep:
    """A job in a worker of joblib's, which ends when its sweep was killed: it would hold its memory and its
    device, and wait for jobs."""

    job: Callable[[Any], Any]
    sweep: int = field(default_factory=os.getpid)  # the process that starts the workers

    def __call__(self, cfg: Any) -> Any:
        if os.getppid() == self.sweep and not _following:
            _following.append(Thread(target=end_with, args=(self.sweep,), daemon=True))
            _following[0].start()
        return self.job(cfg)


def end_with(sweep: int) -> None:
    while os.getppid() == sweep:
        sleep(0.5)
    os._exit(1)


@contextmanager
def device_lock(devices: Sequence[str]) -> Iterator[str]:
    """Hold one of these devices, and make it the only one that CUDA sees; wait while other sweeps have them
    all."""
    folder = folder_of_locks()
    lock, device = first_free(folder, devices)
    visible, holder = os.environ.get(SEEN), holder_of(folder, device)
    if not device.startswith(CPU):
        os.environ[SEEN] = device
    try:
        with suppress(OSError):  # it is only told
            holder.write_text(str(os.getpid()))
        yield device
    finally:
        holder.unlink(missing_ok=True)
        lock.release()
        if visible is not None:
            os.environ[SEEN] = visible
        elif not device.startswith(CPU):
            del os.environ[SEEN]


def folder_of_locks() -> Path:
    """Where devices are locked: for all users of a machine, and for a job of Slurm's alone, which calls the
    devices that it is given 0, 1 and so on, as others call theirs."""
    job = os.environ.get("SLURM_JOB_ID")
    folder = Path(tempfile.gettempdir()) / f"cl_lightning-devices{f'-{job}' if job else ''}"
    folder.mkdir(exist_ok=True)
    with suppress(PermissionError):  # it is another user's, who has done so
        folder.chmod(0o1777)  # devices are the machine's: all its users share the locks
    return folder


def first_free(folder: Path, devices: Sequence[str]) -> tuple[FileLock, str]:
    """The lock of a device that nobody else holds."""
    told = False
    while True:
        for device in devices:
            lock = FileLock(folder / f"{device.replace('/', '_')}.lock", mode=0o666)
            with suppress(Timeout):
                lock.acquire(timeout=0)
                return lock, device
        if not told:
            held = ", ".join(f"{device} (process {read(holder_of(folder, device))})" for device in devices)
            print(f"Waits for a device: other sweeps hold {held}.", file=sys.stderr)
            told = True
        sleep(0.5)


def holder_of(folder: Path, device: str) -> Path:
    """The file that says which process holds a device."""
    return folder / f"{device.replace('/', '_')}.holder"


def read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return "unknown"
