"""Lightning callbacks that also hear of tasks."""

from cl_lightning.callbacks.base import StreamCallback

__all__ = ["StreamCallback"]
