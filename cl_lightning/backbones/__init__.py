"""Networks as ordered, named modules."""

from cl_lightning.backbones.base import Backbone, ByTask, Stage, TaskHeads, TaskInputs
from cl_lightning.backbones.mlp import LWTA, MLP

__all__ = ["LWTA", "MLP", "Backbone", "ByTask", "Stage", "TaskHeads", "TaskInputs"]
