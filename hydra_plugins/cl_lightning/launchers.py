"""A launcher: ``devices`` runs the jobs of a sweep on this machine, one a device at a time."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.utils import JobReturn
from hydra.plugins.launcher import Launcher


@dataclass
class DevicesConf:
    _target_: str = "hydra_plugins.cl_lightning.launchers.Devices"
    devices: Any = "auto"  # how many; auto: all CUDA devices, 1 where there are none


ConfigStore.instance().store(
    group="hydra/launcher", name="devices", node=DevicesConf, provider="cl_lightning"
)


class Devices(Launcher):
    """Joblib's workers, each of which holds one device for its lifetime."""

    def __init__(self, devices: Any = "auto") -> None:
        self.devices, self.workers = devices, None

    def setup(self, *, hydra_context: Any, task_function: Any, config: Any) -> None:
        from cl_lightning.parallel.slots import OnOneDevice, slots, workers

        found, count = slots(self.devices)
        self.workers = workers(count)
        job = OnOneDevice(task_function, found)
        self.workers.setup(hydra_context=hydra_context, task_function=job, config=config)

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        return self.workers.launch(job_overrides, initial_job_idx)
