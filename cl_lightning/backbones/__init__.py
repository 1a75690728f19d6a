"""Networks as ordered, named modules."""

from cl_lightning.backbones.base import Backbone, ByTask, Stage, TaskHeads, TaskInputs
from cl_lightning.backbones.mlp import LWTA, MLP
from cl_lightning.backbones.resnet import ResNet, ResNet18

__all__ = ["LWTA", "MLP", "Backbone", "ByTask", "ResNet", "ResNet18", "Stage", "TaskHeads", "TaskInputs"]
