"""Sweepers: ``cl_grid``, as Hydra's own, with an eye on its jobs; ``cl_stream_level``, which chooses among
whole streams; and ``cl_task_level``, whose jobs share a task's candidates."""

# No "from __future__ import annotations": Hydra loads this file without registering it, and dataclasses look
# their module up for it.

from dataclasses import dataclass, field
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.plugins import Plugins
from hydra.plugins.sweeper import Sweeper


@dataclass
class GridConf:
    _target_: str = "hydra_plugins.cl_lightning.sweepers.Grid"
    max_batch_size: int | None = None
    params: dict[str, Any] | None = field(default_factory=dict)


@dataclass
class StreamLevelConf(GridConf):
    _target_: str = "hydra_plugins.cl_lightning.sweepers.StreamLevel"


@dataclass
class TaskLevelConf(GridConf):
    _target_: str = "hydra_plugins.cl_lightning.sweepers.TaskLevel"


SWEEPERS = (("cl_grid", GridConf), ("cl_stream_level", StreamLevelConf), ("cl_task_level", TaskLevelConf))
JOBLIBS = (".JoblibLauncher", ".Devices")  # launchers whose jobs run in joblib's workers
for name, node in SWEEPERS:
    ConfigStore.instance().store(group="hydra/sweeper", name=name, node=node, provider="cl_lightning")


class Grid(Sweeper):
    """Every combination of the values on the command line."""

    def __init__(self, max_batch_size: int | None = None, params: Any = None, **others: Any) -> None:
        self.max_batch_size, self.params = max_batch_size, params or {}
        self.others = others  # settings of another sweeper, as of hydra/sweeper=optuna

    def setup(self, **given: Any) -> None:
        from cl_lightning.cli.launching import WatchedLauncher
        from cl_lightning.cli.search import refuse_another_sweeper
        from cl_lightning.parallel.rendezvous import refuse_several
        from cl_lightning.parallel.slots import OfOneSweep

        refuse_several("A sweep")
        refuse_another_sweeper(self.others)
        if str(given["config"].hydra.launcher._target_).endswith(JOBLIBS):
            given["task_function"] = OfOneSweep(given["task_function"])
        self.hydra_context, self.config = given["hydra_context"], given["config"]
        launcher = Plugins.instance().instantiate_launcher(**given)
        self.launcher: Any = WatchedLauncher(launcher, self.config)

    def sweep(self, arguments: list[str]) -> Any:
        from cl_lightning.cli.sweeps import sweep_grid

        return sweep_grid(self, arguments)


class TaskLevel(Grid):
    """Every combination, each in rounds: a task's candidates are trained by several jobs."""

    def sweep(self, arguments: list[str]) -> Any:
        from cl_lightning.cli.rounds import sweep_rounds

        return sweep_rounds(self, arguments)


class StreamLevel(Grid):
    """Every combination, for each point of the outer grid ``selection.stream``; the best point is chosen by
    validation data."""

    def sweep(self, arguments: list[str]) -> Any:
        from cl_lightning.cli.search import sweep_streams

        return sweep_streams(self, arguments)
