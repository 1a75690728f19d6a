"""Networks as ordered, named modules."""

from cl_lightning.backbones.base import Backbone, ByTask, PathModule, TaskHeads, TaskInputs
from cl_lightning.backbones.bayesian import Bayesian
from cl_lightning.backbones.conv import CNN, CONV, AlexNet
from cl_lightning.backbones.mlp import LWTA, MLP
from cl_lightning.backbones.resnet import ResNet, ResNet18

__all__ = [
    "CNN",
    "CONV",
    "LWTA",
    "MLP",
    "AlexNet",
    "Backbone",
    "Bayesian",
    "ByTask",
    "PathModule",
    "ResNet",
    "ResNet18",
    "TaskHeads",
    "TaskInputs",
]
