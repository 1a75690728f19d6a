"""Networks as ordered, named modules."""

from cl_lightning.backbones.base import Backbone, ByTask, PathModule, TaskHeads, TaskInputs
from cl_lightning.backbones.conv import CONV, AlexNet
from cl_lightning.backbones.mlp import LWTA, MLP
from cl_lightning.backbones.resnet import ResNet, ResNet18

__all__ = [
    "CONV",
    "LWTA",
    "MLP",
    "AlexNet",
    "Backbone",
    "ByTask",
    "PathModule",
    "ResNet",
    "ResNet18",
    "TaskHeads",
    "TaskInputs",
]
