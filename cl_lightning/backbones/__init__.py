"""Networks as ordered, named modules."""

from cl_lightning.backbones.mlp import MLP, Backbone, TaskHeads

__all__ = ["MLP", "Backbone", "TaskHeads"]
